"""Runs what a sweep lacks, and keeps a record of what became of each of its runs."""

import dataclasses
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from aninfonce_jax import config as config_lib
from aninfonce_jax import memory
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.cli import EXIT_PREEMPTED, printable
from aninfonce_jax.config.schema import Config, ConfigError
from aninfonce_jax.config.sweep import Point, Sweep
from aninfonce_jax.distributed.cpu_threads import usable_cores
from aninfonce_jax.scores import registry
from aninfonce_jax.stop import StopSignal
from aninfonce_jax.sweeps.executors import Executor, Job
from aninfonce_jax.workdir import FAILED, FINISHED, STOPPED, WAITING, Status

# What Python, jax and the compiler take beside the arrays of a run.
_PROCESS_BYTES = 2**30
# How much of the end of a run's output is read, which may be long.
_LOG_BYTES = 2**16


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a run: its status, and the line that it failed with."""

    status: Status
    reason: str = ""


def run_sweep(
    sweep: Sweep,
    folder: Path,
    commands: Mapping[str, Sequence[str]],
    executor: Executor,
    stop: StopSignal,
    command: str = "",
) -> dict[str, Outcome]:
    """Runs the points that are not finished; returns what became of all, by name.

    A point that fails stops none of the others. `sweep.json` says at any time how far it is.

    Args:
      sweep: what to run.
      folder: of the sweep; each point has a folder of its own in it.
      commands: what to execute for each point, by name.
      executor: where.
      stop: says when to leave.
      command: what to type to repeat the sweep.
    """
    outcomes = {point.name: _outcome_before(folder, point) for point in sweep.points}
    folder.mkdir(parents=True, exist_ok=True)
    _record(sweep, folder, outcomes, command)
    lacking = [point for point in sweep.points if outcomes[point.name].status != FINISHED]
    done = len(sweep.points) - len(lacking)
    print(
        f"sweep of {len(sweep.points)} runs in {printable(folder)}: {done} are finished, "
        f"{len(lacking)} to go",
        flush=True,
    )
    jobs = [
        Job(point.name, tuple(commands[point.name]), workdir_lib.sweep_log(folder, point.name))
        for point in lacking
    ]
    by_name = {point.name: point for point in lacking}
    begun = time.monotonic()
    for place, (job, code) in enumerate(executor.run(jobs, stop), start=done + 1):
        outcome = _outcome_after(folder, by_name[job.name], job, code)
        outcomes[job.name] = outcome
        _record(sweep, folder, outcomes, command)
        minutes = (time.monotonic() - begun) / 60
        reason = f": {outcome.reason}" if outcome.reason else ""
        line = f"[{place}/{len(sweep.points)}, {minutes:.1f} min] {job.name}: {outcome.status}"
        print(printable(line + reason), flush=True)
    return outcomes


def is_finished(folder: Path, config: Config) -> bool:
    """Whether a run's last step was reached and scored, with this very config."""
    if not workdir_lib.has_config(folder):
        return False
    # A folder of another config is not finished; the run itself then says so.
    try:
        saved = workdir_lib.check_same(folder, config_lib.to_dict(config), config_lib.complete)
    except workdir_lib.WorkdirError:
        return False
    return workdir_lib.read_eval(folder, saved.hash).scores.get(registry.STEP) == config.train.steps


def check_scores(sweep: Sweep) -> None:
    """Raises ConfigError if a sweep asks for a score that does not exist."""
    try:
        for name in (*sweep.scores, *sweep.targets):
            registry.score(name)
    except ValueError as error:
        raise ConfigError(f"{error}, in what sweep() returns") from error


def bearable_processes(configs: Iterable[Config]) -> int:
    """Returns how many runs this machine should bear at a time: one for each CPU, if they fit.

    One where there are accelerators, which a process has to itself.
    """
    if any(any(Path("/dev").glob(name)) for name in ("nvidia[0-9]*", "accel[0-9]*", "vfio/[0-9]*")):
        return 1
    cores = usable_cores()
    need = max(
        sum(part.bytes for part in parts)
        for config in configs
        for parts in memory.estimate(config, 1).values()
    )
    limit = memory.host_memory()
    fitting = cores if limit is None else limit // (need + _PROCESS_BYTES)
    return max(1, min(cores, fitting))


def _outcome_before(folder: Path, point: Point) -> Outcome:
    return Outcome(FINISHED if is_finished(folder / point.name, point.config) else WAITING)


def _outcome_after(folder: Path, point: Point, job: Job, code: int) -> Outcome:
    if code == 0 and is_finished(folder / point.name, point.config):
        return Outcome(FINISHED)
    if code == EXIT_PREEMPTED:
        return Outcome(STOPPED, "what is done is saved")
    return Outcome(FAILED, f"exit code {code}; {_last_line(job.log)}")


def _last_line(log: Path) -> str:
    """Returns the last line of a run's output, which says why it failed."""
    try:
        with open(log, "rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _LOG_BYTES, 0))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError as error:
        return f"its output can't be read: {error.strerror or error}"
    text = next((line.strip() for line in reversed(lines) if line.strip()), "no output")
    return printable(text[:300])


def _record(sweep: Sweep, folder: Path, outcomes: Mapping[str, Outcome], command: str) -> None:
    points = [
        workdir_lib.SweepPoint(
            point.name, point.values, outcomes[point.name].status, outcomes[point.name].reason
        )
        for point in sweep.points
    ]
    record = workdir_lib.SweepRecord(
        sweep.fields, sweep.x, sweep.scores, sweep.targets, command, tuple(points)
    )
    workdir_lib.write_sweep(folder, record)
