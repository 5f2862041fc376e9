"""What the host hands to the training steps: rows of the source's feed, or nothing at all."""

import contextlib
from typing import Self

from aninfonce_jax.data.prefetch import Prefetch
from aninfonce_jax.data.source import DataError
from aninfonce_jax.placement import Placement
from aninfonce_jax.sources.source import HostFeed, Source, as_feed
from aninfonce_jax.types import PyTree


class Feed:
    """Batches of a source, two of them ahead on the devices; use it in `with`.

    The batch of step t is number t of a stream that the seed fixes, so that a checkpoint's
    step is also its place in the data. A source that is not fed gives None for every step.

    Args:
      source: where the batches come from; None: no step is left to be fed.
      batch_size: over all devices.
      seed: of the order.
      step: the step that comes next.
      placement: where the batches go.
    """

    def __init__(
        self, source: Source | None, batch_size: int, *, seed: int, step: int, placement: Placement
    ) -> None:
        self._name = "" if source is None else source.name
        self._host: HostFeed | None = None
        self._ready: Prefetch[PyTree] | None = None
        if source is not None and source.fed(batch_size) is not None:
            rows = placement.rows(batch_size)
            self._host = as_feed(source.open_feed(rows, seed=seed, step=step))
            self._ready = Prefetch(self._host, placement.put_rows, start=step)

    @property
    def is_empty(self) -> bool:
        """Whether the source is not fed."""
        return self._ready is None

    @property
    def unreadable(self) -> int:
        """How many examples had to be passed over in this session."""
        return 0 if self._host is None else len(self._host.unreadable)

    def __next__(self) -> PyTree:
        if self._ready is None:
            return None
        try:
            return next(self._ready)
        except StopIteration:
            raise DataError(
                f"{self._name} gave {self._ready.position} batches and has no more; a feed must "
                "not end before the run does: begin anew, or lower the number of steps"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.ExitStack() as stack:
            if self._host is not None:
                stack.push(self._host)
            if self._ready is not None:
                stack.callback(self._ready.close)
