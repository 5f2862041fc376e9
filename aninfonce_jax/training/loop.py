"""The training loop: resume, step, evaluate, save, stop.

One loop for every experiment. It is handed an experiment and a function that evaluates
weights, and deals with time, files and signals.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.distributed.equal import require_equal
from aninfonce_jax.distributed.watch import TRAINING
from aninfonce_jax.placement import Placement, on
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.scores import registry
from aninfonce_jax.stop import Preempted, StopSignal
from aninfonce_jax.training.agreement import Agreement
from aninfonce_jax.training.checkpoint import CheckpointError, Checkpoints, Restored
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.training.feed import Feed
from aninfonce_jax.training.goodput import Clock, Pace, entries
from aninfonce_jax.training.metrics import MetricWriter
from aninfonce_jax.training.profile import Profile
from aninfonce_jax.training.progress import Progress, ProgressMode
from aninfonce_jax.training.state import TrainState
from aninfonce_jax.training.step import Metrics, Step, make_train_step
from aninfonce_jax.training.together import claimed, to_be_equal
from aninfonce_jax.types import Array, Weights

# What checkpoints call the number that tells the best of them.
_GOODNESS = "goodness"


class Evaluate(Protocol):
    """Weights -> scores to write down: numbers, lists and, as details, what JSON holds."""

    def __call__(self, weights: Weights, *, full: bool) -> Mapping[str, Any]:
        """Returns the scores; `full`: also those that take too long for every evaluation."""
        ...


MakeEvaluate = Callable[[Experiment, Placement], Evaluate]


class DivergedError(RuntimeError):
    """The loss stopped being finite; the last good state is saved."""


class UnfinishedError(RuntimeError):
    """A run came to its end without its last step, evaluation or checkpoint."""


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
        best_metric=_GOODNESS,
        run=workdir_lib.read_saved(workdir).hash,
        placement=placement,
    )


def next_look(step: int, experiment: Experiment) -> int:
    """Returns the step up to which the device may go on without the host looking at it."""
    intervals = (
        experiment.log.every,
        experiment.evaluation.every,
        experiment.checkpoint.every,
    )
    return min(
        step + experiment.dispatch_steps,
        experiment.steps,
        *((step // every + 1) * every for every in intervals),
    )


def count_parameters(state: TrainState) -> int:
    """Returns how many numbers are trained."""
    return sum(x.size for x in jax.tree.leaves(state.params))


def abstract_state(experiment: Experiment, placement: Placement) -> TrainState:
    """Returns shapes, dtypes and placement of the state, to restore into."""
    state: TrainState = on(placement.whole, jax.eval_shape(experiment.init_state))
    return state


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """How a run ended: its last state and last scores."""

    state: TrainState
    scores: Mapping[str, Any]


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
            require_equal(peers, "what is trained", to_be_equal(experiment))
        bar = stack.enter_context(
            Progress(experiment.steps, mode=progress, label=label, is_shown=placement.is_first)
        )
        folder, run = stack.enter_context(claimed(workdir, experiment, command, peers))
        checkpoints = stack.enter_context(open_checkpoints(folder, experiment, placement))
        peers.at("restoring")
        restored = checkpoints.restore_latest(abstract_state(experiment, placement))
        if restored is None:
            state = jax.jit(experiment.init_state, out_shardings=placement.whole)()
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
        session = _Session(
            experiment,
            run,
            folder,
            checkpoints,
            stop,
            functools.cache(lambda: make_evaluate(experiment, placement)),
            feed,
            writer,
            bar,
            clock,
            trace,
            placement,
        )
        if restored is not None:
            session.restore(restored)
        session.leave_if_asked("stopped while setting up")
        return session.run(state, make_train_step(experiment, placement))


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


def _of_untrained(scores: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns what later evaluations repeat of the first, with intervals; None if nothing."""
    kept = {name: scores[name] for name in registry.OF_UNTRAINED if name in scores}
    found = scores.get("intervals", {})
    own = {name: found[name] for name in kept if name in found}
    return {**kept, "intervals": own} if kept else None


class _Session:
    """The loop itself, with what it keeps between two calls to the device."""

    def __init__(
        self,
        experiment: Experiment,
        run_hash: str,
        workdir: AnyPath,
        checkpoints: Checkpoints,
        stop: StopSignal,
        evaluate: Callable[[], Evaluate],
        feed: Feed,
        writer: MetricWriter,
        progress: Progress,
        clock: Clock,
        profile: Profile,
        placement: Placement,
    ) -> None:
        self.experiment = experiment
        self.peers = placement.peers
        self.agreement = Agreement(placement)
        self.run_hash = run_hash
        self.workdir = workdir
        self.checkpoints = checkpoints
        self.stop = stop
        self.evaluate = evaluate
        self.feed = feed
        self.writer = writer
        self.progress = progress
        self.clock = clock
        self.profile = profile
        self.placement = placement
        self.history: list[dict[str, Any]] = []
        self.pace = Pace(clock, None if feed.is_empty else experiment.batch_size)
        # Metrics of the steps since the last row, of each call those of its steps.
        self._interval: list[tuple[Metrics, int]] = []
        # Losses of the call before the latest: the device has done with them.
        self._known_losses: tuple[Array, int] | None = None
        self._unchecked: Array | None = None
        # Whether the evaluation before had warnings, which were said.
        self._has_warned = False
        # Scores of the start that the last evaluation repeats beside its own.
        self.untrained: Mapping[str, Any] | None = None

    def restore(self, restored: Restored) -> None:
        """Takes over what an earlier session saved beside its state."""
        for problem in restored.problems:
            self.progress.warn(problem)
        extra, last = restored.extra, self.experiment.steps
        if restored.step > last:
            raise CheckpointError(
                f"the checkpoint of step {restored.step} lies beyond the last step, {last}"
            )
        stand = "finished already," if restored.step == last else "going on from"
        self.progress.message(f"{stand} step {restored.step} of {last} in {self.workdir}")
        self.history = list(extra["history"])
        self.untrained = extra["untrained"]
        if extra["interval"]:
            interval = {name: jnp.asarray(values) for name, values in extra["interval"].items()}
            self._interval = [(interval, len(extra["interval"]["loss"]))]

    def run(self, state: TrainState, step_fn: Step) -> TrainResult:
        """Steps to the end."""
        experiment, peers = self.experiment, self.peers
        last = experiment.steps
        step = int(state.step)
        if not self.history:
            self.progress.status("scoring the untrained network, for comparison")
            self._evaluate(step, state)
        self.leave_if_asked("stopped before the first step of this session")
        if step < last:
            self.progress.status("compiling the training step, once")
        self.clock.enter("steps")
        stops = False
        while step < last and not stops:
            count = self.profile.limit(step, next_look(step, experiment)) - step
            self.profile.before(step, state)
            peers.at(TRAINING, step, count)
            peers.doing("waiting for data")
            with self.clock.phase("input"):
                fed = next(self.feed)
            peers.doing("waiting for the devices")
            with self.pace.call(step):
                state, metrics = step_fn(state, fed, count)
            self.writer.poll()
            step += count
            self.profile.after(step, state)
            self._interval.append((metrics, count))
            if self._is_due(step, experiment.log.every):
                self._log(step, state)
            elif self.progress.due:
                self.progress.update(step, loss=self._known_loss())
            self._known_losses = metrics["loss"], count
            if self._is_due(step, experiment.evaluation.every):
                self._evaluate(step, state)
            if self._is_due(step, experiment.checkpoint.every):
                self._save(step, state)
            peers.check()
            stops = self.agreement(self.stop.requested, self.feed.unreadable)
            if stops:
                self._save(step, state)
        peers.at("finishing", step)
        with self.clock.phase("checkpoint"):
            self.checkpoints.wait()
        message = f"stopped at step {step} of {last}; the state is saved"
        if stops:
            raise Preempted(message)
        self.leave_if_asked(message)
        self._require_scores(step, state)
        self._require_end(step)
        return TrainResult(state, self.history[-1])

    def leave_if_asked(self, message: str) -> None:
        """Raises Preempted, in all processes, if one of them was asked to stop."""
        if self.peers.any("whether to stop", self.stop.requested):
            raise Preempted(message)

    def _is_due(self, step: int, every: int) -> bool:
        return step % every == 0 or step == self.experiment.steps

    def _known_loss(self) -> float | None:
        """Returns the mean loss of a call that the device has done with."""
        if self._known_losses is None:
            return None
        losses, count = self._known_losses
        return float(np.mean(np.asarray(losses)[:count]))

    def _require_scores(self, step: int, state: TrainState) -> None:
        """Says what is wrong with the network; evaluates again if its scores are not sound."""
        problem, warnings = self.peers.by_first("read scores", lambda: self._read_scores(step))
        if problem:
            self.progress.warn(f"{problem}; it is made again")
            self._evaluate(step, state)
            _, warnings = self.peers.by_first("read scores", lambda: self._read_scores(step))
        for warning in warnings:
            self.progress.warn(warning)

    def _read_scores(self, step: int) -> tuple[str, Sequence[str]]:
        """Returns what is wrong with the scores of a step, and what they warn of."""
        found = workdir_lib.read_eval(self.workdir, self.run_hash)
        if not found.problem and found.scores.get("step") != step:
            return f"{workdir_lib.EVAL_FILE} is not of step {step}", ()
        return found.problem, found.scores.get("warnings", ())

    def _require_end(self, step: int) -> None:
        """Raises UnfinishedError unless the last step was reached, evaluated and saved."""
        last = self.experiment.steps
        evaluated, saved = self.history[-1]["step"], self.checkpoints.latest_step
        if not step == evaluated == saved == last:
            raise UnfinishedError(
                f"the run in {self.workdir} is not complete: of {last} steps it reached {step}, "
                f"its last evaluation is of step {evaluated}, its last checkpoint of {saved}"
            )

    def _log(self, step: int, state: TrainState) -> None:
        """Writes the means over the steps since the last row."""
        values = self._joined_interval()
        means = jax.tree.map(jnp.mean, values)
        if not self.feed.is_empty:
            means[registry.UNREADABLE] = self.agreement.unreadable
        self.writer.write(step, "train", means, functools.partial(self.pace.row, step))
        # Looks at the row before, which is there already, so that the device is not kept waiting.
        if self._unchecked is not None and not np.isfinite(self._unchecked):
            self._require_progress(step, state)
        self._unchecked = means["loss"]
        self._interval = []
        self.progress.update(step, loss=self._known_loss() if self.progress.due else None)

    def _measures(self) -> dict[str, float]:
        """Returns what the machine did for the run so far: seconds, and memory if it tells."""
        peak = self.placement.peak_memory()
        memory = {} if peak is None else {registry.PEAK_MEMORY: peak}
        return {**entries(self.clock.seconds), **memory}

    def _evaluate(self, step: int, state: TrainState) -> None:
        self._require_progress(step, state)
        self.writer.poll()
        with self.clock.phase("evaluation"):
            self._score(step, state)

    def _score(self, step: int, state: TrainState) -> None:
        full = step in (0, self.experiment.steps)
        if full and step > 0:
            self.progress.status("scoring the trained network")
        with self.progress.pause():
            self.peers.at("evaluating", step)
            scores = {"step": step, **self.evaluate()(state.evaluated, full=full)}
        if step == 0:
            self.untrained = _of_untrained(scores)
            scores.pop("warnings", None)  # nobody expects an untrained network to know anything
        elif self.untrained is not None:
            scores["untrained"] = self.untrained
        row = {name: value for name, value in scores.items() if name not in registry.DETAILS}
        if not self.history or self.history[-1]["step"] < step:
            self.history.append(row)
            values = {name: value for name, value in row.items() if name != registry.STEP}
            self.writer.write(step, "eval", values, self._measures)
        numbers = {registry.PARAMETERS: count_parameters(state), **self._measures()}
        # The row of this evaluation is among those that the file vouches for.
        self.writer.flush()
        if self.peers.is_first:
            workdir_lib.write_eval(
                self.workdir,
                {**scores, **numbers},
                self.run_hash,
                self.writer.rows,
            )
        shown = {
            score.progress: row[score.key]
            for score in registry.SCORES
            if score.progress and row.get(score.key) is not None
        }
        loss = self._known_loss() if step > 0 else None
        self.progress.update(step, shown, loss=loss, force=True)
        if step < self.experiment.steps:  # at the end it is said in any case
            self._warn_once(scores.get("warnings", ()))

    def _warn_once(self, warnings: Sequence[str]) -> None:
        """Says what is wrong with the network, but not at every evaluation again."""
        if not self._has_warned:
            for warning in warnings:
                self.progress.warn(warning)
        self._has_warned = bool(warnings)

    def _save(self, step: int, state: TrainState) -> None:
        self._require_progress(step, state)
        self._write_checkpoint(step, state)

    def _write_checkpoint(self, step: int, state: TrainState) -> None:
        with self.clock.phase("checkpoint"):
            self._write_state(step, state)

    def _write_state(self, step: int, state: TrainState) -> None:
        self.peers.at("saving", step)
        # A row still held back would be missing if the process died after this checkpoint.
        self.writer.flush()
        self.checkpoints.save(
            step,
            state,
            extra={
                "history": self.history,
                # Every row of the metrics so far, so that a damaged file can be made again.
                "rows": list(self.writer.rows),
                "untrained": self.untrained,
                "interval": jax.tree.map(lambda x: x.tolist(), self._joined_interval()),
                "clock": self.clock.save(),
            },
            metrics={_GOODNESS: registry.goodness(self.history[-1])},
        )

    def _joined_interval(self) -> dict[str, Array]:
        """Returns the metrics of every step since the last row, [steps] each."""
        parts = [
            {name: values[:count] for name, values in metrics.items()}
            for metrics, count in self._interval
        ]
        return jax.tree.map(lambda *x: jnp.concatenate(x), *parts) if parts else {}

    def _require_progress(self, step: int, state: TrainState) -> None:
        """Raises DivergedError if the step function stopped taking steps."""
        good = int(state.step)
        if good == step:
            return
        self._write_checkpoint(good, state)
        self.checkpoints.wait()
        raise DivergedError(
            f"loss or gradient was not finite at step {good + 1}; the state of step {good} is "
            f"saved in {self.workdir}: try a lower learning rate or optimizer.clip_norm"
        )
