"""What a run carries from step to step, and how its parts are built."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from aninfonce_jax import rng
from aninfonce_jax.config_schema import Config, ConfigError
from aninfonce_jax.data.images import ImagePairs, build_image_pairs
from aninfonce_jax.data.pipeline import ImageBatch
from aninfonce_jax.dgp.stream import LatentProcess, build_process
from aninfonce_jax.models.encoders import MLP, build_encoder, build_image_encoder
from aninfonce_jax.models.resnet import ImageEncoder
from aninfonce_jax.training.feed import Feed, ImageFeed, NoFeed
from aninfonce_jax.training.objective import Objective, build_objective, join_views, split_views
from aninfonce_jax.training.optimizer import build_optimizer
from aninfonce_jax.types import Array, Pairs, PyTree, Weights


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that a checkpoint must hold to go on as if nothing had happened.

    Attributes:
      step: how many steps were taken, an int32 scalar.
      key: root of the data stream; the batch of step t is a function of (key, t).
      params: {"encoder": ..., "objective": ...}.
      model_state: the encoder's running statistics, {} where it has none.
      opt_state: the optimiser's.
      average: exponential average of `params` and `model_state`, or None.
    """

    step: Array
    key: Array
    params: PyTree
    model_state: PyTree
    opt_state: PyTree
    average: Weights | None

    @property
    def weights(self) -> Weights:
        """The latest."""
        return Weights(self.params, self.model_state)

    @property
    def evaluated(self) -> Weights:
        """What to judge a run by: the average, where one is kept."""
        return self.weights if self.average is None else self.average


@dataclasses.dataclass(frozen=True)
class Experiment:
    """The parts of a run, built from its config."""

    config: Config
    source: LatentProcess | ImagePairs
    encoder: MLP | ImageEncoder
    objective: Objective
    optimizer: optax.GradientTransformation

    def open_feed(self, step: int, mesh: Mesh) -> Feed:
        """Returns what the host hands to the steps from `step` on."""
        if isinstance(self.source, LatentProcess):
            return NoFeed()
        batch_size, seed = self.config.train.batch_size, self.config.seed
        return ImageFeed(self.source, batch_size, seed=seed, step=step, mesh=mesh)

    def pairs(self, key: Array, batch: ImageBatch | None) -> Pairs:
        """Returns the positive pairs of a step; may be traced.

        Args:
          key: of the step.
          batch: what the feed gave for it.
        """
        if isinstance(self.source, LatentProcess):
            return self.source.sample(key, self.config.train.batch_size)
        assert batch is not None, "pairs of pictures need pictures"
        return self.source.pairs(key, jnp.asarray(batch.image))

    def encode(self, weights: Weights, observations: Array) -> Array:
        """Maps observations [batch, ...] to embeddings [batch, dim], as in evaluation."""
        return self.encoder.apply(self._variables(weights), observations)

    def encode_layers(self, weights: Weights, images: Array) -> tuple[Array, Array]:
        """Maps pictures to a backbone's features and the embeddings, as in evaluation."""
        return self.encoder.apply(self._variables(weights), images, method="both")

    def encode_train(self, weights: Weights, observations: Array) -> tuple[Array, PyTree]:
        """Maps observations to embeddings as in training; also returns the new model state."""
        if isinstance(self.encoder, MLP):
            return self.encode(weights, observations), weights.model_state
        return self.encoder.apply(
            self._variables(weights), observations, train=True, mutable=list(weights.model_state)
        )

    def loss(self, weights: Weights, pairs: Pairs, mesh: Mesh) -> Array:
        """Returns the loss of pairs that are spread over the mesh, as in evaluation."""
        views = split_views(self.encode(weights, join_views(pairs)))
        return self.objective(weights.params["objective"], *views, pairs, mesh)[0]

    def init_state(self) -> TrainState:
        """Returns the state before the first step; may be traced."""
        seed = self.config.seed
        variables = self._init_encoder(rng.stream(seed, "encoder"))
        params = {
            "encoder": variables.pop("params"),
            "objective": self.objective.init(rng.stream(seed, "objective")),
        }
        # A copy: the state is donated, and one buffer can't be donated twice.
        average = jax.tree.map(jnp.copy, Weights(params, variables))
        return TrainState(
            step=jnp.zeros((), jnp.int32),
            key=rng.stream(seed, "data"),
            params=params,
            model_state=variables,
            opt_state=self.optimizer.init(params),
            average=average if self.config.optimizer.ema_decay else None,
        )

    def _init_encoder(self, key: Array) -> dict[str, Any]:
        """Returns the encoder's variables, by collection."""
        source = self.source
        if isinstance(source, ImagePairs):
            return dict(self.encoder.init(key, source.example()))
        example = jax.eval_shape(lambda key: source.sample(key, 2).view1, jax.random.key(0))
        observations = jnp.zeros(example.shape, example.dtype)
        return {"params": self.encoder.init_params(key, observations)}

    def _variables(self, weights: Weights) -> dict[str, Any]:
        return {"params": weights.params["encoder"], **weights.model_state}


def build_source(config: Config) -> LatentProcess | ImagePairs:
    """Builds what a run takes its pairs from.

    Raises:
      ConfigError: if the data-generating process can't be sampled, or the pictures are not
        to be had, or not to be augmented so.
    """
    section = "data" if config.has_images else "dgp"
    try:
        if config.has_images:
            return build_image_pairs(config.data)
        return build_process(config.dgp, rng.stream(config.seed, "mixing"))
    except ValueError as error:
        raise ConfigError(f"config.{section} can't be built: {error}") from error


def build_experiment(config: Config) -> Experiment:
    """Builds source, encoder, objective and optimiser.

    Raises:
      ConfigError: as `build_source`; or a batch is more than all pictures.
    """
    source = build_source(config)
    if isinstance(source, ImagePairs) and len(source.train) < config.train.batch_size:
        raise ConfigError(
            f"train.batch_size={config.train.batch_size} is more than the {len(source.train):,} "
            f"pictures of {source.train.name}; lower it"
        )
    return assemble(config, source)


def assemble(config: Config, source: LatentProcess | ImagePairs) -> Experiment:
    """Returns the parts of a run that takes its pairs from `source`."""
    return Experiment(
        config=config,
        source=source,
        encoder=(
            build_image_encoder(config.encoder)
            if config.has_images
            else build_encoder(config.encoder, config.dgp)
        ),
        objective=build_objective(config.objective, config.embedding_dim),
        optimizer=build_optimizer(config.optimizer, config.train.steps),
    )
