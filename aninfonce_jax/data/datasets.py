"""Data sets by name: TFDS, image folders, and the official files of MNIST and CIFAR-10."""

import dataclasses
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from aninfonce_jax.data import raw_files
from aninfonce_jax.data.source import NO_LABEL, DataError, Example, ImageSource, check_folder

IMAGE_SUFFIXES = (".jpeg", ".jpg", ".png", ".webp", ".bmp")
# What TFDS calls a split -> folders that hold it, by custom.
_SPLIT_FOLDERS = {"validation": ("validation", "val", "valid")}
_LAYOUT = "<split>/<class>/*.JPEG in it"
_TFDS_PREFIX = "tfds:"
# Features that TFDS data sets use to say which example a record is.
_ID_FEATURES = ("id", "file_name", "filename", "image/filename")

_OPENERS: dict[str, Callable[[Path, str], ImageSource]] = {
    "mnist": raw_files.Mnist,
    "cifar10": raw_files.Cifar10,
    "folder": lambda folder, split: ImageFolder(folder, split),
}


def open_dataset(name: str, folder: str | os.PathLike[str], split: str) -> ImageSource:
    """Opens one split of a data set.

    Args:
      name: "mnist" or "cifar10" for the official files; "folder" for
        <split>/<class>/*.JPEG; "tfds:NAME" or "tfds:NAME:VERSION" for a data set in TFDS's
        format, stored as ArrayRecord, which `python -m aninfonce_jax.prepare` writes.
      folder: where it is; for TFDS, its data_dir.
      split: "train", "test" or "validation"; TFDS also takes "train[:90%]".

    Raises:
      DataError: there is no such data set, or its files are not what they should be.
    """
    path = Path(folder).expanduser()
    if name.startswith(_TFDS_PREFIX):
        return TfdsSource(name.removeprefix(_TFDS_PREFIX), path, split)
    if name not in _OPENERS:
        raise DataError(f"unknown data set {name!r}; choose {', '.join(_OPENERS)} or tfds:NAME")
    return _OPENERS[name](path, split)


def list_splits(name: str, folder: str | os.PathLike[str]) -> tuple[str, ...]:
    """Returns the splits of a data set, named as in `open_dataset`."""
    path = Path(folder).expanduser()
    if name.startswith(_TFDS_PREFIX):
        return tuple(_tfds_builder(name.removeprefix(_TFDS_PREFIX), path).info.splits)
    if name == "folder":
        return _folder_splits(path)
    if name not in _OPENERS:
        raise DataError(f"unknown data set {name!r}; choose {', '.join(_OPENERS)} or tfds:NAME")
    return raw_files.SPLITS


# --- Image folders ---


class ImageFolder:
    """A split of a folder laid out like ImageNet's: <split>/<class>/<image>.

    Labels follow the sorted names of the class folders of `train`, so that they mean the same
    in every split; a folder without `train` uses the split's own. Files that do not end like
    an image, and those whose name starts with a dot, are passed over.

    Args:
      folder: what holds the splits.
      split: "train", "validation" (also found as val or valid), or another folder's name.

    Raises:
      DataError: the split is missing, has no classes, or one of them is empty or unknown.
    """

    def __init__(self, folder: Path, split: str) -> None:
        self._root = _split_folder(Path(folder), split)
        self.name = f"{Path(folder).name}/{split}"
        self.class_names = _class_names(Path(folder), self._root)
        labels = {name: label for label, name in enumerate(self.class_names)}
        files: list[bytes] = []
        counts = np.zeros(len(self.class_names), np.int64)
        # Missing classes are none of this split's business, but a class without images is
        # what an unfinished unpacking leaves behind.
        for name in _subfolders(self._root):
            if name not in labels:
                raise DataError(
                    f"{self._root / name} is a class that the training split lacks; "
                    f"expected one of its {len(labels)} classes: remove the folder or add it there"
                )
            images = _image_names(self._root / name)
            files += images
            counts[labels[name]] = len(images)
        # Millions of str would take gigabytes in all the workers together.
        self._names = b"".join(files)
        self._ends = np.cumsum([len(name) for name in files], dtype=np.int64)
        self._first = np.concatenate([[0], np.cumsum(counts)])

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> Example:
        path, label = self._locate(index)
        # A file name is bytes, which need not be valid UTF-8; an id is text.
        name = os.fsencode(path.relative_to(self._root.parent).as_posix())
        return Example(path.read_bytes(), label, name.decode(errors="backslashreplace"))

    def _locate(self, index: int) -> tuple[Path, int]:
        start = self._ends[index - 1] if index else 0
        name = os.fsdecode(self._names[start : self._ends[index]])
        label = int(np.searchsorted(self._first, index, side="right")) - 1
        return self._root / self.class_names[label] / name, label


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


def _class_names(folder: Path, root: Path) -> tuple[str, ...]:
    train = folder / "train"
    names = _subfolders(train if train.is_dir() else root)
    if not names or not _subfolders(root):
        raise DataError(
            f"{root} has no class folders; expected {root.name}/<class>/*.JPEG: "
            "sort the images into one folder per class"
        )
    return names


def _subfolders(folder: Path) -> tuple[str, ...]:
    with os.scandir(folder) as entries:
        return tuple(sorted(e.name for e in entries if e.is_dir() and not e.name.startswith(".")))


def _image_names(folder: Path) -> list[bytes]:
    """Returns the file names of a class, sorted."""
    with os.scandir(folder) as entries:
        names = [
            os.fsencode(entry.name)
            for entry in entries
            if entry.name.lower().endswith(IMAGE_SUFFIXES) and not entry.name.startswith(".")
        ]
    if not names:
        raise DataError(
            f"class folder {folder} holds no image; expected files ending in "
            f"{', '.join(IMAGE_SUFFIXES)}: fill the folder or remove it"
        )
    return sorted(names)


# --- TFDS ---


class TfdsSource:
    """A split of a data set in TFDS's format, stored as ArrayRecord.

    Images stay encoded. TFDS's own parser takes ten times as long as reading the record; the
    three features that are wanted are taken from the message directly.

    Args:
      name: NAME, NAME/CONFIG or NAME:VERSION, as TFDS takes it.
      folder: TFDS's data_dir.
      split: a split, or a part such as "train[:90%]".

    Raises:
      DataError: it is not there, not stored as ArrayRecord, or has no image.
    """

    def __init__(self, name: str, folder: Path, split: str) -> None:
        self._open = (name, folder, split)
        self.name = f"{name}/{split}"
        builder = _tfds_builder(name, folder)
        self._keys = _find_features(builder.info)
        label = self._keys.label
        self.class_names = tuple(builder.info.features[label].names) if label else ()
        try:
            files = [part.filename for part in builder.info.splits[split].file_instructions]
        except (ValueError, KeyError) as error:
            known = ", ".join(builder.info.splits)
            raise DataError(
                f"{builder.data_dir} has no split {split!r}; choose one of {known}"
            ) from error
        missing = [file for file in files if not Path(file).is_file()]
        if missing:
            raise DataError(
                f"{len(missing)} of the {len(files)} files of {self.name} are missing, the first "
                f"is {missing[0]}; prepare it again"
            )
        self._length = len(self._records)

    @functools.cached_property
    def _records(self) -> Any:
        import tensorflow_datasets as tfds  # type: ignore[import-untyped]

        name, folder, split = self._open
        raw = tfds.decode.DeserializeMethod.RAW_BYTES
        return _tfds_builder(name, folder).as_data_source(split, deserialize_method=raw)

    def __getstate__(self) -> dict[str, Any]:
        # Open files stay behind; a worker opens its own.
        return {name: value for name, value in self.__dict__.items() if name != "_records"}

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Example:
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
        from tensorflow_datasets.proto import tf_example_pb2  # type: ignore[import-untyped]

        keys = self._keys
        try:
            # An index of NumPy's is refused by the reader.
            record = self._records[int(index)]
            features = tf_example_pb2.Example.FromString(record).features.feature
            return Example(
                features[keys.image].bytes_list.value[0],
                features[keys.label].int64_list.value[0] if keys.label else NO_LABEL,
                features[keys.id].bytes_list.value[0].decode() if keys.id else f"{index}",
            )
        # IndexError: what is missing from a file that was cut comes back as empty records.
        except (RuntimeError, DecodeError, IndexError) as error:
            raise OSError(f"record {index} of {self.name} can't be read: {error}") from error


@dataclasses.dataclass(frozen=True)
class _FeatureNames:
    image: str
    label: str | None
    id: str | None


def _find_features(info: Any) -> _FeatureNames:
    import tensorflow_datasets as tfds

    features = info.features
    images = [name for name in features if isinstance(features[name], tfds.features.Image)]
    labels = [name for name in features if isinstance(features[name], tfds.features.ClassLabel)]
    if len(images) != 1:
        raise DataError(
            f"{info.full_name} must have one image feature, got {len(images)} among "
            f"{', '.join(features)}; choose another data set"
        )
    return _FeatureNames(
        image=images[0],
        label="label" if "label" in labels else next(iter(labels), None),
        id=next((name for name in _ID_FEATURES if name in features), None),
    )


def _tfds_builder(name: str, folder: Path) -> Any:
    import tensorflow_datasets as tfds

    base, _, version = name.partition(":")
    path = folder / base
    versions = tfds.core.utils.version.list_all_versions(path) if path.is_dir() else []
    chosen = version or (str(versions[-1]) if versions else "")
    if not (path / chosen / "dataset_info.json").is_file():
        known = f", found the versions {', '.join(map(str, versions))}" if versions else ""
        raise DataError(
            f"{folder} has no TFDS data set {name!r}; expected "
            f"{Path(base) / (chosen or 'VERSION')}/dataset_info.json in it{known}: "
            "write it with python -m aninfonce_jax.prepare, or give TFDS's data_dir"
        )
    builder = tfds.builder_from_directory(path / chosen)
    if builder.info.file_format != tfds.core.FileFormat.ARRAY_RECORD:
        raise DataError(
            f"{builder.data_dir} must be stored as array_record, for random access, got "
            f"{builder.info.file_format.value}; convert it with "
            "tfds convert_format --out_file_format=array_record"
        )
    return builder
