"""What every data set is to the rest of the package: labelled images by number."""

import hashlib
import json
import os
import stat
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

# The label of an example that has none.
NO_LABEL = -1
# Examples that a fingerprint looks at.
_SAMPLES = 16


class DataError(ValueError):
    """Files are missing, damaged or not what they should be; one line says what to do."""


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_folder(folder: Path, expected: str) -> None:
    """Raises DataError, which says what was expected, unless there is such a folder."""
    try:
        if stat.S_ISDIR(folder.stat().st_mode):
            return
        problem = "is a file, not a folder"
    except (FileNotFoundError, NotADirectoryError):
        problem = "does not exist"
    except (OSError, ValueError) as error:  # no permission, links in a circle, a name too long
        problem = f"can't be opened: {error}"
    raise DataError(f"{folder} {problem}; expected {expected}")


def read_file(path: Path, max_bytes: int) -> bytes:
    """Returns the content of a regular file.

    A pipe would keep its reader waiting for ever and a device has no end: neither is opened.

    Args:
      path: the file, or a link to it.
      max_bytes: how large it may be.

    Raises:
      OSError: it can't be opened, is no regular file, or is larger.
    """
    # Looked at before it is opened, as opening alone makes some devices act.
    _check_regular(path, os.stat(path))
    # Something else may have taken its place since: without O_NONBLOCK a pipe would block here.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        _check_regular(path, status)
        content = file.read(max_bytes + 1) if status.st_size <= max_bytes else None
    if content is None or len(content) > max_bytes:
        raise OSError(f"{path} may have {max_bytes:,} bytes, got {status.st_size:,}")
    return content


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise OSError(f"{path} must be a file, got {kind}")


class Example(NamedTuple):
    """One example of a data set.

    Attributes:
      image: pixels uint8 [height, width, 1 or 3], or the bytes of an image file.
      label: the class, an index into the source's `class_names`, or NO_LABEL.
      id: what the example is called, the same however it is stored.
    """

    image: np.ndarray | bytes
    label: int
    id: str


class ImageSource(Protocol):
    """Random access to one split of a data set; small to pickle, so that workers can have it."""

    @property
    def name(self) -> str:
        """What messages call the source."""
        ...

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes, in the order of their labels."""
        ...

    def __len__(self) -> int:
        """Returns the number of examples."""
        ...

    def __getitem__(self, index: int) -> Example:
        """Returns an example; 0 <= index < len(self)."""
        ...


def remark_of(source: ImageSource) -> str:
    """Returns what should be said of a source that is sound but may not be what it seems."""
    return getattr(source, "remark", "")


def factors_of(source: ImageSource) -> np.ndarray | None:
    """Returns what is known of how each image was made, [examples, factors]; None: nothing."""
    found: np.ndarray | None = getattr(source, "factors", None)
    return found


def groups_of(source: ImageSource) -> np.ndarray:
    """Returns which examples may be views of each other, int [examples]: those of a class.

    Where a source can't tell the classes without reading its images, all examples may.
    """
    found: np.ndarray | None = getattr(source, "labels", None)
    return np.zeros(len(source), np.int64) if found is None else found


def fingerprint_of(source: ImageSource) -> str:
    """Returns what tells a source from others: its size, and a digest of classes and examples.

    Reading all of them would take too long, on every host: some, over the whole, will show
    another order, another version, or a copy that is not complete.
    """
    digest = hashlib.sha256(json.dumps([len(source), source.class_names]).encode())
    for index in np.linspace(0, len(source) - 1, _SAMPLES).astype(np.int64).tolist():
        try:
            example = source[index]
        except OSError:  # one that can't be read is passed over in training, too
            digest.update(b"unreadable")
            continue
        digest.update(f"{example.id} {example.label} ".encode())
        digest.update(np.asarray(example.image).tobytes())
    return f"{len(source):,} examples with digest {digest.hexdigest()[:12]}"


class NoExamples:
    """A data set that is not opened: to compile a step, the shape of its images is enough."""

    name = "no examples"
    class_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return 0

    def __getitem__(self, index: int) -> Example:
        raise IndexError(index)


class Subset:
    """Some examples of a source, in an order of one's own.

    Args:
      source: where they are.
      indices: which, [n].
    """

    def __init__(self, source: ImageSource, indices: np.ndarray) -> None:
        self.name = f"{source.name} ({len(indices):,} examples)"
        self.class_names = source.class_names
        self._source = source
        self._indices = np.asarray(indices, np.int64)
        factors = factors_of(source)
        self.factors = None if factors is None else factors[self._indices]

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Example:
        return self._source[int(self._indices[index])]
