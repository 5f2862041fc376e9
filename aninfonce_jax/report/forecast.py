"""The page of a forecast: what runs would take on machines that are not at hand.

Made from `compile.json` alone, so that it can be made again.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.files import write_bytes
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.report.figures import COLORS
from aninfonce_jax.report.panels import STYLE, Chart, Key, overview_chart
from aninfonce_jax.report.quantities import count, duration, group, number, size
from aninfonce_jax.report.templates import templates

_GIB = 2**30
# Parts of a chip's memory, with the colour of each.
_MEMORY = {
    "parameters": ("parameters", "run-1"),
    "optimizer": ("optimiser", "run-2"),
    "batch": ("batch", "run-3"),
    "loss": ("loss", "run-5"),
    "activations": ("activations and the rest", "run-4"),
}
_BOUNDS = {
    "compute": ("arithmetic", "run-1"),
    "memory": ("HBM", "run-2"),
    "links": ("links between chips", "run-3"),
    "network": ("network between nodes", "run-5"),
}
_BAR = 0.62


@dataclasses.dataclass(frozen=True)
class Row:
    """What the page says of one run on one topology.

    Attributes:
      label: which.
      found: what is known of it.
      cells: heading -> text.
      verdict: a sentence.
    """

    label: str
    found: Mapping[str, Any]
    cells: Mapping[str, str]
    verdict: str


def write_forecast(folder: AnyPath) -> AnyPath:
    """Writes `compile.html`, and its figures as PNG and SVG, from a folder's `compile.json`.

    Returns:
      The path of the page, which needs no other file.

    Raises:
      WorkdirError: there is no such file, or it is damaged.
    """
    values = workdir_lib.read_forecasts(folder)
    rows = [_row(found, values["forecasts"]) for found in values["forecasts"]]
    figures = folder / workdir_lib.FIGURES_FOLDER
    figures.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        charts = [chart for chart in (_memory_chart(rows, figures), _bounds_chart(rows, figures))
                  if chart is not None]  # fmt: skip
    page = (
        templates()
        .get_template("forecast.html")
        .render(
            rows=rows,
            headings=list(rows[0].cells) if rows else [],
            charts={chart.name: chart for chart in charts},
            numbers={chart.name: place for place, chart in enumerate(charts, start=1)},
            notes=list(dict.fromkeys(note for row in rows for note in row.found["notes"])),
            machines=_machines(rows),
            collectives=_collectives,
            remedies=_remedies,
            versions=values["versions"],
            colors=COLORS,
            labels=[row.label for row in rows],
        )
    )
    return write_bytes(folder / workdir_lib.COMPILE_PAGE, page.encode())


def _row(found: Mapping[str, Any], everything: Sequence[Mapping[str, Any]]) -> Row:
    several = len({other["run"] for other in everything}) > 1
    name = found["topology"]["name"]
    label = f"{found['run']}, {name}" if several else name
    memory, bounds = found["memory"], found["bounds"]
    at_least = "≥ " if memory["activations"] is None else ""
    cells = {
        "fits": "yes" if found["fits"] else "no",
        "memory": f"{at_least}{size(memory['total'])} of {size(memory['usable'])}",
        "arithmetic": f"{count(sum(found['flops'].values()))}FLOP",
        "HBM moved": size(found["moved"]),
        "sent": size(sum(one["sent"] for one in found["collectives"])) if bounds else "–",
        "bound by": _BOUNDS[bounds["by"]][0] if bounds else "–",
        "step": _span(found["step_seconds"], duration),
        "epoch": _span(found["epoch_seconds"], duration),
        "whole run": _span(found["run_hours"], lambda hours: duration(3600 * hours)),
        "chip-hours": _span(found["chip_hours"], number),
        "largest batch": _largest(found["largest_batch"]),
    }
    return Row(label, found, cells, _verdict(found))


def _span(ends: Sequence[float] | None, form: Any) -> str:
    return "–" if ends is None else f"{form(ends[0])} to {form(ends[1])}"


def _largest(largest: Mapping[str, Any] | None) -> str:
    if largest is None or not largest["is_searched"]:
        return "not searched"
    more = "" if largest["does_not_fit"] else " or more"
    return f"{largest['fits']:,}{more}"


def _verdict(found: Mapping[str, Any]) -> str:
    memory, name = found["memory"], found["topology"]["name"]
    of = f"{size(memory['total'])} of {size(memory['usable'])} a device"
    if not found["fits"]:
        ways = [one["what"] for one in found["remedies"] if one["fits"]]
        advice = f" {ways[0]} makes it fit." if ways else ""
        least = "at least " if memory["activations"] is None else ""
        return f"{name}: {found['run']} does not fit ({least}{of}).{advice}"
    hours = _span(found["chip_hours"], number)
    return (
        f"{name}: {found['run']} fits ({of}) and is bound by "
        f"{_BOUNDS[found['bounds']['by']][0]}; {found['steps']:,} steps take {hours} chip-hours."
    )


def _memory_chart(rows: Sequence[Row], folder: AnyPath) -> Chart:
    keys = [Key(name, color, "box") for name, color in _MEMORY.values()]
    keys += [Key("not told apart", "muted", "box"), Key("what there is", "ink", "tick")]
    draw = functools.partial(_draw_memory, rows=rows)
    return _bars("forecast-memory", "Memory of a device", keys, draw, rows, folder)


def _draw_memory(ax: Axes, rows: Sequence[Row]) -> None:
    for place, row in enumerate(rows):
        memory = row.found["memory"]
        if memory["activations"] is None:
            ax.barh(place, memory["total"] / _GIB, _BAR, color=COLORS["muted"])
        left = 0.0
        for key, (_, color) in _MEMORY.items() if memory["activations"] is not None else ():
            ax.barh(place, memory[key] / _GIB, _BAR, left=left, color=COLORS[color])
            left += memory[key] / _GIB
        ends = (place - _BAR / 2, place + _BAR / 2)
        ax.vlines(memory["usable"] / _GIB, *ends, color=COLORS["ink"], lw=2)
    ax.set_xlabel("GiB")
    ax.set_xlim(0)
    _name_rows(ax, rows)


def _bounds_chart(rows: Sequence[Row], folder: AnyPath) -> Chart | None:
    known = [row for row in rows if row.found["bounds"] is not None]
    if not known:
        return None
    used = {key for row in known for key in _BOUNDS if row.found["bounds"][key] > 0}
    keys = [Key(name, color, "box") for key, (name, color) in _BOUNDS.items() if key in used]
    draw = functools.partial(_draw_bounds, rows=known, used=used)
    return _bars("forecast-bounds", "What bounds a step", keys, draw, known, folder)


def _draw_bounds(ax: Axes, rows: Sequence[Row], used: set[str]) -> None:
    parts = [key for key in _BOUNDS if key in used]
    height = _BAR / len(parts)
    for place, row in enumerate(rows):
        for index, key in enumerate(parts):
            at = place + (index - (len(parts) - 1) / 2) * height
            milliseconds = 1e3 * row.found["bounds"][key]
            ax.barh(at, milliseconds, 0.9 * height, color=COLORS[_BOUNDS[key][1]])
    ax.set_xlabel("milliseconds at the published peak")
    _name_rows(ax, rows)


def _name_rows(ax: Axes, rows: Sequence[Row]) -> None:
    ax.set_yticks(range(len(rows)), [row.label for row in rows])
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")


def _bars(
    name: str, title: str, keys: list[Key], draw: Any, rows: Sequence[Row], folder: AnyPath
) -> Chart:
    height = 0.9 + 0.5 * len(rows)
    note = "; ".join(row.verdict for row in rows)
    return overview_chart(
        name, title, keys, ((9.0, height), draw), ((3.9, height), draw), folder, note
    )


def _collectives(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            one["kind"],
            f"{one['count']:,}",
            group(one["axes"], one["group"]),
            size(one["bytes"]),
            size(one["sent"]),
            "asynchronous" if one["is_async"] else "blocking",
        )
        for one in found["collectives"]
    ]


def _remedies(found: Mapping[str, Any]) -> list[tuple[str, ...]]:
    return [
        (
            one["what"],
            "yes" if one["fits"] else "no",
            size(one["memory"]["total"]),
            duration(one["step_seconds"]),
            "–" if one["chip_seconds"] is None else f"{one['chip_seconds']:.3g}",
            f"{count(one['flops'])}FLOP",
            size(one["sent"]),
            one["price"],
        )
        for one in found["remedies"]
    ]


def _machines(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """What the numbers are relative to, a row per kind of chip."""
    found = {}
    for row in rows:
        machine = row.found["topology"]
        peaks = machine["flops_per_second"]
        found[machine["title"]] = (
            machine["title"],
            f"{count(peaks['bfloat16'])}FLOP/s",
            f"{count(peaks['float32'])}FLOP/s",
            f"{count(peaks['highest'])}FLOP/s",
            size(machine["memory"]),
            f"{count(machine['bandwidth'])}B/s",
            f"{count(machine['links'])}B/s",
            f"{count(machine['network'])}B/s" if machine["network"] else "–",
            machine["source"],
        )
    return list(found.values())
