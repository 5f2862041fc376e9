"""What a field of a config has beside its default: its meaning, and its range."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Range:
    """What a number, or each item of a tuple of numbers, may be.

    Floats are compared as float32, in which everything is computed.

    Attributes:
      low: the smallest value.
      high: the largest value.
      above: whether `low` itself is left out.
      below: whether `high` itself is left out.
      why: what speaks against larger values, where that is not plain.
    """

    low: float
    high: float
    above: bool = False
    below: bool = False
    why: str = ""


def count(low: int, high: int = 2**31 - 1, why: str = "devices count in 32 bits") -> Range:
    """Returns the range of a whole number."""
    return Range(low, high, why=why)


# Float32 reaches 3e38: fourth powers of such a number, and their inverses, are still finite.
_LARGEST = 1e9
_FOURTH_POWER = "its fourth power must fit into float32"
POSITIVE = Range(1 / _LARGEST, _LARGEST, why=_FOURTH_POWER)
NOT_NEGATIVE = Range(0, _LARGEST, why=_FOURTH_POWER)
ANY_SIGN = Range(-_LARGEST, _LARGEST, why=_FOURTH_POWER)
# Below, a generalised normal overflows; above, it is uniform but for rounding.
EXPONENT = Range(0.1, 1000, why="powers overflow")
# A rate may be absurd: a run that diverges by it says so.
RATE = Range(0, 1e38, why="float32 ends there")
SHARE = Range(0, 1)
DECAY = Range(0, 1, below=True)
LAYERS = 100
MEMBERS = 64
SIDE = count(8, 2**14, "more pixels than any image has")


def field(
    default: Any,
    help_text: str,
    values: Range | None = None,
    *,
    max_items: int = 2**20,
    needs: str = "",
    only_with: tuple[str, ...] = (),
) -> Any:
    """Returns a dataclass field.

    Args:
      default: its value unless another is given.
      help_text: its meaning.
      values: what it may be.
      max_items: of a tuple, its greatest length.
      needs: what a source must know for the field to have a use.
      only_with: another field of the section, and those of its values with which this field has
        a use; (): always.
    """
    metadata = {
        "help": help_text,
        "range": values,
        "max_items": max_items,
        "needs": needs,
        "only_with": only_with,
    }
    if dataclasses.is_dataclass(default):
        return dataclasses.field(default_factory=lambda: default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)
