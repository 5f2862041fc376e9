"""What the commands have in common: how they end."""

import sys

EXIT_FAILED = 1
EXIT_USAGE = 2
# sysexits.h's EX_TEMPFAIL: schedulers take it as "start me again".
EXIT_PREEMPTED = 75
# What a shell reports of a program that Ctrl-C has ended.
EXIT_INTERRUPTED = 130


def warn(message: object) -> None:
    """Prints one line to stderr about what is not as it should be, and goes on."""
    print(f"warning: {message}", file=sys.stderr)


def complain(message: object, code: int) -> int:
    """Prints one line to stderr and returns the exit code it goes with."""
    print(f"aninfonce_jax: {message}", file=sys.stderr)
    return code
