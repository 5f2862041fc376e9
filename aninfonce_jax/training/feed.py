"""What the host hands to the training step: batches of pictures, or nothing at all."""

from typing import Protocol, Self

from jax.sharding import Mesh

from aninfonce_jax.data.images import ImagePairs
from aninfonce_jax.data.pipeline import ImageBatch
from aninfonce_jax.data.prefetch import Prefetch, to_devices
from aninfonce_jax.mesh import batch_sharding


class Feed(Protocol):
    """An iterator for one session of training; use it in `with`."""

    @property
    def waited(self) -> float:
        """Seconds that the training loop has waited for a batch."""
        ...

    @property
    def unreadable(self) -> int:
        """How many pictures had to be passed over."""
        ...

    def __next__(self) -> ImageBatch | None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class NoFeed:
    """For a process, whose pairs are made on the device."""

    waited = 0.0
    unreadable = 0

    def __next__(self) -> None:
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class ImageFeed:
    """Shuffled batches of pictures, two of them ahead on the devices.

    The batch of step t is number t of a stream that the seed fixes, so that a checkpoint's
    step is also its place in the data.

    Args:
      source: the pictures.
      batch_size: over all devices.
      seed: of the order.
      step: the step that comes next.
      mesh: where the batches go.
    """

    def __init__(
        self, source: ImagePairs, batch_size: int, *, seed: int, step: int, mesh: Mesh
    ) -> None:
        self._batches = source.training_batches(batch_size, seed=seed, start=step)
        self._prefetch = Prefetch(self._batches, to_devices(batch_sharding(mesh)), start=step)

    @property
    def waited(self) -> float:
        """Seconds that callers spent waiting for a batch."""
        return self._prefetch.waited

    @property
    def unreadable(self) -> int:
        """How many pictures could not be read in this session."""
        return len(self._batches.unreadable)

    def __next__(self) -> ImageBatch:
        return next(self._prefetch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._prefetch.close()
        self._batches.close()
