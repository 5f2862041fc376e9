"""Files, local or remote, that are written whole or not at all, and checked when they are read."""

import contextlib
import json
import math
import os
import shutil
import stat
from collections.abc import Mapping
from typing import Any, NoReturn

from aninfonce_jax.remote import AnyPath, RemotePath

# More digits than a number of ours has; such an integer could not be drawn or compared.
_MAX_DIGITS = 300


class FileError(ValueError):
    """A file that is not what it should be; its message is one line for the user."""


def write_bytes(path: AnyPath, content: bytes) -> AnyPath:
    """Writes a file whole or not at all.

    Its folder must be there: one that was removed in the middle of a run is not made again, with
    one file of many in it.

    Returns:
      The path.
    """
    if isinstance(path, RemotePath):
        path.write_bytes(content)
        return path
    partial = path.with_name(f"{path.name}.partial")
    try:
        with open(partial, "wb", opener=_open_at_once) as file:
            file.write(content)
            file.flush()
            # Else a machine that loses power may be left with an empty file under the new name.
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    return path


def write_json(path: AnyPath, value: Any) -> AnyPath:
    """Writes a value as strict JSON, whole or not at all; see `finite`.

    Returns:
      The path.
    """
    text = json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False)
    return write_bytes(path, f"{text}\n".encode())


def read_bytes(path: AnyPath, limit: int) -> bytes:
    """Returns the content of a regular file; never waits for a pipe.

    Args:
      path: what to read.
      limit: the largest size, in bytes, that such a file may have.

    Raises:
      FileError: if it is no regular file, or larger than that.
      OSError: if it is missing, or can't be read.
    """
    if isinstance(path, RemotePath):
        _check_size(path, path.size(), limit)
        return path.read_bytes()
    with open(path, "rb", opener=_open_at_once) as file:
        _check_size(path, os.fstat(file.fileno()).st_size, limit)
        return file.read()


def is_there(path: AnyPath) -> bool:
    """Returns whether something has this name, be it a link to nothing."""
    return path.exists() if isinstance(path, RemotePath) else os.path.lexists(path)


def files_below(folder: AnyPath) -> list[AnyPath]:
    """Returns every file below a folder, in order, whatever the depth."""
    if isinstance(folder, RemotePath):
        return [*folder.files_below()]
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def move(folder: AnyPath, name: str) -> None:
    """Gives a folder another name; where nothing can be renamed, its files are copied first."""
    if isinstance(folder, RemotePath):
        folder.copy_below(folder.with_name(name))
        folder.rmtree()
    else:
        folder.rename(folder.with_name(name))


def remove(folder: AnyPath) -> None:
    """Removes a folder with all that is in it, as far as that is possible."""
    if isinstance(folder, RemotePath):
        folder.rmtree()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def read_json(path: AnyPath, limit: int) -> dict[str, Any]:
    """Returns the object that a file of strict JSON holds; raises as `read_bytes`."""
    content = parse_json(read_bytes(path, limit), str(path))
    if not isinstance(content, dict):
        raise FileError(f"{path} should hold a JSON object, got {type(content).__name__}")
    return content


def parse_json(content: bytes, place: str) -> Any:
    """Returns the value of strict JSON in UTF-8; raises FileError, which begins with `place`."""
    try:
        return json.loads(
            content.decode("utf-8"), parse_constant=_refuse_constant, parse_int=_parse_int
        )
    except ValueError as error:
        raise FileError(f"{place}: not valid JSON ({error})") from error
    except RecursionError as error:
        raise FileError(f"{place}: not valid JSON (nested too deep)") from error


def finite(value: Any) -> Any:
    """Returns a JSON value with null, which strict JSON has, for NaN and infinities."""
    if isinstance(value, Mapping):
        return {name: finite(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _check_size(path: AnyPath, size: int, limit: int) -> None:
    if size > limit:
        raise FileError(f"{path} has {size:,} bytes; no more than {limit:,} were expected")


def _open_at_once(path: str, flags: int) -> int:
    """Opens a regular file; a pipe would make an ordinary open wait for its other end."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileError(f"{path} is not a regular file")
    return descriptor


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _parse_int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)
