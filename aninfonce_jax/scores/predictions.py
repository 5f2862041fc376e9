"""What the concentrations of an ensemble predict: which factors are found, and up to what.

Two factors can be told apart if their Λ differ in some member. Those that can't be, in any, are
found up to a rotation among them (Cor. 3.2); all others up to order and sign.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# A map has kept to its groups from this share of its squared entries inside them on.
_INSIDE = 0.95


@dataclasses.dataclass(frozen=True)
class Prediction:
    """Which factors belong together.

    Attributes:
      groups: factors, counted from 0, whose Λ are equal in every member.
    """

    groups: tuple[tuple[int, ...], ...]

    @property
    def as_concentration(self) -> np.ndarray:
        """[dim] A number for each factor, larger than 0, that those of a group share."""
        values = np.empty(sum(map(len, self.groups)))
        for place, group in enumerate(self.groups):
            values[list(group)] = len(self.groups) - place
        return values

    @property
    def words(self) -> str:
        """The prediction as a sentence."""
        joint = [_numbers(group) for group in self.groups if len(group) > 1]
        if not joint:
            return "every two factors differ in some member: each is found up to order and sign"
        several = f"{', '.join(joint[:-1])} and {joint[-1]}" if len(joint) > 1 else joint[0]
        others = "; every other factor up to order and sign"
        is_all = all(len(group) > 1 for group in self.groups)
        each = "each group" if len(joint) > 1 else "them"
        return (
            f"no member tells factors {several} apart: they are found up to a rotation within "
            f"{each}{'' if is_all else others}"
        )

    def outcome(self, inside: float | None) -> str:
        """What became of it.

        Args:
          inside: share of the squared map from true to recovered factors inside the groups.
        """
        if inside is None or not math.isfinite(inside):
            return "whether it came true is not known: outputs are not as many as factors"
        dim = sum(map(len, self.groups))
        chance = sum(len(group) ** 2 for group in self.groups) / dim**2
        word = "as predicted" if inside >= _INSIDE else "not as predicted"
        return (
            f"{word}: {inside:.1%} of the map from true to recovered factors lies inside these "
            f"groups ({chance:.0%} would by chance)"
        )


def predict(concentrations: Sequence[npt.ArrayLike]) -> Prediction:
    """Returns which factors members with these Λ, [dim] each, can't tell apart.

    Raises:
      ValueError: there is none, or they are of different lengths.
    """
    values = [np.asarray(x, np.float64) for x in concentrations]
    if not values or any(x.shape != values[0].shape or x.ndim != 1 for x in values):
        shapes = ", ".join(str(x.shape) for x in values) or "none"
        raise ValueError(f"expected a Λ [dim] of each member, of one length; got {shapes}")
    columns = np.stack(values, axis=1)
    groups: list[list[int]] = []
    for factor, column in enumerate(columns):
        own = next((x for x in groups if np.allclose(columns[x[0]], column)), None)
        if own is None:
            groups.append([factor])
        else:
            own.append(factor)
    return Prediction(tuple(map(tuple, groups)))


def _numbers(group: Sequence[int]) -> str:
    """Factors counted from 1: those that follow each other as a range."""
    parts: list[list[int]] = []
    for factor in group:
        if parts and factor == parts[-1][-1] + 1:
            parts[-1].append(factor)
        else:
            parts.append([factor])
    return "+".join(
        f"{part[0] + 1}" if len(part) == 1 else f"{part[0] + 1}–{part[-1] + 1}" for part in parts
    )
