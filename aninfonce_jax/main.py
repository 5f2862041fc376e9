"""Command line: python -m aninfonce_jax.main --config=configs/quickstart.py.

What each mode does; the flags are read in `command_line`. Heavy imports wait until the flags
are known to be good, so that a typo answers at once.
"""

from aninfonce_jax.stop import Preempted, StopSignal, stop_at_once

if __name__ == "__main__":
    stop_at_once()  # before the imports that take time

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aninfonce_jax import command_line
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
from aninfonce_jax.config_file import load_config
from aninfonce_jax.config_schema import Config, ConfigError

_PREVIEW_PAIRS = 8


def main(argv: list[str]) -> int:
    """Runs the command line and returns its exit code.

    Args:
      argv: the program's name and its arguments.
    """
    if {"-h", "--help", "-help"} & set(argv[1:]):
        print(command_line.help_text())
        return 0
    try:
        return _run(command_line.parse(argv[1:]))
    except ConfigError as error:
        return complain(error, EXIT_USAGE)


def _run(command: command_line.Command) -> int:
    overrides = command.overrides
    output = Path(command.workdir.split(",")[0])
    # A run that is there has its own config.
    if command.mode == "report":
        return _report(_folders(command.workdir), output)
    if command.mode == "eval":
        return _evaluate(_folders(command.workdir), output, overrides)
    if "," in command.workdir:
        raise ConfigError(
            f"--mode={command.mode} writes into one folder, got --workdir={command.workdir}"
        )
    config, notes = config_lib.resolve(load_config(command.config), overrides)
    if command.mode == "preview":
        return _preview(config, Path(command.workdir or "."))
    for note in notes:
        print(f"note: {note}")
    workdir = Path(command.workdir or command_line.default_workdir(command.config))
    commands = {
        name: command_line.repeat_command(command, config, run)
        for name, run in config_lib.expand(config).items()
    }
    return _train(config, workdir, command.progress, commands)


def _folders(workdir: str) -> list[Path]:
    """Returns the runs that a --workdir names: folders, and the runs inside them."""
    if not workdir:
        raise ConfigError("--workdir is missing: name the folder of a run, or several with commas")
    return workdir_lib.find_runs(map(Path, workdir.split(",")))


def _train(config: Config, workdir: Path, progress: Any, commands: Mapping[str, str]) -> int:
    with StopSignal() as stop, workdir_lib.hold(workdir, *_run_folders(config, workdir).values()):
        try:
            return _train_and_report(config, workdir, progress, commands, stop)
        except Preempted as notice:
            return complain(
                f"{notice}; the same command with --workdir={workdir} goes on", EXIT_PREEMPTED
            )


def _run_folders(config: Config, workdir: Path) -> dict[str, Path]:
    """Returns where each run of a config lives; those of a comparison below its folder."""
    runs = config_lib.expand(config)
    return {name: workdir / name if len(runs) > 1 else workdir for name in runs}


def _train_and_report(
    config: Config, workdir: Path, progress: Any, commands: Mapping[str, str], stop: StopSignal
) -> int:
    import jax

    from aninfonce_jax import memory

    devices = config_lib.check_devices(config, jax.local_device_count(), jax.process_count())
    config_lib.check_backend(config, jax.default_backend())
    memory.check_fits(config, devices)

    from aninfonce_jax.console import print_config
    from aninfonce_jax.data.source import DataError
    from aninfonce_jax.evaluation.runner import make_evaluate
    from aninfonce_jax.training import loop
    from aninfonce_jax.training.checkpoint import CheckpointError

    runs = config_lib.expand(config)
    folders = _run_folders(config, workdir)
    print_config(config)
    print(f"work directory: {printable(workdir)}")
    for name, run in runs.items():
        stop.raise_if_requested(f"stopped before {name} began")
        try:
            loop.train(
                run,
                folders[name],
                make_evaluate,
                stop=stop,
                progress_mode=progress,
                label=name,
                command=commands[name],
            )
        except (loop.DivergedError, loop.UnfinishedError, CheckpointError, DataError) as error:
            return complain(error, EXIT_FAILED)
        except OSError as error:  # a full disk, a folder that was removed or made read-only
            return complain(
                f"the run in {folders[name]} can't go on: {error}; mend it, and the same command "
                "goes on from the last checkpoint",
                EXIT_FAILED,
            )
        except ImportError as error:  # an optional package that the config asks for
            return complain(error, EXIT_USAGE)
    try:
        return _show(folders, workdir)
    except ConfigError as error:  # what a run wrote was damaged since: it is not the command
        return complain(error, EXIT_FAILED)


def _evaluate(folders: list[Path], output: Path, overrides: Mapping[str, Any]) -> int:
    from aninfonce_jax.data.source import DataError
    from aninfonce_jax.evaluation.runner import evaluate_checkpoint
    from aninfonce_jax.training.checkpoint import CheckpointError

    try:
        for folder in folders:
            for problem in evaluate_checkpoint(folder, overrides).get("warnings", ()):
                warn(f"{folder}: {problem}")
    except (CheckpointError, DataError) as error:
        return complain(error, EXIT_FAILED)
    except OSError as error:
        return complain(f"the scores can't be written: {error}", EXIT_FAILED)
    names = [folder.name for folder in folders]
    # Runs of equal names in different folders must not hide each other.
    shown = names if len(set(names)) == len(names) else [*map(str, folders)]
    return _show(dict(zip(shown, folders, strict=True)), output)


def _show(folders: Mapping[str, Path], output: Path) -> int:
    """Prints the scores that the work directories hold, and writes tables and report."""
    from aninfonce_jax.console import print_readouts, print_scores
    from aninfonce_jax.evaluation.runner import tabulate
    from aninfonce_jax.evaluation.workdir import read_workdir

    results = {name: read_workdir(folder).final for name, folder in folders.items()}
    print_scores(results)
    try:
        tables = [tabulate(folder) for folder in folders.values()]
    except OSError as error:
        return complain(f"the table can't be written: {error}", EXIT_FAILED)
    for rows in filter(None, tables):
        print_readouts(rows)
    return _report([*folders.values()], output)


def _preview(config: Config, folder: Path) -> int:
    if not config.has_images:
        raise ConfigError("--mode=preview shows pairs of pictures; name a data set in data.name")
    import numpy as np

    from aninfonce_jax import rng
    from aninfonce_jax.data.images import ImagePairs, choose
    from aninfonce_jax.data.source import DataError
    from aninfonce_jax.evaluation.preview import write_preview
    from aninfonce_jax.training.state import build_source

    source = build_source(config)
    assert isinstance(source, ImagePairs)
    # Pictures that no run learns from.
    pictures = choose(source.test, _PREVIEW_PAIRS, config.seed)
    try:
        with source.evaluation_batches(pictures, len(pictures)) as batches:
            batch = next(batches)
    except DataError as error:
        return complain(error, EXIT_USAGE)
    key = rng.at_step(rng.stream(config.seed, "data"), 0)
    title = f"{source.test.name}, {config.data.augment}, strength {config.data.strength:g}"
    try:
        path = write_preview(
            np.asarray(batch.image)[batch.mask],
            key,
            source.spec,
            folder / workdir_lib.PREVIEW_FILE,
            title=title,
        )
    except OSError as error:
        return complain(f"the preview can't be written: {error}", EXIT_USAGE)
    print(f"preview: {printable(path)}")
    return 0


def _report(folders: list[Path], output: Path) -> int:
    from aninfonce_jax.evaluation.report import write_report

    try:
        page = write_report(folders, output)
    except OSError as error:
        return complain(f"the report can't be written: {error}", EXIT_FAILED)
    print(f"report: {printable(page)}")
    return 0


def script() -> None:
    """Runs the command line of this process: what the `aninfonce` script calls."""
    run_command(main)


if __name__ == "__main__":
    script()
