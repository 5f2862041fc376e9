"""Whether two runs found the same: R² between their embeddings after they are aligned.

Embeddings may be larger than memory (`np.load(..., mmap_mode="r")`): rows are taken in chunks,
and what is kept is a few matrices of the size of the features' covariance.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy import optimize

from aninfonce_jax.scores import checked
from aninfonce_jax.scores.estimates import (
    DRAWS,
    Estimate,
    FloatArray,
    check_draws,
    interval_about,
)

Alignment = Literal["linear", "orthogonal", "permutation"]
ALIGNMENTS: tuple[Alignment, ...] = get_args(Alignment)

CHUNK = 4096
# Eigenvalues below this share of the largest one are rounding.
_NEGLIGIBLE = 1e-10


@dataclasses.dataclass
class _Moments:
    """Sums over rows of which a map from one run to the other is made."""

    count: int
    sum_one: FloatArray
    sum_other: FloatArray
    square: FloatArray
    cross: FloatArray
    square_other: FloatArray


def run_consistency(
    one: npt.ArrayLike,
    other: npt.ArrayLike,
    *,
    alignment: Alignment = "linear",
    chunk: int = CHUNK,
    draws: int = DRAWS,
    seed: int = 0,
) -> Estimate:
    """Returns how much of another run's embeddings one run's explain, once aligned.

    The map is fitted on even chunks of rows and scored on odd ones: R² = 1 - Σ error² / Σ
    (embedding - mean)², over all dimensions together. "linear" is least squares; "orthogonal"
    a rotation with a scale (Schönemann, 1966), what InfoNCE on the sphere is found up to;
    "permutation" an order with signs and a scale per dimension, what AnInfoNCE with distinct Λ
    is found up to. It is not symmetric: one run may hold what the other lost, so take both.

    Assumes the same inputs row by row, and rows in an order that has nothing to do with them:
    with several of one object beside each other, halves are not independent. Two runs that lost
    the same factor agree: this says nothing of what is true. The interval is by a Poisson
    bootstrap (Oza and Russell, 2001), which needs a single pass.

    Args:
      one: embeddings to explain with, [samples, dim]; anything that slices into rows.
      other: embeddings to be explained, [samples, other_dim].
      alignment: "linear", "orthogonal" or "permutation".
      chunk: rows that are held at a time; with fewer than 2 · chunk rows, a tenth of them.
      draws: of the bootstrap; 0 for no interval.
      seed: of the draws.

    Raises:
      ValueError: shapes that do not fit, values that are not finite, an alignment that is
        unknown or needs equal dimensions, or too few rows.

    Example:
      >>> latents = np.random.default_rng(0).normal(size=(200, 2))
      >>> round(an.run_consistency(latents, 2 * latents[:, ::-1]).value, 3)
      1.0
    """
    a, b = _checked(one, other, alignment)
    checked.at_least("chunk", chunk, 1)
    check_draws(draws)
    rows = min(chunk, max(len(a) // 10, 1))
    exponents = _exponents(a, b, rows)
    moments = _moments(a, b, rows, exponents)
    if moments.count < a.shape[1] + 2:
        raise ValueError(
            f"a map from {a.shape[1]} dimensions needs at least {a.shape[1] + 2} rows to be fitted "
            f"on, got {moments.count} of {len(a)}; pass more rows"
        )
    slope, mean_one, mean_other = _align(moments, alignment)
    rng = np.random.default_rng(seed)
    scored = _Scored(b.shape[1], draws)
    for x, y in _chunks(a, b, rows, exponents, first=1):
        scored.add(y - mean_other, y - mean_other - (x - mean_one) @ slope, rng)
    value = float(scored.r2()[0])
    error = float(np.std(scored.r2()[1:], ddof=1)) if draws else None
    warnings = []
    if moments.count < 10 * a.shape[1]:
        warnings.append(
            f"{moments.count} rows to fit a map from {a.shape[1]} dimensions on: more rows would "
            "find more agreement"
        )
    name = f"run-to-run R² ({alignment})"
    return Estimate(name, value, interval_about(value, error), None, tuple(warnings))


class _Scored:
    """Errors and spreads of the scored rows: plain ones first, then each draw's."""

    def __init__(self, dim: int, draws: int) -> None:
        self.draws = draws
        self.count = np.zeros(1 + draws)
        self.error = np.zeros(1 + draws)
        self.square = np.zeros(1 + draws)
        self.total = np.zeros((1 + draws, dim))

    def add(self, centred: FloatArray, error: FloatArray, rng: np.random.Generator) -> None:
        weights = np.ones((1 + self.draws, len(error)))
        weights[1:] = rng.poisson(1.0, (self.draws, len(error)))
        self.count += weights.sum(axis=1)
        self.error += weights @ np.sum(error**2, axis=1)
        self.square += weights @ np.sum(centred**2, axis=1)
        self.total += weights @ centred

    def r2(self) -> FloatArray:
        spread = self.square - np.sum(self.total**2, axis=1) / np.maximum(self.count, 1)
        return np.where(spread > 0, 1 - self.error / np.where(spread > 0, spread, 1.0), 0.0)


def _checked(one: Any, other: Any, alignment: str) -> tuple[Any, Any]:
    if alignment not in ALIGNMENTS:
        raise ValueError(f"alignment must be one of {', '.join(ALIGNMENTS)}, got {alignment!r}")
    arrays = []
    for name, x in (("one", one), ("other", other)):
        # A file mapped into memory stays there.
        array = x if hasattr(x, "shape") else np.asarray(x)
        if len(array.shape) != 2 or 0 in array.shape:
            raise ValueError(f"{name} must have shape [samples, dim], got {tuple(array.shape)}")
        arrays.append(array)
    a, b = arrays
    if len(a) != len(b):
        raise ValueError(f"both runs must have the same rows, got {len(a)} and {len(b)}")
    if alignment != "linear" and a.shape[1] != b.shape[1]:
        raise ValueError(
            f"alignment {alignment!r} needs as many dimensions in both runs, got {a.shape[1]} and "
            f"{b.shape[1]}; take 'linear'"
        )
    return a, b


def _real(rows: Any) -> FloatArray:
    return checked.real("embeddings", rows)


def _exponents(a: Any, b: Any, rows: int) -> list[int]:
    """Returns powers of 2 that bring the first rows of each near 1.

    R² depends on the scale of neither, but squares of 1e200 would not be finite.
    """
    return [int(np.frexp(np.abs(_real(x[:rows])).max())[1]) for x in (a, b)]


def _chunks(
    a: Any, b: Any, rows: int, exponents: list[int], *, first: int
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yields every second chunk of both, from chunk `first` on, divided by powers of 2."""
    for start in range(first * rows, len(a), 2 * rows):
        x, y = (
            np.ldexp(_real(array[start : start + rows]), -exponent)
            for array, exponent in zip((a, b), exponents, strict=True)
        )
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise ValueError(
                f"embeddings must be finite, got NaN or infinite between rows {start} and "
                f"{start + rows}"
            )
        yield x, y


def _moments(a: Any, b: Any, rows: int, exponents: list[int]) -> _Moments:
    one, other = a.shape[1], b.shape[1]
    sums = _Moments(
        0, np.zeros(one), np.zeros(other), np.zeros((one, one)), np.zeros((one, other)),
        np.zeros(other),
    )  # fmt: skip
    shift: tuple[FloatArray, FloatArray] | None = None
    for x, y in _chunks(a, b, rows, exponents, first=0):
        # About the first row, so that a large common offset does not cancel what differs.
        shift = shift or (x[0].copy(), y[0].copy())
        x, y = x - shift[0], y - shift[1]
        sums.count += len(x)
        sums.sum_one += x.sum(axis=0)
        sums.sum_other += y.sum(axis=0)
        sums.square += x.T @ x
        sums.cross += x.T @ y
        sums.square_other += np.sum(y**2, axis=0)
    mean_one, mean_other = sums.sum_one / sums.count, sums.sum_other / sums.count
    sums.square -= sums.count * np.outer(mean_one, mean_one)
    sums.cross -= sums.count * np.outer(mean_one, mean_other)
    sums.square_other -= sums.count * mean_other**2
    assert shift is not None  # there is at least one row
    sums.sum_one, sums.sum_other = mean_one + shift[0], mean_other + shift[1]
    return sums


def _align(moments: _Moments, alignment: str) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns the map [dim, other_dim] and the means that it leads from and to."""
    square, cross = moments.square, moments.cross
    own = np.diag(square)
    if alignment == "linear":
        scale = np.sqrt(np.where(own > 0, own, 1.0))
        values, axes = np.linalg.eigh(square / np.outer(scale, scale))
        kept = values > _NEGLIGIBLE * values[-1]
        inverse = (axes[:, kept] / values[kept]) @ axes[:, kept].T
        slope = (inverse @ (cross / scale[:, None])) / scale[:, None]
    elif alignment == "orthogonal":
        left, values, right = np.linalg.svd(cross)
        slope = left @ right * (values.sum() / own.sum() if own.sum() > 0 else 0.0)
    else:
        sizes = np.sqrt(np.outer(own, moments.square_other))
        correlations = np.abs(np.where(sizes > 0, cross / np.where(sizes > 0, sizes, 1.0), 0.0))
        rows, columns = optimize.linear_sum_assignment(correlations, maximize=True)
        slope = np.zeros_like(cross)
        slope[rows, columns] = cross[rows, columns] / np.where(own > 0, own, 1.0)[rows]
    return slope, moments.sum_one, moments.sum_other
