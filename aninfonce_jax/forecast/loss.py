"""The loss of a step by itself: what it takes beside the encoder is told by compiling it alone."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from aninfonce_jax.models.encoder import Layers
from aninfonce_jax.objectives.objective import Encode
from aninfonce_jax.placement import Placement, on
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.types import Array, Pairs, Params, Weights


class _Scout:
    """Stands for the encoder, and notes what an objective asks it for.

    Args:
      experiment: whose encoder it is.
      weights: their shapes.
    """

    def __init__(self, experiment: Experiment, weights: Weights) -> None:
        self.asked: list[Layers] = []
        self._experiment, self._weights = experiment, weights

    def __call__(self, observations: Array) -> Array:
        """Returns embeddings [batch, dim]."""
        embedding = self._experiment.encoder.layers[-1]
        return self._give(observations, (embedding,))[embedding]

    def layers(self, observations: Array) -> Layers:
        """Returns every layer by its name."""
        return self._give(observations, self._experiment.encoder.layers)

    def _give(self, observations: Array, names: Sequence[str]) -> Layers:
        shapes = jax.eval_shape(self._experiment.layers, self._weights, observations)
        self.asked.append({name: shapes[name] for name in names})
        return {name: jnp.zeros(shapes[name].shape, shapes[name].dtype) for name in names}


class _Stand:
    """Stands for the encoder: gives what it is given, in the order in which it is asked.

    Args:
      given: the layers of each time, as a scout has noted them.
      names: of all layers of the encoder, the embedding last.
    """

    def __init__(self, given: Sequence[Layers], names: Sequence[str]) -> None:
        self._given, self._names = iter(given), names

    def __call__(self, observations: Array) -> Array:
        """Returns embeddings [batch, dim]."""
        del observations
        return next(self._given)[self._names[-1]]

    def layers(self, observations: Array) -> Layers:
        """Returns every layer by its name."""
        del observations
        given = next(self._given)
        # In their order, which jit does not keep.
        return {name: given[name] for name in self._names}


def lower_loss(experiment: Experiment, placement: Placement) -> jax.stages.Lowered:
    """Lowers the loss of a training step, with its gradient, as a function of what it is given.

    That is the objective's own parameters, and the layers of every time that it asks the encoder;
    these lie as they do in the step.
    """
    state = jax.eval_shape(experiment.init_state)
    fed, size = experiment.source.fed(experiment.batch_size), experiment.batch_size
    pairs = jax.eval_shape(lambda key, fed: experiment.source.pairs(key, fed, size), state.key, fed)
    scout = _Scout(experiment, Weights(state.params, state.model_state))

    def loss(encode: Encode, params: Params, pairs: Pairs, key: Array, progress: Array) -> Array:
        in_training = experiment.objective.in_training
        return in_training(params, encode, pairs, key, placement, progress=progress)[0]

    def of_layers(params: Params, layers: Sequence[Layers], *others: Any) -> Array:
        return loss(_Stand(layers, experiment.encoder.layers), params, *others)

    params, progress = state.params["objective"], jax.ShapeDtypeStruct((), jnp.float32)
    jax.eval_shape(functools.partial(loss, scout), params, pairs, state.key, progress)
    whole, split = placement.whole, placement.split
    step = jax.jit(
        jax.value_and_grad(of_layers, argnums=(0, 1)),
        in_shardings=(whole, split, split, whole, whole),
        out_shardings=(whole, (whole, split)),
    )
    return step.lower(
        on(whole, params),
        on(split, scout.asked),
        on(split, pairs),
        on(whole, state.key),
        on(whole, progress),
    )
