"""Pairs of what people have: two arrays, a time series, groups, rows to augment, an iterator.

    import aninfonce_jax as an

    an.pairs.paired(view1, view2)
    an.pairs.time_lagged(recording, lag=10)
    an.pairs.augmented(rows, lambda key, x: x + 0.1 * jax.random.normal(key, x.shape))
    an.pairs.grouped(rows, labels)
    an.pairs.from_iterator(reader)

Each returns a source, for `an.AnInfoNCE().fit(source)` or an `an.Experiment`.
"""

import dataclasses
import inspect
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from aninfonce_jax.sources.arrays import (
    ArrayPairs,
    Augment,
    PairTable,
    TwoArrays,
    as_rows,
    split_at_random,
)
from aninfonce_jax.sources.iterators import IteratorPairs

__all__ = ["augmented", "from_iterator", "grouped", "paired", "time_lagged"]

# From this many labels on, whole ones are held out.
_MANY_LABELS = 20


def paired(view1: Any, view2: Any) -> ArrayPairs:
    """Returns pairs of two arrays [n, ...]: row i of one is the positive of row i of the other.

    Raises:
      ValueError: they have no rows of the same shape and number.

    Example:
      >>> x = np.zeros((100, 3), np.float32)
      >>> source = an.pairs.paired(x, x + 1)  # what model.fit(x, x + 1) makes
      >>> source.example().shape[1:]
      (3,)
    """
    first, second = as_rows(view1, "view1"), as_rows(view2, "view2")
    if len(first) != len(second):
        raise ValueError(
            f"view1 and view2 must have as many rows, got {len(first):,} and {len(second):,}; row "
            "i of one is the positive of row i of the other"
        )
    if first.shape[1:] != second.shape[1:]:
        raise ValueError(
            f"view1 and view2 must hold observations of one shape, for one encoder, got "
            f"{first.shape[1:]} and {second.shape[1:]}"
        )
    if (first.dtype == np.uint8) != (second.dtype == np.uint8):
        raise ValueError(
            f"view1 and view2 must both be bytes or neither, got {first.dtype} and {second.dtype}: "
            "bytes are taken as values from 0 to 1"
        )
    return ArrayPairs(TwoArrays(first, second))


def time_lagged(x: Any, lag: int = 1) -> ArrayPairs:
    """Returns pairs of moments of a time series, `lag` rows apart.

    Args:
      x: [time, ...]; of several sessions a list or tuple of such arrays. No pair crosses from
        one session to another.
      lag: how many rows the second view is behind the first.

    Raises:
      ValueError: a session is too short, or they differ in shape.

    Example:
      >>> sessions = [np.zeros((50, 3), np.float32), np.zeros((60, 3), np.float32)]
      >>> source = an.pairs.time_lagged(sessions, lag=2)  # no pair crosses a session
    """
    if isinstance(lag, bool) or not isinstance(lag, int | np.integer) or lag < 1:
        raise ValueError(f"lag must be a whole number of rows, at least 1, got {lag!r}")
    given = x if isinstance(x, list | tuple) and np.ndim(x[0] if len(x) else ()) > 1 else [x]
    sessions = tuple(as_rows(session, f"session {i}") for i, session in enumerate(given))
    for number, session in enumerate(sessions):
        if len(session) <= lag:
            raise ValueError(
                f"session {number} has {len(session)} rows, with lag={lag} at least {lag + 1} are "
                "needed; lower the lag, or leave the session out"
            )
        if (session.shape[1:], session.dtype) != (sessions[0].shape[1:], sessions[0].dtype):
            raise ValueError(
                f"all sessions must have rows alike, got {session.shape[1:]} of {session.dtype} in "
                f"session {number} and {sessions[0].shape[1:]} of {sessions[0].dtype} in session 0"
            )
    return ArrayPairs(TimeLagged(sessions, int(lag)))


def augmented(x: Any, fn: Augment) -> ArrayPairs:
    """Returns pairs of two augmented views of each row.

    Args:
      x: rows [n, ...].
      fn: (key, rows [batch, ...]) -> rows alike; of jax, as it runs on the device. It is called
        twice in every step, each time with a key of its own. It may also return what it did, for
        objectives that ask for that: rows, {name: parameters [batch, k]}.

    Raises:
      TypeError: `fn` takes no two arguments.

    Example:
      >>> def noisy(key, rows):
      ...     return rows + 0.1 * jax.random.normal(key, rows.shape)
      >>> source = an.pairs.augmented(np.zeros((100, 3), np.float32), noisy)
    """
    try:
        inspect.signature(fn).bind(None, None)
    except TypeError:
        raise TypeError(
            "an augmentation must take (key, rows): a key of jax.random, from which alone its "
            f"randomness comes, and rows [batch, ...]; got {fn!r}"
        ) from None
    return ArrayPairs(OneArray(as_rows(x, "x")), fn)


def grouped(x: Any, labels: Any) -> ArrayPairs:
    """Returns pairs of rows with the same label: two recordings of the same thing.

    The partner of a row is drawn anew in every step. Rows whose label no other row has are left
    out. Two rows of one label may be in a batch without being partners, and then are contrasted:
    labels should be many, compared with the rows of a batch.

    Args:
      x: rows [n, ...].
      labels: [n], of any dtype that can be sorted.

    Raises:
      ValueError: there are not as many labels as rows, they can't be sorted, or no two are alike.

    Example:
      >>> source = an.pairs.grouped(np.zeros((100, 3), np.float32), np.arange(100) // 4)
    """
    rows, marks = as_rows(x, "x"), np.asarray(labels)
    if marks.shape != (len(rows),):
        raise ValueError(f"labels must be [{len(rows)}], one for each row, got shape {marks.shape}")
    try:
        # NaN is no label, though NumPy takes all of them for the same one.
        is_missing = np.asarray(marks != marks, bool)
        _, numbers = np.unique(marks, return_inverse=True)
    except TypeError as error:
        kinds = ", ".join(sorted({type(label).__name__ for label in marks.tolist()}))
        raise ValueError(
            f"labels must be of one kind that can be sorted, got {kinds}; leave out rows that have "
            "none, and make numbers or texts of the others"
        ) from error
    if np.any(is_missing):
        raise ValueError(
            f"labels must tell what each row belongs to, got NaN for {is_missing.sum()} of "
            f"{len(rows)} rows; leave those rows out, or give each a label of its own"
        )
    counts = np.bincount(numbers)
    kept = np.flatnonzero(counts[numbers] > 1)
    if not len(kept):
        raise ValueError(
            f"no two of the {len(rows):,} labels are alike; pairs are rows with the same label"
        )
    if len(kept) < len(rows):
        warnings.warn(
            f"{len(rows) - len(kept):,} of {len(rows):,} rows are left out: no other row has "
            "their label",
            stacklevel=2,
        )
    return ArrayPairs(Grouped(rows, numbers, kept))


def from_iterator(pairs: Iterable[Any], *, batched: bool = False) -> IteratorPairs:
    """Returns pairs of an iterator, or of anything that can be iterated over again and again.

    They come in the iterator's own order. What can be iterated over again (a list, a data loader)
    is gone over as often as a run needs, and lets an interrupted run go on; an iterator ends.

    Args:
      pairs: gives (view1, view2).
      batched: whether a view is [m, ...], m observations, rather than a single one.

    Raises:
      ValueError: there is none, or the first is no pair.

    Example:
      >>> pairs = ((np.zeros(3, np.float32), np.ones(3, np.float32)) for _ in range(100))
      >>> source = an.pairs.from_iterator(pairs)
    """
    return IteratorPairs(pairs, batched=batched)


@dataclasses.dataclass(frozen=True, eq=False)
class OneArray(PairTable):
    """Rows that both views are made of."""

    x: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The rows."""
        return (self.x,)

    def __len__(self) -> int:
        return len(self.x)

    def take(self, indices: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, ...]:
        """Returns the rows."""
        del draws
        return (self.x[indices],)


@dataclasses.dataclass(frozen=True, eq=False)
class TimeLagged(PairTable):
    """Moments of sessions with those `lag` rows later; pairs are numbered session by session."""

    sessions: tuple[np.ndarray, ...]
    lag: int

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The sessions."""
        return self.sessions

    @property
    def _ends(self) -> np.ndarray:
        """The number of pairs up to the end of each session."""
        return np.cumsum([len(session) - self.lag for session in self.sessions])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def take(self, indices: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, ...]:
        """Returns the moments, and those later."""
        del draws
        if len(self.sessions) == 1:
            (session,) = self.sessions
            return session[indices], session[indices + self.lag]
        ends = self._ends
        which = np.searchsorted(ends, indices, side="right")
        moments = indices - np.concatenate([[0], ends])[which]
        like = self.sessions[0]
        views = np.empty((2, len(indices), *like.shape[1:]), like.dtype)
        for number in np.unique(which):
            here, session = which == number, self.sessions[number]
            views[0, here] = session[moments[here]]
            views[1, here] = session[moments[here] + self.lag]
        return views[0], views[1]

    def split(self, held_out: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the pairs of the begin and of the end of every session, with no row in both.

        Neighbouring rows are all but the same; held out at random they would be known already.
        """
        share, train, test, first = held_out / len(self), [], [], 0
        for session in self.sessions:
            count = len(session) - self.lag
            kept = count - round(share * count)
            train.append(first + np.arange(max(0, kept - self.lag)))
            test.append(first + np.arange(kept, count))
            first += count
        return np.concatenate(train), np.concatenate(test)


class Grouped(PairTable):
    """Rows with others of the same label.

    Args:
      x: rows [n, ...].
      labels: whole numbers from 0 on, [n].
      kept: the rows that have a partner among each other.
    """

    def __init__(self, x: np.ndarray, labels: np.ndarray, kept: np.ndarray) -> None:
        self._x, self._labels, self._kept = x, labels, kept
        own = labels[kept]
        # The rows of a label follow each other; where they begin, and each row's place there.
        self._order = np.argsort(own, kind="stable")
        self._counts = np.bincount(own)
        self._starts = np.cumsum(self._counts) - self._counts
        self._places = np.empty_like(self._order)
        self._places[self._order] = np.arange(len(own)) - self._starts[own[self._order]]

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The rows."""
        return (self._x,)

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, indices: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, ...]:
        """Returns the rows, and another one of the same label for each."""
        labels = self._labels[self._kept[indices]]
        others = (draws % (self._counts[labels] - 1).astype(np.uint64)).astype(np.int64)
        places = (self._places[indices] + 1 + others) % self._counts[labels]
        partners = self._order[self._starts[labels] + places]
        return self._x[self._kept[indices]], self._x[self._kept[partners]]

    def part(self, indices: np.ndarray) -> "Grouped":
        """Returns the pairs among some of the rows; those that lose all partners are left out."""
        kept = self._kept[indices]
        counts = np.bincount(self._labels[kept], minlength=1)
        return Grouped(self._x, self._labels, kept[counts[self._labels[kept]] > 1])

    def split(self, held_out: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns rows to train on, and others: those of some labels or, of few, some of each."""
        share, labels = held_out / len(self), self._labels[self._kept]
        present = np.flatnonzero(self._counts)
        if len(present) >= _MANY_LABELS:
            chosen = present[split_at_random(len(present), round(share * len(present)))[1]]
            is_test = np.isin(labels, chosen)
        else:
            limits = self._counts - np.round(share * self._counts).astype(np.int64)
            is_test = self._places >= limits[labels]
        return np.flatnonzero(~is_test), np.flatnonzero(is_test)
