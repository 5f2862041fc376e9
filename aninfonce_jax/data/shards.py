"""The files of a data set in the making: dealt out, written one by one, remembered."""

import contextlib
import dataclasses
import io
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
from array_record.python.array_record_module import (  # type: ignore[import-untyped]
    ArrayRecordWriter,
)
from PIL import Image

from aninfonce_jax.data.decode import MIB, allowance, decode
from aninfonce_jax.data.headers import CorruptImageError, read_header
from aninfonce_jax.data.source import DataError, Example, ImageSource

# Bounds what an interruption costs, and the number of files of ImageNet (about 1,100).
SHARD_BYTES = 128 * 2**20
JOURNAL = "journal.json"
LOCK = "lock"
# The shuffle on disk, for readers that go through the records in order.
_SHUFFLE_SEED = 0
# Examples of each split that are looked at to guess its size.
_SAMPLE = 100
# Examples in the hands of the threads: enough to keep them busy, few enough to hold.
_WINDOW = 256
# Examples that a thread takes at once: handing over small ones singly takes longer than they do.
_PORTION = 16
# Memory for compressing pixels, in bytes for each of theirs: themselves, Pillow's copy, the file.
_COMPRESSING_FACTOR = 3
# Shuffled images that can't be read, one after the other: then it is not the images.
_MAX_IN_A_ROW = 20

Encoding = Literal["png", "jpeg"]


@dataclasses.dataclass(frozen=True)
class Target:
    """What is to be written.

    Attributes:
      name: of the data set, as TFDS will know it.
      version: three numbers with dots.
      description: one sentence.
      image_shape: [height, width, channels], None where it varies.
      encoding: of the images; None keeps JPEG and PNG files as they are.
      id_feature: what the feature is called that says which example a record is. As
        "file_name" it holds the last part of the id, as TFDS's own ImageNet has it.
      counts: split -> the number of examples that it must have; None for any.
      classes: the number of classes there must be; None for any.
    """

    name: str
    version: str
    description: str
    image_shape: tuple[int | None, int | None, int] = (None, None, 3)
    encoding: Encoding | None = None
    id_feature: Literal["id", "file_name"] = "id"
    counts: Mapping[str, int] | None = None
    classes: int | None = None


@dataclasses.dataclass(frozen=True)
class Shard:
    """A file to write, and the examples of a split that go into it."""

    path: Path
    split: str
    indices: np.ndarray


@dataclasses.dataclass(frozen=True)
class Plan:
    """All files to write, and what a look at some examples has shown."""

    shards: Sequence[Shard]
    estimated_bytes: int
    sampled_ids: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Written:
    """What the journal says of a finished shard."""

    examples: int
    payload: int
    file_bytes: int
    skipped: Sequence[str]


# As they are in the journal.
_WRITTEN_TYPES = {"examples": int, "payload": int, "file_bytes": int, "skipped": list}


def make_plan(work: Path, name: str, splits: Mapping[str, ImageSource], shard_bytes: int) -> Plan:
    """Deals the examples of every split out to files of about `shard_bytes`."""
    shards: list[Shard] = []
    ids: list[str] = []
    total = 0
    for split, source in splits.items():
        sample = np.linspace(0, len(source) - 1, num=min(len(source), _SAMPLE), dtype=int)
        examples = _readable(source, sample.tolist())
        ids += [example.id for example in examples]
        sizes = [_stored_bytes(example.image) for example in examples]
        size = max(1, int(np.mean(sizes or [0]) * len(source)))
        total += size
        count = -(-size // shard_bytes)
        order = np.random.default_rng(_SHUFFLE_SEED).permutation(len(source))
        shards += [
            Shard(work / f"{name}-{split}.array_record-{number:05}-of-{count:05}", split, indices)
            for number, indices in enumerate(np.array_split(order, count))
        ]
    return Plan(shards, total, ids)


def _readable(source: ImageSource, indices: Sequence[int]) -> list[Example]:
    """Returns those that can be opened; the writer will deal with the others."""
    examples = []
    for index in indices:
        with contextlib.suppress(OSError):
            examples.append(source[index])
    return examples


def _stored_bytes(image: np.ndarray | bytes) -> int:
    return len(image) if isinstance(image, bytes) else image.nbytes


class Journal:
    """The finished shards, on disk after each; starts anew if the inputs have changed."""

    def __init__(self, work: Path, fingerprint: str) -> None:
        self._path = work / JOURNAL
        self._fingerprint = fingerprint
        self._shards: dict[str, Written] = {}
        content = self._read()
        if content.get("fingerprint") == fingerprint:
            self._shards = {name: Written(**values) for name, values in content["shards"].items()}
            return
        # What is here is of other inputs, or damaged, or nothing was begun: none of it is of use.
        for path in work.iterdir():
            if path.name == LOCK:
                continue
            if path.is_dir() and not path.is_symlink():
                raise DataError(f"{path} is a folder that no preparation made; move it away")
            path.unlink()
        self._save()

    def _read(self) -> dict[str, Any]:
        """Returns what is on disk; nothing if it is not a whole journal."""
        try:
            content = json.loads(self._path.read_bytes())
            sound = all(
                {field: type(value) for field, value in entry.items()} == _WRITTEN_TYPES
                for entry in content["shards"].values()
            )
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return {}
        return content if sound else {}

    def has(self, path: Path) -> bool:
        """Returns whether a shard is finished, and still there as it was written."""
        written = self._shards.get(path.name)
        return written is not None and path.is_file() and path.stat().st_size == written.file_bytes

    def add(self, path: Path, written: Written) -> None:
        """Notes that a shard is finished."""
        self._shards[path.name] = written
        self._save()

    def of(self, path: Path) -> Written:
        """Returns what is known of a finished shard."""
        return self._shards[path.name]

    def skipped(self) -> tuple[str, ...]:
        """Returns the images that were left out, with the reason."""
        return tuple(line for written in self._shards.values() for line in written.skipped)

    def _save(self) -> None:
        shards = {name: dataclasses.asdict(written) for name, written in self._shards.items()}
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps({"fingerprint": self._fingerprint, "shards": shards}))
        sync(partial)
        os.replace(partial, self._path)


class ShardWriter:
    """Writes one shard after the other; threads read, check and encode the images."""

    def __init__(self, target: Target, skip_bad: bool, threads: int, decode_mib: int) -> None:
        self._target = target
        self._skip_bad = skip_bad
        self._threads = threads
        self._decode_mib = decode_mib

    def write(
        self, shard: Shard, source: ImageSource, on_progress: Callable[[int], None]
    ) -> Written:
        """Writes a shard, and gives it its name when it is whole."""
        partial = shard.path.with_name(f"{shard.path.name}.partial")
        examples = payload = in_a_row = 0
        too_many = min(_MAX_IN_A_ROW, len(shard.indices))
        skipped = []
        # Images are compressed already. One record per chunk, as TFDS writes for random access.
        writer = ArrayRecordWriter(os.fspath(partial), "group_size:1,uncompressed")
        with contextlib.closing(writer), ThreadPoolExecutor(self._threads) as pool:
            for start in range(0, len(shard.indices), _WINDOW):
                window = shard.indices[start : start + _WINDOW].tolist()
                portions = [window[i : i + _PORTION] for i in range(0, len(window), _PORTION)]
                done = pool.map(lambda part: [self._record(source, i) for i in part], portions)
                for record, problem in itertools.chain.from_iterable(done):
                    if record is None:
                        skipped.append(problem)
                        in_a_row += 1
                        if in_a_row == too_many:
                            raise DataError(
                                f"{source.name}: {in_a_row} images in a row can't be read, the "
                                f"last was {problem}; check that the data is still there"
                            )
                        continue
                    writer.write(record)
                    in_a_row = 0
                    examples += 1
                    payload += len(record)
                on_progress(start + len(window))
        sync(partial)
        os.replace(partial, shard.path)
        return Written(examples, payload, shard.path.stat().st_size, skipped)

    def _record(self, source: ImageSource, index: int) -> tuple[bytes | None, str]:
        """Returns an example as TFDS stores it, or None and what is wrong with it."""
        try:
            example = source[index]
        except OSError as error:  # a link to nowhere, a folder with the name of an image
            return None, self._leave_out(source, str(error))
        try:
            image = _encode(example.image, self._target, self._decode_mib)
        except CorruptImageError as error:
            return None, self._leave_out(source, f"{example.id}: {error}")
        name = self._target.id_feature
        known_as = example.id.rpartition("/")[2] if name == "file_name" else example.id
        return _serialize({"image": image, "label": example.label, name: known_as.encode()}), ""

    def _leave_out(self, source: ImageSource, problem: str) -> str:
        """Returns what is wrong with an image, or raises it unless bad ones are left out."""
        if self._skip_bad:
            return problem
        raise DataError(
            f"{source.name} has an image that can't be read, {problem}; fetch it again, "
            "remove it, or leave such images out with --skip_bad"
        )


def _serialize(fields: Mapping[str, bytes | int]) -> bytes:
    """Returns a tf.train.Example: as TFDS's own, ten times faster and always the same bytes."""
    from tensorflow_datasets.proto import tf_example_pb2  # type: ignore[import-untyped]

    message = tf_example_pb2.Example()
    for name, value in fields.items():
        feature = message.features.feature[name]
        if isinstance(value, int):
            feature.int64_list.value.append(value)
        else:
            feature.bytes_list.value.append(value)
    return message.SerializeToString(deterministic=True)


def _encode(image: np.ndarray | bytes, target: Target, decode_mib: int) -> bytes:
    """Returns an image file that any TFDS reader can decode to the shape it was promised."""
    if isinstance(image, bytes):
        # The smallest image that the decoder can make: all data is read, little computed.
        decode(image, least_size=1, decode_mib=decode_mib)
        kept = ("JPEG",) if target.encoding == "jpeg" else ("JPEG", "PNG")
        header = read_header(image)
        if header.format in kept and header.plain:
            return image
        # CMYK, alpha, PNG under the name of JPEG: ImageNet has some of these.
        pixels = decode(image, decode_mib=decode_mib)
        with allowance.take(_COMPRESSING_FACTOR * pixels.nbytes, decode_mib * MIB):
            return _compress(pixels, target.encoding or "png")
    if image.shape != target.image_shape:
        raise CorruptImageError(
            f"expected an image of shape {target.image_shape}, got {image.shape}"
        )
    return _compress(image, target.encoding or "png")


def _compress(pixels: np.ndarray, encoding: Encoding) -> bytes:
    buffer = io.BytesIO()
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    if encoding == "png":
        image.save(buffer, "PNG")
    else:
        image.save(buffer, "JPEG", quality=100, subsampling=0)
    return buffer.getvalue()


def sync(path: Path) -> None:
    """Waits until a file or folder is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
