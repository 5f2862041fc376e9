"""From a config to an experiment: this and `builders` are the only places that know both.

Every kind of source, encoder, objective and optimiser that a config may name is built from
checked values. Whoever has the objects themselves makes an `Experiment` of them and needs none
of this.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

from aninfonce_jax import decoders, rng, warm_start
from aninfonce_jax.builders.images import OpenSplit, build_image_pairs, build_spec, matched_pairs
from aninfonce_jax.builders.parts import build_encoder, build_objective, build_optimizer
from aninfonce_jax.builders.processes import (
    Mixing,
    build_anchors,
    build_process,
    build_processes,
    build_shifted,
    build_space,
    mixed_process,
    with_negatives,
)
from aninfonce_jax.config import kinds
from aninfonce_jax.config.schema import Config, ConfigError
from aninfonce_jax.data.datasets import check_name, local_folder
from aninfonce_jax.data.source import DataError, NoExamples, check_folder
from aninfonce_jax.objectives.objective import NeedsError
from aninfonce_jax.placement import Placement
from aninfonce_jax.sources.decoded import DecodedPairs, DecodedViews
from aninfonce_jax.sources.ensemble import EnsembleSource
from aninfonce_jax.sources.process import ProcessSource
from aninfonce_jax.sources.source import Source
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.training.state import TrainState


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
            check_name(config.source.dataset)
        except DataError as error:
            raise ConfigError(f"source.dataset: {error}") from error
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
            return with_negatives(process, mixed)
        case kinds.ProcessesConfig() as processes:
            return build_processes(processes, rng.stream(config.seed, "mixing"))
        case kinds.ProcessConfig() as process:
            mixed = build_process(process, rng.stream(config.seed, "mixing"))
            return ProcessSource(mixed, shifted=build_shifted(process))
        case kinds.ImageEnsembleConfig() as images:
            whole = build_image_pairs(images, open_split)
            specs = [build_spec(images, own) for own in images.members]
            return EnsembleSource(whole, [dataclasses.replace(whole, spec=spec) for spec in specs])
        case kinds.MatchedImagesConfig() as images:
            return matched_pairs(build_image_pairs(images, open_split), images, only_shapes)
        case kinds.ImagesConfig() as images:
            return build_image_pairs(images, open_split)
        case kinds.DecoderConfig() as decoder:
            mixing = _build_decoder(decoder, only_shapes)
            mixed = mixed_process(decoder, decoder.concentration, mixing)
            return DecodedPairs(mixed, build_image_pairs(decoder, open_split))
        case kinds.DecodedViewsConfig() as views:
            draw = build_anchors(views, _build_decoder(views, only_shapes))
            return DecodedViews(draw, build_image_pairs(views, open_split))


def _build_decoder(config: kinds.DecodedConfig, only_shapes: bool) -> Mixing:
    vae = build_shapes(decoders.vae_of(config))
    space = build_space(config)
    if only_shapes:
        return decoders.untrained_mixing(vae, space)
    return decoders.load_mixing(config, vae, space)
