"""The official files of MNIST (idx, gzipped or not) and CIFAR-10 (binary version)."""

import functools
import gzip
import hashlib
import io
import itertools
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aninfonce_jax.cli import printable
from aninfonce_jax.data.source import DataError, Example, check_folder, read_file

SPLITS = ("train", "test")

_MNIST_PREFIXES = {"train": "train", "test": "t10k"}
_MNIST_CLASSES = tuple(str(digit) for digit in range(10))
# An idx file starts with two zero bytes, the type of its values and its number of axes.
_IDX_UINT8 = 0x08
# All of it is held in memory. EMNIST, the largest of its kind, takes half of this.
MAX_IDX_BYTES = 2**30
# Deflate makes at most this many bytes of one.
_MAX_DEFLATE_RATIO = 1032
_CHUNK = 2**20
_GZIP_START = b"\x1f\x8b"
# Digests of what is in the files once unpacked, which gzip's settings do not change.
_MNIST_DIGESTS = {
    "train-images": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels": "a25bea736e30d166cdddb491f175f624",
    "t10k-images": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels": "27ae3e4e09519cfbb04c329615203637",
}

_CIFAR10_FILES = {
    "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    "test": ("test_batch.bin",),
}
_CIFAR10_FOLDER = "cifar-10-batches-bin"
_CIFAR10_ARCHIVE_DIGEST = "c32a1d4ab5d03f1284b67883e8d87530"  # of cifar-10-binary.tar.gz
_CIFAR10_DIGESTS = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
_MAX_NAMES_BYTES = 2**16
_CIFAR10_SHAPE = (3, 32, 32)
_CIFAR10_RECORD = 1 + math.prod(_CIFAR10_SHAPE)
_CIFAR10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


class Mnist:
    """A split of MNIST, or of a data set in its format, from its official files.

    Attributes:
      remark: a line that says which files are not the official ones; empty if all are.

    Args:
      folder: where the files are.
      split: "train" or "test".

    Raises:
      DataError: files are missing, damaged, or do not belong together.
    """

    class_names = _MNIST_CLASSES

    def __init__(self, folder: Path, split: str) -> None:
        self.name = f"mnist/{check_split(split, SPLITS, folder)}"
        self._split = split
        prefix = _MNIST_PREFIXES[split]
        self._images_path = _idx_path(Path(folder), f"{prefix}-images", 3)
        self._labels_path = _idx_path(Path(folder), f"{prefix}-labels", 1)
        images, labels = self._arrays
        if len(images) != len(labels):
            raise DataError(
                f"{self._labels_path} must hold a label for each of the {len(images):,} images of "
                f"{self._images_path.name}, got {len(labels):,}; fetch both files again"
            )
        _check_labels(self._labels_path, labels)
        official = {
            self._images_path: _MNIST_DIGESTS[f"{prefix}-images"],
            self._labels_path: _MNIST_DIGESTS[f"{prefix}-labels"],
        }
        # What is in front of the values is known: it has been checked.
        found = {
            path: _digest(_idx_header(array.shape), array)
            for path, array in zip(official, self._arrays, strict=True)
        }
        self.remark = _compare_digests("MNIST", found, official)

    @functools.cached_property
    def _arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return _read_idx(self._images_path, axes=3), _read_idx(self._labels_path, axes=1)

    def __getstate__(self) -> dict[str, Any]:
        # Workers read the files themselves: that is faster than sending the pixels.
        return {name: value for name, value in self.__dict__.items() if name != "_arrays"}

    def __len__(self) -> int:
        return len(self._arrays[1])

    def __getitem__(self, index: int) -> Example:
        images, labels = self._arrays
        return Example(images[index, :, :, None], int(labels[index]), f"{self._split}_{index:05}")


class Cifar10:
    """A split of CIFAR-10 from the files of its binary version.

    Attributes:
      class_names: from batches.meta.txt where it is present.
      remark: a line that says which files are not the official ones; empty if all are.

    Args:
      folder: where the files are, or where their folder cifar-10-batches-bin is.
      split: "train" or "test".

    Raises:
      DataError: files are missing or damaged.
    """

    def __init__(self, folder: Path, split: str) -> None:
        self.name = f"cifar10/{check_split(split, SPLITS, folder)}"
        self._split = split
        self._folder = _cifar10_folder(Path(folder))
        self._paths = [self._folder / name for name in _CIFAR10_FILES[split]]
        self._starts = [0, *itertools.accumulate(_cifar10_length(path) for path in self._paths)]
        for path, records in zip(self._paths, self._records, strict=True):
            _check_labels(path, records[:, 0])
        self.class_names = _cifar10_class_names(self._folder / "batches.meta.txt")
        found = {
            path: _digest(records) for path, records in zip(self._paths, self._records, strict=True)
        }
        official = {path: _CIFAR10_DIGESTS[path.name] for path in self._paths}
        self.remark = _compare_digests("CIFAR-10", found, official)

    @functools.cached_property
    def _records(self) -> list[np.ndarray]:
        return [
            np.memmap(path, np.uint8, mode="r").reshape(-1, _CIFAR10_RECORD) for path in self._paths
        ]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_records"}

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: int) -> Example:
        file = int(np.searchsorted(self._starts, index, side="right")) - 1
        record = self._records[file][index - self._starts[file]]
        image = np.asarray(record[1:]).reshape(_CIFAR10_SHAPE).transpose(1, 2, 0)
        return Example(image, int(record[0]), f"{self._split}_{index:05}")


def check_split(split: str, known: Sequence[str], folder: Path) -> str:
    """Returns `split` if it is known, or raises DataError."""
    if split not in known:
        raise DataError(f"{folder} has no split {split!r}; choose one of {', '.join(known)}")
    return split


def _check_labels(path: Path, labels: np.ndarray) -> None:
    if labels.size and labels.max() > 9:
        raise DataError(
            f"{path} must hold labels from 0 to 9, got {labels.max()}; fetch the file again"
        )


def _idx_path(folder: Path, stem: str, axes: int) -> Path:
    """Returns the file of that stem under one of the names in use."""
    check_folder(folder, "the four idx files of MNIST")
    names = [
        f"{stem}{dash}idx{axes}-ubyte{packed}" for dash in ("-", ".") for packed in (".gz", "")
    ]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder} has no {names[0]}; expected the four idx files of MNIST")


def _read_idx(path: Path, axes: int) -> np.ndarray:
    """Reads no more than the header promises, and that only if it can be true."""
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == _GZIP_START
            file.seek(0)
            if packed:
                with gzip.open(file) as content:
                    return _read_idx_content(path, content, axes, _MAX_DEFLATE_RATIO)
            return _read_idx_content(path, file, axes, 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} can't be read: {error}; fetch the file again") from error


def _read_idx_content(
    path: Path, content: io.BufferedIOBase, axes: int, most_per_byte: int
) -> np.ndarray:
    header = content.read(4 + 4 * axes)
    start = bytes([0, 0, _IDX_UINT8, axes])
    if header[:4] != start or len(header) < 4 + 4 * axes:
        raise DataError(
            f"{path} must be an idx file of bytes with {axes} axes, starting with {start.hex()}, "
            f"got {header[:4].hex() or 'an empty file'}; fetch the file again"
        )
    shape = struct.unpack(f">{axes}I", header[4:])
    promised = math.prod(shape)
    if promised > MAX_IDX_BYTES:
        raise DataError(
            f"{path} may hold {MAX_IDX_BYTES:,} bytes, as all of it is kept in memory, got shape "
            f"{shape}: {promised:,}; prepare so many images as a folder"
        )
    expected = len(header) + promised
    if expected > most_per_byte * path.stat().st_size:
        raise DataError(
            f"{path} must hold {expected:,} bytes for shape {shape}, which its "
            f"{path.stat().st_size:,} bytes can't be; fetch the file again"
        )
    values = np.empty(promised, np.uint8)
    got = 0
    while got < promised and (count := content.readinto(values[got : got + _CHUNK].data)):
        got += count
    # One byte more, and the end of what is packed, where gzip has its checksum.
    more = content.read(1)
    if got < promised or more:
        raise DataError(
            f"{path} must hold {expected:,} bytes for shape {shape}, got "
            f"{'more' if more else f'{len(header) + got:,}'}; fetch the file again"
        )
    return values.reshape(shape)


def _idx_header(shape: tuple[int, ...]) -> bytes:
    return struct.pack(f">4B{len(shape)}I", 0, 0, _IDX_UINT8, len(shape), *shape)


def _digest(*parts: bytes | np.ndarray) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.data)
    return digest.hexdigest()


def _compare_digests(dataset: str, found: Mapping[Path, str], official: Mapping[Path, str]) -> str:
    """Returns what is to be said of files that are whole but not the official ones."""
    others = [path for path in found if found[path] != official[path]]
    if not others:
        return ""
    first = others[0]
    more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
    return (
        f"{first}{more} is not the official file of {dataset}: the md5 of its content is "
        f"{found[first]}, expected {official[first]}; fetch it again, unless the data is your own"
    )


def _cifar10_class_names(path: Path) -> tuple[str, ...]:
    if not path.exists():
        return _CIFAR10_CLASSES
    try:
        names = tuple(map(printable, read_file(path, _MAX_NAMES_BYTES).decode().split()))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} can't be read: {error}; fetch the file again, or remove it"
        ) from error
    if len(names) != len(_CIFAR10_CLASSES) or len(set(names)) != len(names):
        raise DataError(
            f"{path} must name {len(_CIFAR10_CLASSES)} classes, got {len(set(names))}; "
            "fetch the file again, or remove it"
        )
    return names


def _cifar10_folder(folder: Path) -> Path:
    inner = folder / _CIFAR10_FOLDER
    found = inner if inner.is_dir() else folder
    check_folder(found, f"{_CIFAR10_FOLDER}, or what holds it")
    packed = next((p for p in sorted(found.glob("cifar-10-binary.tar*")) if p.is_file()), None)
    if packed is not None and not (found / _CIFAR10_FILES["train"][0]).exists():
        raise DataError(f"{packed} must be unpacked: tar xf {packed} -C {found}{_doubt(packed)}")
    return found


def _doubt(archive: Path) -> str:
    if archive.name != "cifar-10-binary.tar.gz":
        return ""
    with open(archive, "rb") as file:
        digest = hashlib.file_digest(file, functools.partial(hashlib.md5, usedforsecurity=False))
    if digest.hexdigest() == _CIFAR10_ARCHIVE_DIGEST:
        return ""
    return (
        f" (its md5 is {digest.hexdigest()}, the official one's {_CIFAR10_ARCHIVE_DIGEST}: "
        "if that fails, fetch it again)"
    )


def _cifar10_length(path: Path) -> int:
    if not path.is_file():
        raise DataError(
            f"{path.parent} has no {path.name}; expected the binary version of CIFAR-10: "
            "data_batch_1.bin to data_batch_5.bin and test_batch.bin"
        )
    size = path.stat().st_size
    if size == 0 or size % _CIFAR10_RECORD:
        raise DataError(
            f"{path} must hold whole records of {_CIFAR10_RECORD:,} bytes, got {size:,} bytes; "
            "fetch the file again"
        )
    return size // _CIFAR10_RECORD
