"""Paths of an object store: `gs://bucket/folder`, with what a run needs of pathlib's methods.

An object store has no folders, only objects whose names hold slashes. Nothing can be appended or
renamed there, but an object is written whole or not at all, and who reads after a write gets what
was written. `RemotePath` therefore has no `open`, no `rename` and no `__fspath__`: what needs one
of these fails at once, rather than making a local folder called `gs:`.

Whatever goes wrong on the way (no network, no permission, no such bucket) is a `RemoteError`, an
OSError like those of a disk, with a message of one line.
"""

import contextlib
import dataclasses
import errno
import functools
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Self

SCHEME = "gs://"
INSTALL = "pip install 'aninfonce-jax[gcs]'"

_ANY_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
# What pathlib, or a shell script that joins paths, makes of a scheme.
_COLLAPSED = re.compile(
    r"(gs|gcs|s3|s3a|az|abfss?|wasbs?|hdfs|https?|ftp|file):/(?!/)", re.IGNORECASE
)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
# Orbax and fsspec take them for patterns.
_PATTERNS = set("*?[]{}#")
_LONGEST_REASON = 200
# A request that hangs must end in a line; whole requests are tried again by gcsfs.
_TIMEOUT_SECONDS = 60


class PathError(ValueError):
    """A text that names no place where a run can live; its message is one line for the user."""


class RemoteError(OSError):
    """The store did not do what it was asked; its message is one line for the user."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


@dataclasses.dataclass(frozen=True, order=True)
class RemotePath:
    """A place in an object store; see the module's docstring.

    Attributes:
      place: bucket and name, `bucket/folder/file`.
    """

    place: PurePosixPath

    def __str__(self) -> str:
        return f"{SCHEME}{self.place}"

    def __truediv__(self, name: str) -> Self:
        return dataclasses.replace(self, place=self.place / name)

    @property
    def name(self) -> str:
        """The last part."""
        return self.place.name

    @property
    def stem(self) -> str:
        """The last part without its ending."""
        return self.place.stem

    @property
    def parent(self) -> Self:
        """What the last part lies in; a bucket lies in itself."""
        return self if len(self.place.parts) == 1 else self._at(self.place.parent)

    @property
    def parents(self) -> list[Self]:
        """All that it lies in, the nearest first, the bucket last."""
        return [self._at(place) for place in self.place.parents if place.parts]

    def with_name(self, name: str) -> Self:
        """Returns its neighbour of that name."""
        return self._at(self.place.with_name(name))

    def with_suffix(self, suffix: str) -> Self:
        """Returns its neighbour with another ending."""
        return self._at(self.place.with_suffix(suffix))

    def relative_to(self, folder: Self) -> PurePosixPath:
        """Returns the way from a folder to here."""
        return self.place.relative_to(folder.place)

    def absolute(self) -> Self:
        """Returns itself."""
        return self

    def resolve(self) -> Self:
        """Returns itself."""
        return self

    def exists(self) -> bool:
        """Returns whether there is an object of this name, or one below it."""
        return self._kind() is not None

    def is_dir(self) -> bool:
        """Returns whether there is an object below this name."""
        return self._kind() == "directory"

    def is_file(self) -> bool:
        """Returns whether there is an object of this name."""
        return self._kind() == "file"

    def is_symlink(self) -> bool:
        """Returns False: there are no links."""
        return False

    def iterdir(self) -> Iterator[Self]:
        """Returns what lies right below; nothing if nothing does."""
        with _told(self):
            try:
                found = _store().ls(str(self), detail=False)
            except FileNotFoundError:
                found = []
        # Some tools leave an object for the folder itself.
        own = {f"{self.place}", f"{self.place}/"}
        return iter(sorted(self._at(PurePosixPath(name)) for name in found if name not in own))

    def files_below(self) -> list[Self]:
        """Returns every object below, in order, whatever the depth."""
        with _told(self):
            found = _store().find(str(self))
        return sorted(self._at(PurePosixPath(name)) for name in found if not name.endswith("/"))

    def size(self) -> int:
        """Returns how many bytes the object has."""
        with _told(self):
            return int(_store().size(str(self)))

    def read_bytes(self) -> bytes:
        """Returns what the object holds."""
        with _told(self):
            return bytes(_store().cat_file(str(self)))

    def read_text(self) -> str:
        """Returns the text that the object holds."""
        return self.read_bytes().decode()

    def write_bytes(self, content: bytes) -> None:
        """Writes the object, whole or not at all."""
        with _told(self):
            try:
                _store().pipe_file(str(self), content)
            except FileNotFoundError as error:
                why = f"no bucket {self.place.parts[0]}, or not for these credentials"
                raise RemoteError(errno.ENOENT, why, str(self)) from error

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Does nothing: a folder is there once something is in it."""

    def rmdir(self) -> None:
        """Does nothing: a folder is gone once nothing is in it."""

    def unlink(self) -> None:
        """Removes the object."""
        with _told(self):
            _store().rm_file(str(self))

    def rmtree(self) -> None:
        """Removes every object below."""
        with _told(self), contextlib.suppress(FileNotFoundError):
            _store().rm(str(self), recursive=True)

    def copy_below(self, target: Self) -> None:
        """Copies every object below to the same place below `target`, inside the store."""
        for path in self.files_below():
            with _told(path):
                _store().copy(str(path), f"{target}/{path.relative_to(self)}")

    def _kind(self) -> str | None:
        """Returns what it is; None for nothing.

        fsspec's own `exists` says no, too, where it could not ask: a run would begin anew.
        """
        try:
            with _told(self):
                return str(_store().info(str(self))["type"])
        except FileNotFoundError:
            return None

    def _at(self, place: PurePosixPath) -> Self:
        return dataclasses.replace(self, place=place)


AnyPath = Path | RemotePath


def locate(where: str | os.PathLike[str] | RemotePath) -> AnyPath:
    """Returns the path that a text names, local or remote.

    Raises:
      PathError: if it names a place where no run can live.
    """
    if isinstance(where, RemotePath):
        return where
    text = os.fspath(where)
    match = _ANY_SCHEME.match(text) or _COLLAPSED.match(text)
    if match is None:
        return Path(text)
    if match[1].lower() == "file":
        raise PathError(f"{text}: write the folder without {match[0]}")
    if f"{match[1].lower()}://" != SCHEME:
        raise PathError(
            f"{text}: of remote folders only {SCHEME} can be used; mount this one as a folder of "
            "this machine, and name that"
        )
    if match[0] != SCHEME:
        raise PathError(
            f"{text}: write {SCHEME}{text[match.end() :]}, as text: pathlib would drop a slash"
        )
    return _parse(text)


def has_scheme(text: str) -> bool:
    """Returns whether a text names a place by a scheme, such as gs:// or https://."""
    return bool(_ANY_SCHEME.match(text) or _COLLAPSED.match(text))


def _parse(text: str) -> RemotePath:
    place = PurePosixPath(text.removeprefix(SCHEME))
    if place.is_absolute() or not place.parts or not _BUCKET.fullmatch(place.parts[0]):
        raise PathError(
            f"{text}: expected {SCHEME}BUCKET/FOLDER, the bucket in small letters, digits, "
            "dots, dashes and underscores"
        )
    if ".." in place.parts:
        raise PathError(f"{text}: an object store knows no '..'; write the folder itself")
    if strange := sorted(_PATTERNS & set(text)):
        raise PathError(f"{text}: a remote folder's name can't have {' '.join(strange)} in it")
    _check_installed(text)
    return RemotePath(place)


def _check_installed(text: str) -> None:
    try:
        _store_class()
    except ImportError as error:
        raise PathError(f"{text}: {SCHEME} needs the package gcsfs ({error}): {INSTALL}") from error


def _store_class() -> Any:
    import fsspec

    return fsspec.get_filesystem_class("gcs")


@functools.cache
def _store() -> Any:
    """Returns fsspec's file system for the store."""
    import fsspec

    # Checkpoints are listed through epath but written by TensorStore, so a list that epath keeps
    # would soon be wrong. epath must not choose TensorFlow, which is slow to import and signs in
    # in another way.
    os.environ.setdefault("EPATH_USE_TF", "false")
    # It logs what it raises, with a traceback.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    settings = fsspec.config.conf.setdefault("gcs", {})
    settings |= {"use_listings_cache": False, "requests_timeout": _TIMEOUT_SECONDS, **settings}
    return fsspec.filesystem("gcs")


@contextlib.contextmanager
def _told(path: RemotePath) -> Iterator[None]:
    """Turns what the libraries below raise into an OSError with one line."""
    try:
        yield
    except RemoteError:
        raise
    except FileNotFoundError as error:  # its own text is the address of a request
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error
    except Exception as error:  # of gcsfs, aiohttp, google.auth and requests
        raise remote_error(path, error) from error


def remote_error(path: RemotePath, error: Exception) -> RemoteError:
    """Returns an error of the libraries below as one line about a path."""
    return RemoteError(errno.EIO, _reason(error), str(path))


def _reason(error: BaseException) -> str:
    kinds = " ".join(kind.__name__ for kind in type(error).__mro__)
    line = " ".join(str(error).split())[:_LONGEST_REASON]
    code = getattr(error, "code", None)
    if "CredentialsError" in kinds or "RefreshError" in kinds:
        return f"no valid credentials ({line}): gcloud auth application-default login"
    if code in (401, 403) or re.search(
        r"Forbidden|PERMISSION_DENIED|UNAUTHENTICATED|\b40[13]\b", line
    ):
        return f"permission denied ({line})"
    if re.search("Connect|gaierror|Timeout", kinds) or re.search("UNAVAILABLE|DEADLINE|CURL", line):
        return f"no connection ({line or kinds.split()[0]})"
    return f"{kinds.split()[0]}: {line}"
