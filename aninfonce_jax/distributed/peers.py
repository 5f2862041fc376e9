"""The processes of a run among each other: what only one does, what all agree on, who failed.

Every method is called by all processes, in the same order. What they exchange goes through the
store of `jax.distributed`, not through the devices: it works before there is a mesh, and a
process that waits can be told that another has failed. A single process asks itself; it needs
no jax for that.
"""

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from aninfonce_jax.cli import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_PEER_LOST, EXIT_USAGE
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.distributed.cluster import HEARTBEAT_TIMEOUT
from aninfonce_jax.distributed.watch import Failure, Store, StoreLostError, Watch, abort_explained
from aninfonce_jax.stop import Preempted

T = TypeVar("T")

_PREFIX = "aninfonce_jax/"
# Seconds of one wait; between two of them it is looked whether another process has failed.
_WAIT_SECONDS = 1.0
# Errors of the runtime that are this process's own, whatever the others do.
_OWN_ERRORS = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "UNIMPLEMENTED")


class PeerError(RuntimeError):
    """Another process failed or is lost, and with it the run; the message is one line.

    Attributes:
      code: the exit code that it goes with.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(str(failure))
        self.code = failure.code


class Peers:
    """One process among all that share a run.

    Args:
      process: which one this is.
      processes: how many there are.
      store: what they share; not needed by a single one.
      heartbeat_timeout: seconds without a sign of life until a process is lost.
      prefix: of the names in the store, which keeps apart what several of these exchange.
    """

    def __init__(
        self,
        process: int = 0,
        processes: int = 1,
        store: Store | None = None,
        *,
        heartbeat_timeout: float = HEARTBEAT_TIMEOUT,
        prefix: str = _PREFIX,
    ) -> None:
        self.process = process
        self.processes = processes
        self.heartbeat_timeout = heartbeat_timeout
        self._store = store
        self._prefix = prefix
        self._rounds = 0
        self._watches = 0
        self._watch: Watch | None = None

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes what only one may write."""
        return self.process == 0

    @property
    def are_many(self) -> bool:
        """Whether there is more than one."""
        return self.processes > 1

    # --- Agreeing ---

    def by_first(self, what: str, act: Callable[[], T]) -> T:
        """Lets process 0 alone do something; all get what it returned.

        Args:
          what: it does, for messages.
          act: returns what JSON can hold.

        Raises:
          PeerError: in the other processes, if it failed; in process 0 it is the error itself.
        """
        if not self.are_many:
            return act()
        self._rounds += 1
        if not self.is_first:
            result: T = self._wait_for_verdict(what)
            return result
        with self.telling():
            return self._publish(act())

    def decide(self, what: str, value: Any, judge: Callable[[list[Any]], T]) -> T:
        """Hands the values of all processes to process 0; all get what it makes of them.

        Args:
          what: is decided, for messages.
          value: of this process; what JSON can hold, as is what `judge` returns.
          judge: is called in process 0 with all values, in the order of the processes.
        """
        if not self.are_many:
            return judge([value])
        self._rounds += 1
        if not self.is_first:
            self._set(f"{self._round()}values/{self.process}", json.dumps([what, value]))
            result: T = self._wait_for_verdict(what)
            return result
        with self.telling():
            values = [value]
            for process in range(1, self.processes):
                other, theirs = json.loads(self._wait(f"{self._round()}values/{process}"))
                if other != what:
                    raise RuntimeError(
                        f"process {process} is at {other!r} and process 0 at {what!r}"
                    )
                values.append(theirs)
            # What all have passed is not needed any more.
            self._remove(f"{self._round()}values/")
            self._remove(f"{self._prefix}{self._rounds - 1}/verdict")
            return self._publish(judge(values))

    def any(self, what: str, value: bool) -> bool:
        """Returns whether it is so in any process."""
        return self.decide(what, bool(value), any)

    def wait_for_all(self, what: str) -> None:
        """Waits until every process has come here."""
        self.decide(what, None, lambda _: None)

    def _round(self) -> str:
        return f"{self._prefix}{self._rounds}/"

    def _publish(self, result: T) -> T:
        text = json.dumps(result)
        self._set(f"{self._round()}verdict", text)
        plain: T = json.loads(text)
        return plain

    def _wait_for_verdict(self, what: str) -> Any:
        del what
        return json.loads(self._wait(f"{self._round()}verdict"))

    def _wait(self, key: str) -> str:
        assert self._store is not None
        while True:
            self.check()
            try:
                text = self._store.get(key, _WAIT_SECONDS)
            except StoreLostError as error:
                raise PeerError(self._lost(error)) from error
            if text is not None:
                return text

    def _set(self, key: str, text: str) -> None:
        assert self._store is not None
        try:
            self._store.set(key, text)
        except StoreLostError as error:
            raise PeerError(self._lost(error)) from error

    def _remove(self, key: str) -> None:
        assert self._store is not None
        try:
            self._store.remove(key)
        except StoreLostError as error:
            raise PeerError(self._lost(error)) from error

    # --- Failing together ---

    @contextlib.contextmanager
    def watched(self, hang_timeout: float = 0.0) -> Iterator[None]:
        """Watches the other processes; see `watch`. Within another such call, it does nothing.

        Args:
          hang_timeout: seconds in one place until the run is given up; 0: never.
        """
        if self._watch is not None and hang_timeout:
            self._watch.hang_timeout = hang_timeout
        if not self.are_many or self._watch is not None:
            yield
            return
        assert self._store is not None
        self._watches += 1
        watch = Watch(
            self._store,
            f"{self._prefix}watch/{self._watches}/",
            self.process,
            self.processes,
            heartbeat_timeout=self.heartbeat_timeout,
            hang_timeout=hang_timeout,
        )
        with abort_explained(watch.describe_abort), watch:
            self._watch = watch
            try:
                yield
            finally:
                self._watch = None

    def at(self, phase: str, step: int | None = None, ahead: int = 1) -> None:
        """Says where this process is, for messages about those that hang."""
        if self._watch is not None:
            self._watch.at(phase, step, ahead)

    def doing(self, what: str) -> None:
        """Says more exactly what this process does where it is."""
        if self._watch is not None:
            self._watch.doing(what)

    def check(self) -> None:
        """Raises PeerError if another process is known to have failed."""
        if self._watch is not None and self._watch.failure is not None:
            raise PeerError(self._watch.failure)

    def tell(self, reason: str, code: int) -> None:
        """Tells all processes that this one has failed, so that none waits for it."""
        if self._watch is not None:
            self._watch.tell(Failure(self.process, reason, code))

    def leaving(self, code: int) -> None:
        """Says that this process has said why it ends, and is about to: it is not said again."""
        if self._watch is not None:
            self._watch.leaving(code)

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Tells all processes of an error that is raised inside, and lets it pass.

        An error of the runtime that follows from the end of another process is replaced by one
        that says so.
        """
        if self._watch is None:
            yield
            return
        import jax

        try:
            yield
        except (Preempted, PeerError):
            raise
        except jax.errors.JaxRuntimeError as error:
            if not any(word in str(error) for word in _OWN_ERRORS):
                raise PeerError(self._watch.connection_broke()) from error
            self.tell(_describe(error), EXIT_FAILED)
            raise
        except BaseException as error:
            self.check()  # what fails after another has failed may come of it
            self.tell(_describe(error), exit_code_of(error))
            raise

    def _lost(self, error: Exception) -> Failure:
        if self._watch is not None and self._watch.failure is not None:
            return self._watch.failure
        return Failure(
            0,
            f"process 0, which coordinates all, does not answer ({error}); the same command goes "
            "on from the last checkpoint",
            EXIT_PEER_LOST,
        )


def exit_code_of(error: BaseException) -> int:
    """Returns the exit code that an error goes with."""
    if isinstance(error, PeerError):
        return error.code
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    return EXIT_USAGE if isinstance(error, (ConfigError, ImportError)) else EXIT_FAILED


def _describe(error: BaseException) -> str:
    text = next(iter(str(error).splitlines()), "")
    # Those of this package are sentences; others need their name to be understood.
    is_ours = type(error).__module__.startswith("aninfonce_jax")
    return text if is_ours and text else f"{type(error).__name__}: {text}"


ALONE = Peers()


@functools.cache
def of_runtime() -> Peers:
    """Returns this process among those that `jax.distributed` has brought together."""
    import jax

    from aninfonce_jax.distributed.store import RuntimeStore

    if jax.process_count() == 1:
        return ALONE
    return Peers(jax.process_index(), jax.process_count(), RuntimeStore())
