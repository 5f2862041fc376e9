"""The official files of MNIST (idx, gzipped or not) and CIFAR-10 (binary version)."""

import functools
import gzip
import itertools
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aninfonce_jax.data.source import DataError, Example, check_folder

SPLITS = ("train", "test")

_MNIST_PREFIXES = {"train": "train", "test": "t10k"}
_MNIST_CLASSES = tuple(str(digit) for digit in range(10))
# An idx file starts with two zero bytes, the type of its values and its number of axes.
_IDX_UINT8 = 0x08

_CIFAR10_FILES = {
    "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
    "test": ("test_batch.bin",),
}
_CIFAR10_FOLDER = "cifar-10-batches-bin"
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

    @functools.cached_property
    def class_names(self) -> tuple[str, ...]:
        """The classes, from batches.meta.txt where it is present."""
        path = self._folder / "batches.meta.txt"
        if not path.exists():
            return _CIFAR10_CLASSES
        names = tuple(path.read_text(encoding="utf-8").split())
        if len(names) != len(_CIFAR10_CLASSES):
            raise DataError(
                f"{path} must name {len(_CIFAR10_CLASSES)} classes, got {len(names)}; "
                "fetch the file again, or remove it"
            )
        return names

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
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} can't be read: {error}; fetch the file again") from error
    header = 4 + 4 * axes
    magic = bytes([0, 0, _IDX_UINT8, axes])
    if content[:4] != magic or len(content) < header:
        raise DataError(
            f"{path} must be an idx file of bytes with {axes} axes, starting with {magic.hex()}, "
            f"got {content[:4].hex() or 'an empty file'}; fetch the file again"
        )
    shape = struct.unpack(f">{axes}I", content[4:header])
    expected = header + math.prod(shape)
    if len(content) != expected:
        raise DataError(
            f"{path} must hold {expected:,} bytes for shape {shape}, got {len(content):,}; "
            "fetch the file again"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def _cifar10_folder(folder: Path) -> Path:
    inner = folder / _CIFAR10_FOLDER
    found = inner if inner.is_dir() else folder
    check_folder(found, f"{_CIFAR10_FOLDER}, or what holds it")
    packed = next(iter(sorted(found.glob("cifar-10-binary.tar*"))), None)
    if packed is not None and not (found / _CIFAR10_FILES["train"][0]).exists():
        raise DataError(f"{packed} must be unpacked: tar xf {packed} -C {found}")
    return found


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
