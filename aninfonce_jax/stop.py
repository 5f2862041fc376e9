"""Being asked to stop: SIGTERM and Ctrl-C as a flag that is read where stopping is safe."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from aninfonce_jax.at_once import SIGNALS


class Preempted(Exception):  # noqa: N818 - a request, not an error
    """The process was asked to stop; what is done is saved and the run can be resumed."""


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Lets SIGTERM and Ctrl-C raise KeyboardInterrupt, where all that is under way is undone by it.

    For work that is not a loop of steps; not around imports, which may swallow exceptions.
    """
    # Handlers can only be set in the main thread.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class StopSignal:
    """Turns SIGTERM or Ctrl-C into a flag, to be read between two calls to the device.

    Orbax's own preemption signal needs `jax.distributed`, which a single process lacks. A
    second signal of the same kind acts as if there were no handler of this class, for the
    impatient.

    Attributes:
      requested: whether a signal has come to this process. What several processes have agreed
        on is another matter.
      is_patient: whether a second SIGTERM is heeded no more than the first: a cluster's
        scheduler may signal a task and its job, and must not end what all save together.
    """

    def __init__(self) -> None:
        self.requested = False
        self.is_patient = False
        self._previous: dict[int, Any] = {}
        # What a signal raises Preempted with; None while it must not raise.
        self._message: str | None = None

    def raise_if_requested(self, message: str) -> None:
        """Raises Preempted with the message if a signal has come."""
        if self.requested:
            raise Preempted(message)

    @contextlib.contextmanager
    def raising(self, message: str) -> Iterator[None]:
        """Lets a signal raise Preempted right where it comes: while there is nothing to save yet.

        Code that swallows the exception does not swallow the request, which `requested` keeps.
        """
        self._message = message
        try:
            self.raise_if_requested(message)
            yield
        finally:
            self._message = None

    def __enter__(self) -> "StopSignal":
        # Handlers can only be set in the main thread; elsewhere the run is not interruptible.
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.getsignal(number) for number in SIGNALS}
            for number, handler in self._previous.items():
                # Ctrl-C is not meant for a job in the background, whose shell has set this.
                if handler is not signal.SIG_IGN:
                    signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        if not (self.is_patient and number == signal.SIGTERM):
            signal.signal(number, self._previous[number])
        if self._message is not None:
            raise Preempted(self._message)
