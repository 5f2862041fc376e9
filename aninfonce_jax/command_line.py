"""The command line of `aninfonce_jax.main`: flags in, typed values out, and back again."""

import argparse
import dataclasses
import functools
import re
import shlex
import sys
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from aninfonce_jax import config as config_lib
from aninfonce_jax.config.file import split_variant
from aninfonce_jax.config.schema import Config, ConfigError
from aninfonce_jax.config.sweep import Point, as_text
from aninfonce_jax.config.values import nearest, shown
from aninfonce_jax.distributed.cluster import HEARTBEAT_TIMEOUT, INITIALIZATION_TIMEOUT, Flags

PROGRAM = ("python", "-m", "aninfonce_jax.main")
_DEFAULT_CONFIG = "configs/quickstart.py"
_FLAGS = (
    *("--config", "--mode", "--workdir", "--progress", "--profile"),
    *("--topology", "--compiles", "--pairs"),
    *("--sweep", "--executor", "--processes", "--slurm"),
)
# Those that say which processes belong together, with what they take.
_CLUSTER_FLAGS = {
    "--coordinator": str,
    "--num_processes": int,
    "--process_id": int,
    "--initialization_timeout": int,
    "--heartbeat_timeout": int,
}
MODES = ("train", "eval", "report", "diagnose", "preview", "compile", "sweep")
_EXECUTORS = ("local", "slurm")
_PROGRESS = ("auto", "rich", "plain", "off")
_WIDTH = 80
_USAGE = """\
Learn what a contrastive encoder recovers, and what it loses.

usage: python -m aninfonce_jax.main [--config=FILE[:VARIANT]]
           [--config.KEY=VALUE ...] [--workdir=DIR]
           [--mode=train|eval|report|diagnose|preview|compile|sweep]
           [--progress=auto|rich|plain|off] [--profile=START:STOP]
           [--pairs=VIEW1.npy,VIEW2.npy]
           [--topology=CHIP:SHAPE,...] [--compiles=N]
           [--sweep=FILE] [--executor=local|slurm] [--processes=N]
           [--slurm=KEY=VALUE,...]
           [--coordinator=HOST:PORT --num_processes=N --process_id=I]
       python -m aninfonce_jax.main embed --workdir=DIR --input=FOLDER|FILE.npy
           --output=FILE      (more: embed --help)
       python -m aninfonce_jax.main export --workdir=DIR --output=FOLDER
           --format=safetensors|stablehlo|onnx      (more: export --help)

examples:
  python -m aninfonce_jax.main
      train AnInfoNCE and InfoNCE on a small problem and write a report
  python -m aninfonce_jax.main --config=configs/synthetic.py:linear \\
          --workdir=runs/linear
      the paper's experiment; the same command again goes on where it stopped
  python -m aninfonce_jax.main --config.train.steps=500 \\
          --config.optimizer.kind=adam
      change single values
  python -m aninfonce_jax.main --mode=eval --workdir=runs/linear
      recompute every score from the latest checkpoint
  python -m aninfonce_jax.main --mode=report \\
          --workdir=runs/linear,runs/infonce
      one page that compares runs; it is written into the first folder
  python -m aninfonce_jax.main --mode=diagnose --workdir=runs/linear
      which assumption of the theorem the run's pairs break, as a page
  python -m aninfonce_jax.main --config=configs/cifar10.py \\
          --config.source.folder=DIR
      images: train a ResNet on CIFAR-10 and read out what it kept
  python -m aninfonce_jax.main --config=configs/cifar10.py \\
          --config.source.folder=DIR --mode=preview
      a sheet of pairs as the encoder will see them, with what was done to each
  python -m aninfonce_jax.main --config=configs/imagenet.py --mode=compile \\
          --topology=v5e:4x4,h100:8
      what a run would take there: memory, time and chips, without having them
  python -m aninfonce_jax.main --config=configs/theory.py:lambda --mode=sweep
      many runs of one config, and figures with bands over seeds

flags (of one given twice, the last counts):
  --config    a Python file whose get_config() returns the config, or the name
              of one that comes with the package, such as synthetic:linear
              (default: {default}); eval, report and diagnose
              read that of the run
  --mode      train (and report; the default), eval, report, diagnose which
              assumptions hold, preview the pairs of images, compile the
              training step for other machines, or sweep
  --workdir   where the run lives (default: runs/<config>-<variant>-<time>);
              eval, report and diagnose take several, with commas between them
  --pairs     for diagnose: arrays with the two views of each pair, row by row;
              needed for models that model.save() wrote, which hold no data
  --progress  auto: a live line on a terminal, plain lines elsewhere; rich,
              plain; off: nothing
  --profile   trace the steps from START to STOP into the work directory, for
              TensorBoard and Perfetto
  --topology  for compile: chips such as v5e:4x4, v5p:2x2x4, h100:8, a100:8x8
              (nodes x GPUs); several, with commas between them
  --compiles  for compile: how often to compile beyond the first time, for the
              largest batch or what makes a run fit (default: 5 minutes' worth)
  --sweep     for sweep: a Python file whose sweep() says what to vary (default:
              that of --config)
  --executor  for sweep: local processes (the default), or jobs of slurm
  --processes for sweep: how many at a time (default: one for each CPU, as far
              as memory allows; one on a machine with accelerators)
  --slurm     for sweep: what submitit passes on, such as
              timeout_min=600,slurm_partition=gpu,gpus_per_node=1
  --version   this package's version, and those of jax and what else matters
  --help      this page

several processes that are one run, each started with the same command; found
without flags on Cloud TPU, and under Slurm and Open MPI:
  --coordinator    HOST:PORT of process 0
  --num_processes  how many there are; 1: this one is on its own, wherever it is
  --process_id     which one this is, from 0
  --initialization_timeout
                   seconds to wait for all at the start ({initialization})
  --heartbeat_timeout
                   seconds without a sign of life until one is lost ({heartbeat})

exit codes: 0 done, 1 failed, 2 wrong command or config, 75 stopped and saved,
76 another process is lost: after 75 and 76 the same command goes on.

config keys, with default, type, the kinds of their section that have them, and
meaning (a tuple is written as 8,16):
"""


@dataclasses.dataclass(frozen=True)
class Command:
    """What a command line asks for.

    Attributes:
      config: FILE[:VARIANT].
      texts: the changes to it, as given: dotted name -> text.
      mode: what to do.
      workdir: folder of the run, or several with commas between them; "": none given.
      progress: how to show it.
      profile: the steps to trace, from and to; None: none.
      topology: what to compile for; "": none given.
      compiles: how often to compile beyond the first time; None: as time allows.
      pairs: files of the two views to diagnose with; None: those of the run.
      sweep: FILE[:VARIANT] that says what to vary; "": that of `config`.
      executor: where the runs of a sweep take place.
      processes: how many at a time; None: as the machine should bear.
      slurm: what is passed on to submitit.
    """

    config: str
    texts: Mapping[str, str]
    mode: str
    workdir: str
    progress: str
    profile: tuple[int, int] | None = None
    topology: str = ""
    compiles: int | None = None
    pairs: tuple[str, str] | None = None
    sweep: str = ""
    executor: str = "local"
    processes: int | None = None
    slurm: Mapping[str, int | str] = dataclasses.field(default_factory=dict)

    @property
    def overrides(self) -> dict[str, Any]:
        """The changes to the config, by dotted name; their sections check them."""
        return {name: config_lib.read_override(name, text) for name, text in self.texts.items()}


class _Parser(argparse.ArgumentParser):
    """Complains in one line."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see --help")


def parse(arguments: list[str]) -> Command:
    """Returns what the arguments ask for.

    Raises:
      ConfigError: on an unknown flag, a flag without its value, or a value that can't be one.
    """
    namespace, unknown = _parser(_items_named(arguments)).parse_known_args(arguments)
    if unknown:
        _refuse(unknown[0])
    values = vars(namespace)
    for flag, text in values.items():
        _check_text(flag, text)
    workdir = values.get("workdir")
    if workdir is not None and not all(part.strip() for part in workdir.split(",")):
        raise ConfigError(
            f"--workdir names a folder, or several with commas between them, got {shown(workdir)}"
        )
    return Command(
        config=values.get("config", _DEFAULT_CONFIG),
        texts={
            name.removeprefix("config."): text
            for name, text in values.items()
            if name.startswith("config.")
        },
        mode=_one_of("mode", values.get("mode", "train"), MODES),
        workdir=workdir or "",
        progress=_one_of("progress", values.get("progress", "auto"), _PROGRESS),
        profile=_read_profile(_only_for("train", "profile", values)),
        topology=_only_for("compile", "topology", values) or "",
        compiles=_count("compiles", _only_for("compile", "compiles", values)),
        pairs=_read_pairs(_only_for("diagnose", "pairs", values)),
        **_sweep_settings(values),
    )


def parse_cluster(arguments: list[str]) -> Flags:
    """Returns what the arguments say about processes, whatever else is among them.

    Raises:
      ConfigError: on a value that can't be one.
    """
    parser = _Parser(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for flag in _CLUSTER_FLAGS:
        parser.add_argument(flag)
    values = vars(parser.parse_known_args(arguments)[0])
    for name, text in values.items():
        if _CLUSTER_FLAGS[f"--{name}"] is int:
            if not text.isascii() or not text.isdigit():
                raise ConfigError(f"--{name} must be a whole number, got {shown(text)}")
            values[name] = int(text)
    return Flags(**values)


def _items_named(arguments: list[str]) -> tuple[str, ...]:
    """Returns the keys of items of lists of sections that are named, such as "members.0.kind"."""
    flags = [x.partition("=")[0] for x in arguments if x.startswith("--config.")]
    names = dict.fromkeys(flag.removeprefix("--config.") for flag in flags)
    known = config_lib.leaves()
    return tuple(name for name in names if name not in known and config_lib.leaf_of(name))


@functools.cache
def _parser(items: tuple[str, ...] = ()) -> _Parser:
    parser = _Parser(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for flag in (*_FLAGS, *_CLUSTER_FLAGS):
        parser.add_argument(flag)
    for name in (*config_lib.leaves(), *items):
        leaf = config_lib.leaf_of(name)
        if leaf is None:  # of an item in a list, whose place is not named
            continue
        # A switch that is only named is on.
        extra: dict[str, Any] = {"nargs": "?", "const": "true"} if leaf.type == "bool" else {}
        parser.add_argument(f"--config.{name}", dest=f"config.{name}", **extra)
    return parser


def repeat_command(command: Command, resolved: config_lib.Resolved, run: Config) -> str:
    """Returns what to type to repeat one of a command's runs, and no other.

    Flags of the session are left out: what repeats a run is its config.

    Args:
      command: what was given.
      resolved: what it resolves to.
      run: one of its runs.
    """
    texts = dict(command.texts)
    if resolved.is_comparison:
        # What was set for another objective of the comparison has no place here.
        used = config_lib.flatten(run)
        texts = {name: text for name, text in texts.items() if name in used}
        texts |= {"compare": "()", "objective.kind": run.objective.kind}
    return shlex.join(
        [*PROGRAM, f"--config={command.config}"]
        + [f"--config.{name}={text}" for name, text in texts.items()]
    )


def sweep_command(command: Command) -> str:
    """Returns what to type to repeat a sweep."""
    sweep = [f"--sweep={command.sweep}"] if command.sweep else []
    texts = [f"--config.{name}={text}" for name, text in command.texts.items()]
    return shlex.join([*PROGRAM, f"--config={command.config}", "--mode=sweep", *sweep, *texts])


def point_command(command: Command, point: Point, folder: Path) -> list[str]:
    """Returns what to execute for one run of a sweep.

    Args:
      command: that of the sweep.
      point: the run.
      folder: where it lives.
    """
    texts = {**command.texts, **{name: as_text(value) for name, value in point.values.items()}}
    return [
        *(sys.executable, *PROGRAM[1:]),
        f"--config={command.config}",
        *(f"--config.{name}={text}" for name, text in texts.items()),
        f"--workdir={folder}",
        "--progress=plain",
        # A job of a cluster is a run of its own, not a part of one.
        "--num_processes=1",
    ]


def default_workdir(config_name: str) -> Path:
    """Returns a new folder below runs/, named after the config and the time."""
    file, variant = split_variant(config_name)
    # A variant is any text that the file takes; a folder's name is not.
    parts = [re.sub(r"[^\w.-]+", "_", part)[:80] for part in (Path(file).stem, variant or "")]
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path("runs") / "-".join(part for part in (*parts, stamp) if part)


def help_text() -> str:
    """Returns usage, examples, and every config key, 80 columns wide."""
    lines = [
        _USAGE.format(
            default=_DEFAULT_CONFIG,
            initialization=INITIALIZATION_TIMEOUT,
            heartbeat=HEARTBEAT_TIMEOUT,
        )
    ]
    for name, leaf in config_lib.leaves().items():
        is_text = isinstance(leaf.default, (str, tuple))
        value = f"{leaf.default!r}" if is_text else f"{leaf.default}"
        # A key of some kinds only says of which.
        of = "" if name.endswith(".kind") or not leaf.kinds else f"; {', '.join(leaf.kinds)}"
        of += "".join(f"; {', '.join(kinds)}: {other!r}" for kinds, other in leaf.others)
        for text, indent in ((f"{name} = {value}  ({leaf.type}{of})", "  "), (leaf.help, " " * 6)):
            lines += _wrapped(text, indent)
    return "".join(lines)


def _wrapped(text: str, indent: str) -> list[str]:
    # A long list of choices has no spaces to break at: let it break behind each choice.
    loose = text.replace("|", "| ")
    lines = textwrap.wrap(
        loose,
        _WIDTH - 1,
        initial_indent=indent,
        subsequent_indent=" " * 6,
        break_on_hyphens=False,
    )
    return [f"{line.replace('| ', '|')}\n" for line in lines]


def _read_profile(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,15}):([0-9]{1,15})", text)
    steps = (int(match[1]), int(match[2])) if match else (0, 0)
    if steps[0] >= steps[1]:
        raise ConfigError(
            f"--profile must be START:STOP in steps, START below STOP, such as 100:110; "
            f"got {shown(text)}"
        )
    return steps


def _read_pairs(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    first, _, second = text.partition(",")
    if not (first.endswith(".npy") and second.endswith(".npy")):
        raise ConfigError(f"--pairs must be VIEW1.npy,VIEW2.npy; got {shown(text)}")
    return first, second


def _sweep_settings(values: Mapping[str, str]) -> dict[str, Any]:
    """Returns what the flags of a sweep say."""
    executor = _only_for("sweep", "executor", values) or "local"
    options = _only_for("sweep", "slurm", values)
    processes = _count("processes", _only_for("sweep", "processes", values))
    if processes == 0:
        raise ConfigError("--processes must be at least 1; leave it out for what the machine bears")
    if options is not None and executor != "slurm":
        raise ConfigError(f"--slurm={shown(options)} has no use without --executor=slurm")
    if processes is not None and executor == "slurm":
        raise ConfigError(
            "--processes is for --executor=local; with slurm, --slurm=slurm_array_parallelism=N"
        )
    return {
        "sweep": _only_for("sweep", "sweep", values) or "",
        "executor": _one_of("executor", executor, _EXECUTORS),
        "processes": processes,
        "slurm": _read_options(options or ""),
    }


def _read_options(text: str) -> dict[str, int | str]:
    found: dict[str, int | str] = {}
    for item in filter(None, text.split(",")):
        key, equals, value = item.partition("=")
        if not (key.isidentifier() and equals and value):
            raise ConfigError(f"--slurm must be KEY=VALUE,KEY=VALUE, got {shown(item)} in it")
        found[key] = int(value) if re.fullmatch(r"[0-9]{1,9}", value) else value
    return found


def _check_text(flag: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"--{flag} must be UTF-8, which file names and reports need, got {shown(text)}"
        ) from None
    if "\0" in text:
        raise ConfigError(f"--{flag} holds a NUL character: {shown(text)}")


def _refuse(argument: str) -> NoReturn:
    flags = [
        *_FLAGS,
        *_CLUSTER_FLAGS,
        "--help",
        "--version",
        *(f"--config.{name}" for name in config_lib.leaves()),
    ]
    if not argument.startswith("-"):
        raise ConfigError(f"unexpected argument {shown(argument)}; see --help")
    flag = argument.partition("=")[0]
    switch = flag.removeprefix("--no")
    if f"--{switch}" in flags:
        raise ConfigError(f"unknown flag {shown(flag)}; write --{switch}=false")
    if flag == "--help":
        raise ConfigError("--help takes no value: it lists every flag and every --config.KEY")
    if flag == "--version":
        raise ConfigError("--version takes no value")
    raise ConfigError(f"unknown flag {shown(flag)}; {nearest(flag, flags)}")


def _only_for(mode: str, flag: str, values: Mapping[str, str]) -> str | None:
    """Returns a flag that has a use in one mode alone."""
    text = values.get(flag)
    if text is not None and values.get("mode", "train") != mode:
        raise ConfigError(f"--{flag}={shown(text)} has no use without --mode={mode}")
    return text


def _count(flag: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"\d{1,4}", text):
        raise ConfigError(f"--{flag} must be a number from 0 to 9999; got {shown(text)}")
    return int(text)


def _one_of(flag: str, value: str, options: tuple[str, ...]) -> str:
    if value not in options:
        raise ConfigError(f"--{flag} must be one of {', '.join(options)}; got {shown(value)}")
    return value
