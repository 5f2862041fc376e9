"""Command line: python -m aninfonce_jax.prepare cifar10 --from=DIR --to=DIR.

Writes a data set once, as ArrayRecord in TFDS's own format, from files on this machine.
"""

from aninfonce_jax.at_once import stop_at_once

if __name__ == "__main__":
    stop_at_once()  # before the imports that take time

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn, Self, TextIO

from aninfonce_jax import stop
from aninfonce_jax.cli import (
    EXIT_FAILED,
    EXIT_PREEMPTED,
    EXIT_USAGE,
    complain,
    printable,
    run_command,
    warn,
)
from aninfonce_jax.data.source import DataError, remark_of

_DATASETS = ("mnist", "cifar10", "imagenet", "folder")
_USAGE = """\
Write a data set once, as ArrayRecord in TFDS's own format, from files on this machine.

usage: python -m aninfonce_jax.prepare mnist|cifar10|imagenet|folder --from=DIR --to=DIR
           [--name=NAME] [--skip_bad] [--threads=N] [--decode_mib=N]
           [--progress=auto|rich|plain|off]

examples:
  python -m aninfonce_jax.prepare cifar10 --from=downloads --to=tfds
      from cifar-10-batches-bin/*.bin
  python -m aninfonce_jax.prepare mnist --from=downloads/mnist --to=tfds
      from the four idx files
  python -m aninfonce_jax.prepare imagenet --from=ILSVRC2012 --to=tfds
      from train/<class>/*.JPEG and val/<class>/*.JPEG, all 1,331,167 of them
  python -m aninfonce_jax.prepare folder --from=birds --to=tfds --name=birds
      from any <split>/<class>/<image>: JPEG, PNG, WebP or BMP

An interrupted preparation goes on with the same command. What is written opens with
tfds.data_source(NAME, data_dir=DIR), with tfds.load where TensorFlow is installed, and here
as data set tfds:NAME.

flags:
  --from        the folder with the files
  --to          the folder for the data set, TFDS's data_dir
  --name        what a folder's data set is called (default: the folder's name)
  --skip_bad    leave out images that can't be read, and list them
  --threads     threads that read and check (default: 4)
  --decode_mib  memory for decoding images, in MiB; one that needs more can't be read
                (default: 512)
  --progress    a live bar on a terminal, plain lines elsewhere, or nothing
"""


class _Parser(argparse.ArgumentParser):
    """Complains in one line."""

    def error(self, message: str) -> NoReturn:
        raise DataError(f"{message}; see --help")


def main(argv: list[str]) -> int:
    """Runs the command line and returns its exit code.

    Args:
      argv: the program's name and its arguments.
    """
    if {"-h", "--help"} & set(argv[1:]):
        print(_USAGE)
        return 0
    try:
        return _run(_parse(argv[1:]))
    except DataError as error:
        return complain(error, EXIT_USAGE)
    except OSError as error:  # a full disk, a share that went away
        return complain(f"{error}; the same command goes on", EXIT_FAILED)
    except KeyboardInterrupt:
        return complain("stopped; the same command goes on", EXIT_PREEMPTED)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = _Parser(prog="aninfonce_jax.prepare", add_help=False, allow_abbrev=False)
    parser.add_argument("dataset", choices=_DATASETS)
    parser.add_argument("--from", dest="origin", required=True)
    parser.add_argument("--to", required=True)
    parser.add_argument("--name")
    parser.add_argument("--skip_bad", action="store_true")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--decode_mib", type=int, default=512)
    parser.add_argument("--progress", choices=("auto", "rich", "plain", "off"), default="auto")
    values = parser.parse_args(arguments)
    if values.name is not None and values.dataset != "folder":
        raise DataError(f"--name is for `folder`; {values.dataset} has a name of its own")
    for flag, value in (("threads", values.threads), ("decode_mib", values.decode_mib)):
        if value < 1:
            raise DataError(f"--{flag} must be at least 1, got {value}")
    return values


def _run(values: argparse.Namespace) -> int:
    from aninfonce_jax.data import prepare, recipes
    from aninfonce_jax.data.datasets import local_folder

    origin, to = local_folder(values.origin), local_folder(values.to)
    target, splits = recipes.read(values.dataset, origin, values.name)
    with stop.raised(), _Bar(target.name, values.progress) as bar:
        result = prepare.prepare(
            target,
            splits,
            to,
            skip_bad=values.skip_bad,
            threads=values.threads,
            decode_mib=values.decode_mib,
            on_progress=bar.update,
        )
    for remark in filter(None, map(remark_of, splits.values())):
        warn(remark)
    for line in result.skipped:
        print(f"left out {printable(line)}")
    counts = ", ".join(f"{count:,} {split}" for split, count in result.examples.items())
    state = "written" if result.fresh else "already there"
    print(printable(f"{state}: {result.folder} ({counts})"))
    print(f"open it with tfds.data_source({target.name!r}, data_dir={str(to)!r}, split='train')")
    return 0


class _Bar:
    """How far it is: a live bar on a terminal, plain lines elsewhere."""

    def __init__(
        self,
        label: str,
        mode: str,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        interval: float = 10.0,
    ) -> None:
        self._stream = stream or sys.stderr
        if mode == "auto":
            mode = "rich" if self._stream.isatty() else "plain"
        self._mode = mode
        self._label = label
        self._clock = clock
        self._interval = interval
        self._begun: tuple[float, int] | None = None
        self._last_line = clock()
        self._live: Any = None

    def update(self, done: int, total: int) -> None:
        """Shows that `done` of `total` examples are written."""
        now = self._clock()
        if self._begun is None:
            # What an earlier session has written says nothing of the pace of this one.
            self._begun = (now, done)
        if self._mode == "rich":
            self._show(done, total)
        elif self._mode == "plain" and (now - self._last_line >= self._interval or done == total):
            self._last_line = now
            elapsed, here = now - self._begun[0], done - self._begun[1]
            pace = f", {here / elapsed:,.0f}/s" if here and elapsed else ""
            print(
                f"{self._label}: {done:,} of {total:,} examples ({done / total:.0%}){pace}",
                file=self._stream,
                flush=True,
            )

    def _show(self, done: int, total: int) -> None:
        if self._live is None:
            from rich import console, progress

            self._live = progress.Progress(
                progress.TextColumn("{task.description}", markup=False),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TimeRemainingColumn(),
                console=console.Console(file=self._stream, force_terminal=True),
            )
            self._live.start()
            self._live.add_task(self._label, total=total)
        self._live.update(self._live.task_ids[0], completed=done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()


if __name__ == "__main__":
    run_command(main)
