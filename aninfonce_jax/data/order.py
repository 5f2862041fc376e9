"""Which examples are in a batch: a function of the seed and the number of the batch."""

import collections
from typing import Any

import numpy as np


class ShuffledOrder:
    """Position in an endless stream -> index of an example; a new permutation every epoch.

    Sorts raw output of a generator: unlike NumPy's shuffles, that is promised to stay the
    same from one version to the next, as a resumed run needs.

    Args:
      examples: how many there are.
      seed: of the permutations.
    """

    def __init__(self, examples: int, seed: int) -> None:
        self._examples = examples
        self._seed = seed
        # Two epochs, because a batch may need both.
        self._recent: collections.OrderedDict[int, np.ndarray] = collections.OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_recent": collections.OrderedDict()}

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """Returns the indices at `positions`, int64 [n] each."""
        epochs, places = np.divmod(positions, self._examples)
        indices = np.empty_like(places)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            indices[here] = self._permutation(int(epoch))[places[here]]
        return indices

    def _permutation(self, epoch: int) -> np.ndarray:
        found = self._recent.get(epoch)
        if found is None:
            bits = np.random.Philox(np.random.SeedSequence([self._seed, epoch]))
            found = np.argsort(bits.random_raw(self._examples), kind="stable")
            # Several threads may come here at once: the worst is that one works in vain.
            self._recent[epoch] = found
            while len(self._recent) > 2:
                self._recent.popitem(last=False)
        return found
