"""Iterators as a source of pairs, in the order in which they give them."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.placement import Rows
from aninfonce_jax.sources.arrays import (
    ArrayPairs,
    TwoArrays,
    as_fed,
    as_floats,
    fed_dtype,
)
from aninfonce_jax.sources.source import RowForm, Source
from aninfonce_jax.types import Array, Pairs, PyTree

_Pair = tuple[np.ndarray, np.ndarray]


class IteratorPairs(Source):
    """Pairs as an iterator gives them.

    Args:
      pairs: gives (view1, view2), of single observations or, `batched`, of several [m, ...].
      batched: which of the two.
    """

    def __init__(self, pairs: Iterable[Any], *, batched: bool = False) -> None:
        self._pairs = pairs
        self._batched = batched
        if not hasattr(pairs, "__iter__"):
            raise TypeError(
                f"an iterator of pairs must give (view1, view2), one after the other, got {pairs!r}"
            )
        # `iter` of an iterator is that iterator, which ends; other iterables begin anew each time.
        self._ends = iter(pairs) is pairs
        self._ahead: list[_Pair] = []
        self._rest: Iterator[_Pair] = self._single()
        self._held_out = 0
        self._set_aside: TwoArrays | None = None
        head = self.head(1)
        if not head:
            raise ValueError("an iterator of pairs gave none")
        self._row = head[0][0]

    @property
    def name(self) -> str:
        """What it is made of."""
        return "an iterator of pairs"

    @property
    def observation(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of one observation as it is fed."""
        return jax.ShapeDtypeStruct(self._row.shape, fed_dtype(self._row.dtype))

    def head(self, count: int) -> list[_Pair]:
        """Returns the first pairs, `count` of them if there are as many; none is lost by it."""
        self._ahead += itertools.islice(self._rest, max(0, count - len(self._ahead)))
        return self._ahead[:count]

    @property
    def row_form(self) -> RowForm:
        """Rows as the iterator gives them."""
        return RowForm(self.observation.shape, self.observation.dtype == np.uint8)

    def at_hand(self, count: int) -> list[np.ndarray]:
        """Returns both views of the first pairs; they are given again in training."""
        head = self.head(count)
        return [np.stack([pair[view] for pair in head]) for view in (0, 1)]

    def with_held_out(self, count: int) -> "IteratorPairs":
        """Keeps the first pairs from training; returns itself, for pairs may come only once."""
        self._set_aside = TwoArrays(*self.at_hand(count))
        self._held_out = len(self._set_aside)
        return self

    def example(self) -> Array:
        """Returns two empty observations."""
        return jnp.zeros((2, *self._row.shape))

    def fed(self, batch_size: int) -> PyTree:
        """Returns the shapes of the rows of both views."""
        rows = jax.ShapeDtypeStruct((batch_size, *self._row.shape), self.observation.dtype)
        return (rows, rows)

    def open_feed(self, rows: Rows, *, seed: int, step: int) -> Iterator[PyTree]:
        """Yields batches until the iterator ends, or without end where it can begin again.

        Raises:
          ValueError: it is one that ends, and the run begins in its middle; or it gives NaN.
        """
        del seed
        if self._ends and step:
            raise ValueError(
                "an iterator can't go back to where a run stopped; pass what can be iterated over "
                "again, such as an object whose __iter__ begins anew, or train in a new workdir"
            )
        pairs = itertools.islice(self._endless(), step * rows.batch_size, None)
        while len(batch := list(itertools.islice(pairs, rows.batch_size))) == rows.batch_size:
            own = rows.positions(step) - step * rows.batch_size
            views = tuple(np.stack([as_fed(batch[i][view]) for i in own]) for view in (0, 1))
            if not all(np.isfinite(view).all() for view in views):
                raise ValueError(
                    "an iterator of pairs must give finite numbers, got NaN or inf in batch "
                    f"{step + 1}; leave out or fill in such pairs"
                )
            yield views
            step += 1

    def pairs(self, key: Array, fed: PyTree, batch_size: int) -> Pairs:
        """Returns the rows as both views."""
        del key, batch_size
        return Pairs(*(as_floats(rows) for rows in fed))

    def held_out(self, batch_size: int) -> ArrayPairs | None:
        """Returns the pairs that were set aside; None if they are fewer than a batch."""
        if self._set_aside is None or len(self._set_aside) < batch_size:
            return None
        return ArrayPairs(self._set_aside)

    def _endless(self) -> Iterator[_Pair]:
        """Gives all pairs but those held out: once, or over and over."""
        if self._ends:
            ahead, self._ahead = self._ahead[self._held_out :], []
            yield from itertools.chain(ahead, self._rest)
            return
        while True:
            given = False
            for pair in itertools.islice(self._single(), self._held_out, None):
                given = True
                yield pair
            if not given:
                return

    def _single(self) -> Iterator[_Pair]:
        """Gives one pair of observations at a time, each checked to be like the first."""
        shape: tuple[int, ...] | None = None
        for number, given in enumerate(self._pairs):
            try:
                view1, view2 = map(np.asarray, given)
            except (TypeError, ValueError):
                raise ValueError(
                    f"an iterator must give pairs (view1, view2), got {type(given).__name__} as "
                    f"number {number}"
                ) from None
            if view1.shape != view2.shape or (self._batched and not view1.ndim):
                raise ValueError(
                    f"both views of a pair must have one shape, got {view1.shape} and "
                    f"{view2.shape} in number {number}"
                )
            rows = zip(view1, view2, strict=True) if self._batched else [(view1, view2)]
            for row1, row2 in rows:
                shape = row1.shape if shape is None else shape
                if row1.shape != shape:
                    raise ValueError(
                        f"all observations must have one shape, got {row1.shape} in number "
                        f"{number} after {shape}; of batches [m, ...], say batched=True"
                    )
                yield row1, row2
