"""One value of a configuration: from text or from Python, checked against its field.

Everything here answers in one line that names the key, what was expected and what came,
however long, strange or hostile the value is.
"""

import dataclasses
import difflib
import math
import numbers
import struct
import typing
from typing import Any, Literal

from aninfonce_jax.cli import printable
from aninfonce_jax.config.fields import Range
from aninfonce_jax.config.schema import ConfigError

_SHOWN_CHARACTERS = 80
# Longer texts are no names or paths, and the files that they would be written to have limits.
_MOST_CHARACTERS = 4096
_TRUE = ("true", "t", "yes", "1")
_FALSE = ("false", "f", "no", "0")


def shown(value: object) -> str:
    """Returns a value as one short line of plain text, whatever it is."""
    try:
        text = repr(value)
    except Exception:  # a number too long to print, a `__repr__` that fails
        text = f"a value of type {type(value).__name__} that can't be printed"
    if len(text) > _SHOWN_CHARACTERS:
        half = _SHOWN_CHARACTERS // 2
        text = f"{text[:half]}…{text[-half:]} ({len(text):,} characters)"
    return printable(text)


def nearest(name: str, known: list[str]) -> str:
    """Returns what to suggest in place of an unknown name."""
    # Longer ones are no typos, and comparing them would take its time.
    close = difflib.get_close_matches(name[:200], known, n=1, cutoff=0.75)
    if close:
        return f"did you mean {close[0]!r}?"
    if len(known) > 20:
        return "--help lists all keys"
    return f"known keys: {', '.join(sorted(known))}"


def type_name(expected: Any) -> str:
    """Returns how a field's type is called in messages and in the help."""
    origin = typing.get_origin(expected)
    if origin is Literal:
        return "|".join(typing.get_args(expected))
    if origin is tuple:
        return f"tuple of {type_name(typing.get_args(expected)[0])}"
    return str(expected.__name__)


def read_text(name: str, expected: Any, text: str) -> Any:
    """Returns the value that `--config.NAME=TEXT` gives a field of a type, not yet checked.

    A tuple is written as (8,16), [8,16], 8,16 or 8; nothing or () is the empty one.
    """
    if typing.get_origin(expected) is tuple:
        item = typing.get_args(expected)[0]
        items = enumerate(_split_tuple(text))
        return tuple(_read(f"{name}[{i}]", item, x) for i, x in items)
    return _read(name, expected, text)


def parse_value(name: str, field: dataclasses.Field[Any], value: Any) -> Any:
    """Returns a value that a config file gives a field, as plain Python, checked."""
    limits: Range | None = field.metadata["range"]
    if typing.get_origin(field.type) is tuple:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"config.{name} must be a tuple, got {shown(value)}")
        check_length(name, field, value)
        item = typing.get_args(field.type)[0]
        return tuple(_parse_one(f"{name}[{i}]", item, limits, x) for i, x in enumerate(value))
    return _parse_one(name, field.type, limits, value)


def check_length(
    name: str, field: dataclasses.Field[Any], values: list[Any] | tuple[Any, ...]
) -> None:
    """Raises ConfigError if there are more items than a field may hold."""
    most = field.metadata["max_items"]
    if len(values) > most:
        raise ConfigError(f"config.{name} must have at most {most} items, got {len(values)}")


def _parse_one(name: str, expected: Any, limits: Range | None, value: Any) -> Any:
    if typing.get_origin(expected) is Literal:
        options = typing.get_args(expected)
        if not isinstance(value, str) or value not in options:
            raise ConfigError(
                f"config.{name} must be one of {', '.join(map(repr, options))}; got {shown(value)}"
            )
        return str(value)
    if expected is str and isinstance(value, str):
        return _checked_text(name, str(value))
    if expected is bool and isinstance(value, bool):
        return value
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if expected is int and is_number and isinstance(value, numbers.Integral):
        return _in_range(name, limits, int(value))
    if expected is float and is_number:
        return _in_range(name, limits, _as_float(name, value))
    raise ConfigError(
        f"config.{name} must be of type {expected.__name__}, "
        f"got {shown(value)} of type {type(value).__name__}"
    )


def _read(name: str, expected: Any, text: str) -> Any:
    """Returns what a text says, for a type that is no tuple."""
    try:
        if expected is int:
            return int(text)
        if expected is float:
            return float(text)
    except ValueError:
        kind = "a whole number" if expected is int else "a number"
        raise ConfigError(f"config.{name} must be {kind}, got {shown(text)}") from None
    if expected is bool:
        word = text.strip().lower()
        if word not in _TRUE + _FALSE:
            raise ConfigError(f"config.{name} must be true or false, got {shown(text)}")
        return word in _TRUE
    return text


def _split_tuple(text: str) -> list[str]:
    inner = text.strip()
    for opening, closing in ("()", "[]"):
        if len(inner) > 1 and inner.startswith(opening) and inner.endswith(closing):
            inner = inner[1:-1].strip()
            break
    items = [item.strip() for item in inner.split(",")]
    if items[-1] == "":  # nothing at all, or a comma at the end
        items.pop()
    return [_unquoted(item) for item in items]


def _unquoted(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if quoted else text


def _checked_text(name: str, text: str) -> str:
    if len(text) > _MOST_CHARACTERS:
        raise ConfigError(
            f"config.{name} must have at most {_MOST_CHARACTERS} characters, got {len(text)}"
        )
    if printable(text) != text:
        raise ConfigError(
            f"config.{name} must be text without control characters, got {shown(text)}"
        )
    return text


def _as_float(name: str, value: Any) -> float:
    try:
        number = float(value)
    except OverflowError:
        raise ConfigError(
            f"config.{name} must be a finite number, got {shown(value)}, too large for a float"
        ) from None
    if not math.isfinite(number):
        raise ConfigError(f"config.{name} must be a finite number, got {number}")
    return number


def as_float32(number: float) -> float:
    """Returns the float32 nearest to a number; infinity beyond the largest."""
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def _in_range(name: str, limits: Range | None, value: Any) -> Any:
    if limits is None:
        return value
    is_float = isinstance(value, float)
    low, high = (as_float32(x) if is_float else x for x in (limits.low, limits.high))
    seen = as_float32(value) if is_float else value
    if is_float and seen == 0 and value != 0:
        raise ConfigError(f"config.{name}={value} is 0 in float32; use 0, or a larger value")
    bound = ""
    if seen < low or (limits.above and seen == low):
        # Where the least is only there for float32's sake, "above 0" says more.
        positive = limits.above or (is_float and value <= 0 < limits.low)
        bound = "above 0" if positive else f"at least {limits.low}"
    elif seen > high or (limits.below and seen == high):
        bound = f"below {limits.high}" if limits.below else f"at most {limits.high}"
        bound += f" ({limits.why})" if limits.why else ""
    if bound:
        raise ConfigError(f"config.{name} must be {bound}, got {shown(value)}")
    return value
