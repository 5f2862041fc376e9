"""Boosted regression trees, small and deterministic: what a nonlinear readout needs, no more.

Friedman's gradient boosting (2001) for the squared error, on features cut into bins of equal
frequency, one level of a tree at a time. The number of trees is chosen on rows set aside.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BinArray = npt.NDArray[np.intp]

BINS = 32
DEPTH = 4
RATE = 0.1
MOST_TREES = 200
# Boosting ends after so many trees that did not help the rows set aside.
PATIENCE = 20
# A leaf with fewer rows follows noise.
_LEAST_ROWS = 10


@dataclasses.dataclass(frozen=True)
class Tree:
    """A complete binary tree, its nodes numbered level by level from 0.

    Attributes:
      features: the feature that each inner node asks, [2^depth - 1].
      last_left: the last bin that goes left there, [2^depth - 1].
      leaves: what each leaf adds, [2^depth].
    """

    features: npt.NDArray[np.intp]
    last_left: npt.NDArray[np.intp]
    leaves: FloatArray

    def __call__(self, binned: BinArray) -> FloatArray:
        """Returns what the tree adds to each row, [rows]."""
        rows = np.arange(len(binned))
        node = np.zeros(len(binned), np.intp)
        while node[0] < len(self.features):
            right = binned[rows, self.features[node]] > self.last_left[node]
            node = 2 * node + 1 + right
        return self.leaves[node - len(self.features)]


@dataclasses.dataclass(frozen=True)
class BoostedTrees:
    """A sum of trees; call it with features [rows, feature_dim]."""

    edges: tuple[FloatArray, ...]
    mean: float
    trees: tuple[Tree, ...]

    def __call__(self, features: FloatArray) -> FloatArray:
        """Returns predictions, [rows]."""
        binned = _into_bins(features, self.edges)
        return self.mean + sum((tree(binned) for tree in self.trees), np.zeros(len(features)))


def fit_trees(features: FloatArray, target: FloatArray) -> BoostedTrees:
    """Fits trees to a target [rows]; the last fifth of the rows chooses their number.

    Args:
      features: [rows, feature_dim], in random order.
      target: [rows].
    """
    kept = len(features) - max(len(features) // 5, 1)
    cuts = np.linspace(0, 1, BINS + 1)[1:-1]
    edges = tuple(np.unique(np.quantile(column, cuts)) for column in features[:kept].T)
    binned = _into_bins(features, edges)
    mean = float(target[:kept].mean())
    residual = target - mean
    best, best_count = float(np.mean(residual[kept:] ** 2)), 0
    trees: list[Tree] = []
    while len(trees) < min(MOST_TREES, best_count + PATIENCE):
        tree = _grow(binned[:kept], residual[:kept])
        trees.append(tree)
        residual = residual - tree(binned)
        error = float(np.mean(residual[kept:] ** 2))
        if error < best:
            best, best_count = error, len(trees)
    return BoostedTrees(edges, mean, tuple(trees[:best_count]))


def _into_bins(features: FloatArray, edges: tuple[FloatArray, ...]) -> BinArray:
    columns = [
        np.searchsorted(cuts, column, side="right")
        for column, cuts in zip(features.T, edges, strict=True)
    ]
    return np.stack(columns, axis=1)


def _grow(binned: BinArray, residual: FloatArray) -> Tree:
    inner = 2**DEPTH - 1
    features, last_left = np.zeros(inner, np.intp), np.full(inner, BINS, np.intp)
    node = np.zeros(len(binned), np.intp)
    rows = np.arange(len(binned))
    for level in range(DEPTH):
        first, width = 2**level - 1, 2**level
        chosen = slice(first, first + width)
        features[chosen], last_left[chosen] = _best_splits(binned, residual, node - first, width)
        node = 2 * node + 1 + (binned[rows, features[node]] > last_left[node])
    counts = np.bincount(node - inner, minlength=inner + 1)
    sums = np.bincount(node - inner, weights=residual, minlength=inner + 1)
    return Tree(features, last_left, RATE * sums / np.maximum(counts, 1))


def _best_splits(
    binned: BinArray, residual: FloatArray, node: BinArray, width: int
) -> tuple[BinArray, BinArray]:
    """Returns the feature and the last bin to the left that explain most, per node, [width].

    A node that no split helps sends all its rows left.
    """
    dim = binned.shape[1]
    cells = (node[:, None] * dim + np.arange(dim)) * BINS + binned
    shape = (width, dim, BINS)
    size = width * dim * BINS
    counts = np.bincount(cells.ravel(), minlength=size).reshape(shape).cumsum(axis=2)
    sums = np.bincount(cells.ravel(), weights=np.repeat(residual, dim), minlength=size)
    sums = sums.reshape(shape).cumsum(axis=2)
    right_counts, right_sums = counts[:, :, -1:] - counts, sums[:, :, -1:] - sums
    gain = sums**2 / np.maximum(counts, 1) + right_sums**2 / np.maximum(right_counts, 1)
    gain -= sums[:, :, -1:] ** 2 / np.maximum(counts[:, :, -1:], 1)
    gain[(counts < _LEAST_ROWS) | (right_counts < _LEAST_ROWS)] = 0.0
    best = gain.reshape(width, -1).argmax(axis=1)
    helps = gain.reshape(width, -1)[np.arange(width), best] > 0
    return np.where(helps, best // BINS, 0), np.where(helps, best % BINS, BINS)
