"""The loss of a trained model on pairs that it is given."""

import itertools

import jax
import numpy as np

from aninfonce_jax import rng
from aninfonce_jax.estimator.model import TrainedModel
from aninfonce_jax.models.encoder import PARAMS, EvaluationPass
from aninfonce_jax.placement import Placement, Rows
from aninfonce_jax.sources.source import Source, as_feed
from aninfonce_jax.types import Array, PyTree, Weights

# Batches of a source without end.
_BATCHES = 8


def loss_of(model: TrainedModel, source: Source, batch_size: int, seed: int) -> float:
    """Returns the mean loss over batches.

    Args:
      model: what is scored.
      source: of pairs.
      batch_size: of training; all pairs, where they are fewer.
      seed: of the order.
    """
    batches, size = _BATCHES, batch_size
    if source.pair_count is not None:
        size = min(batch_size, source.pair_count)
        batches = source.pair_count // size
    if size < 2:
        raise ValueError("a loss is that of pairs among others: at least 2 are needed, got 1")
    placement = Placement.local(1)

    @jax.jit
    def loss(weights: Weights, key: Array, fed: PyTree) -> Array:
        variables = {PARAMS: weights.params["encoder"], **weights.model_state}
        value, _ = model.objective(
            weights.params["objective"],
            EvaluationPass(model.encoder, variables),
            source.pairs(key, fed, size),
            key,
            placement,
        )
        return value

    root, own = rng.stream(seed, "score"), model.typed_weights
    if source.fed(size) is None:
        feeds = [None] * batches
        losses = [loss(own, rng.at_step(root, i), fed) for i, fed in enumerate(feeds)]
    else:
        with as_feed(source.open_feed(Rows(size), seed=seed, step=0)) as feed:
            losses = [
                loss(own, rng.at_step(root, i), fed)
                for i, fed in enumerate(itertools.islice(feed, batches))
            ]
    return float(np.mean(losses))
