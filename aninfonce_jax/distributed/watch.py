"""Noticing that another process failed, died or hangs, and leaving in bounded time.

A process that waits for another in a collective waits in the runtime, where no exception
reaches it; left alone, it would wait for ever, or until the runtime aborts it without a word of
use. Two threads see to it that it does not. One talks to the store: it says where this process
is, which is its sign of life, and asks whether another has failed. In process 0 it also reads
all signs of life. The other thread never talks to anybody and so can't be kept waiting. It
judges: whether the coordinator still answers, whether this process gets on, and whether the main
thread has left after a failure was heard of. If not, it says in one line what is wrong and ends
the process.
"""

import contextlib
import ctypes
import dataclasses
import json
import os
import signal
import socket
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol, Self

from aninfonce_jax.cli import EXIT_PEER_LOST, as_line, warn
from aninfonce_jax.distributed.roll_call import named

# Seconds between two questions whether another process has failed.
_ASK_SECONDS = 1.0
# Seconds that the main thread has, after a failure was heard of, to leave by itself.
_GRACE_SECONDS = 10.0
# A step is slow if it takes so many times the median of those before it, and so many seconds.
_SLOW_RATIO = 20
_SLOW_SECONDS = 30.0
_FEWEST_STEPS = 5
# Once a connection between processes broke, signs of life are due within so many beats.
_BROKEN_BEATS = 3
# If this process slept so many seconds longer than it wanted, it was stopped itself, and does not
# take the silence of others in that time for a failure.
_OWN_STOP_SECONDS = 5.0
# How many slow or lost processes are described.
_MOST_TOLD = 16

TRAINING = "training"
BROKEN = "lost its connection to another process"


class StoreLostError(RuntimeError):
    """The coordinator, which is process 0, does not answer any more."""


class Store(Protocol):
    """Texts by name."""

    def set(self, key: str, text: str, *, overwrite: bool = False) -> bool:
        """Writes a text; returns False, and changes nothing, if there is one already."""
        ...

    def get(self, key: str, seconds: float) -> str | None:
        """Returns a text, waiting for it for a while; None if there is none by then."""
        ...

    def below(self, prefix: str) -> dict[str, str]:
        """Returns all texts whose names begin so, by the rest of their names."""
        ...

    def remove(self, prefix: str) -> None:
        """Removes a text, or all below a name."""
        ...


@dataclasses.dataclass(frozen=True)
class Failure:
    """What ends the run of all processes.

    Attributes:
      process: which one failed, or is lost.
      reason: in one line.
      code: the exit code that it goes with.
    """

    process: int
    reason: str
    code: int

    def __str__(self) -> str:
        if self.code == EXIT_PEER_LOST:
            return self.reason
        return f"process {self.process} failed: {self.reason}"


@dataclasses.dataclass(frozen=True)
class Position:
    """Where a process is.

    Attributes:
      phase: what it does, in words.
      step: the steps that it has done; None before there are any.
      host: its machine.
      detail: what exactly it does there.
    """

    phase: str
    step: int | None = None
    host: str = ""
    detail: str = ""

    def __str__(self) -> str:
        step = "" if self.step is None else f" at step {self.step}"
        detail = f", {self.detail}" if self.detail else ""
        return f"{self.phase}{step}{detail}, on {self.host}"


@dataclasses.dataclass
class _Sign:
    """The last sign of life of a process."""

    beat: int
    heard: float
    position: Position


class Pace:
    """How long steps take, to tell when one takes too long."""

    def __init__(self) -> None:
        self._per_step: deque[float] = deque(maxlen=200)

    def add(self, seconds: float, steps: int) -> None:
        """Takes note of so many steps."""
        self._per_step.append(seconds / max(steps, 1))

    def limit(self, steps: int) -> float | None:
        """Returns the seconds after which so many steps are slow; None before it is known."""
        if len(self._per_step) < _FEWEST_STEPS:
            return None
        usual = statistics.median(self._per_step) * max(steps, 1)
        return max(_SLOW_SECONDS, _SLOW_RATIO * usual)


class Watch:
    """Watches the other processes of a run, in threads of its own; use it in `with`.

    Args:
      store: what all processes share.
      prefix: of the names that this watch uses in it, the same in all processes, and no other's.
      process: which one this is.
      processes: how many there are.
      heartbeat_timeout: seconds without a sign of life until a process is lost.
      hang_timeout: seconds in one place until the run is given up; 0: never.
      leave: ends the process with a line and a code.
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        process: int,
        processes: int,
        *,
        heartbeat_timeout: float,
        hang_timeout: float,
        leave: Callable[[str, int], None] | None = None,
    ) -> None:
        self.failure: Failure | None = None
        self.hang_timeout = hang_timeout
        self._store = store
        self._prefix = prefix
        self._process = process
        self._processes = processes
        self._heartbeat_timeout = heartbeat_timeout
        self._beat_seconds = min(10.0, max(0.5, heartbeat_timeout / 10))
        self._leave = leave or leave_at_once
        self._host = socket.gethostname()
        self._position = Position("starting", host=self._host)
        self._pace = Pace()
        self._ahead = 1
        self._has_told_slow = False
        self._is_broken = False
        self._leaves_with: int | None = None
        now = time.monotonic()
        self._since = self._answered = now
        self._failed_at = now
        self._to_tell: Failure | None = None
        self._signs: dict[int, _Sign] = {}
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for name, run in (("talk to peers", self._talk), ("judge peers", self._judge))
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            # One that waits for a coordinator which is gone ends with the process.
            thread.join(timeout=2 * _ASK_SECONDS)

    # --- For the main thread ---

    def at(self, phase: str, step: int | None = None, ahead: int = 1) -> None:
        """Says where this process is: what it does, how many steps it has done, and will do."""
        now = time.monotonic()
        before, self._position = self._position, Position(phase, step, self._host)
        if before.phase == phase == TRAINING and step is not None and before.step is not None:
            self._pace.add(now - self._since, step - before.step)
        self._since, self._ahead, self._has_told_slow = now, ahead, False

    def doing(self, what: str) -> None:
        """Says more exactly what this process does where it is."""
        self._position = dataclasses.replace(self._position, detail=what)

    def tell(self, failure: Failure) -> None:
        """Tells all processes of a failure, if none was told before; returns soon.

        Process 0 keeps the store, and stays until the others have heard of it.
        """
        deadline = time.monotonic() + _GRACE_SECONDS / 2
        with contextlib.suppress(StoreLostError):
            self._store.set(f"{self._prefix}failure", _encode(failure))
            while self._process == 0 and time.monotonic() < deadline:
                if len(self._store.below(f"{self._prefix}heard/")) >= self._processes - 1:
                    break
                time.sleep(_ASK_SECONDS / 10)

    def connection_broke(self) -> Failure:
        """Says that an exchange with others failed; returns who is lost, when it is known."""
        self._is_broken = True
        deadline = time.monotonic() + self._heartbeat_timeout + 2 * self._beat_seconds
        while self.failure is None and time.monotonic() < deadline:
            time.sleep(_ASK_SECONDS / 10)
        return self.failure or Failure(
            self._process, "the exchange with other processes broke off", EXIT_PEER_LOST
        )

    def leaving(self, code: int) -> None:
        """Says that this process has said why it ends, and is about to: it is not said again."""
        self._leaves_with = code

    def describe_abort(self) -> tuple[str, int]:
        """Returns what to say when the runtime aborts, if anything, and the code to leave with."""
        if self._leaves_with is not None:
            return "", self._leaves_with
        if self.failure is not None:
            return str(self.failure), self.failure.code
        return (
            f"process 0, which coordinates all, or another can't be reached any more; this one "
            f"was at: {self._position}; the same command goes on from the last checkpoint",
            EXIT_PEER_LOST,
        )

    # --- The thread that talks ---

    def _talk(self) -> None:
        beat, next_beat = 0, 0.0
        while not self._ended.wait(min(_ASK_SECONDS, self._beat_seconds / 2)):
            try:
                if time.monotonic() >= next_beat:
                    beat += 1
                    self._say_alive(beat)
                    next_beat = time.monotonic() + self._beat_seconds
                    if self._process == 0:
                        self._read_signs()
                self._ask()
                if self._to_tell is not None:
                    self._store.set(f"{self._prefix}failure", _encode(self._to_tell))
                self._answered = time.monotonic()
            except StoreLostError:
                continue  # the judge knows since when nothing was heard

    def _say_alive(self, beat: int) -> None:
        position = self._position
        phase = BROKEN if self._is_broken else position.phase
        text = json.dumps([beat, phase, position.step, position.host, position.detail])
        self._store.set(f"{self._prefix}alive/{self._process}", text, overwrite=True)

    def _ask(self) -> None:
        """Asks whether a process has failed."""
        if self.failure is not None:
            return
        text = self._store.get(f"{self._prefix}failure", 0)
        if text is None:
            return
        self._failed_at = time.monotonic()
        self.failure = Failure(*json.loads(text))
        if self._process != 0:
            self._store.set(f"{self._prefix}heard/{self._process}", "")

    def _read_signs(self) -> None:
        now = time.monotonic()
        for name, text in self._store.below(f"{self._prefix}alive/").items():
            beat, *where = json.loads(text)
            known = self._signs.get(int(name))
            if known is None or known.beat != beat:
                self._signs[int(name)] = _Sign(beat, now, Position(*where))

    # --- The thread that judges ---

    def _judge(self) -> None:
        pause = min(0.5, self._beat_seconds / 2)
        before = time.monotonic()
        while not self._ended.wait(pause):
            now = time.monotonic()
            if now - before > pause + _OWN_STOP_SECONDS:
                self._forgive(now)
            before = now
            if self.failure is not None:
                if now - self._failed_at > _GRACE_SECONDS:
                    self._end(str(self.failure), self.failure.code)
                continue
            self._judge_coordinator(now)
            self._judge_pace(now)
            if self._process == 0:
                self._judge_signs(now)

    def _end(self, message: str, code: int) -> None:
        """Ends the process, with a line unless it has said its own already."""
        self._leave(*((message, code) if self._leaves_with is None else ("", self._leaves_with)))

    def _forgive(self, now: float) -> None:
        """Begins anew after this process itself was stopped for a while."""
        self._answered = now
        for sign in self._signs.values():
            sign.heard = now

    def _judge_coordinator(self, now: float) -> None:
        if now - self._answered > self._heartbeat_timeout:
            who = "process 0, which coordinates all," if self._process else "the coordination"
            self._end(
                f"{who} has not answered for {now - self._answered:.0f} s; this process was at: "
                f"{self._position}; the same command goes on from the last checkpoint",
                EXIT_PEER_LOST,
            )

    def _judge_signs(self, now: float) -> None:
        broken = any(sign.position.phase == BROKEN for sign in self._signs.values())
        limit = self._heartbeat_timeout
        if broken or self._is_broken:
            limit = min(limit, max(_BROKEN_BEATS * self._beat_seconds, 2 * _ASK_SECONDS))
        lost = [i for i in sorted(self._signs) if now - self._signs[i].heard > limit]
        if lost and self._to_tell is None:
            last = "; ".join(f"{i}: {self._signs[i].position}" for i in lost[:_MOST_TOLD])
            self._to_tell = Failure(
                lost[0],
                f"{named(lost)} gave no sign of life for {limit:.0f} s, last seen: {last}; the "
                "same command goes on from the last checkpoint",
                EXIT_PEER_LOST,
            )

    def _judge_pace(self, now: float) -> None:
        stood = now - self._since
        limit = self._pace.limit(self._ahead) if self._position.phase == TRAINING else None
        if limit is not None and stood > limit and not self._has_told_slow:
            self._has_told_slow = True
            if self._process == 0:
                warn(f"no step was done for {stood:.0f} s; {self._everyone()}")
        if self.hang_timeout and stood > self.hang_timeout and self._to_tell is None:
            self._to_tell = Failure(
                self._process,
                f"no progress for {stood:.0f} s (train.hang_timeout); {self._everyone()}; the "
                "same command goes on from the last checkpoint",
                EXIT_PEER_LOST,
            )

    def _everyone(self) -> str:
        """Returns where each process is, as far as this one knows."""
        known = {i: sign.position for i, sign in self._signs.items()}
        known[self._process] = self._position
        # Those that are behind, or elsewhere, come first: they are what the others wait for.
        order = sorted(known, key=lambda i: (known[i].step or 0, known[i].phase == TRAINING, i))
        told = [f"process {i}: {known[i]}" for i in order[:_MOST_TOLD]]
        return "; ".join(told + [f"{len(order) - _MOST_TOLD} more"] * (len(order) > _MOST_TOLD))


def _encode(failure: Failure) -> str:
    return json.dumps(dataclasses.astuple(failure))


# --- Leaving ---


def leave_at_once(message: str, code: int) -> None:
    """Says a line, if any, and ends the process, whatever its other threads do or wait for."""
    if message:
        os.write(2, as_line(message).encode(errors="backslashreplace"))
    # In a thread: a stream may be locked by the thread that is stuck.
    flush = threading.Thread(target=_flush, daemon=True)
    flush.start()
    flush.join(timeout=2.0)
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # nobody is left to hear of it
            stream.flush()


_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int)


@contextlib.contextmanager
def abort_explained(describe: Callable[[], tuple[str, int]]) -> Iterator[None]:
    """Lets an abort of the runtime end in a line and a code of our own.

    Where the coordinator dies, the runtime calls `abort` from a thread of its own. A handler of
    Python's `signal` would never run then: abort does not return to the interpreter. One at the
    level of C does, in the thread that aborts.
    """

    def handle(number: int) -> None:
        leave_at_once(*describe())

    handler = _Handler(handle)
    library: Any = ctypes.CDLL(None)
    library.signal.restype = ctypes.c_void_p
    library.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    before = library.signal(signal.SIGABRT, ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        library.signal(signal.SIGABRT, before)
