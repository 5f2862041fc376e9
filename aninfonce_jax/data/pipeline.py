"""Batches of images from a source: in a known order, from any position, on any host.

A batch is a function of its number. Which examples it holds follows from the seed and that
number alone, so the number is all that a checkpoint has to keep, and neither the number of
hosts nor that of workers changes what is in a batch. Grain runs ahead: a few batches in this
process, or worker processes and shared memory on the way back. The threads share the rows of a
batch, so that their number does not add to the memory.
"""

import dataclasses
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import cv2
import grain  # type: ignore[import-untyped]
import numpy as np
from absl import flags

from aninfonce_jax.data.decode import Decoder
from aninfonce_jax.data.loaders import EvaluationLoader, Loaded, Threads, TrainingLoader
from aninfonce_jax.data.order import ShuffledOrder
from aninfonce_jax.data.source import DataError, ImageSource
from aninfonce_jax.placement import Rows
from aninfonce_jax.types import Array, register_dataclass

# Batches of a training stream: at one per second they last for 60 years.
_ENDLESS = 2**31 - 1
_SHARED_MEMORY = Path("/dev/shm")
# What Grain says of one; before it come "Worker process", or its number in older versions.
_DEAD_WORKER = "was terminated unexpectedly"


@register_dataclass
@dataclasses.dataclass(frozen=True)
class ImageBatch:
    """One batch, or one host's rows of it.

    Attributes:
      image: pixels, uint8 [batch, size, size, channels].
      label: classes, int32 [batch]; NO_LABEL where there is none.
      index: where the examples are in their source, int32 [batch]; -1 for padding.
      mask: bool [batch]; False for rows that are not to be counted: padding and, in an
        evaluation, images that can't be read.
    """

    image: Array | np.ndarray
    label: Array | np.ndarray
    index: Array | np.ndarray
    mask: Array | np.ndarray


@dataclasses.dataclass(frozen=True)
class Loading:
    """How the work is spread on a host; none of it changes a batch.

    Attributes:
      workers: worker processes; 0 loads in this one.
      threads: threads that load, in each process; they share the rows of a batch.
      ahead: batches that each process holds ready.
      max_bad_share: the share of the examples that may be unreadable. Unless it is 0, a single
        one always may: of 64 examples it would be more than 1 %.
    """

    workers: int = 0
    threads: int = 1
    ahead: int = 2
    max_bad_share: float = 0.01

    def __post_init__(self) -> None:
        if self.workers < 0 or self.threads < 1 or self.ahead < 1:
            raise ValueError(
                "workers must be at least 0, threads and ahead at least 1, got "
                f"{self.workers}, {self.threads} and {self.ahead}"
            )
        if not 0 <= self.max_bad_share <= 1:
            raise ValueError(f"max_bad_share must be from 0 to 1, got {self.max_bad_share}")


def training_batches(
    source: ImageSource,
    decoder: Decoder,
    rows: Rows,
    *,
    seed: int,
    start: int = 0,
    loading: Loading | None = None,
    order: Callable[[np.ndarray], np.ndarray] | None = None,
) -> "Batches":
    """Returns this host's rows of an endless stream of shuffled batches.

    Every epoch holds each example once, in an order of its own; a batch may lie across two
    epochs, so that none is cut short. An image that can't be read is replaced by another one,
    which its place in the stream chooses.

    Args:
      source: the examples.
      decoder: makes their pixels.
      rows: what this host loads.
      seed: of the shuffles.
      start: the number of the first batch: the position that an earlier session had reached.
      loading: how the work is spread.
      order: positions in the stream [n] -> indices of examples; by default they are shuffled.

    Raises:
      DataError: the source is smaller than a batch.
    """
    if len(source) < rows.batch_size:
        raise DataError(
            f"{source.name} must hold at least one batch of {rows.batch_size:,}, got "
            f"{len(source):,} examples; lower the batch size"
        )
    order = order or ShuffledOrder(len(source), seed)
    loading = loading or Loading()
    loader = TrainingLoader(source, decoder, rows, order, Threads(loading.threads))
    return Batches(loader, len(source), _ENDLESS, start, loading)


def evaluation_batches(
    source: ImageSource,
    decoder: Decoder,
    rows: Rows,
    *,
    start: int = 0,
    loading: Loading | None = None,
) -> "Batches":
    """Returns this host's rows of every batch of a source, each example once, in its order.

    The last batch is filled up with rows whose mask is False. Every host gets the same number
    of batches. An image that can't be read is masked.

    Args:
      source: the examples.
      decoder: makes their pixels.
      rows: what this host loads.
      start: the number of the first batch.
      loading: how the work is spread.
    """
    count = -(-len(source) // rows.batch_size)
    loading = loading or Loading()
    loader = EvaluationLoader(source, decoder, rows, Threads(loading.threads))
    return Batches(loader, len(source), count, start, loading)


class Batches(Iterator[ImageBatch]):
    """An iterator over batches that knows where it is; close it, or use it in `with`.

    Attributes:
      position: the number of the next batch. A stream started there goes on exactly.
      unreadable: index in the source -> what is wrong, of the images that were skipped since
        this iterator was made.
    """

    def __init__(
        self,
        loader: TrainingLoader | EvaluationLoader,
        examples: int,
        count: int,
        start: int,
        loading: Loading,
    ) -> None:
        if not 0 <= start <= count:
            raise ValueError(f"start must be from 0 to {count:,} batches, got {start:,}")
        self.position = start
        self.unreadable: dict[int, str] = {}
        self._count = count
        self._name = loader.source.name
        self._examples = examples
        self._max_bad_share = loading.max_bad_share
        self._threads = loader.threads
        self._in_shared_memory = loading.workers > 0
        _check_shared_memory(loader, loading)
        self._iterator: Any = iter(_grain_dataset(loader, start, count, loading))

    def __len__(self) -> int:
        """Returns the number of batches from the start of the stream to its end."""
        return self._count

    def __next__(self) -> ImageBatch:
        if self._iterator is None or self.position >= self._count:
            raise StopIteration
        try:
            batch, unreadable = next(self._iterator)
        except RuntimeError as error:
            if _DEAD_WORKER not in str(error):
                raise
            raise DataError(
                f"{self._name}: a process that loads images was ended from outside, such as for "
                f"want of memory ({error}); the same command goes on, maybe with fewer workers"
            ) from error
        self.position += 1
        self.unreadable.update(unreadable)
        if self._too_many_unreadable():
            raise DataError(self._complaint())
        if self._in_shared_memory:
            # A batch that someone keeps must not fill the machine's shared memory.
            batch = {name: np.array(values) for name, values in batch.items()}
        return ImageBatch(**batch)

    def close(self) -> None:
        """Stops the workers and threads."""
        if self._iterator is not None:
            self._iterator.close()
            self._iterator = None
            self._threads.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _too_many_unreadable(self) -> bool:
        count = len(self.unreadable)
        allowed = 1 if self._max_bad_share > 0 else 0
        return count > allowed and count / self._examples > self._max_bad_share

    def _complaint(self) -> str:
        last = list(self.unreadable.values())[-1]
        return (
            f"{self._name}: {len(self.unreadable):,} of {self._examples:,} images can't be read, "
            f"more than a share of {self._max_bad_share:g}; the last was {last}; fetch the data "
            "again, or raise max_bad_share"
        )


def _grain_dataset(
    load: Callable[[int], Loaded], start: int, count: int, loading: Loading
) -> grain.IterDataset:
    # Batches, not examples, are Grain's elements: order then does not depend on the number
    # of workers, and a position is a number. A rebuilt data set and not Grain's own state
    # restores it, because that state holds for one number of workers only.
    batches = grain.MapDataset.range(start, count).map(load)
    # Grain's threads only wait for those of the loader, one for each batch: threads that are
    # done with theirs begin the next one. What a worker has ready waits in shared memory.
    at_once = 1 if loading.workers else loading.ahead
    dataset = batches.to_iter_dataset(
        grain.ReadOptions(num_threads=at_once, prefetch_buffer_size=at_once)
    )
    if not loading.workers:
        return dataset
    if not flags.FLAGS.is_parsed():
        # Grain's workers read absl flags of its own, which this package's commands don't use.
        flags.FLAGS.mark_as_parsed()
    return dataset.mp_prefetch(
        grain.MultiprocessingOptions(
            num_workers=loading.workers, per_worker_buffer_size=loading.ahead
        ),
        worker_init_fn=_start_worker,
    )


def _start_worker(worker: int, workers: int) -> None:
    """Sets a worker process up."""
    del worker, workers
    # Ctrl-C, and a scheduler's notice, go to all processes; the main one may want batches until
    # it has saved.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # A killed parent cannot stop its workers, which would wait for room in a queue for ever.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # OpenCV would start a pool of threads in every worker.
    cv2.setNumThreads(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _check_shared_memory(loader: TrainingLoader | EvaluationLoader, loading: Loading) -> None:
    """Raises DataError where workers would die of a full /dev/shm, as small containers have."""
    if not loading.workers or not _SHARED_MEMORY.is_dir():
        return
    rows = loader.rows.batch_size // loader.rows.hosts
    pixels = rows * loader.decoder.size**2 * loader.decoder.channels
    # Besides what is held ready, each worker writes one batch and one is being read.
    needed = loading.workers * (loading.ahead + 2) * pixels
    free = shutil.disk_usage(_SHARED_MEMORY).free
    if free < needed:
        raise DataError(
            f"{_SHARED_MEMORY} must have {needed / 2**20:,.0f} MiB free for {loading.workers} "
            f"workers, got {free / 2**20:,.0f}; enlarge it (docker run --shm-size), or use fewer "
            "workers"
        )
