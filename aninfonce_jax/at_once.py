"""The first act of every command: from here on, being asked to stop is answered in one line.

Imports next to nothing, for until its handler stands Python's own answer is given: a traceback,
or no word at all.
"""

import os
import signal

# sysexits.h's EX_TEMPFAIL: schedulers take it as "start me again".
EXIT_PREEMPTED = 75

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stop_at_once() -> None:
    """Lets SIGTERM and Ctrl-C end the process with one line and the code of a preempted run.

    While modules are imported there is nothing to save. Files are written whole or not at all, so
    that this is safe at any time; a `StopSignal` is kinder to a run.
    """
    for number in SIGNALS:
        # A signal that the parent has set to be ignored (nohup, a background job) stays so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def _end(number: int, frame: object) -> None:
    # Neither an exception, which an import may swallow or show, nor a buffered stream, which
    # may be in use at this moment.
    name = signal.Signals(number).name
    text = f"aninfonce_jax: stopped at once by {name}; the same command starts it again, or "
    os.write(2, f"{text}goes on from what is saved\n".encode())
    os._exit(EXIT_PREEMPTED)
