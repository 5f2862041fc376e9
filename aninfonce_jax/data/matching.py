"""Second views out of a data set whose factors are known: the example nearest to a draw."""

from typing import Any

import numpy as np
from scipy import special
from scipy.spatial import cKDTree

from aninfonce_jax.data.order import ShuffledOrder

# Tells these draws from others of the same seed.
_STREAM = 0x5EC0
# How many bits of a draw are used: as many as a float's fraction holds.
_BITS = 53


class MatchedOrder:
    """Position in an endless stream -> the example that is the second view of the one there.

    For an example with the factors z, a point is drawn from N(z, Λ⁻¹), by the seed and the position
    alone, and the example of the same group whose factors are nearest to it is taken. In many
    factors even the nearest is far: the conditional is as wide as the gaps between examples, at
    the least.

    Args:
      anchors: position -> the example that is there.
      factors: of every example, [examples, factors].
      groups: which examples may be views of each other, int [examples].
      concentration: Λ, [factors].
      seed: of the draws.
    """

    def __init__(
        self,
        anchors: ShuffledOrder,
        factors: np.ndarray,
        groups: np.ndarray,
        concentration: np.ndarray,
        seed: int,
    ) -> None:
        self._anchors = anchors
        self._factors = np.asarray(factors, np.float64)
        self._groups = np.asarray(groups)
        self._deviations = np.asarray(concentration, np.float64) ** -0.5
        self._seed = seed
        self._trees: dict[int, tuple[cKDTree, np.ndarray]] = {}

    def __getstate__(self) -> dict[str, Any]:
        # A worker builds those that it needs faster than it would be sent them.
        return {**self.__dict__, "_trees": {}}

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Returns the indices at `positions`, int64 [n] each."""
        anchors = self._anchors(positions)
        noise = np.stack([self._noise(int(position)) for position in positions])
        points = self._factors[anchors] + noise * self._deviations
        found = np.empty_like(anchors)
        for group in np.unique(self._groups[anchors]).tolist():
            own = self._groups[anchors] == group
            tree, members = self._tree(group)
            found[own] = members[tree.query(points[own])[1]]
        return found

    def _noise(self, position: int) -> np.ndarray:
        """Returns standard normals, [factors]; of raw output, which every version gives alike."""
        bits = np.random.Philox(np.random.SeedSequence([self._seed, _STREAM, position]))
        shares = (bits.random_raw(self._factors.shape[1]) >> (64 - _BITS)) + 0.5
        return np.asarray(special.ndtri(shares * 2.0**-_BITS))

    def _tree(self, group: int) -> tuple[cKDTree, np.ndarray]:
        if group not in self._trees:
            members = np.flatnonzero(self._groups == group)
            self._trees[group] = cKDTree(self._factors[members]), members
        return self._trees[group]
