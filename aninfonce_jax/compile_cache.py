"""What was compiled once is kept for later runs, restarts, and the members of a comparison.

jax does the work; this chooses the folder and keeps it small. Only the command line calls it: a
program of one's own keeps its own settings.

jax can bound the size itself, but takes a lock of the whole folder for every program then: on a
home folder in a network that can cost more than compiling. So old files are removed at the start.

jax trusts what it finds. Where it compresses by zlib a damaged file shows by its checksum; where
it compresses by zstandard, as it does wherever that is installed, there is none, and a program with
a flipped bit may run and return wrong numbers. So files are written whole and read with a digest.
"""

import contextlib
import hashlib
import os
import platform
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from aninfonce_jax.cli import warn

MOST_BYTES = 2**31
# Programs that compile faster are not worth a file.
_LEAST_SECONDS = 0.3
_TROUBLE = ("Error reading persistent compilation", "Error writing persistent compilation")


def use() -> None:
    """Lets jax keep what it compiles, unless the environment says otherwise; never fails."""
    # Set by JAX_COMPILATION_CACHE_DIR and JAX_ENABLE_COMPILATION_CACHE, or by a program.
    folder_of_user = getattr(jax.config, "jax_compilation_cache_dir", None)
    is_wanted = getattr(jax.config, "jax_enable_compilation_cache", True)
    if folder_of_user or not is_wanted or not _can_be_read_back() or not _check_programs():
        return
    folder = default_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        trim(folder.parent, MOST_BYTES)
    except OSError as error:
        warn(f"what is compiled can't be kept in {folder}: {error.strerror or error}")
        return
    if not os.access(folder, os.W_OK):
        warn(f"what is compiled can't be kept in {folder}: it is read-only")
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _LEAST_SECONDS)
    warnings.showwarning = _shown_once(folder, warnings.showwarning)


def _can_be_read_back() -> bool:
    """Whether programs for these devices can be read back.

    For CPUs jax 0.7 crashed on one, and 0.9 prints of each that the machine may lack instructions.
    """
    return jax.__version_info__ >= (0, 10) or jax.default_backend() != "cpu"


def _check_programs() -> bool:
    """Makes jax keep its programs as `CheckedPrograms` does; returns whether that is possible.

    jax has no public name for it. Without this one nothing is kept.
    """
    try:
        from jax._src import compilation_cache as store
    except ImportError:
        return False
    if not hasattr(store, "LRUCache"):
        return False
    store.LRUCache = CheckedPrograms  # type: ignore[assignment,misc]
    return True


class CheckedPrograms:
    """Where jax keeps compiled programs: one file each, with a digest of its content and its key.

    Args:
      path: the folder, which is there.
      max_size: not used; see `trim`.
    """

    def __init__(self, path: str, *, max_size: int = -1) -> None:
        del max_size
        self._path = Path(path)

    def get(self, key: str) -> bytes | None:
        """Returns what was kept under a key, or None.

        Raises:
          ValueError: it is damaged, or of another key; jax then says so and compiles.
        """
        try:
            content = self._file(key).read_bytes()
        except FileNotFoundError:
            return None
        program = content[_DIGEST_BYTES:]
        if content[:_DIGEST_BYTES] != _digest(key, program):
            raise ValueError("the file is not what was written")
        return program

    def put(self, key: str, value: bytes) -> None:
        """Keeps a program, whole or not at all, even if another process writes the same one."""
        # Its name is like the others', so that `trim` finds what a killed process leaves behind.
        handle, partial = tempfile.mkstemp(dir=self._path, prefix="partial-", suffix="-cache")
        try:
            with open(handle, "wb") as file:
                file.write(_digest(key, value) + value)
            os.replace(partial, self._file(key))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise

    def clear(self) -> None:
        """Nothing is held in memory."""

    def _file(self, key: str) -> Path:
        return self._path / f"{key}-checked-cache"


_DIGEST_BYTES = hashlib.sha256().digest_size


def _digest(key: str, program: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\0" + program).digest()


def default_folder() -> Path:
    """Returns the folder for programs that run on this kind of machine, and perhaps on no other.

    A program for a CPU uses instructions that another CPU may lack; home folders are shared.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The specification of these folders says that a relative path is to be ignored.
    cache = Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~/.cache"))
    machine = hashlib.sha256(_describe_cpu().encode()).hexdigest()[:12]
    return cache / "aninfonce_jax" / "xla" / machine


def trim(folder: Path, most_bytes: int) -> None:
    """Removes the oldest files below a folder until the rest is no larger than `most_bytes`."""
    found = []
    for path in folder.rglob("*-cache"):
        try:
            stat = path.stat()
        except OSError:  # another process was faster
            continue
        found.append((max(stat.st_atime, stat.st_mtime), stat.st_size, path))
    size = sum(entry[1] for entry in found)
    for _, own, path in sorted(found):
        if size <= most_bytes:
            break
        path.unlink(missing_ok=True)
        size -= own


def _describe_cpu() -> str:
    """Returns what tells kinds of CPU apart: architecture, model and instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        return f"{platform.machine()} {platform.processor()} {platform.platform()}"
    names = ("model name", "flags", "Features", "CPU part")
    return "\n".join([platform.machine(), *sorted({x for x in lines if x.startswith(names)})])


def _shown_once(folder: Path, show: Callable[..., Any]) -> Callable[..., Any]:
    """Returns what shows warnings, those of jax about its cache as one line, once."""
    is_told = False

    def show_warning(message: Any, *rest: Any, **more: Any) -> None:
        nonlocal is_told
        if not str(message).startswith(_TROUBLE):
            show(message, *rest, **more)
        elif not is_told:
            is_told = True
            warn(f"a compiled program in {folder} is of no use, so that it is compiled: {message}")

    return show_warning
