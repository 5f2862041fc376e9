"""The values that pass between the parts of the package."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax

Array = jax.Array
PyTree = Any
Params = Mapping[str, Any]
# Observations [batch, ...] -> embeddings [batch, dim].
Encode = Callable[[Array], Array]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Pairs:
    """One batch of positive pairs.

    Attributes:
      view1: observations of the anchors, [batch, ...].
      view2: observations of their positives, [batch, ...].
      latents1: what generated `view1`, [batch, dim], where it is known.
      latents2: what generated `view2`, [batch, dim], where it is known.
      negatives: observations of negatives drawn on purpose, [keys, ...], for
        objectives that do not take their negatives from the batch.
    """

    view1: Array
    view2: Array
    latents1: Array | None = None
    latents2: Array | None = None
    negatives: Array | None = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LossOutput:
    """A contrastive loss with its parts.

    Attributes:
      loss: the mean of `per_anchor`, a float32 scalar (float64 for float64 input).
      per_anchor: one loss per anchor, [2 * batch] where both views are anchors
        (first view's anchors, then the second's), else [batch].
      alignment: the mean negative score of the positive pairs.
      uniformity: the mean log-sum-exp over keys, in the units of `alignment`,
        so that loss = alignment + uniformity.
      metrics: scalars to log; see the functions that fill it.
    """

    loss: Array
    per_anchor: Array
    alignment: Array
    uniformity: Array
    metrics: Mapping[str, Array]


class PairSource(Protocol):
    """Where the pairs come from: a data-generating process, or data and augmentations.

    A source is stateless: the same key gives the same batch, on any mesh.
    """

    def sample(self, key: Array, batch_size: int) -> Pairs:
        """Returns `batch_size` positive pairs; may be traced."""
        ...
