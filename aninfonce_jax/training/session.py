"""The training loop: step, log, evaluate, save, stop.

What it works with is handed to it open; see `loop.py`.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.distributed.watch import TRAINING
from aninfonce_jax.placement import Placement
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.scores import registry
from aninfonce_jax.stop import Preempted, StopSignal
from aninfonce_jax.training.agreement import Agreement
from aninfonce_jax.training.checkpoint import CheckpointError, Checkpoints, Restored
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.training.feed import Feed
from aninfonce_jax.training.goodput import Clock, Pace, entries
from aninfonce_jax.training.interval import Interval
from aninfonce_jax.training.metrics import MetricWriter
from aninfonce_jax.training.profile import Profile
from aninfonce_jax.training.progress import Progress
from aninfonce_jax.training.state import TrainState
from aninfonce_jax.training.step import Step
from aninfonce_jax.types import Array, Weights

# What checkpoints call the number that tells the best of them.
GOODNESS = "goodness"


class Evaluate(Protocol):
    """Weights -> scores to write down: numbers, lists and, as details, what JSON holds."""

    def __call__(self, weights: Weights, *, full: bool) -> Mapping[str, Any]:
        """Returns the scores; `full`: also those that take too long for every evaluation."""
        ...


class DivergedError(RuntimeError):
    """The loss stopped being finite; the last good state is saved."""


class UnfinishedError(RuntimeError):
    """A run came to its end without its last step, evaluation or checkpoint."""


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """How a run ended: its last state and last scores."""

    state: TrainState
    scores: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Tools:
    """What a session works with; whoever opens it closes it.

    Attributes:
      checkpoints: of the run.
      writer: of the rows of metrics.
      feed: what each call to the device is fed.
      evaluate: returns the evaluation, which is made when it is first needed.
      stop: says when to save and leave.
      progress: what the user sees.
      clock: of the whole run.
      profile: traces some of the steps, if any.
    """

    checkpoints: Checkpoints
    writer: MetricWriter
    feed: Feed
    evaluate: Callable[[], Evaluate]
    stop: StopSignal
    progress: Progress
    clock: Clock
    profile: Profile


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


class Session:
    """The loop itself, with what it keeps between two calls to the device."""

    def __init__(
        self,
        experiment: Experiment,
        placement: Placement,
        workdir: AnyPath,
        run_hash: str,
        tools: Tools,
    ) -> None:
        self.experiment = experiment
        self.placement = placement
        self.workdir = workdir
        self.run_hash = run_hash
        self.tools = tools
        self.peers = placement.peers
        self.agreement = Agreement(placement)
        self.history: list[dict[str, Any]] = []
        fed = None if tools.feed.is_empty else experiment.batch_size
        self.pace = Pace(tools.clock, fed)
        self.interval = Interval()
        self._unchecked: Array | None = None
        # Whether the evaluation before had warnings, which were said.
        self._has_warned = False
        # Scores of the start that the last evaluation repeats beside its own.
        self.untrained: Mapping[str, Any] | None = None

    def restore(self, restored: Restored) -> None:
        """Takes over what an earlier session saved beside its state."""
        for problem in restored.problems:
            self.tools.progress.warn(problem)
        extra, last = restored.extra, self.experiment.steps
        if restored.step > last:
            raise CheckpointError(
                f"the checkpoint of step {restored.step} lies beyond the last step, {last}"
            )
        stand = "finished already," if restored.step == last else "going on from"
        self.tools.progress.message(f"{stand} step {restored.step} of {last} in {self.workdir}")
        self.history = list(extra["history"])
        self.untrained = extra[registry.UNTRAINED]
        self.interval.restore(extra["interval"])

    def run(self, state: TrainState, step_fn: Step) -> TrainResult:
        """Steps to the end."""
        experiment, peers = self.experiment, self.peers
        last = experiment.steps
        step = int(state.step)
        if not self.history:
            self.tools.progress.status("scoring the untrained network, for comparison")
            self._evaluate(step, state)
        self.leave_if_asked("stopped before the first step of this session")
        if step < last:
            self.tools.progress.status("compiling the training step, once")
        self.tools.clock.enter("steps")
        stops = False
        while step < last and not stops and not self._gives_up():
            count = self.tools.profile.limit(step, next_look(step, experiment)) - step
            self.tools.profile.before(step, state)
            peers.at(TRAINING, step, count)
            peers.doing("waiting for data")
            with self.tools.clock.phase("input"):
                fed = next(self.tools.feed)
            peers.doing("waiting for the devices")
            with self.pace.call(step):
                state, metrics = step_fn(state, fed, count)
            self.tools.writer.poll()
            step += count
            self.tools.profile.after(step, state)
            self.interval.add(metrics, count)
            if self._is_due(step, experiment.log.every):
                self._log(step, state)
            elif self.tools.progress.due:
                self.tools.progress.update(step, loss=self.interval.known_loss())
            self.interval.settle(metrics, count)
            if self._is_due(step, experiment.evaluation.every):
                self._evaluate(step, state)
                if step < last and self._gives_up():
                    self._evaluate(step, state, is_last=True)
            if self._is_due(step, experiment.checkpoint.every) or self._gives_up():
                self._save(step, state)
            peers.check()
            stops = self.agreement(self.tools.stop.requested, self.tools.feed.unreadable)
            if stops:
                self._save(step, state)
        peers.at("finishing", step)
        with self.tools.clock.phase("checkpoint"):
            self.tools.checkpoints.wait()
        message = f"stopped at step {step} of {last}; the state is saved"
        if stops:
            raise Preempted(message)
        self.leave_if_asked(message)
        self._require_scores(step, state)
        self._require_end(step)
        return TrainResult(state, self.history[-1])

    def leave_if_asked(self, message: str) -> None:
        """Raises Preempted, in all processes, if one of them was asked to stop."""
        if self.peers.any("whether to stop", self.tools.stop.requested):
            raise Preempted(message)

    def _gives_up(self) -> bool:
        """Whether evaluations have not become better for as long as the run has patience.

        By the evaluations alone, which a checkpoint holds: a run that is resumed ends where it
        would have ended.
        """
        patience, goodness = self.experiment.patience, [*map(registry.goodness, self.history)]
        # NaN, the goodness of an evaluation that tells nothing, makes the comparison false.
        return 0 < patience < len(goodness) and (
            max(goodness[:-patience]) >= max(goodness[-patience:])
        )

    def _is_due(self, step: int, every: int) -> bool:
        return step % every == 0 or step == self.experiment.steps

    def _require_scores(self, step: int, state: TrainState) -> None:
        """Says what is wrong with the network; evaluates again if its scores are not sound."""
        problem, warnings = self.peers.by_first("read scores", lambda: self._read_scores(step))
        if problem:
            self.tools.progress.warn(f"{problem}; it is made again")
            self._evaluate(step, state, is_last=True)
            _, warnings = self.peers.by_first("read scores", lambda: self._read_scores(step))
        for warning in warnings:
            self.tools.progress.warn(warning)

    def _read_scores(self, step: int) -> tuple[str, Sequence[str]]:
        """Returns what is wrong with the scores of a step, and what they warn of."""
        found = workdir_lib.read_eval(self.workdir, self.run_hash)
        if not found.problem and found.scores.get(registry.STEP) != step:
            return f"{workdir_lib.EVAL_FILE} is not of step {step}", ()
        return found.problem, found.scores.get(registry.WARNINGS, ())

    def _require_end(self, step: int) -> None:
        """Raises UnfinishedError unless the last step was reached, evaluated and saved."""
        last = step if self._gives_up() else self.experiment.steps
        evaluated, saved = self.history[-1][registry.STEP], self.tools.checkpoints.latest_step
        if not step == evaluated == saved == last:
            raise UnfinishedError(
                f"the run in {self.workdir} is not complete: of {last} steps it reached {step}, "
                f"its last evaluation is of step {evaluated}, its last checkpoint of {saved}"
            )

    def _log(self, step: int, state: TrainState) -> None:
        """Writes the means over the steps since the last row."""
        means: dict[str, Any] = self.interval.means()
        if not self.tools.feed.is_empty:
            means[registry.UNREADABLE] = self.agreement.unreadable
        self.tools.writer.write(step, "train", means, functools.partial(self.pace.row, step))
        # Looks at the row before, which is there already, so that the device is not kept waiting.
        if self._unchecked is not None and not np.isfinite(self._unchecked):
            self._require_progress(step, state)
        self._unchecked = means[registry.LOSS.key]
        self.interval.clear()
        self.tools.progress.update(
            step, loss=self.interval.known_loss() if self.tools.progress.due else None
        )

    def _measures(self) -> dict[str, float]:
        """Returns what the machine did for the run so far: seconds, and memory if it tells."""
        peak = self.placement.peak_memory()
        memory = {} if peak is None else {registry.PEAK_MEMORY: peak}
        return {**entries(self.tools.clock.seconds), **memory}

    def _evaluate(self, step: int, state: TrainState, *, is_last: bool = False) -> None:
        self._require_progress(step, state)
        self.tools.writer.poll()
        with self.tools.clock.phase("evaluation"):
            self._score(step, state, full=is_last or step in (0, self.experiment.steps))

    def _score(self, step: int, state: TrainState, *, full: bool) -> None:
        if full and step > 0:
            self.tools.progress.status("scoring the trained network")
        with self.tools.progress.pause():
            self.peers.at("evaluating", step)
            scores = {registry.STEP: step, **self.tools.evaluate()(state.evaluated, full=full)}
        if step == 0:
            self.untrained = _of_untrained(scores)
            # Nobody expects an untrained network to know anything.
            scores.pop(registry.WARNINGS, None)
        elif self.untrained is not None:
            scores[registry.UNTRAINED] = self.untrained
        row = {name: value for name, value in scores.items() if name not in registry.DETAILS}
        if not self.history or self.history[-1][registry.STEP] < step:
            self.history.append(row)
            values = {name: value for name, value in row.items() if name != registry.STEP}
            self.tools.writer.write(step, "eval", values, self._measures)
        elif full:
            self.history[-1] = row
        numbers = {registry.PARAMETERS: count_parameters(state), **self._measures()}
        # The row of this evaluation is among those that the file vouches for.
        self.tools.writer.flush()
        if self.peers.is_first:
            workdir_lib.write_eval(
                self.workdir,
                {**scores, **numbers},
                self.run_hash,
                self.tools.writer.rows,
            )
        known = {score.progress: row.get(score.key) for score in registry.SCORES if score.progress}
        # NaN is the held-out loss where no pairs are held out: there is nothing to show.
        shown = {
            name: value for name, value in known.items() if value is not None and value == value
        }
        loss = self.interval.known_loss() if step > 0 else None
        self.tools.progress.update(step, shown, loss=loss, force=True)
        if step < self.experiment.steps:  # at the end it is said in any case
            self._warn_once(step, scores.get(registry.WARNINGS, ()))

    def _warn_once(self, step: int, warnings: Sequence[str]) -> None:
        """Says what is wrong with the network, but not at every evaluation again."""
        if not self._has_warned:
            for warning in warnings:
                # Early on some are no cause for alarm.
                self.tools.progress.warn(
                    f"after {step:,} of {self.experiment.steps:,} steps: {warning}"
                )
        self._has_warned = bool(warnings)

    def _save(self, step: int, state: TrainState) -> None:
        self._require_progress(step, state)
        self._write_checkpoint(step, state)

    def _write_checkpoint(self, step: int, state: TrainState) -> None:
        with self.tools.clock.phase("checkpoint"):
            self._write_state(step, state)

    def _write_state(self, step: int, state: TrainState) -> None:
        self.peers.at("saving", step)
        # A row still held back would be missing if the process died after this checkpoint.
        self.tools.writer.flush()
        self.tools.checkpoints.save(
            step,
            state,
            extra={
                "history": self.history,
                # Every row of the metrics so far, so that a damaged file can be made again.
                "rows": list(self.tools.writer.rows),
                registry.UNTRAINED: self.untrained,
                "interval": self.interval.save(),
                "clock": self.tools.clock.save(),
            },
            metrics={GOODNESS: registry.goodness(self.history[-1])},
        )

    def _require_progress(self, step: int, state: TrainState) -> None:
        """Raises DivergedError if the step function stopped taking steps."""
        good = int(state.step)
        if good == step:
            return
        self._write_checkpoint(good, state)
        self.tools.checkpoints.wait()
        raise DivergedError(
            f"loss or gradient was not finite at step {good + 1}; the state of step {good} is "
            f"saved in {self.workdir}: try a lower learning rate or optimizer.clip_norm"
        )


def _of_untrained(scores: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns what later evaluations repeat of the first, with intervals; None if nothing."""
    kept = {name: scores[name] for name in registry.OF_UNTRAINED if name in scores}
    found = scores.get(registry.INTERVALS, {})
    own = {name: found[name] for name in kept if name in found}
    return {**kept, registry.INTERVALS: own} if kept else None
