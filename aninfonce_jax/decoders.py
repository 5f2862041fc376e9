"""The decoder of a trained VAE, out of its work directory, as the mixing of other runs.

Everything that its config tells is checked before anything is trained or compiled.
"""

import contextlib
import dataclasses
import shlex
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from aninfonce_jax import config as config_lib
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.config import kinds
from aninfonce_jax.config.file import load_config
from aninfonce_jax.config.schema import Config, ConfigError
from aninfonce_jax.dgp.spaces import Space
from aninfonce_jax.objectives.elbo import Elbo
from aninfonce_jax.placement import Placement
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.sources.decoded import DecoderMixing, decoding_scale
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.training.trained import latest_weights
from aninfonce_jax.types import Params


def folder_of(section: kinds.DecodedConfig) -> AnyPath:
    """Returns the work directory of the VAE that a section names."""
    return workdir_lib.locate(section.decoder)


def vae_of(section: kinds.DecodedConfig) -> Config:
    """Returns the config of the VAE: of the run that is there, or of the one to be trained.

    Raises:
      ConfigError: it can't be read, has no decoder, or one of another shape.
    """
    folder = folder_of(section)
    owner = f"source.decoder={section.decoder}"
    try:
        if workdir_lib.has_config(folder):
            vae = workdir_lib.read_config(folder)
        else:
            workdir_lib.check_entries(folder)
            owner = f"source.decoder_config={section.decoder_config}"
            vae = _planned(section)
    except ConfigError as error:  # it speaks of a run, and there are two
        raise ConfigError(f"{owner}: {error}") from error
    if not isinstance(vae.objective, kinds.ElboConfig):
        raise ConfigError(
            f"{owner} is a run with objective.kind={vae.objective.kind!r}, which has no decoder; "
            "name a VAE, whose objective.kind is 'elbo'"
        )
    assert isinstance(vae.source, kinds.ImagesConfig)  # as the objective demands
    given = (vae.encoder.dim // 2, vae.source.view_side, vae.source.channels)
    wanted = (section.dim, section.image_size, section.channels)
    if given != wanted:
        raise ConfigError(
            f"{owner} makes {_shape(*given)}, and source.dim, source.image_size and source.grey "
            f"ask for {_shape(*wanted)}; change these, or name another VAE"
        )
    return vae


def _planned(section: kinds.DecodedConfig) -> Config:
    values = load_config(section.decoder_config)
    try:
        return _first_run(values, {"source.folder": section.folder})
    except ConfigError:
        with contextlib.suppress(ConfigError):
            run = _first_run(values, {})
            if not isinstance(run.source, kinds.ImageSetConfig):
                return run  # that it is no VAE says more than that it has no folder
        raise


def _first_run(values: Mapping[str, Any], changes: Mapping[str, Any]) -> Config:
    return next(iter(config_lib.resolve(values, changes).runs.values()))


def _shape(dim: int, side: int, channels: int) -> str:
    return f"images of {side} x {side} x {channels} from {dim} latents"


def is_trained(section: kinds.DecodedConfig) -> bool:
    """Returns whether the VAE that a section names has come to its end."""
    folder = folder_of(section)
    if not workdir_lib.has_config(folder):
        return False
    last = workdir_lib.read_config(folder).train.steps
    return workdir_lib.has_checkpoint(folder, last)


@dataclasses.dataclass(frozen=True)
class NeededRun:
    """A run that must be trained before another one.

    Attributes:
      config: of it.
      folder: its work directory.
      command: what to type to repeat it.
    """

    config: Config
    folder: AnyPath
    command: str


def needed_run(config: Config) -> NeededRun | None:
    """Returns the VAE that must be trained first, for its decoder; None if there is none.

    Raises:
      ConfigError: what is there can't be used, or can't be trained on.
    """
    section = config.source
    if not isinstance(section, kinds.DecodedConfig) or is_trained(section):
        return None
    return NeededRun(vae_of(section), folder_of(section), _training_command(section))


def _training_command(section: kinds.DecodedConfig) -> str:
    flags = {"--config": section.decoder_config, "--config.source.folder": section.folder}
    words = [f"{flag}={value}" for flag, value in flags.items()]
    return shlex.join(["python", "-m", "aninfonce_jax.main", *words])


def load_mixing(section: kinds.DecodedConfig, vae: Experiment, space: Space) -> DecoderMixing:
    """Returns the decoder that a section names, for latents of a space.

    Args:
      section: names it.
      vae: the experiment of its run, whose data need not be there.
      space: of the latents.

    Raises:
      ConfigError: the VAE is not trained to its end.
      CheckpointError: no checkpoint of it is whole.
    """
    step = 0
    if is_trained(section):
        step, weights = latest_weights(folder_of(section), vae, Placement.local(1))
    if step < vae.steps:
        raise ConfigError(
            f"source.decoder={section.decoder} holds no VAE that is trained to its end; train it: "
            f"{_training_command(section)} {shlex.quote(f'--workdir={section.decoder}')}"
        )
    return _mixing(vae, weights.params, space)


def untrained_mixing(vae: Experiment, space: Space) -> DecoderMixing:
    """Returns a decoder of the same shapes whose weights are zero."""
    shapes = jax.eval_shape(vae.init_state).params
    return _mixing(vae, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes), space)


def _mixing(vae: Experiment, params: Params, space: Space) -> DecoderMixing:
    assert isinstance(vae.objective, Elbo)
    return DecoderMixing(params["objective"], decoding_scale(space), vae.objective.decode)
