"""Being asked to stop: SIGTERM and Ctrl-C as a flag that is read where stopping is safe.

Imports nothing heavy, so that a request is heeded from the first import on.
"""

import signal
import threading
from types import FrameType
from typing import Any


class Preempted(Exception):  # noqa: N818 - a request, not an error
    """The process was asked to stop; what is done is saved and the run can be resumed."""


class StopSignal:
    """Turns SIGTERM or Ctrl-C into a flag, to be read between two calls to the device.

    Orbax's own preemption signal needs `jax.distributed`, which a single process lacks. A
    second signal of the same kind acts as if there were no handler, for the impatient.
    """

    _SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[int, Any] = {}

    def raise_if_requested(self, message: str) -> None:
        """Raises Preempted with the message if a signal has come."""
        if self.requested:
            raise Preempted(message)

    def __enter__(self) -> "StopSignal":
        # Handlers can only be set in the main thread; elsewhere the run is not interruptible.
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.getsignal(number) for number in self._SIGNALS}
            for number in self._SIGNALS:
                signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        signal.signal(number, self._previous[number])
