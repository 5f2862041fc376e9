"""What a source of pairs is, and what it may know about its pairs.

A run learns from a `Source` and from nothing else. Two methods make one: `example`, for the
encoder's sake, and `pairs`. A source whose data are on the host also has a feed. What it
*knows* (latents, labels, interventions) decides what a run is scored by.

    class Steps(an.Source):
        def example(self):
            return jnp.zeros((2, 64))

        def pairs(self, key, fed, batch_size):
            ...
            return an.Pairs(view1, view2)
"""

import abc
import dataclasses
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

import jax
import numpy as np

from aninfonce_jax.placement import Rows
from aninfonce_jax.types import Array, Intervention, Pairs, PyTree


class HostFeed(Protocol):
    """An endless or finite iterator of one process's rows; use it in `with`."""

    @property
    def unreadable(self) -> Mapping[int, str]:
        """Which examples had to be passed over so far, and why."""
        ...

    def __iter__(self) -> Iterator[Any]: ...

    def __next__(self) -> Any: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class _PlainFeed:
    """Rows of an iterator of which nothing else is known."""

    def __init__(self, rows: Iterator[Any]) -> None:
        self.unreadable: Mapping[int, str] = {}
        self._rows = rows

    def __iter__(self) -> Iterator[Any]:
        return self._rows

    def __next__(self) -> Any:
        return next(self._rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if isinstance(self._rows, Generator):
            self._rows.close()


def as_feed(rows: HostFeed | Iterator[Any]) -> HostFeed:
    """Returns a feed as it is, or made of an iterator."""
    if all(hasattr(rows, name) for name in ("unreadable", "__enter__", "__exit__")):
        return rows  # type: ignore[return-value]
    return _PlainFeed(iter(rows))


@dataclasses.dataclass(frozen=True)
class PowerScore:
    """The true score of a pair up to a function of its anchor: -(1/p) Σ Λ_i |a_i - b_i|^p.

    Attributes:
      concentration: Λ, [dim].
      exponent: p.
    """

    concentration: np.ndarray
    exponent: float = 2.0


@dataclasses.dataclass(frozen=True)
class Latents:
    """What generated the observations, to score an encoder by what it recovers.

    Attributes:
      draw: (key, n) -> latents [n, dim] and their observations [n, ...]; may be traced.
      concentration: the true Λ [dim], where there is one.
      score: the best score that negatives drawn like the anchors allow, where it has this
        form: then the loss of a perfect encoder is known.
      own_concentration: the Λ⁻ [dim] of negatives that are each anchor's own, where it has any.
      members: of an ensemble, the true Λ [dim] of each member; () elsewhere.
      draw_shifted: like `draw`, of anchors that are distributed in another way than those of
        training, to see what an encoder recovers of them; None: there are none.

    Example:
      >>> def draw(key, count):  # latents, and the observations of them
      ...     z = jax.random.normal(key, (count, 3))
      ...     return z, jnp.tanh(z)
      >>> known = an.Known(latents=an.Latents(draw))
    """

    draw: Callable[[Array, int], tuple[Array, Array]]
    concentration: np.ndarray | None = None
    score: PowerScore | None = None
    own_concentration: np.ndarray | None = None
    members: tuple[np.ndarray, ...] = ()
    draw_shifted: Callable[[Array, int], tuple[Array, Array]] | None = None

    @property
    def dim(self) -> int:
        """How many factors there are; nothing is drawn."""
        latents, _ = jax.eval_shape(lambda key: self.draw(key, 1), jax.random.key(0))
        return int(latents.shape[-1])


class LabelledBatch(Protocol):
    """Rows of examples: a pytree that goes to the devices.

    Attributes:
      label: classes, int32 [batch]; negative where there is none.
      mask: bool [batch]; False for rows that are not to be counted.
    """

    label: Any
    mask: Any


class ExampleSet(Protocol):
    """Examples that can be counted, chosen from and read in order."""

    def __len__(self) -> int: ...

    def choose(self, count: int, seed: int) -> "ExampleSet":
        """Returns `count` examples in an order drawn by `seed`; 0 or too many: all of them."""
        ...

    def batches(self, rows: Rows) -> HostFeed:
        """Returns `LabelledBatch`es that hold each example once, the last one padded."""
        ...


@dataclasses.dataclass(frozen=True)
class Examples:
    """Observations to learn a readout from, and others to score it on.

    Attributes:
      train: of what the run was trained on.
      test: of what it was not.
      observe: a batch -> observations as an encoder takes them, [batch, ...]; may be traced.
      classes: how many classes the labels tell; 0 where there are no labels.
      factors: examples -> what is known of how each was made, [examples, factors], in their order;
        None where nothing is.
      views: (key, batch) -> an augmented view of each example, [batch, ...]; may be traced; None
        where there are no augmentations.
    """

    train: ExampleSet
    test: ExampleSet
    observe: Callable[[Any], Array]
    classes: int = 0
    factors: Callable[[Any], np.ndarray] | None = None
    views: Callable[[Array, Any], Array] | None = None


class Interventions(Protocol):
    """What can be done to an example on purpose, one thing at a time."""

    @property
    def names(self) -> tuple[str, ...]:
        """The operations."""
        ...

    @property
    def averaged(self) -> tuple[str, ...]:
        """Those that the average over readouts takes in."""
        ...

    def has_strength(self, name: str) -> bool:
        """Whether the operation has a strength that could be predicted."""
        ...

    def occurs(self, name: str) -> bool:
        """Whether training ever does this to a view."""
        ...

    def intervene(
        self, key: Array, batch: Any, name: str, *, strength: str, context: str
    ) -> Intervention:
        """Returns every example of a batch without and with one operation; may be traced."""
        ...


@dataclasses.dataclass(frozen=True)
class Known:
    """What a source knows about its pairs: any of these, or none.

    Attributes:
      latents: what generated them.
      examples: observations set aside, with their labels where there are any.
      interventions: what can be done to the examples; needs them.

    Example:
      >>> known = an.Known()  # nothing: such a run gets collapse monitors only
      >>> known.latents is None
      True
    """

    latents: Latents | None = None
    examples: Examples | None = None
    interventions: Interventions | None = None


class PairSheet(NamedTuple):
    """Pairs to look at.

    Attributes:
      title: what the pairs are.
      columns: heading -> one image [height, width, 3] for each pair, and a caption each.
    """

    title: str
    columns: dict[str, tuple[np.ndarray, list[str]]]


class RowForm(NamedTuple):
    """What rows from outside must be, to be encoded like those of a source.

    Attributes:
      shape: of one.
      is_bytes: whether they are bytes, which then mean values from 0 to 1.
      observe: uint8 rows [batch, ...] -> observations, where that takes more; traced.
      resize: whether images of other sizes are brought to this one.
    """

    shape: tuple[int, ...]
    is_bytes: bool = False
    observe: Callable[[Array], Array] | None = None
    resize: bool = False


class Source(abc.ABC):
    """Where a run takes its positive pairs from.

    A batch is a function of (seed, step) and of nothing else: not of processes, devices or
    restarts.

    Example:
      >>> class NoisyCopies(an.Source):
      ...     def example(self):
      ...         return jnp.zeros((2, 3))
      ...     def pairs(self, key, fed, batch_size):
      ...         views = jax.random.normal(key, (2, batch_size, 3))
      ...         return an.Pairs(views[0], views[0] + 0.1 * views[1])
      >>> NoisyCopies().pairs(jax.random.key(0), None, 8).view1.shape
      (8, 3)
    """

    @property
    def name(self) -> str:
        """What messages and reports call the source."""
        return type(self).__name__

    @property
    def known(self) -> Known:
        """What is known about the pairs."""
        return Known()

    @property
    def pair_count(self) -> int | None:
        """How many pairs there are to train on; None: without end, or not known."""
        return None

    @property
    def row_form(self) -> RowForm:
        """What rows from outside must be, to be encoded like those of the source."""
        return RowForm(tuple(self.example().shape[1:]))

    def fingerprint(self) -> str:
        """Returns what tells this data set from any other; "" where it can't be told.

        Processes that share a run are refused if they differ in it.
        """
        return ""

    @abc.abstractmethod
    def example(self) -> Array:
        """Returns two observations, [2, ...], to initialise an encoder with; may be zeros."""

    @abc.abstractmethod
    def pairs(self, key: Array, fed: PyTree, batch_size: int) -> Pairs:
        """Returns the positive pairs of a step; traced.

        Args:
          key: of the step; the same one gives the same pairs on any mesh.
          fed: what the feed gave for the step, as global arrays; None without a feed.
          batch_size: how many pairs, over all devices.
        """

    def fed(self, batch_size: int) -> PyTree:
        """Returns shapes and dtypes of what a step is fed; None: the key is all it takes."""
        del batch_size

    def open_feed(self, rows: Rows, *, seed: int, step: int) -> HostFeed | Iterator[PyTree]:
        """Returns the feed from `step` on; asked for only where `fed` is not None.

        A generator of NumPy arrays will do, `rows.positions(step)` of each batch. A `HostFeed`
        can also be closed, and tells what it could not read.

        Args:
          rows: what this process loads of every batch.
          seed: of the order.
          step: the number of the first batch.
        """
        raise NotImplementedError(f"{self.name} says that it is fed, but has no feed")

    def held_out(self, batch_size: int) -> "Source | None":
        """Returns a source of pairs that training does not see; None if they fill no batch.

        A source that is not fed draws fresh pairs by fresh keys: it is its own.
        """
        return self if self.fed(batch_size) is None else None

    def of_members(self) -> "Sequence[Source]":
        """Returns the sources of the members of an ensemble; () for any other source."""
        return ()

    def with_held_out(self, count: int) -> "Source":
        """Returns the source with about `count` pairs kept from training, if it can do that."""
        del count
        return self

    def at_hand(self, count: int) -> list[np.ndarray]:
        """Returns arrays [n, ...] of observations that can be looked at before training.

        A source that reads in order returns those of the first `count` pairs, and trains on them
        all the same. One whose observations have to be drawn returns [].
        """
        del count
        return []

    def preview(self, key: Array, count: int) -> PairSheet | None:
        """Returns some held-out pairs to look at, where they can be drawn; None elsewhere."""
        del key, count
        return None

    def samples(self, key: Array, count: int) -> np.ndarray | None:
        """Returns both views of some pairs, [count, 2, height, width, 1 or 3], from 0 to 1.

        A source that makes its images itself returns them, so that a report can show what they
        look like; any other returns None.
        """
        del key, count
        return None


def traced_pairs(source: Source, key: Array, fed: PyTree, batch_size: int) -> Pairs:
    """Returns the pairs of a step, of which there are as many as were asked for; traced.

    Raises:
      TypeError: the source gives no `Pairs`.
      ValueError: it gives more or fewer of them, or its feed more or fewer rows.
    """
    pairs = source.pairs(key, fed, batch_size)
    if not all(hasattr(pairs, view) for view in ("view1", "view2")):
        raise TypeError(
            f"{source.name} must give an.Pairs(view1, view2), got {type(pairs).__name__}"
        )
    counts = [view.shape[0] for view in (pairs.view1, pairs.view2)]
    if counts != [batch_size, batch_size]:
        raise ValueError(
            f"{source.name} must give {batch_size} pairs, the batch size, got {counts[0]} first "
            f"and {counts[1]} second views; its feed, if it has one, must give as many rows"
        )
    return pairs
