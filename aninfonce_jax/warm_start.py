"""A run that starts with what another one has learned: its parameters, and nothing else of it."""

from typing import Any

import jax

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.cli import warn
from aninfonce_jax.config import kinds
from aninfonce_jax.config.schema import Config, ConfigError
from aninfonce_jax.placement import Placement
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.training.state import TrainState
from aninfonce_jax.training.trained import latest_weights
from aninfonce_jax.types import PyTree, Weights


def origin_of(config: Config) -> Config:
    """Returns the config of the run that `train.start_from` names.

    Raises:
      ConfigError: there is no such run, or it has not saved anything yet.
    """
    folder = workdir_lib.locate(config.train.start_from)
    try:
        origin = workdir_lib.read_config(folder)
    except ConfigError as error:
        raise ConfigError(f"train.start_from: {error}") from error
    if not (folder / workdir_lib.CHECKPOINT_FOLDER).exists():
        raise ConfigError(
            f"train.start_from={config.train.start_from} has no checkpoint yet; train it first"
        )
    return origin


def check(config: Config) -> None:
    """Raises ConfigError if a run is to start from another one that can't be found."""
    if not config.train.start_from:
        return
    origin = origin_of(config)
    if isinstance(config.source, kinds.ProcessConfig) and origin.seed != config.seed:
        warn(
            f"train.start_from={config.train.start_from} was trained with seed={origin.seed}, and "
            f"this run has seed={config.seed}: its process has another mixing"
        )


def begin(
    state: TrainState, placement: Placement, origin: Experiment, start_from: str
) -> TrainState:
    """Returns the first state of a run with the parameters of another one.

    The encoder's are taken over with its running statistics, and the objective's where both have
    the same; the optimiser starts anew. They are those that the other run was scored by.

    Args:
      state: before the first step.
      placement: where the run computes.
      origin: the other run.
      start_from: its work directory.

    Raises:
      ConfigError: the encoders differ.
      CheckpointError: no checkpoint of the other run is whole.
    """
    _, found = latest_weights(workdir_lib.locate(start_from), origin, placement)
    own = state.weights
    differs = _difference(own.params["encoder"], found.params["encoder"])
    differs = differs or _difference(own.model_state, found.model_state)
    if differs:
        raise ConfigError(
            f"train.start_from={start_from} has another encoder: {differs}; give this run the "
            "same encoder section, and observations of the same shape"
        )
    objective = found.params["objective"]
    if differs := _difference(own.params["objective"], objective):
        objective = own.params["objective"]
        if placement.peers.is_first:
            warn(f"the objective starts anew, as that of {start_from} is another: {differs}")
    weights = Weights(
        {"encoder": found.params["encoder"], "objective": objective}, found.model_state
    )
    # Copies: the state is donated, and one buffer can't be donated twice.
    params, model_state = _copied(weights.params), _copied(weights.model_state)
    average = None if state.average is None else _copied(weights)
    return TrainState(state.step, state.key, params, model_state, state.opt_state, average)


def _copied(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf.copy(), tree)


def _difference(own: PyTree, other: PyTree) -> str:
    """Returns in which array two trees differ, in words; "" if in none."""
    mine, theirs = _shapes(own), _shapes(other)
    for name in {**mine, **theirs}:
        if mine.get(name) != theirs.get(name):
            here, there = (shapes.get(name, "missing") for shapes in (mine, theirs))
            return f"{name} is {there} there and {here} here"
    return ""


def _shapes(tree: PyTree) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): tuple(leaf.shape) for path, leaf in leaves}
