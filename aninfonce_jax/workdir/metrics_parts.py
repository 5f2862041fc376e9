"""How rows of metrics get into files: appended where that is possible, else in parts.

An object store can't append. There, rows that came since the last write become a part of their
own, `metrics-00000128.jsonl`, which begins with row 128; it swallows the parts before it that are
not longer than it has become. So there are never more parts than the logarithm of the rows, and a
row is written that often at most.

`metrics.jsonl` is always the first part, and once a run has ended the only one. A process that
dies between a write and the removal of what it has swallowed leaves rows in two parts: of each row
the one in the earlier part counts.
"""

import time
from collections.abc import Sequence
from typing import Protocol, TextIO

from aninfonce_jax.files import FileError, read_bytes, write_bytes
from aninfonce_jax.remote import AnyPath, RemotePath
from aninfonce_jax.workdir.holding import check_held
from aninfonce_jax.workdir.names import METRICS_FILE, METRICS_PART, METRICS_PARTS

# Far above what a run writes; what is larger is something else.
_METRICS_BYTES = 2**30
# Between two writes to a store, unless a checkpoint or an evaluation is about to rely on them.
_PART_SECONDS = 30.0


class RowFile(Protocol):
    """Where lines of metrics go."""

    def append(self, line: str) -> None:
        """Takes a line, which ends with a newline."""
        ...

    def flush(self) -> None:
        """Writes what is still held back."""
        ...

    def close(self) -> None:
        """Flushes; takes no more lines."""
        ...


def open_rows(folder: AnyPath, lines: Sequence[str]) -> RowFile:
    """Returns where the rows of a run go on, after `write_whole` or a run that is new.

    Args:
      folder: of the run.
      lines: those that `metrics.jsonl` has.
    """
    if isinstance(folder, RemotePath):
        return _Parts(folder, lines)
    return _Appended(folder / METRICS_FILE)


class GapError(FileError):
    """A part is missing.

    Attributes:
      before: the lines before the gap.
    """

    def __init__(self, message: str, before: bytes) -> None:
        super().__init__(message)
        self.before = before


def read_lines(path: AnyPath) -> bytes:
    """Returns the lines of a `metrics.jsonl` and of the parts that follow it, as those of one file.

    Raises:
      GapError: if a part is missing.
      FileError: if one can't be a part.
      OSError: if the file is missing, or one can't be read.
    """
    content = read_bytes(path, _METRICS_BYTES)
    for first, part in _list_parts(path.parent):
        count = content.count(b"\n")
        if first > count:
            raise GapError(
                f"{path.parent} has {count} whole rows of metrics before {part.name}, which goes "
                f"on from row {first}",
                content,
            )
        lines = read_bytes(part, _METRICS_BYTES).split(b"\n")
        if (more := b"\n".join(lines[count - first :])) != b"":
            content = content[: content.rfind(b"\n") + 1] + more
    return content


def write_whole(path: AnyPath, content: bytes) -> None:
    """Writes all lines into `metrics.jsonl`, and removes the parts that followed it."""
    write_bytes(path, content)
    remove_parts(path.parent)


def remove_parts(folder: AnyPath) -> None:
    """Removes all parts but `metrics.jsonl`, the last one first, so that no gap is ever seen."""
    for _, part in reversed(_list_parts(folder)):
        part.unlink()


def has_parts(folder: AnyPath) -> bool:
    """Returns whether there is more than `metrics.jsonl`."""
    return bool(_list_parts(folder))


def _list_parts(folder: AnyPath) -> list[tuple[int, AnyPath]]:
    """Returns the parts that follow `metrics.jsonl`, each with the number of its first row."""
    found: list[tuple[int, AnyPath]] = []
    for path in folder.iterdir():
        if match := METRICS_PARTS.fullmatch(path.name):
            found.append((int(match[1]), path))
    return sorted(found, key=lambda part: part[0])


class _Appended:
    """One file, which grows line by line."""

    def __init__(self, path: AnyPath) -> None:
        assert not isinstance(path, RemotePath)
        # Line-buffered: every row is in the file before the next one begins.
        self._file: TextIO = path.open("a", buffering=1, encoding="utf-8")

    def append(self, line: str) -> None:
        """Writes the line."""
        self._file.write(line)

    def flush(self) -> None:
        """Does nothing: every line is written at once."""

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class _Parts:
    """Objects that are written whole; see the module's docstring."""

    def __init__(self, folder: RemotePath, lines: Sequence[str]) -> None:
        self._folder = folder
        self._lines = list(lines)
        # First row and length of every part.
        self._parts = [(0, len(lines))] if lines else []
        self._last_write = time.monotonic()
        if not lines:
            write_bytes(folder / METRICS_FILE, b"")

    def append(self, line: str) -> None:
        """Takes a line, and writes those of the last while."""
        self._lines.append(line)
        if time.monotonic() - self._last_write >= _PART_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Writes the lines that came since the last time."""
        check_held(self._folder)
        self._last_write = time.monotonic()
        first = sum(length for _, length in self._parts)
        length = len(self._lines) - first
        if length == 0:
            return
        parts, swallowed = list(self._parts), []
        while parts and parts[-1][1] <= length:
            first, more = parts.pop()
            length += more
            swallowed.append(first)
        content = "".join(self._lines[first : first + length])
        write_bytes(self._part(first), content.encode())
        for number in swallowed:
            if number != first:
                self._part(number).unlink()
        self._parts = [*parts, (first, length)]

    def close(self) -> None:
        """Writes what is still held back, and all parts as one: for whoever reads the file."""
        self.flush()
        if len(self._parts) > 1:
            write_whole(self._folder / METRICS_FILE, "".join(self._lines).encode())
            self._parts = [(0, len(self._lines))]

    def _part(self, first: int) -> RemotePath:
        return self._folder / (METRICS_PART.format(first) if first else METRICS_FILE)
