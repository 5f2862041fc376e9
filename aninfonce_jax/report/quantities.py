"""Amounts of bytes, work, time and devices, in the unit that suits them."""

from collections.abc import Sequence

_MISSING = "–"


def size(amount: float | None) -> str:
    """Bytes, such as "15.75 GiB"."""
    if amount is None:
        return _MISSING
    value = float(amount)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} bytes" if unit == "bytes" else f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:,.3g} TiB"


def count(amount: float) -> str:
    """A number with the prefix that its unit is to have, such as "13.7 T"."""
    for prefix in ("", "k", "M", "G", "T"):
        if amount < 1000:
            return f"{amount:.3g} {prefix}"
        amount /= 1000
    return f"{amount:,.3g} P"


def group(axes: Sequence[str], devices: int) -> str:
    """Devices along axes of a mesh, such as "slices × data (16 devices)"."""
    return f"{' × '.join(axes)} ({devices} devices)" if axes else f"{devices} devices"


def number(amount: float) -> str:
    """A number without more digits than it is worth."""
    return f"{amount:,.0f}" if amount >= 10 else f"{amount:.2g}"


def duration(seconds: float | None) -> str:
    """A time, such as "216 ms" or "3.5 h"."""
    if seconds is None:
        return _MISSING
    units = ((1e-3, 1e-6, "µs"), (1, 1e-3, "ms"), (120, 1, "s"), (7200, 60, "min"))
    for limit, unit, name in units:
        if seconds < limit:
            return f"{seconds / unit:.3g} {name}"
    hours = seconds / 3600
    return f"{hours:.3g} h" if hours < 96 else f"{hours / 24:,.3g} days"
