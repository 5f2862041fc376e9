"""What an objective is: it turns an encoder and a batch of pairs into a number to minimise.

An objective owns its parameters (Λ̂, a temperature), separate from the encoder's. It is handed
a function that encodes, and so may encode as many views as it wants.
"""

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.models.encoder import Encoder, Layers
from aninfonce_jax.placement import Placement
from aninfonce_jax.sources.source import Latents, PowerScore, Source
from aninfonce_jax.types import Array, Pairs, Params

Metrics = Mapping[str, Array]


class NeedsError(ValueError):
    """A source does not tell what an objective needs; its message is one line for the user."""


class Encode(Protocol):
    """Observations [batch, ...] -> embeddings [batch, dim].

    Micro-batched, distributed, and in training with the encoder's state carried along from call
    to call.
    """

    def __call__(self, observations: Array, /) -> Array:
        """Returns embeddings [batch, dim]."""
        ...

    def layers(self, observations: Array, /) -> Layers:
        """Returns every layer of the encoder by its name, from early to late: embeddings last."""
        ...


class Objective(abc.ABC):
    """What is minimised, with what of it is trained."""

    def for_run(self, source: Source, encoder: Encoder) -> "Objective":
        """Returns the objective as a run has it: itself, unless more than `dim` sizes its params.

        Args:
          source: of the run; only shapes of pairs may be asked for.
          encoder: of the run.

        Raises:
          NeedsError: as `check`.
        """
        del source, encoder
        return self

    def check(self, source: Source) -> None:
        """Raises NeedsError if a source does not tell what the objective needs of its pairs.

        Asked before anything is compiled.
        """
        del source

    @property
    def tells_of_others(self) -> bool:
        """Whether the loss has a meaning for pairs that training does not see."""
        return True

    def init(self, key: Array, dim: int) -> Params:
        """Returns the objective's own parameters for embeddings [batch, dim]."""
        del key, dim
        return {}

    @abc.abstractmethod
    def __call__(
        self, params: Params, encode: Encode, pairs: Pairs, key: Array, placement: Placement
    ) -> tuple[Array, Metrics]:
        """Returns the loss of a batch, and scalars to log; traced.

        Args:
          params: the objective's own.
          encode: see `Encode`.
          pairs: spread over the devices.
          key: of this step, for objectives that draw something.
          placement: over which the batch is spread.
        """

    def in_training(
        self,
        params: Params,
        encode: Encode,
        pairs: Pairs,
        key: Array,
        placement: Placement,
        progress: Array,
    ) -> tuple[Array, Metrics]:
        """Returns what a training step minimises: the loss, unless something helps it on its way.

        What is added to the loss must have vanished at the end, so that the last steps minimise
        what evaluation shows. Where something is added, the metrics hold the loss itself by the
        key of `scores.registry.LOSS`.

        Args:
          params: the objective's own.
          encode: see `Encode`.
          pairs: spread over the devices.
          key: of this step.
          placement: over which the batch is spread.
          progress: the share of all steps that are done, from 0 to 1.
        """
        del progress
        return self(params, encode, pairs, key, placement)

    def compared(self, embeddings: Array) -> Array:
        """Returns embeddings as the objective compares them, to be read out; may be traced."""
        return embeddings

    def concentration(self, params: Params, dim: int) -> Array | None:
        """Returns the Λ̂ [dim] that the objective has learned, where it learns one."""
        del params, dim
        return None

    def member_concentrations(self, params: Params, dim: int) -> Sequence[Array | None]:
        """Returns the Λ̂ [dim] of every member of an ensemble; nothing for any other objective."""
        del params, dim
        return ()

    def target(self, latents: Latents) -> np.ndarray | None:
        """Returns the Λ̂ [dim] at which the loss is smallest, where that is known."""
        return latents.concentration

    def floor(self, score: PowerScore | None) -> Callable[[Array, Array], Array] | None:
        """Returns the loss of a perfect encoder: the floor under every run.

        The best possible score of a pair is log p(z⁺|z) - log q(z⁺) up to a function of z,
        where q is the density of the negatives. If q is uniform, the floor is the loss of the
        true latents scored by the true conditional, whatever score the objective is
        restricted to. Negatives from both views, or the paper's sampler, are nearly so: at
        d = 10 they move the best Λ̂ by up to 3 %, the floor by less than 0.01.

        Args:
          score: of the source's conditional, where its anchors are uniform; None where it is
            not known.

        Returns:
          A function from the latents of both views [batch, dim] to the floor's estimate, or
          None where the true score is not the best.
        """
        del score
        return None

    def keys(self, batch_size: int) -> int | None:
        """Returns how many keys an anchor has, its positive among them; None: it has none."""
        del batch_size
        return None

    def chance(self, batch_size: int) -> float | None:
        """Returns the loss of embeddings that tell nothing; None where that is not known."""
        del batch_size
        return None

    def largest_gain(self, batch_size: int) -> float:
        """Returns how far below chance the loss could fall at the most."""
        del batch_size
        return math.inf

    @property
    def compares_directions(self) -> bool:
        """Whether the length of an embedding means nothing to the loss."""
        return False

    @property
    def has_directions(self) -> bool:
        """Whether directions can be held against the theorem, whose latents are on a sphere."""
        return self.compares_directions


def join_views(pairs: Pairs) -> Array:
    """Returns both views as one batch, for one pass through the encoder.

    The views are interleaved rather than concatenated: then a batch that is split over
    devices stays where it is.
    """
    stacked = jnp.stack([pairs.view1, pairs.view2], axis=1)
    return stacked.reshape(-1, *stacked.shape[2:])


def split_views(embeddings: Array) -> tuple[Array, Array]:
    """Undoes `join_views` for embeddings [2 * batch, dim]."""
    views = embeddings.reshape(-1, 2, embeddings.shape[-1])
    return views[:, 0], views[:, 1]


def pair_shapes(source: Source) -> Pairs:
    """Returns shapes of the pairs of a source, None where it does not know; nothing is computed."""
    fed = source.fed(2)
    return jax.eval_shape(lambda key, fed: source.pairs(key, fed, 2), jax.random.key(0), fed)


def checked_loss(objective: Objective, returned: Any) -> tuple[Array, Metrics]:
    """Returns what an objective gave for a batch, if it is a loss and scalars to log; traced.

    Raises:
      TypeError: it is something else.
    """
    found = "one array" if isinstance(returned, jax.Array) else type(returned).__name__
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping):
        loss, metrics = returned
        shapes = {"the loss": jnp.shape(loss)} | {k: jnp.shape(v) for k, v in metrics.items()}
        found = ", ".join(f"{name} of shape {shape}" for name, shape in shapes.items() if shape)
        if not found:
            return loss, metrics
    raise TypeError(
        f"{type(objective).__name__} must return its loss, one number, and a dict of numbers to "
        f"log, got {found}"
    )
