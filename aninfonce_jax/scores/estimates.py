"""A score with its interval, what it says factor by factor, and where it is not to be believed.

Everything is NumPy in float64 on the host. Latents are [samples, dim] and features
[samples, feature_dim], row by row from the same observations.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from aninfonce_jax.scores import checked
from aninfonce_jax.scores.intervals import CONFIDENCE, Interval
from aninfonce_jax.scores.labelled import checked_features

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

DRAWS = 100
# Two factors that correlate by more than this are not to be told apart by one feature each.
_DEPENDENT = 0.2
# As `identifiability.block_orthogonality` tells equal concentrations.
_EQUAL = 1e-5


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A score of embeddings.

    Attributes:
      name: of the score.
      value: of the score.
      interval: 95 %, over samples; None where there is none.
      per_factor: what it is the mean of, [dim]; None where it has no parts.
      warnings: assumptions of the score that do not hold here, in sentences.
    """

    name: str
    value: float
    interval: Interval | None = None
    per_factor: FloatArray | None = dataclasses.field(default=None, compare=False)
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{self.name} {self.value:.3f}"
        if self.interval is not None:
            text += f" [{self.interval[0]:.3f}, {self.interval[1]:.3f}]"
        return "\n  ! ".join([text, *self.warnings])

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as JSON holds it."""
        return {
            "name": self.name,
            "value": self.value,
            "interval": self.interval,
            "per_factor": None if self.per_factor is None else self.per_factor.tolist(),
            "warnings": list(self.warnings),
        }


# --- Intervals ---


def bootstrap_errors(
    statistics: Callable[[FloatArray], FloatArray], samples: int, *, draws: int, seed: int
) -> FloatArray | None:
    """Returns the standard errors of statistics by a bootstrap over samples (Efron, 1979).

    Only the scatter of the draws is used, not where they lie: repeated samples look more
    dependent than they are, which moves scores of dependence up but hardly spreads them.

    Args:
      statistics: from how often each sample counts, [samples], to the statistics, [n].
      samples: how many there are.
      draws: how many times they are drawn with replacement; 0 for no errors.
      seed: of the draws.

    Returns:
      Standard errors, [n], or None if there are no draws.
    """
    check_draws(draws)
    if draws == 0:
        return None
    rng = np.random.default_rng(seed)
    even = np.full(samples, 1 / samples)
    values = [statistics(rng.multinomial(samples, even).astype(float)) for _ in range(draws)]
    return np.std(np.array(values), axis=0, ddof=1)


def check_draws(draws: int) -> None:
    """Raises TypeError or ValueError for what is no number of draws of a bootstrap."""
    checked.at_least("draws", draws, 0)
    if 0 < draws < 20:
        raise ValueError(f"draws must be 0, for no interval, or at least 20, got {draws}")


def interval_about(
    value: float, error: float | None, *, low: float = -np.inf, high: float = 1.0
) -> Interval | None:
    """The 95 % interval of an estimate with a standard error, within its range."""
    if error is None:
        return None
    reach = float(stats.norm.ppf((1 + CONFIDENCE) / 2)) * float(error)
    return [max(value - reach, min(low, value)), min(value + reach, max(high, value))]


# --- Checks ---


def checked_samples(
    latents: npt.ArrayLike, features: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Returns latents and features in float64, finite and row by row.

    Both are scaled by a power of 2 each, which no score of them depends on.

    Raises:
      TypeError: no real numbers.
      ValueError: anything else, or fewer than 10 samples.
    """
    z = checked_features("latents", latents, np.float64)
    h = checked_features("features", features, np.float64)
    if len(z) != len(h):
        raise ValueError(
            f"latents and features must have the same number of rows, got {len(z)} and {len(h)}"
        )
    if len(z) < 10:
        raise ValueError(f"at least 10 samples are needed, got {len(z)}; pass more samples")
    return checked.near_one(z), checked.near_one(h)


def halves(samples: int, seed: int) -> tuple[IndexArray, IndexArray]:
    """Returns which samples to fit on and which to score on, drawn by a seed."""
    order = np.random.default_rng(seed).permutation(samples)
    return order[: samples // 2], order[samples // 2 :]


def standardised(x: FloatArray, like: FloatArray | None = None) -> FloatArray:
    """Centres and scales columns by those of `like`, else their own; constant ones become 0."""
    other = x if like is None else like
    spread = other.std(axis=0)
    constant = spread <= 1e-12 * np.maximum(np.abs(other).max(axis=0), 1e-300)
    return np.where(constant, 0.0, (x - other.mean(axis=0)) / np.where(constant, 1.0, spread))


# --- Warnings ---


def axis_warnings(
    latents: FloatArray, feature_dim: int, concentration: npt.ArrayLike | None
) -> list[str]:
    """What speaks against a score that wants each factor in a feature of its own.

    Args:
      latents: [samples, dim].
      feature_dim: number of features.
      concentration: the true Λ, [dim], if it is known.

    Raises:
      ValueError: Λ does not fit the latents.
    """
    found = factor_warnings(latents)
    if concentration is not None:
        values = checked.concentration("concentration", concentration)
        if values.shape != latents.shape[1:]:
            raise ValueError(
                f"concentration must have one value per factor, {latents.shape[1:]}, got shape "
                f"{values.shape}"
            )
        ordered = np.sort(values)
        if repeated := int(np.sum(np.diff(ordered) <= _EQUAL * ordered[1:])):
            found.append(
                f"{repeated} values of Λ repeat others: theory finds their factors only up to a "
                "rotation, so a perfect encoder may score low here; compare R², or a Λ without "
                "repeats"
            )
    if feature_dim < latents.shape[1]:
        found.append(
            f"{feature_dim} features for {latents.shape[1]} factors: some have none of their own"
        )
    return found


def factor_warnings(latents: FloatArray) -> list[str]:
    """What speaks against a score that takes factors one by one."""
    scaled = standardised(latents)
    constant = ~scaled.any(axis=0)
    found = []
    if constant.any():
        found.append(f"constant factors count as 0: {np.flatnonzero(constant).tolist()}")
    correlations = np.abs(scaled.T @ scaled / len(scaled)) - np.eye(scaled.shape[1])
    if correlations.max() > _DEPENDENT:
        i, j = np.unravel_index(np.argmax(correlations), correlations.shape)
        found.append(
            f"factors {min(i, j)} and {max(i, j)} correlate by {correlations.max():.2f}: a feature "
            "of the one tells of the other, and the score takes factors to be independent"
        )
    return found
