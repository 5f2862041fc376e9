"""What commands on a trained model have in common: help, flags, and one line for any mistake."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from aninfonce_jax.cli import EXIT_FAILED, EXIT_USAGE, UsageError, complain, printable

_HELP = {"-h", "--help", "-help"}


def run(
    usage: str,
    arguments: Sequence[str],
    parse: Callable[[Sequence[str]], argparse.Namespace],
    act: Callable[[Any, argparse.Namespace], str],
) -> int:
    """Runs a command and returns its exit code.

    Args:
      usage: what --help shows.
      arguments: those behind the command's name.
      parse: makes flags of them, `workdir` and `output` among these, or raises UsageError.
      act: does with what `an.load` finds in `workdir` what is asked for, writes `output`, and
        returns a line that says so; it may raise UsageError too.
    """
    if _HELP & set(arguments):
        print(usage)
        return 0
    try:
        flags = parse(arguments)
    except UsageError as error:
        return complain(error, EXIT_USAGE)
    from aninfonce_jax import compile_cache
    from aninfonce_jax.estimator.loading import USER_ERRORS, load
    from aninfonce_jax.training.checkpoint import CheckpointError

    compile_cache.use()
    try:
        done = act(load(flags.workdir), flags)
    except (UsageError, *USER_ERRORS) as error:
        return complain(error, EXIT_USAGE)
    except CheckpointError as error:
        return complain(error, EXIT_FAILED)
    except OSError as error:
        return complain(f"{flags.output} can't be written: {error}", EXIT_FAILED)
    print(printable(done))
    return 0
