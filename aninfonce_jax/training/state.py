"""What a run carries from step to step, and how its parts are built."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from aninfonce_jax import rng
from aninfonce_jax.config_schema import Config, ConfigError
from aninfonce_jax.dgp.stream import LatentProcess, build_process
from aninfonce_jax.models.encoders import MLP, build_encoder
from aninfonce_jax.training.objective import Objective, build_objective
from aninfonce_jax.training.optimizer import build_optimizer
from aninfonce_jax.types import Array, PyTree


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that a checkpoint must hold to go on as if nothing had happened.

    Attributes:
      step: how many steps were taken, an int32 scalar.
      key: root of the data stream; the batch of step t is a function of (key, t).
      params: {"encoder": ..., "objective": ...}.
      opt_state: the optimiser's.
      average: exponential average of `params`, or None.
    """

    step: Array
    key: Array
    params: PyTree
    opt_state: PyTree
    average: PyTree

    @property
    def evaluated_params(self) -> PyTree:
        """The params to judge a run by: averaged, where an average is kept."""
        return self.params if self.average is None else self.average


@dataclasses.dataclass(frozen=True)
class Experiment:
    """The parts of a run, built from its config."""

    config: Config
    source: LatentProcess
    encoder: MLP
    objective: Objective
    optimizer: optax.GradientTransformation

    def encode(self, params: PyTree, observations: Array) -> Array:
        """Maps observations [batch, ...] to embeddings [batch, dim]."""
        return self.encoder.apply({"params": params["encoder"]}, observations)

    def init_state(self) -> TrainState:
        """Returns the state before the first step; may be traced."""
        seed = self.config.seed
        example = jax.eval_shape(lambda key: self.source.sample(key, 2), jax.random.key(0))
        observation = jnp.zeros(example.view1.shape, example.view1.dtype)
        params = {
            "encoder": self.encoder.init_params(rng.stream(seed, "encoder"), observation),
            "objective": self.objective.init(rng.stream(seed, "objective")),
        }
        return TrainState(
            step=jnp.zeros((), jnp.int32),
            key=rng.stream(seed, "data"),
            params=params,
            opt_state=self.optimizer.init(params),
            # A copy: the state is donated, and one buffer can't be donated twice.
            average=jax.tree.map(jnp.copy, params) if self.config.optimizer.ema_decay else None,
        )


def build_experiment(config: Config) -> Experiment:
    """Builds source, encoder, objective and optimiser.

    Raises:
      ConfigError: if the data-generating process can't be sampled.
    """
    try:
        source = build_process(config.dgp, rng.stream(config.seed, "mixing"))
    except ValueError as error:
        raise ConfigError(f"config.dgp can't be built: {error}") from error
    return Experiment(
        config=config,
        source=source,
        encoder=build_encoder(config.encoder, config.dgp),
        objective=build_objective(config.objective, config.dgp.dim),
        optimizer=build_optimizer(config.optimizer, config.train.steps),
    )
