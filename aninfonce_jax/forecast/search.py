"""Finds the largest batch that fits, and what makes a run fit that does not, by compiling."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aninfonce_jax import config as config_lib
from aninfonce_jax.config.schema import Config
from aninfonce_jax.forecast.chips import Topology

# A search ends when it knows the largest batch to this share of it.
_PRECISION = 1 / 16
# More than this many times the config's batch is not tried.
MOST_TIMES = 64
_MICROBATCHES = (2, 4, 8, 16, 32)


@dataclasses.dataclass(frozen=True)
class Trial:
    """A batch that was compiled.

    Attributes:
      batch: its size.
      fits: whether there is room for it.
      total: bytes it takes on one chip, as far as the compiler came.
    """

    batch: int
    fits: bool
    total: int


@dataclasses.dataclass(frozen=True)
class BatchSearch:
    """What a search found.

    Attributes:
      trials: in their order, the config's own batch first.
      is_done: whether the answer is as precise as it gets.
    """

    trials: tuple[Trial, ...]
    is_done: bool

    @property
    def largest(self) -> int | None:
        """The largest batch that was seen to fit."""
        return max((one.batch for one in self.trials if one.fits), default=None)

    @property
    def too_large(self) -> int | None:
        """The smallest batch above it that was seen not to fit."""
        fits = self.largest or 0
        return min((t.batch for t in self.trials if not t.fits and t.batch > fits), default=None)


def search_batch(
    first: Trial,
    measure: Callable[[int], Trial],
    *,
    multiple: int,
    fixed: int,
    usable: int,
    compiles: int,
) -> BatchSearch:
    """Searches the largest batch that fits.

    Memory grows with the batch nearly along a line, so that two batches tell where the limit
    is; the answer is a batch that was compiled, never one that was only computed.

    Args:
      first: the config's own batch.
      measure: compiles another.
      multiple: of which batches must be.
      fixed: bytes that do not grow with the batch.
      usable: bytes that there are.
      compiles: how often to compile at most.
    """
    trials = [first]
    limit = MOST_TIMES * first.batch
    for _ in range(compiles):
        batch = _propose(trials, multiple, fixed, usable, limit)
        if batch is None:
            return BatchSearch(tuple(trials), True)
        trials.append(measure(batch))
    done = _propose(trials, multiple, fixed, usable, limit) is None
    return BatchSearch(tuple(trials), done)


def _propose(trials: list[Trial], multiple: int, fixed: int, usable: int, limit: int) -> int | None:
    """Returns the batch to try next; None where the answer is known well enough."""
    low = max((one.batch for one in trials if one.fits), default=0)
    high = min((one.batch for one in trials if not one.fits and one.batch > low), default=None)
    step = max(multiple, int(low * _PRECISION) // multiple * multiple)
    if high is None and low >= limit:
        return None
    if high is not None and high - low <= step:
        return None
    guess = _guess(trials, fixed, usable)
    least = low + step
    most = limit if high is None else high - multiple
    if high is not None and len(trials) > 2:
        # A line that misled once is not followed twice: halve what is left.
        guess = (low + high) / 2
    return max(multiple, min(max(math.floor(guess / multiple) * multiple, least), most))


def _guess(trials: list[Trial], fixed: int, usable: int) -> float:
    """Returns the batch at which a line through what is known reaches the limit."""
    points = sorted({one.batch: float(one.total) for one in trials}.items())[-2:]
    if len(points) == 1:
        points = [(0, float(fixed)), *points]
    (batch1, total1), (batch2, total2) = points
    slope = (total2 - total1) / (batch2 - batch1)
    return batch2 + (usable - total2) / slope if slope > 0 else 2.0 * batch2


@dataclasses.dataclass(frozen=True)
class Remedy:
    """A change that may make a run fit.

    Attributes:
      what: it is, for the user.
      changes: of the config, by dotted name.
      topology: where it runs.
      price: what else it changes, if anything.
    """

    what: str
    changes: Mapping[str, Any]
    topology: Topology
    price: str


def remedies(config: Config, topology: Topology) -> list[list[Remedy]]:
    """Returns what might make a run fit: of each list the first that does is enough."""
    values = config_lib.flatten(config)
    found = [
        [*_other_strategies(values, topology)],
        [*_recomputing(values, topology)],
        [*_more_microbatches(values, topology)],
        [*_more_chips(values, topology)],
    ]
    return [ways for ways in found if ways]


def _other_strategies(values: Mapping[str, Any], topology: Topology) -> Iterator[Remedy]:
    now = values.get("objective.strategy")
    other = "ring" if topology.size > 1 else "chunked"
    if now is not None and now != other:
        yield Remedy(
            f"objective.strategy={other}",
            {"objective.strategy": other},
            topology,
            "scores are computed again for the gradient; the result is the same",
        )


def _recomputing(values: Mapping[str, Any], topology: Topology) -> Iterator[Remedy]:
    if values.get("encoder.remat") is False:
        yield Remedy(
            "encoder.remat=true",
            {"encoder.remat": True},
            topology,
            "part of the network is computed again for the gradient; the result is the same",
        )


def _more_microbatches(values: Mapping[str, Any], topology: Topology) -> Iterator[Remedy]:
    now, rows = values["train.microbatches"], values["train.batch_size"] // topology.size
    for parts in _MICROBATCHES:
        if parts > now and rows % parts == 0:
            yield Remedy(
                f"train.microbatches={parts}",
                {"train.microbatches": parts},
                topology,
                "every pair is encoded twice, and a BatchNorm sees one part at a time",
            )


def _more_chips(values: Mapping[str, Any], topology: Topology) -> Iterator[Remedy]:
    larger = topology.doubled()
    for _ in range(3):
        if larger is None:
            return
        if values["train.batch_size"] % (larger.size * values["train.microbatches"]) == 0:
            yield Remedy(f"--topology={larger.name}", {}, larger, f"{larger.chips} chips")
        larger = larger.doubled()
