"""What a run has learned, out of its work directory."""

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.cli import warn
from aninfonce_jax.placement import Placement
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.training import loop
from aninfonce_jax.training.checkpoint import Restored
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.types import Weights


def check_saved(folder: AnyPath) -> None:
    """Raises WorkdirError if a run has saved nothing yet."""
    if not workdir_lib.has_checkpoint(folder):
        raise _nothing_saved(folder)


def _nothing_saved(folder: AnyPath) -> workdir_lib.WorkdirError:
    return workdir_lib.WorkdirError(f"{folder} has no checkpoint yet; train it first")


def restore_run(
    folder: AnyPath, experiment: Experiment, placement: Placement, *, best: bool = False
) -> Restored:
    """Returns the latest whole checkpoint of a run, and warns of later ones that are not.

    Args:
      folder: of the run.
      experiment: what was trained there.
      placement: where the arrays go.
      best: the one with the best score instead.

    Raises:
      WorkdirError: there is none yet.
      CheckpointError: none is whole.
    """
    check_saved(folder)
    with loop.open_checkpoints(folder, experiment, placement) as checkpoints:
        restore = checkpoints.restore_best if best else checkpoints.restore_latest
        restored = restore(loop.abstract_state(experiment, placement))
    if restored is None:
        raise _nothing_saved(folder)
    if placement.peers.is_first:
        for problem in restored.problems:
            warn(problem)
    return restored


def best_weights(
    folder: AnyPath, experiment: Experiment, placement: Placement
) -> tuple[int, Weights]:
    """Returns the step and the evaluated weights of the best checkpoint; see `restore_run`."""
    restored = restore_run(folder, experiment, placement, best=True)
    return restored.step, restored.state.evaluated


def latest_weights(
    folder: AnyPath, experiment: Experiment, placement: Placement
) -> tuple[int, Weights]:
    """Returns the step and the evaluated weights of the latest checkpoint; see `restore_run`."""
    restored = restore_run(folder, experiment, placement)
    return restored.step, restored.state.evaluated
