"""Command line: python -m aninfonce_jax.main --config=configs/quickstart.py.

Flags only; what they start lives in the package. Heavy imports wait until the flags are
known to be good, so that a typo answers at once.
"""

import importlib.util
import shlex
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from aninfonce_jax import config as config_lib
from aninfonce_jax.cli import EXIT_FAILED, EXIT_PREEMPTED, EXIT_USAGE, complain
from aninfonce_jax.config_schema import Config, ConfigError
from aninfonce_jax.stop import Preempted, StopSignal

_ROOT = Path(__file__).resolve().parent.parent
_DEFAULT_CONFIG = "configs/quickstart.py"
_PREVIEW_PAIRS = 8
_USAGE = """\
Learn what a contrastive encoder recovers, and what it loses.

usage: python -m aninfonce_jax.main [--config=FILE[:VARIANT]] [--config.KEY=VALUE ...]
           [--mode=train|eval|report|preview] [--workdir=DIR] [--progress=auto|rich|plain|off]

examples:
  python -m aninfonce_jax.main
      train AnInfoNCE and InfoNCE on a small problem and write a report (minutes)
  python -m aninfonce_jax.main --config=configs/synthetic.py:linear --workdir=runs/linear
      the paper's experiment; the same command again goes on where it was stopped
  python -m aninfonce_jax.main --config.train.steps=500 --config.optimizer.name=adam
      change single values
  python -m aninfonce_jax.main --mode=eval --workdir=runs/linear
      recompute every score from the latest checkpoint
  python -m aninfonce_jax.main --mode=report --workdir=runs/linear,runs/infonce
      one page that compares runs; it is written into the first folder
  python -m aninfonce_jax.main --config=configs/cifar10.py --config.data.folder=DIR
      pictures: train a ResNet on CIFAR-10 and read out what it kept
  python -m aninfonce_jax.main --config=configs/cifar10.py --config.data.folder=DIR --mode=preview
      a sheet of pairs as the encoder will see them, with what was done to each

flags:
  --config    a Python file whose get_config() returns the config (default: {default})
  --mode      train (and report), eval, report, or preview the pairs of pictures
  --workdir   where the run lives (default: runs/<config>-<variant>-<time>)
  --progress  a live line on a terminal, plain lines elsewhere, or nothing

config keys, with default and meaning:
"""


def help_text() -> str:
    """Returns usage, examples, and every config key."""
    lines = [_USAGE.format(default=_DEFAULT_CONFIG)]
    for name, default, kind, meaning in config_lib.field_help():
        shown = f"{default!r}" if isinstance(default, (str, tuple)) else f"{default}"
        lines.append(f"  {name} = {shown}  ({kind})\n      {meaning}\n")
    return "".join(lines)


def main(argv: list[str]) -> int:
    """Runs the command line and returns its exit code.

    Args:
      argv: the program's name and its arguments.
    """
    if {"-h", "--help", "-help"} & set(argv[1:]):
        print(help_text())
        return 0
    try:
        return _run(argv)
    except ConfigError as error:
        return complain(error, EXIT_USAGE)


def _run(argv: list[str]) -> int:
    config_lib.check_override_names(argv[1:])
    name, rest = _split_config_flag(argv)
    values = _parse(load_config(name), rest)
    if values.mode == "report":
        return _report(_folders(values.workdir), Path(values.workdir.split(",")[0]))
    if values.mode == "eval":
        overrides = config_flags.get_override_values(values["config"])
        return _evaluate(_folders(values.workdir), Path(values.workdir.split(",")[0]), overrides)
    config = config_lib.from_dict(values.config)
    if values.mode == "preview":
        return _preview(config, Path(values.workdir or "."))
    # Flags of this session are left out: what repeats the run is its config.
    command = shlex.join(
        ["python", "-m", "aninfonce_jax.main", f"--config={name}"]
        + [argument for argument in rest if argument.startswith("--config.")]
    )
    return _train(config, Path(values.workdir or _default_workdir(name)), values.progress, command)


def _split_config_flag(argv: list[str]) -> tuple[str, list[str]]:
    """Returns the last FILE[:VARIANT] given by --config, and the other arguments."""
    name, rest = _DEFAULT_CONFIG, []
    arguments = iter(argv)
    for argument in arguments:
        if argument == "--config":
            name = next(arguments, "")
        elif argument.startswith("--config="):
            name = argument.removeprefix("--config=")
        else:
            rest.append(argument)
    return name, rest


def load_config(name: str) -> Mapping[str, Any]:
    """Returns what get_config() of FILE[:VARIANT] returns.

    config_flags can load files too, but through a call that newer Pythons removed, and
    with a traceback where a line would do.

    Args:
      name: a path, as given or beside the package, and perhaps a variant.

    Raises:
      ConfigError: if there is no such file, or it does not make a config.
    """
    file, colon, variant = name.partition(":")
    path = next((p for p in (Path(file), _ROOT / file) if p.is_file()), None)
    if path is None:
        raise ConfigError(f"config file {file!r} does not exist; expected FILE[:VARIANT]")
    spec = importlib.util.spec_from_file_location("config_file", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"config file {file!r} must be a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        config = module.get_config(*([variant] if colon else []))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    except Exception as error:
        raise ConfigError(f"{file} failed to load: {type(error).__name__}: {error}") from error
    if not isinstance(config, Mapping | ConfigDict):
        raise ConfigError(f"{file}: get_config() must return a ConfigDict, got {config!r}")
    return config


def _parse(config: Mapping[str, Any], argv: list[str]) -> flags.FlagValues:
    # An override needs a key to override; what the file leaves out has its default.
    whole = ConfigDict(config_lib.to_dict(config_lib.from_dict(config)))
    values = flags.FlagValues()
    config_flags.DEFINE_config_dict("config", whole, flag_values=values, sys_argv=argv)
    flags.DEFINE_enum("mode", "train", ["train", "eval", "report", "preview"], "what to do", values)
    flags.DEFINE_string("workdir", "", "folder of the run", values)
    flags.DEFINE_enum("progress", "auto", ["auto", "rich", "plain", "off"], "progress line", values)
    try:
        rest = values(argv)
    except flags.Error as error:
        raise ConfigError(f"{error}; see --help") from error
    if len(rest) > 1:
        raise ConfigError(f"unexpected argument {rest[1]!r}; see --help")
    return values


def _default_workdir(config_name: str) -> Path:
    name, _, variant = config_name.partition(":")
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path("runs") / "-".join(part for part in (Path(name).stem, variant, stamp) if part)


def _folders(workdir: str) -> list[Path]:
    """Returns the runs that a --workdir names: folders, or the runs inside one."""
    if not workdir:
        raise ConfigError("--workdir is missing: name the folder of a run, or several with commas")
    found = []
    for folder in map(Path, workdir.split(",")):
        if not folder.is_dir():
            raise ConfigError(f"work directory {folder} does not exist")
        inside = sorted(path.parent for path in folder.glob(f"*/{config_lib.CONFIG_FILE}"))
        found += [folder] if (folder / config_lib.CONFIG_FILE).exists() else inside
    if not found:
        raise ConfigError(
            f"{workdir} holds no run: no {config_lib.CONFIG_FILE} in it or one level below"
        )
    return found


def _train(config: Config, workdir: Path, progress: Any, command: str) -> int:
    with StopSignal() as stop:
        try:
            return _train_and_report(config, workdir, progress, command, stop)
        except Preempted as notice:
            return complain(
                f"{notice}; the same command with --workdir={workdir} goes on", EXIT_PREEMPTED
            )


def _train_and_report(
    config: Config, workdir: Path, progress: Any, command: str, stop: StopSignal
) -> int:
    import jax

    config_lib.check_devices(config, jax.local_device_count(), jax.process_count())

    from aninfonce_jax.console import print_config
    from aninfonce_jax.data.source import DataError
    from aninfonce_jax.evaluation.runner import make_evaluate
    from aninfonce_jax.training import loop
    from aninfonce_jax.training.checkpoint import CheckpointError

    runs = config_lib.expand(config)
    folders = {name: workdir / name if len(runs) > 1 else workdir for name in runs}
    print_config(config)
    print(f"work directory: {workdir}")
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
                command=command,
            )
        except (loop.DivergedError, CheckpointError, DataError) as error:
            return complain(error, EXIT_FAILED)
        except ImportError as error:  # an optional package that the config asks for
            return complain(error, EXIT_USAGE)
    return _show(folders, workdir)


def _evaluate(folders: list[Path], output: Path, overrides: Mapping[str, Any]) -> int:
    from aninfonce_jax.data.source import DataError
    from aninfonce_jax.evaluation.runner import evaluate_checkpoint
    from aninfonce_jax.training.checkpoint import CheckpointError

    try:
        for folder in folders:
            evaluate_checkpoint(folder, overrides)
    except FileNotFoundError as error:
        return complain(error, EXIT_USAGE)
    except (CheckpointError, DataError) as error:
        return complain(error, EXIT_FAILED)
    names = [folder.name for folder in folders]
    # Runs of equal names in different folders must not hide each other.
    shown = names if len(set(names)) == len(names) else [*map(str, folders)]
    return _show(dict(zip(shown, folders, strict=True)), output)


def _show(folders: Mapping[str, Path], output: Path) -> int:
    """Prints the scores that the work directories hold, and writes tables and report."""
    from aninfonce_jax.console import print_readouts, print_scores, print_warnings
    from aninfonce_jax.evaluation.runner import tabulate
    from aninfonce_jax.evaluation.workdir import ReportError, read_workdir

    try:
        results = {name: read_workdir(folder).final for name, folder in folders.items()}
    except ReportError as error:
        return complain(error, EXIT_USAGE)
    print_scores(results)
    print_warnings(results)
    for folder in folders.values():
        if rows := tabulate(folder):
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
            folder / "preview.png",
            title=title,
        )
    except OSError as error:
        return complain(f"the preview can't be written: {error}", EXIT_USAGE)
    print(f"preview: {path}")
    return 0


def _report(folders: list[Path], output: Path) -> int:
    from aninfonce_jax.evaluation.report import ReportError, write_report

    try:
        page = write_report(folders, output)
    except ReportError as error:
        return complain(error, EXIT_USAGE)
    print(f"report: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
