"""The command line with a fault built in: python process_worker.py ARGUMENTS.

PROCESS_FAULT=RANK:CALL:SIGNAL sends that process a signal when it has called the devices so many
times in training, before it tells the others anything. RANK:CALL:error makes it raise an error
there, RANK:CALL:sleep do nothing. Several are separated by commas.
"""

import os
import signal
import sys
import time

from aninfonce_jax import main
from aninfonce_jax.training import agreement


def _install(faults: str, rank: int) -> None:
    own = [fault.split(":") for fault in faults.split(",") if fault.startswith(f"{rank}:")]
    if not own:
        return
    before, calls = agreement.Agreement.__call__, 0

    def call(self, asked, unreadable):
        nonlocal calls
        calls += 1
        for _, when, what in own:
            if int(when) == calls:
                _fail(what)
        return before(self, asked, unreadable)

    agreement.Agreement.__call__ = call


def _fail(what: str) -> None:
    if what == "error":
        raise OSError(28, "No space left on device")
    if what == "sleep":
        time.sleep(1000)
    os.kill(os.getpid(), getattr(signal, what))


if __name__ == "__main__":
    arguments = dict(a.removeprefix("--").partition("=")[::2] for a in sys.argv[1:])
    _install(os.environ.get("PROCESS_FAULT", ""), int(arguments.get("process_id", 0)))
    main.script()
