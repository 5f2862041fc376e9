"""Holding a work directory, so that no two processes write into it at once."""

import contextlib
import threading
from collections.abc import Iterable, Iterator

from aninfonce_jax import lock
from aninfonce_jax.cli import warn
from aninfonce_jax.remote import AnyPath, RemotePath
from aninfonce_jax.workdir import lease
from aninfonce_jax.workdir.names import LOCK_FILE, REPORT_LOCK_FILE, WorkdirError, writing

# A report takes seconds; to fail a run that is done because of one would be a pity.
_REPORT_PATIENCE = 60.0

# Work directories that this process holds already, and the thread that does.
_held: dict[AnyPath, int] = {}
# For the remote ones among them, what says whether they are still ours.
_leases: dict[AnyPath, lease.Lease] = {}


@contextlib.contextmanager
def hold(*folders: AnyPath, patience: float = 0.0) -> Iterator[None]:
    """Keeps other processes from changing these work directories; makes them if need be.

    A folder that the same thread holds already is left to its holder. Folders that were made
    and stayed empty are removed again.

    Args:
      *folders: which.
      patience: how many seconds to wait for others who hold one.

    Raises:
      WorkdirError: another process holds one, or it can't be written.
    """
    with contextlib.ExitStack() as stack:
        for folder in folders:
            with writing(folder):
                stack.enter_context(
                    _hold(folder / LOCK_FILE, "wait for it, or choose another --workdir", patience)
                )
        yield


@contextlib.contextmanager
def hold_report(folder: AnyPath) -> Iterator[None]:
    """Keeps others from writing a report into `folder`, but not from training there; see `hold`.

    Raises:
      WorkdirError: another process writes one.
      OSError: the folder can't be written.
    """
    advice = "wait for it, or name another folder first in --workdir"
    with _hold(folder / REPORT_LOCK_FILE, advice, patience=_REPORT_PATIENCE):
        yield


def check_held(folder: AnyPath) -> None:
    """Raises OSError if a remote work directory that this process held is no longer its own.

    To be called before each write: a process that was suspended for minutes finds that another
    one has gone on with the run.
    """
    if (held := _leases.get(folder / LOCK_FILE)) is not None:
        held.check()


@contextlib.contextmanager
def _hold(path: AnyPath, advice: str, patience: float = 0.0) -> Iterator[None]:
    known = path.absolute()
    if _held.get(known) == threading.get_ident():
        yield
        return
    made: list[AnyPath] = []
    if not isinstance(path, RemotePath):
        made = [folder for folder in path.parents if not folder.exists()]
    what = f"work directory {path.parent}"
    with contextlib.ExitStack() as stack:
        stack.callback(_remove_if_empty, made)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            if isinstance(path, RemotePath):
                _leases[known] = stack.enter_context(
                    lease.hold(path, what, advice, patience=patience, say=warn)
                )
                stack.callback(_leases.pop, known)
            else:
                stack.enter_context(lock.hold(path, what, advice, patience=patience, say=warn))
        except lock.LockedError as error:
            raise WorkdirError(str(error)) from error
        _held[known] = threading.get_ident()
        stack.callback(_held.pop, known)
        yield


def _remove_if_empty(folders: Iterable[AnyPath]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):  # it has something in it by now
            folder.rmdir()
