"""What the processes of a run tell each other between two calls to the devices."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.placement import Placement
from aninfonce_jax.types import Array


class Agreement:
    """Whether any process was asked to stop, learned by all at the same step.

    A signal reaches one process at one moment. Whether to stop must be decided by all, between
    the same two steps, or they would wait for each other for ever. So after each call every
    process hands in whether it was asked, and the devices add that up behind the steps that they
    are at. The sum is looked at one call later, when it is there already: nobody waits. A
    single process needs none of this, and nothing is computed for it.

    Args:
      placement: of the run.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._on_its_way: Array | None = None
        self._add_up = jax.jit(lambda x: jnp.sum(x, axis=0), out_shardings=placement.whole)
        self.unreadable = 0

    def __call__(self, asked: bool, unreadable: int) -> bool:
        """Returns whether all stop here.

        Args:
          asked: whether this process was asked to.
          unreadable: examples that it had to pass over so far; `unreadable` is then their
            number in all processes.
        """
        if self._placement.processes == 1:
            self.unreadable = unreadable
            return asked
        total = self._add_up(self._word(asked, unreadable))
        before, self._on_its_way = self._on_its_way, total
        if before is None:
            return False
        stops, self.unreadable = np.asarray(before).tolist()
        return bool(stops)

    @functools.lru_cache(maxsize=2)  # noqa: B019 - lives as long as a run
    def _word(self, asked: bool, unreadable: int) -> Any:
        """Returns what this process hands in, as its rows of an array [devices, 2]."""
        rows = np.zeros((self._placement.size // self._placement.processes, 2), np.int32)
        rows[0] = asked, unreadable
        return self._placement.put_rows(rows)
