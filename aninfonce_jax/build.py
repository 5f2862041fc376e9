"""From a config to an experiment: the only place that knows both.

Every kind of source, encoder, objective and optimiser that a config may name is built here,
from checked values. Whoever has the objects themselves makes an `Experiment` of them and needs
none of this.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax.numpy as jnp
import optax

from aninfonce_jax import rng
from aninfonce_jax.cli import warn
from aninfonce_jax.config import kinds
from aninfonce_jax.config.schema import Config, ConfigError
from aninfonce_jax.data.augment_spec import AugmentError, preset
from aninfonce_jax.data.datasets import local_folder, open_dataset
from aninfonce_jax.data.decode import Decoder
from aninfonce_jax.data.pipeline import Loading
from aninfonce_jax.data.source import (
    DataError,
    ImageSource,
    NoExamples,
    check_folder,
    remark_of,
)
from aninfonce_jax.dgp import conditionals, marginals
from aninfonce_jax.dgp.conditionals import Conditional, concentration_values
from aninfonce_jax.dgp.errors import ProcessError
from aninfonce_jax.dgp.marginals import Marginal
from aninfonce_jax.dgp.mixing import draw_mixing
from aninfonce_jax.dgp.spaces import Box, Real, Space, Sphere
from aninfonce_jax.dgp.stream import LatentProcess
from aninfonce_jax.models.encoder import Encoder, LinenEncoder
from aninfonce_jax.models.heads import OutputNormalization
from aninfonce_jax.models.mlp import MLP, paper_widths
from aninfonce_jax.models.resnet import LAYERS, ProjectedResNet, Projector, ResNet
from aninfonce_jax.objectives.contrastive import AnInfoNCE, InfoNCE, LpLoss
from aninfonce_jax.objectives.objective import Objective
from aninfonce_jax.objectives.supervised import Supervised
from aninfonce_jax.sources.images import ImagePairs
from aninfonce_jax.sources.process import ProcessSource
from aninfonce_jax.sources.source import Source
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.training.optimizer import make_optimizer
from aninfonce_jax.types import Array


def build_experiment(config: Config) -> Experiment:
    """Builds source, encoder, objective and optimiser.

    Raises:
      ConfigError: the process can't be sampled, or a batch is more than all images.
      DataError: images are missing or damaged.
    """
    source = build_source(config)
    examples = source.known.examples
    if examples is not None and len(examples.train) < config.train.batch_size:
        raise ConfigError(
            f"train.batch_size={config.train.batch_size} is more than the "
            f"{len(examples.train):,} images of {source.name}; lower it"
        )
    return assemble(config, source)


def build_shapes(config: Config) -> Experiment:
    """Builds a run without its data set: its step can be traced and compiled, but not run.

    Raises:
      ConfigError: the process can't be sampled, or images can't be augmented so.
    """
    if isinstance(config.source, kinds.ImagesConfig):
        return assemble(config, build_image_pairs(config.source, lambda split: NoExamples()))
    return assemble(config, build_source(config))


def check_data(config: Config) -> None:
    """Raises ConfigError if a run's data set is not where its config says."""
    if isinstance(config.source, kinds.ImagesConfig):
        try:
            check_folder(
                local_folder(config.source.folder),
                f"{config.source.dataset} in it: say where it is with --config.source.folder=DIR",
            )
        except DataError as error:
            raise ConfigError(f"source.folder: {error}") from error


def assemble(config: Config, source: Source) -> Experiment:
    """Returns the experiment of a config that takes its pairs from `source`."""
    return Experiment(
        source=source,
        encoder=build_encoder(config),
        objective=build_objective(config.objective),
        optimizer=build_optimizer(config.optimizer, config.train.steps),
        name=config.name,
        seed=config.seed,
        steps=config.train.steps,
        batch_size=config.train.batch_size,
        steps_per_dispatch=config.train.steps_per_dispatch,
        microbatches=config.train.microbatches,
        ema_decay=config.train.ema_decay,
        evaluation=config.eval,
        checkpoint=config.checkpoint,
        log=config.log,
        hang_timeout=config.train.hang_timeout,
        config=config,
    )


# --- Sources ---


def build_source(config: Config) -> Source:
    """Builds what a run takes its pairs from.

    Raises:
      ConfigError: the process can't be sampled, or images can't be augmented so.
      DataError: images are missing or damaged.
    """
    match config.source:
        case kinds.ProcessConfig() as process:
            return ProcessSource(build_process(process, rng.stream(config.seed, "mixing")))
        case kinds.ImagesConfig() as images:
            return build_image_pairs(images)


def build_process(config: kinds.ProcessConfig, key: Array) -> LatentProcess:
    """Makes the process that a section describes; `key` draws its mixing."""
    mixing = draw_mixing(key, config.dim, **dataclasses.asdict(config.mixing))
    try:
        return LatentProcess(
            _build_space(config), _build_marginal(config), _build_conditional(config), mixing
        )
    except ProcessError as error:
        raise ConfigError(f"config.source can't be sampled: {error}") from error


def _build_space(config: kinds.ProcessConfig) -> Space:
    match config.space:
        case "sphere":
            return Sphere(config.dim, config.radius)
        case "box":
            return Box(config.dim, config.box_low, config.box_high, config.box_boundary)
        case "real":
            return Real(config.dim)


def _build_marginal(config: kinds.ProcessConfig) -> Marginal:
    match config.marginal:
        case "uniform":
            return marginals.Uniform()
        case "normal":
            return marginals.Normal(config.marginal_scale)
        case "laplace":
            return marginals.Laplace(config.marginal_scale)
        case "generalized_normal":
            return marginals.GeneralizedNormal(config.marginal_scale, config.marginal_exponent)
        case "vmf":
            return marginals.VonMisesFisher(config.marginal_concentration)


def _build_conditional(config: kinds.ProcessConfig) -> Conditional:
    layout = config.concentration
    values = concentration_values(layout.layout, config.dim, layout.high, layout.low, layout.values)
    match config.conditional:
        case "anisotropic":
            return conditionals.Anisotropic(values, config.sampler, config.shell)
        case "vmf":
            return conditionals.VonMisesFisher(layout.high)
        case "normal":
            return conditionals.Normal(values)
        case "laplace":
            return conditionals.Laplace(values)
        case "generalized_normal":
            return conditionals.GeneralizedNormal(values, config.conditional_exponent)
        case "bimodal":
            if config.space == "sphere":
                base = conditionals.Anisotropic(values, config.sampler, config.shell)
                return conditionals.Bimodal(base, config.bimodal_offset)
            return conditionals.Bimodal(conditionals.Normal(values), config.bimodal_offset)


def build_image_pairs(
    config: kinds.ImagesConfig, open_split: Callable[[str], ImageSource] | None = None
) -> ImagePairs:
    """Opens the data set of a section.

    Args:
      config: the section.
      open_split: opens a split; by default that of the data set which the section names.

    Raises:
      ConfigError: the augmentation's settings are out of range.
      DataError: images are missing or damaged.
    """
    if open_split is None:
        open_split = functools.partial(open_dataset, config.dataset, config.folder)
    try:
        spec = preset(
            config.augment, size=config.view_size or config.image_size, strength=config.strength
        )
    except AugmentError as error:
        raise ConfigError(f"config.source can't be augmented so: {error}") from error
    train, test = open_split(config.train_split), open_split(config.test_split)
    for remark in dict.fromkeys(filter(None, map(remark_of, (train, test)))):
        warn(remark)
    return ImagePairs(
        train=train,
        test=test,
        decoder=Decoder(config.image_size, decode_mib=config.decode_mib),
        spec=spec,
        loading=Loading(
            workers=config.workers, threads=config.threads, max_bad_share=config.max_bad_share
        ),
        augmentation=f"{config.augment}, strength {config.strength:g}",
    )


# --- Encoders ---


def build_encoder(config: Config) -> Encoder:
    """Returns the encoder of a config; an MLP maps onto the space of the latents."""
    match config.encoder:
        case kinds.MLPConfig() as mlp:
            return _build_mlp(mlp, config.source)
        case kinds.ResNetConfig() as resnet:
            return _build_resnet(resnet)


def _build_mlp(config: kinds.MLPConfig, source: kinds.SourceConfig) -> Encoder:
    dim = config.dim
    output = OutputNormalization(config.output)
    if isinstance(source, kinds.ProcessConfig):
        dim = dim or source.dim
        output = OutputNormalization(config.output, source.radius, source.box_low, source.box_high)
    return LinenEncoder(
        MLP(
            widths=config.widths or paper_widths(dim),
            dim=dim,
            activation=config.activation,
            kernel_init=config.init,
            rotation=config.rotation,
            output=output,
        )
    )


def _build_resnet(config: kinds.ResNetConfig) -> Encoder:
    dtype = jnp.dtype(config.dtype)
    module = ProjectedResNet(
        backbone=ResNet(
            depth=int(config.kind.removeprefix("resnet")),
            stem=config.stem,
            width=config.width,
            dtype=dtype,
            remat=config.remat,
        ),
        projector=Projector(config.projector, config.dim, config.projector_norm, dtype),
    )
    return LinenEncoder(module, LAYERS)


# --- Objectives and optimisers ---


def build_objective(config: kinds.ObjectiveConfig) -> Objective:
    """Returns the objective of a section."""
    settings = dataclasses.asdict(config)
    match settings.pop("kind"):
        case "aninfonce":
            return AnInfoNCE(**settings)
        case "aninfonce_no_l2":
            return AnInfoNCE(**settings, normalize=False)
        case "infonce":
            return InfoNCE(**settings)
        case "lp":
            return LpLoss(**settings)
        case "supervised":
            return Supervised()
    raise AssertionError(config)


def build_optimizer(config: kinds.OptimizerConfig, steps: int) -> optax.GradientTransformation:
    """Returns the optimiser of a section for a run of `steps` steps."""
    return make_optimizer(steps=steps, **dataclasses.asdict(config))
