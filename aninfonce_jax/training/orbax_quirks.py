"""What Orbax does that a user should not have to see."""

import contextlib
import logging
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Iterator

from etils import epath

from aninfonce_jax.remote import AnyPath, RemotePath
from aninfonce_jax.training import checksums


@contextlib.contextmanager
def without_background_tracebacks() -> Iterator[None]:
    """Keeps threads of Orbax and TensorStore from printing tracebacks where a file fails.

    Nothing is lost by it: the failure itself is raised in the main thread. Orbax logs it once
    more for every thread that it passes. TensorStore's reads that are still under way when
    another one fails find the event loop closed. If several writes fail, one failure is
    raised; asyncio tells of the others when Python collects them, which may be long after.
    """

    def is_not_orbax(record: logging.LogRecord) -> bool:
        return "orbax" not in pathlib.Path(record.pathname).parts

    def is_no_write(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return "never retrieved" not in record.getMessage() or "tensorstore" not in f"{error}"

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        if f"{unraisable.exc_value}" != "Event loop is closed":
            previous(unraisable)

    logger, previous = logging.getLogger("absl"), sys.unraisablehook
    asyncio_logger = logging.getLogger("asyncio")
    logger.addFilter(is_not_orbax)
    asyncio_logger.addFilter(is_no_write)
    sys.unraisablehook = hook
    try:
        yield
    finally:
        logger.removeFilter(is_not_orbax)
        asyncio_logger.removeFilter(is_no_write)
        if sys.unraisablehook is hook:
            sys.unraisablehook = previous


@contextlib.contextmanager
def plain_path(directory: AnyPath) -> Iterator[AnyPath]:
    """Gives Orbax a path to a folder that has no other meaning to it, or to TensorStore.

    Orbax finds the parts of a checkpoint by a pattern that begins with the folder's own path.
    If `[`, `*` or `?` are in it, none is found, and what is saved can't be restored. TensorStore
    takes a backslash for a slash, and writes into another folder. So a path with anything in it
    but letters, digits and a few marks is not handed over, but a link to the folder.
    """
    if isinstance(directory, RemotePath):  # bucket and object names are plain
        yield epath.Path(f"{directory}")
        return
    if _is_plain(f"{directory}"):
        yield directory
        return
    usual = tempfile.gettempdir()
    parent = usual if _is_plain(usual) else "/tmp"
    with tempfile.TemporaryDirectory(prefix="aninfonce_jax-", dir=parent) as folder:
        link = pathlib.Path(folder) / "checkpoints"
        link.symlink_to(directory, target_is_directory=True)
        yield link


def _is_plain(path: str) -> bool:
    return re.fullmatch(r"[\w./ ,:=@+-]*", path) is not None


def reason(error: Exception) -> str:
    """Returns what the operating system said, if an error tells it, else its first line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    number = re.search(r"os_error_code='(\d+)'", f"{error}")  # as TensorStore writes it
    return os.strerror(int(number[1])) if number else one_line(error)


def one_line(error: Exception) -> str:
    """Returns the first line of an error, short enough for a log."""
    text = next(iter(str(error).splitlines()), "")[:200]
    return text if isinstance(error, checksums.DamagedError) else f"{type(error).__name__}: {text}"
