"""From a config to an experiment: the only place that knows both.

Every kind of source, encoder, objective and optimiser that a config may name is built here,
from checked values. Whoever has the objects themselves makes an `Experiment` of them and needs
none of this.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator

import jax.numpy as jnp
import numpy as np
import optax

from aninfonce_jax import decoders, rng, warm_start
from aninfonce_jax.cli import warn
from aninfonce_jax.config import kinds
from aninfonce_jax.config.schema import Config, ConfigError
from aninfonce_jax.data.augment_spec import AugmentError, AugmentSpec, preset
from aninfonce_jax.data.datasets import local_folder, open_dataset
from aninfonce_jax.data.decode import Decoder
from aninfonce_jax.data.pipeline import Loading
from aninfonce_jax.data.source import (
    DataError,
    ImageSource,
    NoExamples,
    check_folder,
    factors_of,
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
from aninfonce_jax.objectives.augself import AugSelf
from aninfonce_jax.objectives.contrastive import AnInfoNCE, InfoNCE, LpLoss
from aninfonce_jax.objectives.diet import Diet
from aninfonce_jax.objectives.elbo import Elbo
from aninfonce_jax.objectives.ensemble import Ensemble
from aninfonce_jax.objectives.hard_negatives import HardNegatives
from aninfonce_jax.objectives.objective import NeedsError, Objective
from aninfonce_jax.objectives.sigreg import SIGReg
from aninfonce_jax.objectives.supervised import Supervised
from aninfonce_jax.objectives.tricl import TriCL
from aninfonce_jax.objectives.vicreg import VICReg
from aninfonce_jax.placement import Placement
from aninfonce_jax.sources.decoded import DecodedPairs, DecodedViews
from aninfonce_jax.sources.ensemble import EnsembleSource
from aninfonce_jax.sources.images import ImagePairs
from aninfonce_jax.sources.matched import MatchedPairs
from aninfonce_jax.sources.process import ProcessSource, ProcessWithNegatives
from aninfonce_jax.sources.source import Source
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.training.optimizer import make_optimizer
from aninfonce_jax.training.state import TrainState
from aninfonce_jax.types import Array

Mixing = Callable[[Array], Array]
# (key, n) -> latents [n, dim] and their observations [n, ...].
Draw = Callable[[Array, int], tuple[Array, Array]]
OpenSplit = Callable[[str], ImageSource]


def build_experiment(config: Config) -> Experiment:
    """Builds source, encoder, objective and optimiser.

    Raises:
      ConfigError: the process can't be sampled, a batch is more than all images, or the source
        does not tell what the objective needs.
      DataError: images are missing or damaged.
    """
    source = build_source(config)
    examples = source.known.examples
    is_fed = source.fed(config.train.batch_size) is not None
    if is_fed and examples is not None and len(examples.train) < config.train.batch_size:
        raise ConfigError(
            f"train.batch_size={config.train.batch_size} is more than the "
            f"{len(examples.train):,} images of {source.name}; lower it"
        )
    experiment = assemble(config, source)
    with _needs_of(config):
        experiment.objective.check(source)
    return experiment


def build_shapes(config: Config) -> Experiment:
    """Builds a run without its data set: its step can be traced and compiled, but not run.

    Raises:
      ConfigError: the process can't be sampled, or images can't be augmented so.
    """
    return assemble(config, build_source(config, only_shapes=True))


def check_data(config: Config) -> None:
    """Raises ConfigError if a run's data set, or its decoder, is not what its config says."""
    warm_start.check(config)
    if isinstance(config.source, kinds.DecodedConfig):
        decoders.vae_of(config.source)
    if isinstance(config.source, kinds.ImageSetConfig):
        try:
            check_folder(
                local_folder(config.source.folder),
                f"{config.source.dataset} in it: say where it is with --config.source.folder=DIR",
            )
        except DataError as error:
            raise ConfigError(f"source.folder: {error}") from error


def assemble(config: Config, source: Source) -> Experiment:
    """Returns the experiment of a config that takes its pairs from `source`."""
    with _needs_of(config):
        return Experiment(
            source=source,
            encoder=build_encoder(config),
            objective=build_objective(config.objective, source.example().shape[1:]),
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
            warm_start=_build_start(config),
            config=config,
        )


@contextlib.contextmanager
def _needs_of(config: Config) -> Iterator[None]:
    """Says of what a source does not tell which objective asks for it."""
    try:
        yield
    except NeedsError as error:
        raise ConfigError(f"objective.kind={config.objective.kind!r}: {error}") from error


def _build_start(config: Config) -> Callable[[TrainState, Placement], TrainState] | None:
    if not config.train.start_from:
        return None

    def start(state: TrainState, placement: Placement) -> TrainState:
        origin = build_shapes(warm_start.origin_of(config))
        return warm_start.begin(state, placement, origin, config.train.start_from)

    return start


# --- Sources ---


def build_source(config: Config, *, only_shapes: bool = False) -> Source:
    """Builds what a run takes its pairs from.

    Args:
      config: of the run.
      only_shapes: whether data set and decoder are left where they are: pairs can be traced, but
        not drawn.

    Raises:
      ConfigError: the process can't be sampled, its decoder is missing or is not the right one,
        or images can't be augmented so.
      CheckpointError: no checkpoint of the decoder is whole.
      DataError: images are missing or damaged.
    """
    open_split: OpenSplit | None = (lambda split: NoExamples()) if only_shapes else None
    match config.source:
        case kinds.ProcessWithNegativesConfig() as process:
            mixed = build_process(process, rng.stream(config.seed, "mixing"))
            return _with_negatives(process, mixed)
        case kinds.ProcessesConfig() as processes:
            return _build_processes(processes, rng.stream(config.seed, "mixing"))
        case kinds.ProcessConfig() as process:
            mixed = build_process(process, rng.stream(config.seed, "mixing"))
            return ProcessSource(mixed, shifted=_build_shifted(process))
        case kinds.ImageEnsembleConfig() as images:
            whole = build_image_pairs(images, open_split)
            specs = [_build_spec(images, own) for own in images.members]
            return EnsembleSource(whole, [dataclasses.replace(whole, spec=spec) for spec in specs])
        case kinds.MatchedImagesConfig() as images:
            return _matched(build_image_pairs(images, open_split), images, only_shapes)
        case kinds.ImagesConfig() as images:
            return build_image_pairs(images, open_split)
        case kinds.DecoderConfig() as decoder:
            mixing = _build_decoder(decoder, only_shapes)
            mixed = _mixed(decoder, decoder.concentration, mixing)
            return DecodedPairs(mixed, build_image_pairs(decoder, open_split))
        case kinds.DecodedViewsConfig() as views:
            draw = _build_anchors(views, _build_decoder(views, only_shapes))
            return DecodedViews(draw, build_image_pairs(views, open_split))


def _matched(
    whole: ImagePairs, config: kinds.MatchedImagesConfig, only_shapes: bool
) -> MatchedPairs:
    """Returns pairs of different images of a data set whose factors are known."""
    factors = factors_of(whole.train)
    if factors is None and not only_shapes:
        raise ConfigError(
            f"source.kind='matched_images' needs a data set whose factors are known, such as "
            f"causal3dident; source.dataset={config.dataset!r} has none"
        )
    values = config.factor_concentration
    count = len(values) if factors is None else factors.shape[1]
    if len(values) not in (1, count):
        raise ConfigError(
            f"source.factor_concentration needs one Λ for all, or one for each of the {count} "
            f"factors of {config.dataset}, got {len(values)}"
        )
    own = {field.name: getattr(whole, field.name) for field in dataclasses.fields(whole)}
    return MatchedPairs(**own | {"augmentation": "matched by their factors"}, concentration=values)


def _build_decoder(config: kinds.DecodedConfig, only_shapes: bool) -> Mixing:
    vae = build_shapes(decoders.vae_of(config))
    space = _build_space(config)
    if only_shapes:
        return decoders.untrained_mixing(vae, space)
    return decoders.load_mixing(config, vae, space)


def _build_anchors(config: kinds.AnchorsConfig, mixing: Mixing) -> Draw:
    """Returns a function to n latents and their observations."""
    space, marginal = _build_space(config), _build_marginal(config)

    def draw(key: Array, n: int) -> tuple[Array, Array]:
        latents = marginal.sample(key, space, n)
        return latents, mixing(latents)

    return draw


def build_process(config: kinds.ProcessConfig, key: Array) -> LatentProcess:
    """Makes the process that a section describes; `key` draws its mixing."""
    mixing = draw_mixing(key, config.dim, **dataclasses.asdict(config.mixing))
    return _mixed(config, config.concentration, mixing)


def _build_processes(config: kinds.ProcessesConfig, key: Array) -> EnsembleSource:
    """Makes processes that share a mixing, which `key` draws."""
    mixing = draw_mixing(key, config.dim, **dataclasses.asdict(config.mixing))
    members = [ProcessSource(_mixed(config, own, mixing)) for own in config.members]
    return EnsembleSource(members[0], members)


def _with_negatives(
    config: kinds.ProcessWithNegativesConfig, process: LatentProcess
) -> ProcessWithNegatives:
    """Returns pairs of a process with negatives drawn by its section's Λ⁻."""
    try:
        near = _build_conditional(config, np.broadcast_to(config.own_concentration, config.dim))
        near.check(process.space)
    except ProcessError as error:
        raise ConfigError(f"source.own_concentration can't be sampled: {error}") from error
    return ProcessWithNegatives(process, near, config.own_negatives, shifted=_build_shifted(config))


def _mixed(
    config: kinds.FamilyConfig, layout: kinds.ConcentrationConfig, mixing: Mixing
) -> LatentProcess:
    """Makes the process of a section's latents with one Λ, seen through a mixing."""
    try:
        values = concentration_values(
            layout.layout, config.dim, layout.high, layout.low, layout.values
        )
        conditional = _build_conditional(config, values)
        return LatentProcess(_build_space(config), _build_marginal(config), conditional, mixing)
    except ProcessError as error:
        raise ConfigError(f"config.source can't be sampled: {error}") from error


def _build_space(config: kinds.AnchorsConfig) -> Space:
    match config.space:
        case "sphere":
            return Sphere(config.dim, config.radius)
        case "box":
            return Box(config.dim, config.box_low, config.box_high, config.box_boundary)
        case "real":
            return Real(config.dim)


def _build_marginal(config: kinds.AnchorsConfig) -> Marginal:
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


def _build_shifted(config: kinds.ProcessConfig) -> Marginal | None:
    """Returns the anchors of another test than that on anchors like those of training."""
    if config.test_pole == "none":
        return None
    sign = 1.0 if config.test_pole == "north" else -1.0
    direction = np.eye(1, config.dim)[0] * sign
    return marginals.VonMisesFisher(config.marginal_concentration, direction)


def _build_conditional(config: kinds.FamilyConfig, values: np.ndarray) -> Conditional:
    """Returns the family of a section with Λ = `values` [dim]."""
    match config.conditional:
        case "anisotropic":
            return conditionals.Anisotropic(values, config.sampler, config.shell)
        case "vmf":
            return conditionals.VonMisesFisher(float(values[0]))
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
    config: kinds.ImageSetConfig, open_split: OpenSplit | None = None
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
    spec = _build_spec(config, config)
    train, test = open_split(config.train_split), open_split(config.test_split)
    for remark in dict.fromkeys(filter(None, map(remark_of, (train, test)))):
        warn(remark)
    return ImagePairs(
        train=train,
        test=test,
        decoder=Decoder(config.image_size, channels=config.channels, decode_mib=config.decode_mib),
        spec=spec,
        loading=Loading(
            workers=config.workers, threads=config.threads, max_bad_share=config.max_bad_share
        ),
        augmentation=f"{config.augment}, strength {config.strength:g}"
        + (f", crops from {config.crop_area:.0%}" if config.crop_area else ""),
    )


def _build_spec(
    config: kinds.ImageSetConfig, own: kinds.ImageSetConfig | kinds.AugmentConfig
) -> AugmentSpec:
    """Returns the augmentations that a section, or a member of it, names."""
    crops = {"scale": (own.crop_area, 1.0)} if own.crop_area else {}
    try:
        return preset(own.augment, size=config.view_side, strength=own.strength, **crops)
    except AugmentError as error:
        raise ConfigError(f"config.source can't be augmented so: {error}") from error


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
    if isinstance(source, kinds.AnchorsConfig):
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


def build_objective(config: kinds.ObjectiveConfig, shape: tuple[int, ...] = ()) -> Objective:
    """Returns the objective of a section for observations of a shape."""
    if isinstance(config, kinds.EnsembleConfig):
        members = tuple(build_objective(own, shape) for own in config.members)
        return Ensemble(members, config.weights)
    settings = dataclasses.asdict(config)
    match settings.pop("kind"):
        case "aninfonce":
            return AnInfoNCE(**settings)
        case "aninfonce_no_l2":
            return AnInfoNCE(**settings, normalize=False)
        case "infonce":
            return InfoNCE(**settings)
        case "hard_negatives":
            return HardNegatives(**settings)
        case "lp":
            return LpLoss(**settings)
        case "tricl":
            return TriCL(**settings)
        case "supervised":
            return Supervised()
        case "elbo":
            return Elbo(shape, **settings)
        case "vicreg":
            return VICReg(**settings)
        case "sigreg":
            return SIGReg(**settings)
        case "augself":
            return AugSelf(**settings)
        case "diet":
            return Diet(**settings)
    raise AssertionError(config)


def build_optimizer(config: kinds.OptimizerConfig, steps: int) -> optax.GradientTransformation:
    """Returns the optimiser of a section for a run of `steps` steps."""
    return make_optimizer(steps=steps, **dataclasses.asdict(config))
