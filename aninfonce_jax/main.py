"""Command line: python -m aninfonce_jax.main --config=configs/quickstart.py.

What each mode does; the flags are read in `command_line`. Heavy imports wait until the flags
are known to be good, so that a typo answers at once.
"""

from aninfonce_jax.at_once import stop_at_once

if __name__ == "__main__":
    stop_at_once()  # before the imports that take time

import contextlib
import dataclasses
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aninfonce_jax import command_line, diagnose_command, embed, export_command
from aninfonce_jax import config as config_lib
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.cli import (
    EXIT_FAILED,
    EXIT_PREEMPTED,
    EXIT_USAGE,
    complain,
    printable,
    run_command,
    warn,
)
from aninfonce_jax.config.file import load_config, load_sweep
from aninfonce_jax.config.schema import Config, ConfigError
from aninfonce_jax.config.sweep import make_sweep
from aninfonce_jax.distributed.cluster import find_cluster
from aninfonce_jax.distributed.equal import require_equal, versions
from aninfonce_jax.distributed.peers import ALONE, Peers
from aninfonce_jax.remote import AnyPath, RemoteError, RemotePath, remote_error
from aninfonce_jax.stop import Preempted, StopSignal

if TYPE_CHECKING:
    from aninfonce_jax.placement import Placement
    from aninfonce_jax.training.experiment import Experiment

_PREVIEW_PAIRS = 8
# Seconds to wait for another process that trains the same VAE.
_VAE_PATIENCE = 24 * 3600.0


def main(argv: list[str]) -> int:
    """Runs the command line and returns its exit code.

    Args:
      argv: the program's name and its arguments.
    """
    if argv[1:2] == [embed.COMMAND]:
        return embed.main(argv[2:])
    if argv[1:2] == [export_command.COMMAND]:
        return export_command.main(argv[2:])
    if {"-h", "--help", "-help"} & set(argv[1:]):
        print(command_line.help_text())
        return 0
    if "--version" in argv[1:]:
        ours, *others = (f"{name} {version}" for name, version in versions().items())
        print(f"{ours} ({', '.join(others)})")
        return 0
    try:
        cluster = find_cluster(command_line.parse_cluster(argv[1:]), os.environ)
    except ConfigError as error:
        return complain(error, EXIT_USAGE)
    if cluster is None:
        return _try(lambda: _run(command_line.parse(argv[1:])))
    from aninfonce_jax.distributed.join import run_together

    return run_together(cluster, lambda peers: _try(lambda: _run_together(argv[1:], peers)))


def _try(run: Callable[[], int]) -> int:
    try:
        return run()
    except ConfigError as error:
        return complain(error, EXIT_USAGE)
    except RemoteError as error:  # the network is away
        return complain(error, EXIT_FAILED)


def _run_together(arguments: list[str], peers: Peers) -> int:
    """Runs the command as one of several processes, of which the first prints and reports."""
    command = command_line.parse(arguments)
    require_equal(peers, "what to do", {"--mode": command.mode})
    if command.mode in ("report", "preview", "compile", "sweep"):
        return peers.by_first(command.mode, lambda: _run(command))
    if command.mode == "train" and not command.workdir:
        name = peers.by_first(
            "name the work directory", lambda: str(command_line.default_workdir(command.config))
        )
        command = dataclasses.replace(command, workdir=name)
    return _run(command, peers)


def _run(command: command_line.Command, peers: Peers = ALONE) -> int:
    if command.mode == "sweep":
        return _sweep(command)
    overrides = command.overrides
    output = workdir_lib.locate(command.workdir.split(",")[0])
    # A run that is there has its own config.
    if command.mode == "report":
        if workdir_lib.is_sweep(output):
            return _report_sweep(output)
        return _report(_folders(command.workdir), output)
    if command.mode == "eval":
        return _evaluate(_folders(command.workdir), output, overrides, peers)
    if command.mode == "diagnose":
        if peers.are_many:
            raise ConfigError("--mode=diagnose is for one process; start it on one host alone")
        return diagnose_command.run(command.workdir, command.pairs, overrides)
    if "," in command.workdir:
        raise ConfigError(
            f"--mode={command.mode} writes into one folder, got --workdir={command.workdir}"
        )
    resolved = config_lib.resolve(load_config(command.config), overrides)
    if command.mode == "preview":
        return _preview(
            next(iter(resolved.runs.values())), workdir_lib.locate(command.workdir or ".")
        )
    for note in resolved.notes:
        print(f"note: {note}")
    workdir = workdir_lib.locate(command.workdir or command_line.default_workdir(command.config))
    if command.mode == "compile":
        return _compile(command, resolved.runs, workdir)
    runs = {
        name: _Run(
            config,
            workdir / name if resolved.is_comparison else workdir,
            command_line.repeat_command(command, resolved, config),
        )
        for name, config in resolved.runs.items()
    }
    return _train(runs, workdir, command, peers)


@dataclasses.dataclass(frozen=True)
class _Run:
    """One run of a command: what it is, where it lives, and what to type to repeat it."""

    config: Config
    folder: AnyPath
    command: str


def _folders(workdir: str) -> list[AnyPath]:
    """Returns the runs that a --workdir names: folders, and the runs inside them."""
    if not workdir:
        raise ConfigError("--workdir is missing: name the folder of a run, or several with commas")
    return workdir_lib.find_runs(map(workdir_lib.locate, workdir.split(",")))


def _train(
    runs: Mapping[str, _Run], workdir: AnyPath, command: command_line.Command, peers: Peers
) -> int:
    with StopSignal() as stop, contextlib.ExitStack() as stack:
        stop.is_patient = peers.are_many
        folders = (workdir, *(run.folder for run in runs.values()))
        peers.by_first(
            "hold the work directory", lambda: stack.enter_context(workdir_lib.hold(*folders))
        )
        peers.by_first("look at the work directory", lambda: _check_folders(runs, workdir))
        try:
            return _train_and_report(runs, workdir, command, stop, peers)
        except Preempted as notice:
            flag = shlex.quote(f"--workdir={workdir}")
            return complain(f"{notice}; the same command with {flag} goes on", EXIT_PREEMPTED)


def _check_folders(runs: Mapping[str, _Run], workdir: AnyPath) -> None:
    """Raises ConfigError if a run, or the report, would be refused after hours of training."""

    def complete(recorded: Mapping[str, Any]) -> Mapping[str, Any]:
        # One that was made in code has no fields of a config.
        is_code = workdir_lib.is_made_in_code(recorded)
        return recorded if is_code else config_lib.complete(recorded)

    workdir_lib.check_entries(workdir)
    for run in runs.values():
        workdir_lib.check_claim(run.folder, config_lib.to_dict(run.config), complete)


def _train_and_report(
    runs: Mapping[str, _Run],
    workdir: AnyPath,
    command: command_line.Command,
    stop: StopSignal,
    peers: Peers,
) -> int:
    from aninfonce_jax import compile_cache
    from aninfonce_jax.console import print_config
    from aninfonce_jax.runs import place, require_alike

    compile_cache.use()
    require_alike(peers, {name: run.config for name, run in runs.items()}, workdir)
    placements = {name: place(run.config) for name, run in runs.items()}
    print_config({name: run.config for name, run in runs.items()})
    # At once: a log that is a file would hold it back until the end of the run.
    print(f"work directory: {printable(workdir)}", flush=True)
    for name, run in runs.items():
        code = _train_decoder(run, command, stop, peers) or _train_one(
            name, run, placements[name], command, stop, peers
        )
        if code:
            return code
    try:
        folders = [run.folder for run in runs.values()]
        return peers.by_first("report", lambda: _show(folders, workdir))
    except ConfigError as error:  # what a run wrote was damaged since: it is not the command
        return complain(error, EXIT_FAILED)


def _train_decoder(run: _Run, command: command_line.Command, stop: StopSignal, peers: Peers) -> int:
    """Trains the VAE whose decoder a run needs, unless it is there; returns the exit code.

    If several runs begin at once, one trains it and the others wait.
    """
    from aninfonce_jax.decoders import needed_run
    from aninfonce_jax.runs import place

    needed = needed_run(run.config)
    if needed is None:
        return 0
    folder = needed.folder
    with contextlib.ExitStack() as stack:

        def hold() -> None:
            print(f"its VAE is trained first, in {printable(folder)}", flush=True)
            with contextlib.ExitStack() as waiting:
                # One of several processes must not leave without the others.
                if not peers.are_many:
                    waiting.enter_context(stop.raising(f"stopped while waiting for {folder}"))
                stack.enter_context(workdir_lib.hold(folder, patience=_VAE_PATIENCE))

        peers.by_first("hold the VAE's folder", hold)
        needed = needed_run(run.config)
        if needed is None:  # another process has trained it since
            return 0
        vae = _Run(needed.config, needed.folder, needed.command)
        return _train_one("VAE", vae, place(vae.config), command, stop, peers)


def _train_one(
    name: str,
    run: _Run,
    placement: "Placement",
    command: command_line.Command,
    stop: StopSignal,
    peers: Peers,
) -> int:
    """Trains a run to its end; returns the exit code."""
    from aninfonce_jax.data.source import DataError
    from aninfonce_jax.runs import train
    from aninfonce_jax.training.checkpoint import CheckpointError
    from aninfonce_jax.training.session import DivergedError, UnfinishedError

    progress: Any = command.progress
    if peers.any("whether to stop", stop.requested):
        raise Preempted(f"stopped before {name} began")
    try:
        train(
            _build(name, run.config, progress, stop, peers),
            run.folder,
            placement=placement,
            stop=stop,
            progress=progress,
            label=name,
            command=run.command,
            profile=command.profile,
        )
    except (DivergedError, UnfinishedError, CheckpointError, DataError) as error:
        return complain(error, EXIT_FAILED)
    except OSError as error:  # a full disk, a folder that was removed or made read-only
        if isinstance(run.folder, RemotePath) and not isinstance(error, RemoteError):
            # Where Orbax lists files itself, the store's answer comes as it is: a page of HTML.
            error = remote_error(run.folder, error)
        return complain(
            f"the run in {run.folder} can't go on: {error}; mend it, and the same command "
            "goes on from the last checkpoint",
            EXIT_FAILED,
        )
    except ImportError as error:  # an optional package that the config asks for
        return complain(error, EXIT_USAGE)
    return 0


def _build(
    name: str, config: Config, progress: Any, stop: StopSignal, peers: Peers
) -> "Experiment":
    """Builds a run's parts, and says so: opening a data set may take its time.

    Raises:
      ConfigError: it can't be built; data that are missing or damaged are as wrong, before
        anything has begun, as a config is.
    """
    from aninfonce_jax.build import build_experiment
    from aninfonce_jax.data.source import DataError
    from aninfonce_jax.training.progress import Progress

    with Progress(config.train.steps, mode=progress, label=name, is_shown=peers.is_first) as bar:
        bar.status(f"setting up the source of pairs: {config.source.kind}")
        try:
            # One of several processes must not leave alone: all are asked once they are set up.
            if peers.are_many:
                return build_experiment(config)
            with stop.raising(f"stopped while {name} was set up"):
                return build_experiment(config)
        except DataError as error:
            raise ConfigError(str(error)) from error


def _evaluate(
    folders: list[AnyPath], output: AnyPath, overrides: Mapping[str, Any], peers: Peers
) -> int:
    from aninfonce_jax import compile_cache
    from aninfonce_jax.data.source import DataError
    from aninfonce_jax.report.runs import find_metrics
    from aninfonce_jax.runs import evaluate_config
    from aninfonce_jax.scores.registry import WARNINGS
    from aninfonce_jax.training.checkpoint import CheckpointError

    compile_cache.use()
    # What would be refused later, before scores are written for a report.
    workdir_lib.check_entries(output)
    for folder in folders:
        workdir_lib.check_entries(folder)
        config_lib.for_evaluation(workdir_lib.read_config(folder), overrides)
        find_metrics(folder)
    try:
        for folder in folders:
            warnings = evaluate_config(folder, overrides).get(WARNINGS, ())
            for problem in warnings if peers.is_first else ():
                warn(f"{folder}: {problem}")
    except (CheckpointError, DataError) as error:
        return complain(error, EXIT_FAILED)
    except OSError as error:
        return complain(f"the scores can't be written: {error}", EXIT_FAILED)
    return peers.by_first("report", lambda: _show(folders, output))


def _show(folders: Sequence[AnyPath], output: AnyPath) -> int:
    """Prints the scores that the work directories hold, and writes tables and report."""
    from aninfonce_jax.console import print_readouts, print_scores, print_times
    from aninfonce_jax.report.runs import read_workdir
    from aninfonce_jax.report.table import tabulate

    runs = [read_workdir(folder) for folder in folders]
    # By their objectives, as while they train, where that tells them apart.
    names = [run.objective.kind for run in runs]
    for others in ([run.name for run in runs], [*map(str, folders)]):
        if len(set(names)) < len(names):
            names = others
    results = dict(zip(names, (run.final for run in runs), strict=True))
    print_scores(results)
    try:
        tables = [tabulate(folder) for folder in folders]
    except OSError as error:
        return complain(f"the table can't be written: {error}", EXIT_FAILED)
    for rows in filter(None, tables):
        print_readouts(rows)
    print_times(results)
    return _report([*folders], output)


def _preview(config: Config, folder: AnyPath) -> int:
    from aninfonce_jax import rng
    from aninfonce_jax.build import build_source
    from aninfonce_jax.data.source import DataError
    from aninfonce_jax.report.preview import write_preview

    key = rng.at_step(rng.stream(config.seed, "data"), 0)
    try:
        sheet = build_source(config).preview(key, _PREVIEW_PAIRS)
    except DataError as error:
        return complain(error, EXIT_USAGE)
    if sheet is None:
        raise ConfigError(
            f"--mode=preview shows pairs that can be looked at, which source.kind="
            f"{config.source.kind!r} does not give; use source.kind='images'"
        )
    try:
        path = write_preview(sheet, folder / workdir_lib.PREVIEW_FILE)
    except OSError as error:
        return complain(f"the preview can't be written: {error}", EXIT_USAGE)
    print(f"preview: {printable(path)}")
    return 0


def _compile(command: command_line.Command, runs: Mapping[str, Config], folder: AnyPath) -> int:
    from aninfonce_jax.forecast.chips import parse_topologies
    from aninfonce_jax.forecast.environment import compilers_ready

    topologies = parse_topologies(command.topology)
    with compilers_ready(folder / workdir_lib.COMPILE_LOG):
        from aninfonce_jax.forecast.compiler import CompileError
        from aninfonce_jax.forecast.run import forecast_runs
        from aninfonce_jax.report.forecast import write_forecast

        try:
            forecast_runs(runs, topologies, folder, command.compiles)
            page = write_forecast(folder)
        except CompileError as error:
            return complain(error, EXIT_FAILED)
        except OSError as error:
            return complain(f"the forecast can't be written: {error}", EXIT_FAILED)
    print(f"forecast: {printable(page)}")
    return 0


def _sweep(command: command_line.Command) -> int:
    """Runs every point of a sweep in a process of its own, and reports on all of them."""
    from aninfonce_jax.sweeps import executors
    from aninfonce_jax.sweeps.run import (
        bearable_processes,
        check_scores,
        run_sweep,
    )

    sweep = make_sweep(
        load_config(command.config), load_sweep(command.sweep or command.config), command.overrides
    )
    check_scores(sweep)
    if "://" in command.workdir or "," in command.workdir:
        raise ConfigError(
            "a sweep keeps its runs, and what they print, in one local folder, got "
            f"--workdir={command.workdir}"
        )
    folder = Path(command.workdir or command_line.default_workdir(command.config)).absolute()
    if command.executor == "slurm":
        executors.check_submitit()
        executor: executors.Executor = executors.SubmittedExecutor(
            folder / workdir_lib.SUBMITTED_FOLDER, command.slurm
        )
    else:
        bearable = bearable_processes(point.config for point in sweep.points)
        executor = executors.LocalExecutor(command.processes or min(bearable, len(sweep.points)))
    for note in dict.fromkeys(note for point in sweep.points for note in point.notes):
        print(f"note: {note}")
    commands = {
        point.name: command_line.point_command(command, point, folder / point.name)
        for point in sweep.points
    }
    try:
        with workdir_lib.hold(folder), StopSignal() as stop:
            outcomes = run_sweep(
                sweep, folder, commands, executor, stop, command_line.sweep_command(command)
            )
    except OSError as error:
        return complain(f"the sweep in {folder} can't go on: {error}", EXIT_FAILED)
    code = (
        _report_sweep(folder)
        if any(x.status == workdir_lib.FINISHED for x in outcomes.values())
        else 0
    )
    failed = {
        name: x
        for name, x in outcomes.items()
        if x.status not in (workdir_lib.FINISHED, workdir_lib.STOPPED)
    }
    if stop.requested or any(x.status == workdir_lib.STOPPED for x in outcomes.values()):
        flag = shlex.quote(f"--workdir={folder}")
        return complain(f"stopped; the same command with {flag} goes on", EXIT_PREEMPTED)
    for name, outcome in failed.items():
        warn(f"{name} {outcome.status}: {outcome.reason}")
    if failed:
        return complain(f"{len(failed)} of {len(outcomes)} runs failed", EXIT_FAILED)
    return code


def _report_sweep(folder: AnyPath) -> int:
    from aninfonce_jax.report.sweep import write_sweep

    try:
        page = write_sweep(folder)
    except OSError as error:
        return complain(f"the report can't be written: {error}", EXIT_FAILED)
    print(f"report: {printable(page)}")
    return 0


def _report(folders: list[AnyPath], output: AnyPath) -> int:
    from aninfonce_jax.report.report import write_report

    try:
        page = write_report(folders, output)
    except OSError as error:
        return complain(f"the report can't be written: {error}", EXIT_FAILED)
    print(f"report: {printable(page)}")
    return 0


def script() -> None:
    """Runs the command line of this process."""
    run_command(main)


if __name__ == "__main__":
    script()
