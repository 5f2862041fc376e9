"""Batches on the device before they are asked for."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Self, TypeVar

from aninfonce_jax.types import PyTree

T = TypeVar("T")

# How long the thread may take to notice that it is to stop.
_POLL_SECONDS = 0.1


class Prefetch(Iterator[T], Generic[T]):
    """Keeps `depth` batches on the device, put there by a thread; close it, or use `with`.

    What goes wrong in the thread is raised where the batch is asked for.

    Args:
      batches: where they come from; only the thread touches it from now on.
      put: host batch -> device batch, such as `placement.put_rows`.
      depth: how many to hold ready.
      start: the number of the first batch.

    Attributes:
      position: the number of the next batch to hand out. What is held ready does not count:
        it is the position to save, not that of `batches`.
    """

    def __init__(
        self,
        batches: Iterable[PyTree],
        put: Callable[[PyTree], T],
        *,
        depth: int = 2,
        start: int = 0,
    ) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        self.position = start
        self._ready: queue.Queue[T | _End] = queue.Queue(depth)
        self._stop = threading.Event()
        self._ended: _End | None = None
        self._thread = threading.Thread(
            target=self._run, args=(iter(batches), put), name="prefetch", daemon=True
        )
        self._thread.start()

    def __next__(self) -> T:
        if self._ended is None:
            item = self._ready.get()
            if not isinstance(item, _End):
                self.position += 1
                return item
            self._ended = item
        raise self._ended.error

    def close(self) -> None:
        """Stops the thread; the iterator it read from can be closed after this."""
        self._stop.set()
        self._ended = self._ended or _End(StopIteration())
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, batches: Iterator[PyTree], put: Callable[[PyTree], T]) -> None:
        try:
            for batch in batches:
                if not self._offer(put(batch)):
                    return
        except Exception as error:
            self._offer(_End(error))
        else:
            self._offer(_End(StopIteration()))

    def _offer(self, item: "T | _End") -> bool:
        """Hands over an item; returns False if it is no longer wanted."""
        while not self._stop.is_set():
            try:
                self._ready.put(item, timeout=_POLL_SECONDS)
            except queue.Full:
                continue
            return True
        return False


class _End:
    """What the thread leaves when it is done."""

    def __init__(self, error: Exception) -> None:
        self.error = error
