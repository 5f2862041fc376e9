"""Data sets by name: TFDS, image folders, and the official files of MNIST and CIFAR-10."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from aninfonce_jax.cli import printable
from aninfonce_jax.data import raw_files
from aninfonce_jax.data.causal3dident import Causal3DIdent
from aninfonce_jax.data.headers import MAX_FILE_BYTES
from aninfonce_jax.data.source import DataError, Example, ImageSource, check_folder, read_file
from aninfonce_jax.data.tfds_source import TfdsSource, open_builder
from aninfonce_jax.remote import has_scheme

# What is taken for an image. Formats that are not read are among them, so that such a file is
# complained of and not passed over; its content decides, whatever its name.
IMAGE_SUFFIXES = (
    *(".jpeg", ".jpg", ".jpe", ".jfif", ".png", ".apng", ".webp", ".bmp", ".dib"),
    *(".gif", ".tif", ".tiff", ".heic", ".heif", ".avif", ".jp2", ".jxl", ".ppm", ".pgm"),
    *(".eps", ".svg", ".psd", ".exr", ".tga", ".ico"),
)
_READ_SUFFIXES = ".jpeg, .jpg, .png, .webp or .bmp"
# What TFDS calls a split -> folders that hold it, by custom.
_SPLIT_FOLDERS = {"validation": ("validation", "val", "valid")}
_LAYOUT = "<split>/<class>/*.JPEG in it"
_TFDS_PREFIX = "tfds:"

_OPENERS: dict[str, Callable[[Path, str], ImageSource]] = {
    "mnist": raw_files.Mnist,
    "cifar10": raw_files.Cifar10,
    "causal3dident": Causal3DIdent,
    "folder": lambda folder, split: ImageFolder(folder, split),
}


def open_dataset(name: str, folder: str | os.PathLike[str], split: str) -> ImageSource:
    """Opens one split of a data set.

    Args:
      name: "mnist", "cifar10" or "causal3dident" for the official files; "folder" for
        <split>/<class>/*.JPEG; "tfds:NAME" or "tfds:NAME:VERSION" for a data set in TFDS's
        format, stored as ArrayRecord, which `python -m aninfonce_jax.prepare` writes.
      folder: where it is; for TFDS, its data_dir.
      split: "train", "test" or "validation"; TFDS also takes "train[:90%]".

    Raises:
      DataError: there is no such data set, or its files are not what they should be.
    """
    check_name(name)
    path = local_folder(folder)
    if name.startswith(_TFDS_PREFIX):
        return TfdsSource(name.removeprefix(_TFDS_PREFIX), path, split)
    return _OPENERS[name](path, split)


def check_name(name: str) -> None:
    """Raises DataError if no data set is opened by this name, wherever it may be."""
    is_of_tfds = name.startswith(_TFDS_PREFIX) and name != _TFDS_PREFIX
    if name not in _OPENERS and not is_of_tfds:
        raise DataError(f"unknown data set {name!r}; choose {', '.join(_OPENERS)} or tfds:NAME")


def local_folder(folder: str | os.PathLike[str]) -> Path:
    """Returns the path of a data set's folder.

    Raises:
      DataError: it is remote. Every example is read at random, for which a store is too slow,
        and ArrayRecord does not read from one.
    """
    if has_scheme(os.fspath(folder)):
        raise DataError(
            f"{os.fspath(folder)}: data sets are read from folders of this machine; copy it to "
            "a disk here, or mount it, and name that folder"
        )
    return Path(folder).expanduser()


def list_splits(name: str, folder: str | os.PathLike[str]) -> tuple[str, ...]:
    """Returns the splits of a data set, named as in `open_dataset`."""
    check_name(name)
    path = local_folder(folder)
    if name.startswith(_TFDS_PREFIX):
        return tuple(open_builder(name.removeprefix(_TFDS_PREFIX), path).info.splits)
    if name == "folder":
        return _folder_splits(path)
    return raw_files.SPLITS


# --- Image folders ---


class ImageFolder:
    r"""A split of a folder laid out like ImageNet's: <split>/<class>/<image>.

    Labels follow the sorted names of the class folders of `train`, so that they mean the same
    in every split; a folder without `train` uses the split's own. Files that do not end like
    an image are passed over, which `remark` says, and those whose name starts with a dot. What a
    terminal or a text file can't hold of a name is written out in `class_names` and ids, such as
    \x1b or \xe9.

    Args:
      folder: what holds the splits.
      split: "train", "validation" (also found as val or valid), or another folder's name.

    Raises:
      DataError: the split is missing, has no classes, or one of them is empty or unknown.
    """

    def __init__(self, folder: Path, split: str) -> None:
        self._root = _split_folder(Path(folder), split)
        self.name = f"{Path(folder).name}/{split}"
        # As the file system has them; bytes that are no UTF-8 come as half characters.
        self._folders = _class_folders(Path(folder), self._root)
        self.class_names = tuple(printable(name) for name in self._folders)
        labels = {name: label for label, name in enumerate(self._folders)}
        files: list[bytes] = []
        others: list[str] = []
        counts = np.zeros(len(self.class_names), np.int64)
        # A split need not have all classes. But a class without images is what an unfinished
        # unpacking leaves behind.
        for name in _subfolders(self._root):
            if name not in labels:
                raise DataError(
                    f"{self._root / name} is a class that the training split lacks; "
                    f"expected one of its {len(labels)} classes: remove the folder or add it there"
                )
            images, not_images = _image_names(self._root / name)
            files += images
            others += [f"{name}/{other}" for other in not_images]
            counts[labels[name]] = len(images)
        self.remark = _passed_over(self._root, others)
        # Millions of str would take gigabytes in all the workers together.
        self._names = b"".join(files)
        self._ends = np.cumsum([len(name) for name in files], dtype=np.int64)
        self._first = np.concatenate([[0], np.cumsum(counts)])

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> Example:
        path, label = self._locate(index)
        # A file name is bytes, which need not be valid UTF-8; an id is text.
        name = printable(path.relative_to(self._root.parent).as_posix())
        return Example(read_file(path, MAX_FILE_BYTES), label, name)

    def _locate(self, index: int) -> tuple[Path, int]:
        start = self._ends[index - 1] if index else 0
        name = os.fsdecode(self._names[start : self._ends[index]])
        label = int(np.searchsorted(self._first, index, side="right")) - 1
        return self._root / self._folders[label] / name, label


def _split_folder(folder: Path, split: str) -> Path:
    check_folder(folder, _LAYOUT)
    for name in _SPLIT_FOLDERS.get(split, (split,)):
        if (folder / name).is_dir():
            return folder / name
    have = ", ".join(_folder_splits(folder)) or "none"
    raise DataError(
        f"{folder} has no split {split!r}; expected {folder.name}/{split}/<class>/*.JPEG, "
        f"found the splits {have}"
    )


def _folder_splits(folder: Path) -> tuple[str, ...]:
    """Returns the names of the folders that hold folders, as TFDS would call them."""
    check_folder(folder, _LAYOUT)
    official = {alias: split for split, names in _SPLIT_FOLDERS.items() for alias in names}
    return tuple(
        official.get(name, name) for name in _subfolders(folder) if _subfolders(folder / name)
    )


def _class_folders(folder: Path, root: Path) -> tuple[str, ...]:
    train = folder / "train"
    names = _subfolders(train if train.is_dir() else root)
    if not names or not _subfolders(root):
        raise DataError(
            f"{root} has no class folders; expected {root.name}/<class>/*.JPEG: "
            "sort the images into one folder per class"
        )
    (name, count), *_ = Counter(map(printable, names)).most_common(1)
    if count > 1:
        raise DataError(f"{root} has {count} classes that read {name}; rename all but one")
    return names


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yields what a folder holds, one by one: it may be millions; hidden files are passed over."""
    try:
        with os.scandir(folder) as entries:
            yield from (entry for entry in entries if not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder} can't be listed: {error}; check the folder") from error


def _subfolders(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in _entries(folder) if _is_folder(entry)))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:  # links in a circle
        raise DataError(f"{entry.path} can't be followed: {error}; remove it") from error


def _image_names(folder: Path) -> tuple[list[bytes], list[str]]:
    """Returns the names of a class's images, sorted, and those of its other files."""
    names, others = [], []
    for entry in _entries(folder):
        if entry.name.lower().endswith(IMAGE_SUFFIXES):
            names.append(os.fsencode(entry.name))
        else:
            others.append(entry.name)
    if not names:
        raise DataError(
            f"class folder {folder} holds no image; expected files ending in "
            f"{_READ_SUFFIXES}: fill the folder or remove it"
        )
    return sorted(names), others


def _passed_over(root: Path, others: list[str]) -> str:
    """Returns a line that says what of a split was not taken for an image; empty if all was."""
    if not others:
        return ""
    first, count = printable(min(others)), len(others)
    which = f"{first} is" if count == 1 else f"{count:,} files, such as {first}, are"
    return (
        f"{printable(f'{root}')}: {which} passed over, because images end in {_READ_SUFFIXES}; "
        "rename what is one"
    )
