"""From the number of a batch to its rows: what threads, or worker processes, do."""

import dataclasses
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from aninfonce_jax.data.decode import Decoder
from aninfonce_jax.data.headers import CorruptImageError
from aninfonce_jax.data.source import NO_LABEL, DataError, ImageSource
from aninfonce_jax.placement import Rows

# Examples that are tried in place of an unreadable one before all is taken to be broken.
_MAX_TRIES = 20
# Padding has no place in the source.
_NO_INDEX = -1

# What a worker hands over: the fields of an ImageBatch, and what was unreadable in it.
Loaded = tuple[dict[str, np.ndarray], dict[int, str]]


class Threads(ThreadPoolExecutor):
    """Threads that stay behind where they are when a loader is sent to a worker process."""

    def __init__(self, count: int) -> None:
        super().__init__(count, thread_name_prefix="load")
        self.count = count

    def __reduce__(self) -> tuple[Callable[[int], "Threads"], tuple[int]]:
        return Threads, (self.count,)

    def share(self, load: Callable[[range], dict[int, str]], rows: int) -> dict[int, str]:
        """Calls `load` with a part of the rows in each thread; joins what it returns."""
        # Large parts: handing small images over singly would take longer than they do.
        size = max(1, -(-rows // self.count))
        parts = [range(first, min(first + size, rows)) for first in range(0, rows, size)]
        joined: dict[int, str] = {}
        for found in self.map(load, parts):
            joined |= found
        return joined


@dataclasses.dataclass
class TrainingLoader:
    """Number of a batch -> this host's rows of it, shuffled, none of them unreadable."""

    source: ImageSource
    decoder: Decoder
    rows: Rows
    order: Callable[[np.ndarray], np.ndarray]
    threads: Threads

    def __call__(self, batch: int) -> Loaded:
        """Returns the fields of the rows, and what was unreadable."""
        positions = self.rows.positions(batch)
        indices = self.order(positions).tolist()
        fields = _empty(len(positions), self.decoder)
        unreadable: dict[int, str] = {}
        for row, problem in _load_rows(self, indices, fields).items():
            unreadable[indices[row]] = problem
            unreadable |= self._stand_in(fields, row, int(positions[row]))
        return fields, unreadable

    def _stand_in(self, fields: dict[str, np.ndarray], row: int, position: int) -> dict[int, str]:
        """Fills a row with some readable example; returns those that were not."""
        unreadable: dict[int, str] = {}
        # Not the neighbours, which may have been damaged along with it.
        draws = np.random.Philox(np.random.SeedSequence([position])).random_raw(_MAX_TRIES)
        for index in (draws % len(self.source)).tolist():
            problem = _load(self.source, self.decoder, index, fields, row)
            if problem is None:
                return unreadable
            unreadable[index] = problem
        raise DataError(
            f"{self.source.name}: {_MAX_TRIES + 1} images in a row can't be read, the last was "
            f"{problem}; check that the data is still there"
        )


@dataclasses.dataclass
class EvaluationLoader:
    """Number of a batch -> this host's rows of it, in order; what is unreadable is masked."""

    source: ImageSource
    decoder: Decoder
    rows: Rows
    threads: Threads

    def __call__(self, batch: int) -> Loaded:
        """Returns the fields of the rows, and what was unreadable."""
        positions = self.rows.positions(batch)
        indices = positions[positions < len(self.source)].tolist()
        fields = _empty(len(positions), self.decoder)
        problems = _load_rows(self, indices, fields)
        return fields, {indices[row]: problem for row, problem in problems.items()}


def _empty(rows: int, decoder: Decoder) -> dict[str, np.ndarray]:
    return {
        "image": np.zeros((rows, decoder.size, decoder.size, decoder.channels), np.uint8),
        "label": np.full(rows, NO_LABEL, np.int32),
        "index": np.full(rows, _NO_INDEX, np.int32),
        "mask": np.zeros(rows, bool),
    }


def _load_rows(
    loader: TrainingLoader | EvaluationLoader, indices: list[int], fields: dict[str, np.ndarray]
) -> dict[int, str]:
    """Fills a row with each of the examples; returns the rows that it could not, and why."""

    def load(part: range) -> dict[int, str]:
        problems = {}
        for row in part:
            problem = _load(loader.source, loader.decoder, indices[row], fields, row)
            if problem is not None:
                problems[row] = problem
        return problems

    return loader.threads.share(load, len(indices))


def _load(
    source: ImageSource, decoder: Decoder, index: int, fields: dict[str, np.ndarray], row: int
) -> str | None:
    """Loads an example into a row of a batch; returns what is wrong with it, if it is."""
    try:
        example = source[index]
    except OSError as error:
        return f"{index}: {error}"
    try:
        fields["image"][row] = decoder(example.image)
    except CorruptImageError as error:
        return f"{example.id}: {error}"
    fields["label"][row] = example.label
    fields["index"][row] = index
    fields["mask"][row] = True
    return None
