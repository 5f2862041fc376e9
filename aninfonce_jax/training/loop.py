"""The training loop: resume, step, evaluate, save, stop.

One loop for every experiment. It knows nothing of data or losses: it is handed an
experiment and a function that evaluates parameters, and it deals with time, files and
signals.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, Sharding

from aninfonce_jax import config as config_lib
from aninfonce_jax.config_schema import Config, ConfigError
from aninfonce_jax.files import write_json
from aninfonce_jax.mesh import make_mesh, replicated
from aninfonce_jax.stop import StopSignal
from aninfonce_jax.training.checkpoint import Checkpoints
from aninfonce_jax.training.feed import Feed
from aninfonce_jax.training.metrics import MetricWriter
from aninfonce_jax.training.progress import Progress, ProgressMode
from aninfonce_jax.training.state import Experiment, TrainState, build_experiment
from aninfonce_jax.training.step import Metrics, Step, make_train_step
from aninfonce_jax.types import Array, Weights


class Evaluate(Protocol):
    """Weights -> scores to write down: numbers, lists and, as details, what JSON holds."""

    def __call__(self, weights: Weights, *, full: bool) -> Mapping[str, Any]:
        """Returns the scores; `full`: those too that only the ends of a run are worth."""
        ...


EVAL_FILE = "eval.json"
CHECKPOINT_FOLDER = "checkpoints"
# Scores that go to EVAL_FILE alone, not into every row of the metrics.
DETAILS = (
    "map",
    "concentration_true",
    "spread",
    "readouts",
    "strength_r2",
    "never_applied",
    "untrained",
    "intervals",
)
# Scores shown beside the progress line, in this order, where they exist.
_SHOWN = ("loss", "r2", "r2_content", "r2_style", "knn_accuracy", "probe_accuracy")
# Scores of the start that the last evaluation repeats: what the network shows untrained.
_UNTRAINED = ("readouts", "strength_r2")


class DivergedError(RuntimeError):
    """The loss stopped being finite; the last good state is saved."""


def prepare_workdir(workdir: Path, config: Config, command: str = "") -> None:
    """Writes the resolved config, or checks that the folder's earlier run had the same.

    Args:
      workdir: the run's folder; made if it is missing.
      config: the run.
      command: what to type to repeat it, for the report.

    Raises:
      ConfigError: if the folder belongs to another run, holds something else, or can't be
        written.
    """
    try:
        _claim_workdir(workdir, config, command)
    except OSError as error:
        raise ConfigError(
            f"work directory {workdir} can't be written: {error.strerror or error}; "
            "choose another --workdir"
        ) from error


def _claim_workdir(workdir: Path, config: Config, command: str) -> None:
    path = workdir / config_lib.CONFIG_FILE
    if path.exists():
        changes = config_lib.difference(read_config(workdir), config)
        if changes:
            shown = "; ".join(f"{name}: {old!r} -> {new!r}" for name, (old, new) in changes.items())
            raise ConfigError(
                f"{workdir} holds a run with another config ({shown}); "
                "choose another --workdir, or go back to its config"
            )
    elif (workdir / CHECKPOINT_FOLDER).exists():
        raise ConfigError(f"{workdir} has checkpoints but no {path.name}; choose another --workdir")
    workdir.mkdir(parents=True, exist_ok=True)
    write_json(
        path,
        {
            "config": config_lib.to_dict(config),
            "hash": config_lib.fingerprint(config),
            "command": command,
        },
    )


def read_config(workdir: Path) -> Config:
    """Returns the config of the run in `workdir`, or raises ConfigError."""
    path = workdir / config_lib.CONFIG_FILE
    if not path.exists():
        raise ConfigError(
            f"{workdir} is not the work directory of a run: it has no {config_lib.CONFIG_FILE}"
        )
    try:
        return config_lib.from_dict(json.loads(path.read_text(encoding="utf-8"))["config"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} can't be read as a config: {error}") from error


def best_score(config: Config) -> str:
    """Returns the score that tells a run's best checkpoint."""
    return "knn_accuracy" if config.has_images else "r2"


def open_checkpoints(workdir: Path, config: Config) -> Checkpoints:
    """Returns the checkpoints of the run in `workdir`."""
    folder, keep = workdir / CHECKPOINT_FOLDER, config.checkpoint.keep
    return Checkpoints(folder, keep=keep, best_metric=best_score(config))


def count_parameters(state: TrainState) -> int:
    """Returns how many numbers are trained."""
    return sum(x.size for x in jax.tree.leaves(state.params))


def abstract_state(experiment: Experiment, sharding: Sharding) -> TrainState:
    """Returns shapes, dtypes and placement of the state, to restore into."""
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        jax.eval_shape(experiment.init_state),
    )


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """How a run ended: its last state and last scores."""

    state: TrainState
    scores: Mapping[str, Any]


def train(
    config: Config,
    workdir: Path,
    make_evaluate: Callable[[Experiment, Mesh], Evaluate],
    *,
    stop: StopSignal,
    progress_mode: ProgressMode = "auto",
    label: str = "",
    command: str = "",
) -> TrainResult:
    """Trains to the end of `config`, from wherever the run in `workdir` stands.

    Args:
      config: the run.
      workdir: where its files are, or are to be.
      make_evaluate: builds the evaluation from the experiment and its mesh.
      stop: says when to save and leave.
      progress_mode: `auto`, `rich`, `plain` or `off`.
      label: what the progress line calls the run.
      command: what to type to repeat the run, for its report.

    Returns:
      The last state and its scores.

    Raises:
      ConfigError: if the config does not fit the machine or the work directory.
      DivergedError: if the loss stopped being finite.
      Preempted: if `stop` was requested, even if the last step is done.
    """
    mesh = make_mesh(
        config_lib.check_devices(config, jax.local_device_count(), jax.process_count())
    )
    experiment = build_experiment(config)
    prepare_workdir(workdir, config, command)
    whole = replicated(mesh)
    with open_checkpoints(workdir, config) as checkpoints:
        restored = checkpoints.restore_latest(abstract_state(experiment, whole))
        if restored is None:
            state = jax.jit(experiment.init_state, out_shardings=whole)()
        else:
            state = restored.state
        start = int(state.step)
        with (
            experiment.open_feed(start, mesh) as feed,
            MetricWriter(
                workdir,
                tensorboard=config.log.tensorboard,
                wandb_project=config.log.wandb_project,
                wandb_config=config_lib.to_dict(config),
                resume_step=start,
            ) as writer,
            Progress(config.train.steps, start_step=start, mode=progress_mode, label=label) as bar,
        ):
            session = _Session(
                config,
                workdir,
                checkpoints,
                stop,
                make_evaluate(experiment, mesh),
                feed,
                writer,
                bar,
            )
            if restored is not None:
                session.restore(restored.extra)
                for problem in restored.problems:
                    bar.message(problem)
                bar.message(f"going on from step {start} of {config.train.steps} in {workdir}")
            stop.raise_if_requested("stopped while setting up")
            return session.run(state, make_train_step(experiment, mesh))


def _of_untrained(scores: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns what later evaluations repeat of the first, with intervals; None if nothing."""
    kept = {name: scores[name] for name in _UNTRAINED if name in scores}
    found = scores.get("intervals", {})
    own = {name: found[name] for name in kept if name in found}
    return {**kept, "intervals": own} if kept else None


class _Session:
    """The loop itself, with what it keeps between two calls to the device."""

    def __init__(
        self,
        config: Config,
        workdir: Path,
        checkpoints: Checkpoints,
        stop: StopSignal,
        evaluate: Evaluate,
        feed: Feed,
        writer: MetricWriter,
        progress: Progress,
    ) -> None:
        self.config = config
        self.workdir = workdir
        self.checkpoints = checkpoints
        self.stop = stop
        self.evaluate = evaluate
        self.feed = feed
        self.writer = writer
        self.progress = progress
        self.history: list[dict[str, Any]] = []
        self._seconds_before = 0.0
        self._started = self._last_log = time.monotonic()
        # Metrics of the steps since the last row.
        self._interval: list[Metrics] = []
        self._unchecked: Array | None = None
        # Of the feed, up to the last row.
        self._waited = 0.0
        # Scores of the start that the last evaluation repeats beside its own.
        self.untrained: Mapping[str, Any] | None = None

    def restore(self, extra: Mapping[str, Any]) -> None:
        """Takes over what an earlier session saved beside its state."""
        self.history = list(extra["history"])
        self.untrained = extra["untrained"]
        self._seconds_before = extra["seconds"]
        if extra["interval"]:
            self._interval = [
                {name: jnp.asarray(values) for name, values in extra["interval"].items()}
            ]

    def run(self, state: TrainState, step_fn: Step) -> TrainResult:
        """Steps to the end."""
        config = self.config
        last = config.train.steps
        dispatch = config_lib.dispatch_steps(config)
        step = int(state.step)
        if not self.history:
            self._evaluate(step, state)
        self.stop.raise_if_requested("stopped before the first step of this session")
        while step < last:
            state, metrics = step_fn(state, next(self.feed))
            step += dispatch
            self._interval.append(metrics)
            if step % config.log.every == 0 or step == last:
                self._log(step, state)
            if step % config.eval.every == 0 or step == last:
                self._evaluate(step, state)
            if step % config.checkpoint.every == 0 or step == last:
                self._save(step, state)
            if self.stop.requested:
                self._save(step, state)
                break
        self.checkpoints.wait()
        self.stop.raise_if_requested(f"stopped at step {step} of {last}; the state is saved")
        return TrainResult(state, self.history[-1])

    def _log(self, step: int, state: TrainState) -> None:
        """Writes the means over the steps since the last row."""
        values = self._joined_interval()
        means = jax.tree.map(jnp.mean, values)
        now = time.monotonic()
        seconds, self._last_log = now - self._last_log, now
        pace = {"steps_per_second": values["loss"].size / seconds}
        if self.config.has_images:
            pace |= self._feed_metrics(seconds, pace["steps_per_second"])
        self.writer.write(step, "train", {**means, **pace})
        # Looks at the row before, which is there already, so that the device is not kept waiting.
        if self._unchecked is not None and not np.isfinite(self._unchecked):
            self._require_progress(step, state)
        self._unchecked = means["loss"]
        self._interval = []
        self.progress.update(step, self._shown())

    def _feed_metrics(self, seconds: float, steps_per_second: float) -> dict[str, float]:
        """Returns how fast pictures went through, and whether the device had to wait for them."""
        waited, self._waited = self.feed.waited - self._waited, self.feed.waited
        return {
            "images_per_second": steps_per_second * self.config.train.batch_size,
            "data_wait_share": waited / seconds,
            "unreadable_images": self.feed.unreadable,
        }

    def _evaluate(self, step: int, state: TrainState) -> None:
        self._require_progress(step, state)
        full = step in (0, self.config.train.steps)
        with self.progress.pause():
            before = time.monotonic()
            scores = {"step": step, **self.evaluate(state.evaluated, full=full)}
            self._last_log += time.monotonic() - before
        if step == 0:
            self.untrained = _of_untrained(scores)
        elif self.untrained is not None:
            scores["untrained"] = self.untrained
        row = {name: value for name, value in scores.items() if name not in DETAILS}
        self.history.append(row)
        self.writer.write(step, "eval", {k: v for k, v in row.items() if k != "step"})
        write_json(
            self.workdir / EVAL_FILE,
            {**scores, "parameters": count_parameters(state), "seconds": self._seconds()},
        )
        self.progress.update(step, self._shown(), force=True)

    def _save(self, step: int, state: TrainState) -> None:
        self._require_progress(step, state)
        self._write_checkpoint(step, state)

    def _write_checkpoint(self, step: int, state: TrainState) -> None:
        # A row still held back would be missing if the process died after this checkpoint.
        self.writer.flush()
        self.checkpoints.save(
            step,
            state,
            extra={
                "config_hash": config_lib.fingerprint(self.config),
                # A batch is a function of its number: the position is the step itself.
                "data_position": step,
                "history": self.history,
                "untrained": self.untrained,
                "interval": jax.tree.map(lambda x: x.tolist(), self._joined_interval()),
                "seconds": self._seconds(),
            },
            metrics={
                name: score
                for name, score in self.history[-1].items()
                if name == best_score(self.config)
            },
        )

    def _joined_interval(self) -> dict[str, Array]:
        """Returns the metrics of every step since the last row, [steps] each."""
        return (
            jax.tree.map(lambda *x: jnp.concatenate(x), *self._interval) if self._interval else {}
        )

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

    def _shown(self) -> dict[str, float]:
        latest = self.history[-1] if self.history else {}
        return {name: latest[name] for name in _SHOWN if latest.get(name) is not None}

    def _seconds(self) -> float:
        return self._seconds_before + time.monotonic() - self._started
