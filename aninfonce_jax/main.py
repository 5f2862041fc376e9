"""Command line: python -m aninfonce_jax.main --config=configs/quickstart.py.

From flags, which `command_line` reads, to the mode that they ask for. Heavy imports wait until
the flags are known to be good, so that a typo answers at once.
"""

from aninfonce_jax.at_once import stop_at_once

if __name__ == "__main__":
    stop_at_once()  # before the imports that take time

import dataclasses
import os
from collections.abc import Callable

from aninfonce_jax import command_line, embed, export_command
from aninfonce_jax import config as config_lib
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.cli import EXIT_FAILED, EXIT_USAGE, complain, run_command
from aninfonce_jax.config.file import load_config
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.distributed.cluster import find_cluster
from aninfonce_jax.distributed.equal import require_equal, versions
from aninfonce_jax.distributed.peers import ALONE, Peers
from aninfonce_jax.modes import compile as compile_mode
from aninfonce_jax.modes import diagnose, evaluate, preview, report, sweep, train
from aninfonce_jax.remote import AnyPath, RemoteError


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
        return sweep.sweep(command)
    overrides = command.overrides
    output = workdir_lib.locate(command.workdir.split(",")[0])
    # A run that is there has its own config.
    if command.mode == "report":
        if workdir_lib.is_sweep(output):
            return report.report_sweep(output)
        return report.report(_folders(command.workdir), output)
    if command.mode == "eval":
        return evaluate.evaluate(_folders(command.workdir), output, overrides, peers)
    if command.mode == "diagnose":
        if peers.are_many:
            raise ConfigError("--mode=diagnose is for one process; start it on one host alone")
        return diagnose.diagnose(command.workdir, command.pairs, overrides)
    if "," in command.workdir:
        raise ConfigError(
            f"--mode={command.mode} writes into one folder, got --workdir={command.workdir}"
        )
    resolved = config_lib.resolve(load_config(command.config), overrides)
    if command.mode == "preview":
        return preview.preview(
            next(iter(resolved.runs.values())), workdir_lib.locate(command.workdir or ".")
        )
    for note in resolved.notes:
        print(f"note: {note}")
    workdir = workdir_lib.locate(command.workdir or command_line.default_workdir(command.config))
    if command.mode == "compile":
        return compile_mode.forecast(command, resolved.runs, workdir)
    runs = {
        name: train.Run(
            config,
            workdir / name if resolved.is_comparison else workdir,
            command_line.repeat_command(command, resolved, config),
        )
        for name, config in resolved.runs.items()
    }
    return train.train(runs, workdir, command, peers)


def _folders(workdir: str) -> list[AnyPath]:
    """Returns the runs that a --workdir names: folders, and the runs inside them."""
    if not workdir:
        raise ConfigError("--workdir is missing: name the folder of a run, or several with commas")
    return workdir_lib.find_runs(map(workdir_lib.locate, workdir.split(",")))


def script() -> None:
    """Runs the command line of this process."""
    run_command(main)


if __name__ == "__main__":
    script()
