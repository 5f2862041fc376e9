"""Arrays as a source of pairs: rows that the host reads as they are asked for.

A table knows its pairs by number and hands over the rows of a batch; whatever is larger than
memory stays on disk, and of a memory-mapped array only these rows are read. `sources/pairs.py`
makes tables of what people have.
"""

import abc
import dataclasses
import hashlib
import mmap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.data.order import ShuffledOrder
from aninfonce_jax.placement import Rows
from aninfonce_jax.sources.source import RowForm, Source
from aninfonce_jax.types import Array, Pairs, PyTree

# (key, rows [batch, ...]) -> rows [batch, ...], or these and what was done to each, as in `Pairs`;
# traced.
Augment = Callable[[Array, Array], Array | tuple[Array, Mapping[str, Array]]]

# What jax raises where a function asks for values that are not there while it is traced.
_NOT_OF_JAX = (
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.ConcretizationTypeError,
)
# Rows that a fingerprint looks at.
_SAMPLES = 16
# Largest value of a byte: images of bytes are handed over as values from 0 to 1.
_BYTE = 255.0


def release_pages(array: Any) -> None:
    """Gives back the pages of a mapped file that were read, which else count as memory in use.

    They are read again where they are needed. A mapping that keeps changes to itself is left as
    it is: they would be lost.
    """
    is_shared = False
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            is_shared = array.mode in ("r", "r+")
        array = array.base
    # Not on Windows.
    if is_shared and isinstance(array, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        array.madvise(mmap.MADV_DONTNEED)


class PairTable(abc.ABC):
    """Pairs by number."""

    @property
    @abc.abstractmethod
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays [n, ...] that rows are taken from, alike in the shape of their rows."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Returns the number of pairs."""

    @abc.abstractmethod
    def take(self, indices: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, ...]:
        """Returns the rows of pairs: both views, or one that both are to be made of.

        Args:
          indices: which pairs, int64 [batch].
          draws: a random number for each, uint64 [batch], for partners that are drawn.
        """

    def part(self, indices: np.ndarray) -> "PairTable":
        """Returns the table of some of the pairs."""
        return _Part(self, indices)

    def split(self, held_out: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the numbers of the pairs to train on, and of about `held_out` others."""
        return split_at_random(len(self), held_out)


def split_at_random(count: int, held_out: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns two parts of the numbers below `count`, each in order; always the same ones."""
    chosen = ShuffledOrder(count, seed=0)(np.arange(held_out))
    is_chosen = np.zeros(count, bool)
    is_chosen[chosen] = True
    return np.flatnonzero(~is_chosen), np.flatnonzero(is_chosen)


@dataclasses.dataclass(frozen=True, eq=False)
class _Part(PairTable):
    table: PairTable
    indices: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.table.arrays

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, indices: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, ...]:
        return self.table.take(self.indices[indices], draws)


@dataclasses.dataclass(frozen=True, eq=False)
class TwoArrays(PairTable):
    """Row i of one array with row i of the other."""

    view1: np.ndarray
    view2: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Both views."""
        return (self.view1, self.view2)

    def __len__(self) -> int:
        return len(self.view1)

    def take(self, indices: np.ndarray, draws: np.ndarray) -> tuple[np.ndarray, ...]:
        """Returns the same rows of both."""
        del draws
        return self.view1[indices], self.view2[indices]


@dataclasses.dataclass(frozen=True, eq=False)
class ArrayPairs(Source):
    """Pairs of a table, in an order that is shuffled anew in every pass.

    Attributes:
      table: of the pairs.
      augment: makes each view of the table's one row, with a key of its own; None: the table
        gives both views.
      held_out_pairs: pairs that training does not see; None: there are none.
    """

    table: PairTable
    augment: Augment | None = None
    held_out_pairs: PairTable | None = None

    @property
    def name(self) -> str:
        """What the pairs are made of."""
        return f"{len(self.table):,} pairs of arrays"

    @property
    def observation(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of one observation as it is fed."""
        rows = self.table.arrays[0]
        return jax.ShapeDtypeStruct(rows.shape[1:], fed_dtype(rows.dtype))

    def __len__(self) -> int:
        """Returns the number of pairs to train on."""
        return len(self.table)

    @property
    def pair_count(self) -> int:
        """How many pairs there are to train on."""
        return len(self.table)

    @property
    def row_form(self) -> RowForm:
        """Rows as those of the table."""
        return RowForm(self.observation.shape, self.observation.dtype == np.uint8)

    def at_hand(self, count: int) -> list[np.ndarray]:
        """Returns the arrays of the table, whole."""
        del count
        return list(self.table.arrays)

    def with_held_out(self, held_out: int) -> "ArrayPairs":
        """Returns the source with about `held_out` pairs set aside."""
        if not held_out:
            return self
        train, test = self.table.split(held_out)
        return dataclasses.replace(
            self, table=self.table.part(train), held_out_pairs=self.table.part(test)
        )

    def fingerprint(self) -> str:
        """Returns a digest of the number of pairs, their shape, and some of them."""
        digest = hashlib.sha256()
        whole = (self.table, self.held_out_pairs) if self.held_out_pairs else (self.table,)
        for table in whole:
            digest.update(repr((len(table), self.observation)).encode())
            indices = np.linspace(0, len(table) - 1, min(_SAMPLES, len(table))).astype(np.int64)
            for rows in table.take(indices, np.zeros(len(indices), np.uint64)):
                digest.update(np.ascontiguousarray(as_fed(rows)).tobytes())
        return digest.hexdigest()[:16]

    def example(self) -> Array:
        """Returns two empty observations."""
        return jnp.zeros((2, *self.observation.shape))

    def fed(self, batch_size: int) -> PyTree:
        """Returns shapes of a batch: both views, or what they are made of, and their numbers."""
        rows = jax.ShapeDtypeStruct((batch_size, *self.observation.shape), self.observation.dtype)
        numbers = jax.ShapeDtypeStruct((batch_size,), jnp.int32)
        return (*[rows] * (2 if self.augment is None else 1), numbers)

    def open_feed(self, rows: Rows, *, seed: int, step: int) -> Iterator[PyTree]:
        """Yields batches without end: batch t is a function of the seed and t."""
        order = ShuffledOrder(len(self.table), seed)
        while True:
            positions = rows.positions(step)
            bits = np.random.Philox(np.random.SeedSequence([seed, step, len(self.table)]))
            draws = bits.random_raw(rows.batch_size)[positions - step * rows.batch_size]
            numbers = order(positions)
            views = self.table.take(numbers, draws)
            yield (*map(as_fed, views), numbers.astype(np.int32))
            step += 1

    def pairs(self, key: Array, fed: PyTree, batch_size: int) -> Pairs:
        """Returns the rows as both views, or two augmented views of them."""
        *given, numbers = fed
        views = [as_floats(rows) for rows in given]
        done: list[Mapping[str, Array] | None] = [None, None]
        if self.augment is not None:
            (rows,) = views
            made = [self._augmented(own, rows) for own in jax.random.split(key)]
            views, done = map(list, zip(*made, strict=True))
        for view in views:
            if view.shape != (batch_size, *self.observation.shape):
                raise ValueError(
                    f"views must be [{batch_size}, ...] of shape {self.observation.shape}, as the "
                    f"rows are, got {view.shape}; an augmentation maps rows to as many like them"
                )
        return Pairs(*views, done1=done[0], done2=done[1], number=numbers)

    def _augmented(self, key: Array, rows: Array) -> tuple[Array, Mapping[str, Array] | None]:
        """Returns a view of rows, and what was done to them, where it is said."""
        assert self.augment is not None
        try:
            made: Any = self.augment(key, rows)
        except _NOT_OF_JAX as error:
            raise TypeError(
                "an augmentation runs on the device, so it must use jax.numpy and jax.random, no "
                "NumPy and no branches on values"
            ) from error
        view, done = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
        if not hasattr(view, "shape") or not isinstance(done, Mapping | None):
            raise TypeError(
                "an augmentation must return rows, or rows and what was done to each, "
                "{name: parameters [batch, k]}"
            )
        return view, done

    def held_out(self, batch_size: int) -> "ArrayPairs | None":
        """Returns pairs that training does not see; None if they are fewer than a batch."""
        if self.held_out_pairs is None or len(self.held_out_pairs) < batch_size:
            return None
        return dataclasses.replace(self, table=self.held_out_pairs, held_out_pairs=None)


def fed_dtype(dtype: Any) -> np.dtype:
    """Returns in what rows go to the device: bytes as they are, all else as float32."""
    return np.dtype(np.uint8) if dtype == np.uint8 else np.dtype(np.float32)


def as_fed(rows: np.ndarray) -> np.ndarray:
    """Returns rows in the dtype in which they go to the device."""
    return np.asarray(rows, fed_dtype(rows.dtype))


def as_floats(rows: Array) -> Array:
    """Returns rows as floats, bytes from 0 to 1; may be traced."""
    if rows.dtype == jnp.uint8:
        return rows.astype(jnp.float32) / _BYTE
    return rows.astype(jnp.float32)


def refuse_masked(x: Any, what: str) -> None:
    """Raises ValueError if entries of an array are masked: what lies below would be learned."""
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise ValueError(
            f"{what} has {np.ma.count_masked(x):,} masked entries, and all are needed; leave out "
            "such rows, or fill them in: x.filled(value)"
        )


def as_rows(x: Any, what: str = "an array") -> np.ndarray:
    """Returns observations [n, ...] as an array of numbers; one in memory, or mapped, stays.

    Raises:
      ValueError: it is none.
    """
    refuse_masked(x, what)
    x = x if isinstance(x, np.ndarray) else np.asarray(x)
    if x.dtype.kind not in "fiub":
        raise ValueError(f"{what} must hold real numbers, got dtype {x.dtype}")
    if x.ndim < 2:
        raise ValueError(
            f"{what} must be [n, ...], one observation a row, got shape {x.shape}; of single "
            "numbers, reshape(-1, 1) makes rows"
        )
    if 0 in x.shape:
        raise ValueError(f"{what} must not be empty, got shape {x.shape}")
    return x
