"""What --mode=sweep does: every point of a sweep in a process of its own, and a page on all."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aninfonce_jax import command_line
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.cli import EXIT_FAILED, EXIT_PREEMPTED, complain, warn
from aninfonce_jax.config.file import load_config, load_sweep
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.config.sweep import Sweep, make_sweep
from aninfonce_jax.modes.report import report_sweep
from aninfonce_jax.stop import StopSignal

if TYPE_CHECKING:
    from aninfonce_jax.sweeps.executors import Executor
    from aninfonce_jax.sweeps.run import Outcome


def sweep(command: command_line.Command) -> int:
    """Runs every point of a sweep and reports on all of them; returns the exit code."""
    from aninfonce_jax.sweeps.run import check_scores, run_sweep

    points = make_sweep(
        load_config(command.config), load_sweep(command.sweep or command.config), command.overrides
    )
    check_scores(points)
    if "://" in command.workdir or "," in command.workdir:
        raise ConfigError(
            "a sweep keeps its runs, and what they print, in one local folder, got "
            f"--workdir={command.workdir}"
        )
    folder = Path(command.workdir or command_line.default_workdir(command.config)).absolute()
    executor = _executor(command, points, folder)
    for note in dict.fromkeys(note for point in points.points for note in point.notes):
        print(f"note: {note}")
    commands = {
        point.name: command_line.point_command(command, point, folder / point.name)
        for point in points.points
    }
    try:
        with workdir_lib.hold(folder), StopSignal() as stop:
            outcomes = run_sweep(
                points, folder, commands, executor, stop, command_line.sweep_command(command)
            )
    except OSError as error:
        return complain(f"the sweep in {folder} can't go on: {error}", EXIT_FAILED)
    return _finish(folder, outcomes, is_stopped=bool(stop.requested))


def _executor(command: command_line.Command, points: Sweep, folder: Path) -> "Executor":
    """Returns what starts the processes of a sweep."""
    from aninfonce_jax.sweeps import executors
    from aninfonce_jax.sweeps.run import bearable_processes

    if command.executor == "slurm":
        executors.check_submitit()
        return executors.SubmittedExecutor(folder / workdir_lib.SUBMITTED_FOLDER, command.slurm)
    bearable = bearable_processes(point.config for point in points.points)
    return executors.LocalExecutor(command.processes or min(bearable, len(points.points)))


def _finish(folder: Path, outcomes: Mapping[str, "Outcome"], *, is_stopped: bool) -> int:
    """Reports on what is there of a sweep, and says what is not; returns the exit code."""
    statuses = {outcome.status for outcome in outcomes.values()}
    code = report_sweep(folder) if workdir_lib.FINISHED in statuses else 0
    if is_stopped or workdir_lib.STOPPED in statuses:
        flag = shlex.quote(f"--workdir={folder}")
        return complain(f"stopped; the same command with {flag} goes on", EXIT_PREEMPTED)
    failed = {name: x for name, x in outcomes.items() if x.status != workdir_lib.FINISHED}
    for name, outcome in failed.items():
        warn(f"{name} {outcome.status}: {outcome.reason}")
    if failed:
        return complain(f"{len(failed)} of {len(outcomes)} runs failed", EXIT_FAILED)
    return code
