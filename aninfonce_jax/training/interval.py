"""What the steps since the last row of metrics have measured."""

import functools
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.scores import registry
from aninfonce_jax.training.step import Metrics
from aninfonce_jax.types import Array


# One program each: a computation for every metric would be many for the devices to queue, and
# means of the joined metrics are the same to the last bit however the steps came in calls.
@functools.partial(jax.jit, static_argnums=1)
def _join(calls: tuple[Metrics, ...], counts: tuple[int, ...]) -> dict[str, Array]:
    parts = [
        {name: values[:count] for name, values in metrics.items()}
        for metrics, count in zip(calls, counts, strict=True)
    ]
    return jax.tree.map(lambda *x: jnp.concatenate(x), *parts)


@jax.jit
def _means(metrics: dict[str, Array]) -> dict[str, Array]:
    return jax.tree.map(jnp.mean, metrics)


class Interval:
    """The metrics of the steps since the last row, and the loss that can be shown meanwhile."""

    def __init__(self) -> None:
        # The metrics of each call to the device, and how many of their entries are of steps.
        self._calls: list[tuple[Metrics, int]] = []
        # The latest call whose loss `known_loss` may look at.
        self._known: tuple[Array, int] | None = None

    def add(self, metrics: Metrics, count: int) -> None:
        """Takes the metrics of a call, of which the first `count` are of steps."""
        self._calls.append((metrics, count))

    def settle(self, metrics: Metrics, count: int) -> None:
        """Lets `known_loss` look at a call: the next one is asked only when it is done."""
        self._known = metrics[registry.LOSS.key], count

    def known_loss(self) -> float | None:
        """Returns the mean loss of the call that was settled last; None if there is none."""
        if self._known is None:
            return None
        losses, count = self._known
        return float(np.mean(np.asarray(losses)[:count]))

    def joined(self) -> dict[str, Array]:
        """Returns the metrics of every step since the last row, [steps] each."""
        if not self._calls:
            return {}
        calls, counts = zip(*self._calls, strict=True)
        return _join(calls, counts)

    def means(self) -> dict[str, Array]:
        """Returns the means over the steps since the last row."""
        return _means(self.joined())

    def clear(self) -> None:
        """Begins a new row."""
        self._calls = []

    def save(self) -> dict[str, list[float]]:
        """Returns what `restore` takes, as JSON."""
        return jax.tree.map(lambda x: x.tolist(), self.joined())

    def restore(self, saved: Mapping[str, Sequence[float]]) -> None:
        """Goes on from what `save` returned."""
        if saved:
            metrics = {name: jnp.asarray(values) for name, values in saved.items()}
            self._calls = [(metrics, len(saved[registry.LOSS.key]))]
