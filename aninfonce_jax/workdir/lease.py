"""One holder at a time of a remote work directory: an object that is written on conditions.

An object store has no locks of a kernel, but it can write an object on the condition that the one
there is still the one that was read. So the lock is taken, renewed, taken over and released by
conditional writes, of which only one can succeed: no two processes hold it by the store's word.

A holder that was killed can't release it. On its own machine its process is looked for; from
another machine the object is watched, and a holder that has not renewed it for
`lock.STILL_SECONDS` is taken to be dead. No clocks need to agree. What is left: a holder that was
suspended for longer than that is told so at its next write (`Lease.check`), but a write that was
under way when it was suspended may still be completed.
"""

import contextlib
import dataclasses
import errno
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from aninfonce_jax import lock
from aninfonce_jax.lock import Holder, LockedError
from aninfonce_jax.remote import RemoteError, RemotePath, remote_error

_POLL_SECONDS = 2.0
_ANSWER_SECONDS = 60.0
# TensorStore's own would try for many minutes where there is no network.
_RETRIES = {"max_retries": 4, "initial_delay": "500ms", "max_delay": "8s"}
# What a write returns whose condition did not hold.
_REFUSED = b""


class Lease:
    """The lock of a work directory while this process holds it.

    Args:
      path: of the lock's object.
      what: what it protects, to begin messages with.
      record: what this process has written there, and nobody else would.
      generation: of the object that holds it.
    """

    def __init__(self, path: RemotePath, what: str, record: bytes, generation: bytes) -> None:
        self._object = _Object(path)
        self._path = path
        self._what = what
        self._record = record
        self._generation = generation
        self._taken_by = ""

    def check(self) -> None:
        """Raises RemoteError if another process has taken the lock."""
        if self._taken_by:
            raise RemoteError(
                errno.EBUSY,
                f"{self._what} was taken over by {self._taken_by}, because this process did not "
                "answer for too long",
                str(self._path),
            )

    def renew(self) -> None:
        """Shows the others that the holder is alive."""
        generation = self._object.write(self._record, self._generation)
        if generation is None:
            holder = Holder.parse(self._object.read()[0] or b"")
            self._taken_by = f"{holder or 'another process'}"
        else:
            self._generation = generation

    def renew_until(self, released: threading.Event) -> None:
        """Renews every few seconds, as long as it is this process's."""
        while not released.wait(lock.RENEW_SECONDS) and not self._taken_by:
            # A network that is away for a moment; if it stays away, the run itself will say so.
            with contextlib.suppress(RemoteError):
                self.renew()

    def release(self) -> None:
        """Removes the object, if it is still this process's."""
        # If it can't be removed, the next holder will find that nobody renews it.
        with contextlib.suppress(RemoteError):
            self._object.write(None, self._generation)


@contextlib.contextmanager
def hold(
    path: RemotePath,
    what: str,
    advice: str,
    *,
    patience: float = 0.0,
    say: Callable[[str], object] = lambda line: None,
    still_seconds: float = lock.STILL_SECONDS,
) -> Iterator[Lease]:
    """Holds the lock at `path`; as `lock.hold`, for an object store.

    Raises:
      LockedError: another process holds it.
      RemoteError: the store can't be reached or written.
    """
    lease = lock.wait_for(lambda: _take(path, what, advice, say, still_seconds), patience)
    released = threading.Event()
    renewing = threading.Thread(
        target=lease.renew_until, args=(released,), name="renew lease", daemon=True
    )
    renewing.start()
    try:
        yield lease
    finally:
        released.set()
        renewing.join()
        lease.release()


def _take(
    path: RemotePath, what: str, advice: str, say: Callable[[str], object], still_seconds: float
) -> Lease:
    me = _myself()
    found = _Object(path)
    content, generation = found.read()
    holder = None if content is None else Holder.parse(content)
    if content is not None:
        if _lives(found, holder, me, generation, say, what, still_seconds):
            raise LockedError(lock.describe(what, holder, me, path, advice))
        left = holder or "a process that left no name"
        say(f"{what} was left without a release by {left}, which is gone; taken over")
    record = me.record()
    written = found.write(record, generation)
    if written is None:  # another one was quicker
        quicker = Holder.parse(found.read()[0] or b"")
        raise LockedError(lock.describe(what, quicker, me, path, advice))
    return Lease(path, what, record, written)


def _myself() -> Holder:
    """Returns this process, so that its record is like no other.

    Processes of two containers may have one machine, one name and one number in common: theirs
    are told apart by the space of numbers that they live in.
    """
    me = Holder.myself()
    with contextlib.suppress(OSError):  # not Linux
        me = dataclasses.replace(me, boot=f"{me.boot} {os.readlink('/proc/self/ns/pid')}")
    return dataclasses.replace(me, began=f"{me.began} {uuid.uuid4().hex}")


def _is_alive(holder: Holder) -> bool:
    return dataclasses.replace(holder, began=holder.began.partition(" ")[0]).is_alive()


def _lives(
    found: "_Object",
    holder: Holder | None,
    me: Holder,
    generation: bytes,
    say: Callable[[str], object],
    what: str,
    still_seconds: float,
) -> bool:
    """Returns whether the holder that is recorded may still be at work."""
    if holder is not None and holder.is_on(me):
        return _is_alive(holder)
    say(
        f"{what} is held by {holder or 'another process'}; waiting up to {still_seconds:.0f} s to "
        "see whether it is still at work"
    )
    deadline = time.monotonic() + still_seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, _POLL_SECONDS))
        content, latest = found.read()
        if latest != generation:
            return content is not None
    return False


class _Object:
    """The lock's object. TensorStore reads and writes it: gcsfs knows no conditions."""

    def __init__(self, path: RemotePath) -> None:
        self._path = path
        try:
            self._store = open_store(path.parent)
        except Exception as error:
            raise remote_error(path, error) from error

    def read(self) -> tuple[bytes | None, bytes]:
        """Returns content (None: there is none) and generation."""
        found = self._ask(lambda: self._store.read(self._path.name))
        return (found.value if found.state == "value" else None), found.stamp.generation

    def write(self, content: bytes | None, generation: bytes) -> bytes | None:
        """Writes, or removes for None, if the generation is still that one.

        Returns:
          The new generation; None if another process has written in between.
        """
        written = self._ask(
            lambda: self._store.write(self._path.name, content, if_equal=generation)
        ).generation
        if written == _REFUSED and content is not None:
            # A write whose answer was lost is sent again, and then finds itself there.
            there, latest = self.read()
            return latest if there == content and latest != generation else None
        return None if written == _REFUSED else written

    def _ask(self, request: Callable[[], Any]) -> Any:
        try:
            return request().result(timeout=_ANSWER_SECONDS)
        except Exception as error:  # ValueError, RuntimeError, TimeoutError and more
            raise remote_error(self._path, error) from error


def open_store(folder: RemotePath) -> Any:
    """Returns TensorStore's view of a remote folder."""
    import tensorstore

    bucket, *names = folder.place.parts
    spec = {
        "driver": "gcs",
        "bucket": bucket,
        "path": "".join(f"{name}/" for name in names),
        "context": {"gcs_request_retries": _RETRIES},
    }
    return tensorstore.KvStore.open(spec).result(timeout=_ANSWER_SECONDS)
