"""A run from wherever it stands to its end: what it needs is opened, restored and closed again.

One way for every experiment. It is handed an experiment and a function that evaluates weights;
the steps themselves are those of a `Session`.
"""

import contextlib
import functools
from collections.abc import Callable

import jax

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.distributed.equal import require_equal
from aninfonce_jax.placement import Placement, on
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.scores import registry
from aninfonce_jax.scores.predictions import Prediction, predict
from aninfonce_jax.stop import StopSignal
from aninfonce_jax.training.checkpoint import Checkpoints
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.training.feed import Feed
from aninfonce_jax.training.goodput import Clock
from aninfonce_jax.training.metrics import MetricWriter
from aninfonce_jax.training.profile import Profile
from aninfonce_jax.training.progress import Progress, ProgressMode
from aninfonce_jax.training.session import GOODNESS, Evaluate, Session, Tools, TrainResult
from aninfonce_jax.training.state import TrainState
from aninfonce_jax.training.step import make_train_step
from aninfonce_jax.training.together import claimed, to_be_equal

MakeEvaluate = Callable[[Experiment, Placement], Evaluate]


def open_checkpoints(
    workdir: AnyPath, experiment: Experiment, placement: Placement | None = None
) -> Checkpoints:
    """Returns the checkpoints of the run in `workdir`.

    Args:
      workdir: where the run lives.
      experiment: the run.
      placement: where it computes; by default on the devices of this process.
    """
    folder = workdir / workdir_lib.CHECKPOINT_FOLDER
    # Without its parents: a work directory that was removed is not made again.
    folder.mkdir(exist_ok=True)
    return Checkpoints(
        folder,
        keep=experiment.checkpoint.keep,
        best_metric=GOODNESS,
        run=workdir_lib.read_saved(workdir).hash,
        placement=placement,
    )


def abstract_state(experiment: Experiment, placement: Placement) -> TrainState:
    """Returns shapes, dtypes and placement of the state, to restore into."""
    state: TrainState = on(placement.whole, jax.eval_shape(experiment.init_state))
    return state


def train(
    experiment: Experiment,
    workdir: AnyPath | None,
    make_evaluate: MakeEvaluate,
    *,
    placement: Placement,
    stop: StopSignal,
    progress: ProgressMode = "auto",
    label: str = "",
    command: str = "",
    profile: tuple[int, int] | None = None,
) -> TrainResult:
    """Trains to the end of an experiment, from wherever the run in `workdir` stands.

    Args:
      experiment: the run.
      workdir: where its files are, or are to be; None: nothing is kept.
      make_evaluate: builds the evaluation from the experiment and its placement.
      placement: where to run.
      stop: says when to save and leave.
      progress: `auto`, `rich`, `plain` or `off`.
      label: what the progress line calls the run.
      command: what to type to repeat the run, for its report.
      profile: steps to trace, from the first number of steps done to the second.

    Returns:
      The last state and its scores.

    Raises:
      ConfigError: if the experiment does not fit the machine or the work directory.
      CheckpointError: if there are checkpoints but none of this run is whole, or one can't be
        written.
      DivergedError: if the loss stopped being finite.
      Preempted: if `stop` was requested, even if the last step is done.
      UnfinishedError: if the last step was not reached, evaluated and saved.
      PeerError: of several processes, another one failed or is lost.
    """
    clock = Clock()
    peers = placement.peers
    stop.is_patient = peers.are_many
    with contextlib.ExitStack() as stack, peers.watched(experiment.hang_timeout), peers.telling():
        # Where this fails, the others are told before anything here is closed.
        peers.at("setting up")
        if peers.are_many:
            traced = {"profile": profile and list(profile)}
            require_equal(peers, "what is trained", to_be_equal(experiment) | traced)
        bar = stack.enter_context(
            Progress(experiment.steps, mode=progress, label=label, is_shown=placement.is_first)
        )
        folder, run = stack.enter_context(claimed(workdir, experiment, command, peers))
        checkpoints = stack.enter_context(open_checkpoints(folder, experiment, placement))
        peers.at("restoring")
        restored = checkpoints.restore_latest(abstract_state(experiment, placement))
        if restored is None:
            state = jax.jit(experiment.init_state, out_shardings=placement.whole)()
            if experiment.warm_start is not None:
                state = experiment.warm_start(state, placement)
        else:
            state = restored.state
        start = int(state.step)
        peers.by_first("undo", lambda: workdir_lib.undo_eval(folder, start))
        clock.resume(
            None if restored is None else restored.extra.get("clock"),
            # Before the writer removes what the checkpoint undoes.
            peers.by_first("read the time", lambda: _wall_seconds(folder)),
            goes_on=start < experiment.steps,
        )
        bar.start_from(start)
        prediction = _predicted(experiment)
        if prediction is not None and start < experiment.steps:
            bar.message(f"predicted by the Λ of the members: {prediction.words}")
        feed = stack.enter_context(_open_feed(experiment, start, placement))
        writer = stack.enter_context(
            MetricWriter(
                folder,
                tensorboard=experiment.log.tensorboard,
                wandb_project=experiment.log.wandb_project,
                wandb_config=experiment.description,
                resume_step=start,
                expected_rows=None if restored is None else restored.extra.get("rows"),
                writes=placement.is_first,
            )
        )
        if writer.mended:
            bar.warn(writer.mended)
        trace = stack.enter_context(
            Profile(
                profile,
                last=experiment.steps,
                workdir=folder,
                say=bar.message,
                is_first=placement.is_first,
            )
        )
        tools = Tools(
            checkpoints=checkpoints,
            writer=writer,
            feed=feed,
            evaluate=functools.cache(lambda: make_evaluate(experiment, placement)),
            stop=stop,
            progress=bar,
            clock=clock,
            profile=trace,
        )
        session = Session(experiment, placement, folder, run, tools)
        if restored is not None:
            session.restore(restored)
        session.leave_if_asked("stopped while setting up")
        result = session.run(state, make_train_step(experiment, placement))
        if prediction is not None:
            bar.message(prediction.outcome(result.scores.get(registry.BLOCK_ENERGY)))
        return result


def _predicted(experiment: Experiment) -> Prediction | None:
    """Returns what the Λ of an ensemble's members predict, where they are known."""
    latents = experiment.source.known.latents
    return predict(latents.members) if latents is not None and latents.members else None


def _open_feed(experiment: Experiment, step: int, placement: Placement) -> Feed:
    return Feed(
        experiment.source if step < experiment.steps else None,
        experiment.batch_size,
        seed=experiment.seed,
        step=step,
        placement=placement,
    )


def _wall_seconds(folder: AnyPath) -> float:
    """Returns how long the run had taken when it wrote its last row; 0 if nobody can tell."""
    try:
        rows = workdir_lib.read_metrics(folder / workdir_lib.METRICS_FILE)
    except workdir_lib.WorkdirError:  # none yet; or damaged, which the writer sees to
        return 0.0
    known = [row[registry.WALL_SECONDS] for row in rows if registry.WALL_SECONDS in row]
    return known[-1] if known and isinstance(known[-1], float) else 0.0
