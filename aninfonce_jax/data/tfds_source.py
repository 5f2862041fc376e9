"""Data sets in TFDS's format, stored as ArrayRecord."""

import dataclasses
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aninfonce_jax.cli import printable
from aninfonce_jax.data.source import NO_LABEL, DataError, Example, read_file

# Features that TFDS data sets use to say which example a record is.
_ID_FEATURES = ("id", "file_name", "filename", "image/filename")
# Where features.json names the class that a feature is made of, in its two notations, and whose
# classes are taken: TFDS imports whatever module it finds there.
_CLASS_KEYS = ("pythonClassName", "python_class_name", "type")
_OWN_FEATURES = "tensorflow_datasets.core.features."
_MAX_METADATA_BYTES = 2**26


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
        builder = open_builder(name, folder)
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
        return open_builder(name, folder).as_data_source(split, deserialize_method=raw)

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
            image = features[keys.image].bytes_list.value[0]
            label = features[keys.label].int64_list.value[0] if keys.label else NO_LABEL
            name = features[keys.id].bytes_list.value[0] if keys.id else b"%d" % index
        # IndexError: what is missing from a file that was cut comes back as empty records.
        except (RuntimeError, DecodeError, IndexError) as error:
            raise OSError(f"record {index} of {self.name} can't be read: {error}") from error
        if label != NO_LABEL and not 0 <= label < len(self.class_names):
            raise OSError(
                f"record {index} of {self.name} must have a label below {len(self.class_names)}, "
                f"got {label}"
            )
        return Example(image, label, printable(name.decode(errors="surrogateescape")))


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


def open_builder(name: str, folder: Path) -> Any:
    """Opens a data set in TFDS's format; its splits and features are in `info`.

    Raises:
      DataError: it is not there, damaged, or not stored as ArrayRecord.
    """
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
    builder = open_version(path / chosen)
    if builder.info.file_format != tfds.core.FileFormat.ARRAY_RECORD:
        raise DataError(
            f"{builder.data_dir} must be stored as array_record, for random access, got "
            f"{builder.info.file_format.value}; convert it with "
            "tfds convert_format --out_file_format=array_record"
        )
    return builder


def open_version(folder: Path) -> Any:
    """Opens one version of a data set, whatever its files are stored as.

    Raises:
      DataError: TFDS can't open it, or would have to import code of others for it.
    """
    import tensorflow_datasets as tfds

    _check_features(folder / "features.json")
    try:
        return tfds.builder_from_directory(folder)
    # TFDS and what it builds on raise what they like of a damaged file.
    except Exception as error:
        raise DataError(f"{folder} can't be opened by TFDS: {error}; prepare it again") from error


def _check_features(path: Path) -> None:
    """Refuses a description of features that would make TFDS import other code than its own."""
    try:
        content = json.loads(read_file(path, _MAX_METADATA_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} can't be read: {error}; prepare the data set again") from error
    foreign = [name for name in _class_names(content) if not name.startswith(_OWN_FEATURES)]
    if foreign:
        raise DataError(
            f"{path} asks for the Python class {foreign[0]}; expected TFDS's own features, "
            f"{_OWN_FEATURES}*: convert the data set to these"
        )


def _class_names(content: Any) -> Iterator[str]:
    if isinstance(content, dict):
        for key, value in content.items():
            if key in _CLASS_KEYS and isinstance(value, str):
                yield value
            else:
                yield from _class_names(value)
    elif isinstance(content, list):
        for value in content:
            yield from _class_names(value)
