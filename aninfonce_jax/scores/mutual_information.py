"""Mutual information of single factors with single features, from counts in bins.

Columns are cut into bins of equal frequency, so that no increasing map of a column matters;
columns of few values are taken as they are. Entropies are corrected for the number of samples
(Miller, 1955; with the cells that occur), which makes the information of independent columns
zero on average where the plain one is positive, and leaves equal columns at their entropy.
"""

import copy

import numpy as np
import numpy.typing as npt
from scipy import sparse

from aninfonce_jax.scores import checked

FloatArray = npt.NDArray[np.float64]

BINS = 20


class Binned:
    """Columns in bins, ready to be counted against others under any weights of the samples."""

    def __init__(self, columns: FloatArray, bins: int = BINS) -> None:
        checked.at_least("bins", bins, 2)
        numbers = np.stack([_bin_numbers(column, bins) for column in columns.T], axis=1)
        samples, self.columns = numbers.shape
        self.bins = bins
        # Columns of few values need fewer.
        self.most_bins = max(len(np.unique(column)) for column in numbers.T)
        places = numbers + bins * np.arange(self.columns)
        ones = np.ones(places.size)
        starts = np.arange(0, places.size + 1, self.columns)
        self.indicator = sparse.csr_matrix(
            (ones, places.ravel(), starts), shape=(samples, self.columns * bins)
        )

    def taken(self, order: npt.NDArray[np.intp]) -> "Binned":
        """Returns the same columns with their samples in another order."""
        other = copy.copy(self)
        other.indicator = self.indicator[order]
        return other

    def entropies(self, weights: FloatArray) -> FloatArray:
        """Returns the entropy of each column in nats, [columns]."""
        counts = (self.indicator.T @ weights).reshape(self.columns, self.bins)
        return _entropy(counts, axis=1)


def mutual_information(one: Binned, other: Binned, weights: FloatArray) -> FloatArray:
    """Returns the information of each column with each in nats, [one, other]; 0 or more.

    Args:
      one: columns.
      other: columns of the same samples.
      weights: how often each sample counts, [samples].
    """
    weighted = sparse.diags(weights) @ other.indicator
    joint = (one.indicator.T @ weighted).toarray()
    cells = joint.reshape(one.columns, one.bins, other.columns, other.bins)
    information = (
        one.entropies(weights)[:, None]
        + other.entropies(weights)[None, :]
        - _entropy(cells, axis=(1, 3))
    )
    return np.maximum(information, 0.0)


def bin_warnings(samples: int, one: int, other: int) -> list[str]:
    """What speaks against counting so few samples in so many bins of one column and of another."""
    needed = 5 * one * other
    if samples >= needed:
        return []
    return [
        f"{samples} samples for {one} × {other} cells: information is unreliable below 5 samples a "
        f"cell; pass {needed} samples or fewer bins"
    ]


def _entropy(counts: FloatArray, axis: int | tuple[int, ...]) -> FloatArray:
    total = counts.sum(axis=axis)
    occupied = np.count_nonzero(counts, axis=axis)
    logs = np.log(np.where(counts > 0, counts, 1.0))
    plain = np.log(total) - np.sum(counts * logs, axis=axis) / total
    return plain + (occupied - 1) / (2 * total)


def _bin_numbers(column: FloatArray, bins: int) -> npt.NDArray[np.intp]:
    values, numbers = np.unique(column, return_inverse=True)
    if len(values) <= bins:
        return numbers.astype(np.intp)
    edges = np.quantile(column, np.linspace(0, 1, bins + 1)[1:-1])
    return np.searchsorted(edges, column, side="right").astype(np.intp)
