"""What the commands have in common: how they end, and how they show what comes from outside."""

import argparse
import io
import os
import re
import select
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn, TextIO

from aninfonce_jax.at_once import EXIT_PREEMPTED as EXIT_PREEMPTED


class UsageError(ValueError):
    """What a command asks for can't be done; its message is one line for the user."""


EXIT_FAILED = 1
EXIT_USAGE = 2
# One of several processes died, hangs or never came. What is saved is sound: start them again.
EXIT_PEER_LOST = 76
# What a shell reports of a program that Ctrl-C has ended.
EXIT_INTERRUPTED = 130
# The same of one whose output nobody reads any more (128 + SIGPIPE).
EXIT_NO_READER = 141

# What would command a terminal, break a line, turn the direction of writing, or can't be
# encoded: control characters, Unicode's separators of lines, its marks of direction, and the
# half characters that Python reads for bytes that are no UTF-8.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: object) -> str:
    r"""Returns a text that is safe to print and to encode, on one line.

    File names, values of a config and messages of other programs may hold anything; an escape
    sequence among them could repaint the terminal or hide a line. Such characters come back as
    Python would write them: `\x1b`, `\n`; a byte that is no UTF-8 as `\xe9`.
    """
    return _UNPRINTABLE.sub(_escaped, str(text))


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


class _Parser(argparse.ArgumentParser):
    """Complains in one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def parse_flags(command: str, names: Sequence[str], arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the values of a command's flags, all of which must be given.

    Args:
      command: its name.
      names: of the flags.
      arguments: those behind the command.

    Raises:
      UsageError: one is missing or unknown.
    """
    parser = _Parser(prog=f"aninfonce {command}", add_help=False, allow_abbrev=False)
    for name in names:
        parser.add_argument(f"--{name}")
    flags = parser.parse_args(arguments)
    for name in names:
        if not getattr(flags, name):
            raise UsageError(f"--{name} is missing; see {parser.prog} --help")
    return flags


# Who speaks: the program, and which of its processes where there are several.
_speaker = "aninfonce_jax"
# What was complained of last.
_complaint = ""


def introduce(process: int, processes: int) -> None:
    """Lets every line of this process say which of several it is."""
    global _speaker
    _speaker = f"aninfonce_jax [process {process} of {processes}]"


def as_line(message: object) -> str:
    """Returns a message as this process says it, with the end of its line."""
    return f"{_speaker}: {printable(message)}\n"


def warn(message: object) -> None:
    """Prints one line to stderr about what is not as it should be; the command goes on."""
    print(as_line(f"warning: {message}"), file=sys.stderr, end="")


def complain(message: object, code: int) -> int:
    """Prints one line to stderr and returns the exit code it goes with."""
    global _complaint
    _complaint = printable(message)
    print(as_line(message), file=sys.stderr, end="")
    return code


def last_complaint() -> str:
    """Returns what this process complained of last; "" if it did not."""
    return _complaint


def run_command(main: Callable[[list[str]], int]) -> NoReturn:
    """Runs a command with the program's arguments and ends the program with its exit code.

    A reader that goes away (`--help | head`) ends it without a word, as it ends other tools. An
    output that can't be written (`> file` on a full disk) ends it with a line.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that knows no Λ shows its number rather than a traceback.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = main(sys.argv)
        sys.stdout.flush()
    except BrokenPipeError:
        if not _has_no_reader(sys.stdout):
            raise
        _discard(sys.stdout)
        code = EXIT_NO_READER
    except OSError as error:
        if not _is_full(sys.stdout):
            raise
        _discard(sys.stdout)
        code = complain(f"the output can't be written: {error.strerror}", EXIT_FAILED)
    except KeyboardInterrupt:
        code = complain("interrupted", EXIT_INTERRUPTED)
    sys.exit(code)


def _has_no_reader(stream: TextIO) -> bool:
    """Whether a stream is a pipe whose other end is closed."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return bool(poll.poll(0))


def _is_full(stream: TextIO) -> bool:
    """Whether a stream does not take even the end of a line."""
    try:
        stream.write("\n")
        stream.flush()
    except OSError:
        return True
    return False


def _discard(stream: TextIO) -> None:
    # What is still buffered would fail again when Python closes the stream.
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
