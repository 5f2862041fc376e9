"""One holder at a time: a lock of the kernel, and a record that says who holds it.

The lock is `flock` on a file. The kernel lets go of it however a process ends, kill -9
included, so a lock that is free has no living holder on this machine, whatever the file says.

Not every shared file system carries `flock` from machine to machine. So the file also holds
a record of who holds it, which is removed on release, and whose time of change is renewed
every few seconds. A record that another machine left is believed for as long as it is renewed;
once it was still for `STILL_SECONDS` its holder is taken to be dead. That needs no clocks that
agree: what is watched is whether the file changes.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import shlex
import socket
import stat
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from aninfonce_jax.remote import AnyPath

T = TypeVar("T")

RENEW_SECONDS = 15.0
STILL_SECONDS = 120.0
# Where `flock` does not work at all: how long two that begin together wait to see who was last.
_SETTLE_SECONDS = 1.0
_POLL_SECONDS = 0.5
_LONGEST_RECORD = 4096
_LONGEST_COMMAND = 100

_OPEN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

# Open lock files of this process; a forked child must not keep them locked when we are dead.
_OPEN: set[int] = set()


class LockedError(RuntimeError):
    """Somebody else holds the lock; the message is one line that names them."""


@dataclasses.dataclass(frozen=True)
class Holder:
    """Who holds a lock.

    Attributes:
      host: the machine's name.
      boot: what tells this start of this machine from all others; "" if it isn't known.
      pid: the process.
      began: when the process began, in the kernel's own units; "" if it isn't known.
      since: the local time at which it took the lock, for people.
      command: what was typed, for people.
    """

    host: str
    boot: str
    pid: int
    began: str
    since: str
    command: str

    @classmethod
    def myself(cls) -> "Holder":
        """Returns this process."""
        return cls(
            host=socket.gethostname(),
            boot=_read_text("/proc/sys/kernel/random/boot_id"),
            pid=os.getpid(),
            began=_process_start(os.getpid()),
            since=time.strftime("%Y-%m-%d %H:%M:%S"),
            command=textwrap.shorten(shlex.join(sys.argv), _LONGEST_COMMAND, placeholder=" ..."),
        )

    @classmethod
    def parse(cls, record: bytes) -> "Holder | None":
        """Returns whom a record names; None if it can't be read."""
        try:
            values: Any = json.loads(record)
            return cls(**{**values, "pid": int(values["pid"])})
        except (ValueError, TypeError, KeyError, RecursionError):
            return None

    def record(self) -> bytes:
        """Returns what `parse` reads."""
        return json.dumps(dataclasses.asdict(self)).encode()

    def __str__(self) -> str:
        words = f"process {self.pid} on {self.host} since {self.since} ({self.command})"
        # It comes from a file: nothing in it may steer a terminal.
        return "".join(letter if letter.isprintable() else "?" for letter in words)

    def is_on(self, other: "Holder") -> bool:
        """Returns whether both are on one machine that was not started again in between."""
        return (self.host, self.boot) == (other.host, other.boot)

    def is_alive(self) -> bool:
        """Returns whether the process is there; to be asked on its own machine."""
        return Path(f"/proc/{self.pid}").exists() and _process_start(self.pid) == self.began


@contextlib.contextmanager
def hold(
    path: Path,
    what: str,
    advice: str,
    *,
    patience: float = 0.0,
    say: Callable[[str], object] = lambda line: None,
    still_seconds: float = STILL_SECONDS,
) -> Iterator[None]:
    """Holds the lock at `path`; raises LockedError, and changes nothing, if another does.

    Args:
      path: the lock's file, in a folder that exists; removed again on release.
      what: what it protects, to begin the message with.
      advice: what to do if it is held, to end the message with.
      patience: how many seconds to wait for it.
      say: called with a line about a holder who left without release.
      still_seconds: after how long without renewal another machine's holder is dead.

    Raises:
      LockedError: another process holds it.
      OSError: the file can't be made, or is something else than a file.
    """
    descriptor = wait_for(lambda: _take(path, what, advice, say, still_seconds), patience)
    released = threading.Event()
    renewing = threading.Thread(
        target=_renew, args=(descriptor, released), name="renew lock", daemon=True
    )
    renewing.start()
    try:
        yield
    finally:
        released.set()
        renewing.join()
        # A folder that was renamed or is gone takes its lock with it; one that became
        # read-only keeps a record, which the next holder will find to be of nobody alive.
        with contextlib.suppress(OSError):
            if _is_at(descriptor, path):
                path.unlink()
        _close(descriptor)


def wait_for(take: Callable[[], T], patience: float) -> T:
    """Returns what `take` does, as soon as it raises no LockedError, or raises its last."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return take()
        except LockedError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_POLL_SECONDS)


def _take(
    path: Path, what: str, advice: str, say: Callable[[str], object], still_seconds: float
) -> int:
    """Returns the locked file, with our record in it."""
    me = Holder.myself()
    while True:
        # A link here could lead us to overwrite somebody's file; a pipe could make us wait.
        descriptor = os.open(path, _OPEN_FLAGS, 0o666)
        _OPEN.add(descriptor)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(f"{path} is not a regular file")
            is_ours = _flock(descriptor)
            if is_ours is not False and not _is_at(descriptor, path):
                _close(descriptor)  # its last holder removed it after we had opened it
                continue
            holder = _read_holder(descriptor)
            if is_ours is False or _lives(holder, me, path, bool(is_ours), still_seconds):
                raise LockedError(describe(what, holder, me, path, advice))
            _write_holder(descriptor, me)
            if is_ours is None:
                time.sleep(_SETTLE_SECONDS)
                if (last := _read_holder(descriptor)) != me:
                    raise LockedError(describe(what, last, me, path, advice))
        except BaseException:
            _close(descriptor)
            raise
        if holder is not None:
            say(f"{what} was left without a release by {holder}, which is gone; taken over")
        return descriptor


def describe(what: str, holder: Holder | None, me: Holder, path: AnyPath, advice: str) -> str:
    """Returns the line that says who holds a lock, and what to do."""
    who = str(holder) if holder is not None else "another process"
    away = holder is not None and not holder.is_on(me)
    gone = f", or remove {path} if you know that it has ended" if away else ""
    return f"{what} is in use by {who}; {advice}{gone}"


def _flock(descriptor: int) -> bool | None:
    """Returns whether the kernel gave us the lock; None where it has no such locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # ENOLCK, ENOSYS, EOPNOTSUPP: file systems differ
        return None
    return True


def _lives(
    holder: Holder | None, me: Holder, path: Path, has_lock: bool, still_seconds: float
) -> bool:
    """Returns whether the holder that is recorded may still be at work."""
    if holder is None:
        return False
    if holder.is_on(me):
        # The kernel of this very machine says whether somebody holds it.
        if has_lock:
            return False
        if holder.is_alive():
            return True
    return _is_renewed(path, still_seconds)


def _is_renewed(path: Path, still_seconds: float) -> bool:
    """Waits until the file has been still for long enough, or has changed."""
    with tempfile.TemporaryFile(dir=path.parent) as now:
        # The age by the clock that has stamped both files.
        age = os.fstat(now.fileno()).st_mtime - path.stat().st_mtime
    before = path.stat().st_mtime_ns
    deadline = time.monotonic() + still_seconds - max(age, 0.0)
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, _POLL_SECONDS))
        # Opened anew: network file systems look at the server only then.
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_mtime_ns != before:
                return True
    return False


def _renew(descriptor: int, released: threading.Event) -> None:
    while not released.wait(RENEW_SECONDS):
        # A file system that is away for a moment; if it stays away, the run itself will say so.
        with contextlib.suppress(OSError):
            os.utime(descriptor)


def _read_holder(descriptor: int) -> Holder | None:
    """Returns whom the record names; None if there is none, or none that can be read."""
    return Holder.parse(os.pread(descriptor, _LONGEST_RECORD, 0))


def _write_holder(descriptor: int, holder: Holder) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, holder.record(), 0)
    os.fsync(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Returns whether the open file is the one that has this name now."""
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


def _close(descriptor: int) -> None:
    if descriptor in _OPEN:
        _OPEN.discard(descriptor)
        os.close(descriptor)


def _close_in_child() -> None:
    for descriptor in list(_OPEN):
        _close(descriptor)


os.register_at_fork(after_in_child=_close_in_child)


def _process_start(pid: int) -> str:
    # The name of the program comes second, in brackets, and may hold anything.
    fields = _read_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else ""


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:  # not Linux, or the process is gone
        return ""
