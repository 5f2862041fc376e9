"""Writes a data set once, as ArrayRecord in TFDS's own format, from files on this machine.

    <to>/<name>/<version>/<name>-<split>.array_record-00000-of-00012, dataset_info.json, ...

Everything is written to <version>.incomplete beside it, shard by shard. A shard counts once
the journal names it; the folder gets its real name when all of it is there and checked. So an
interrupted preparation goes on where it was, and nothing half-written is ever opened.
"""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from array_record.python.array_record_module import (  # type: ignore[import-untyped]
    ArrayRecordReader,
)

from aninfonce_jax import lock
from aninfonce_jax.cli import warn
from aninfonce_jax.data.decode import DECODE_MIB
from aninfonce_jax.data.shards import (
    JOURNAL,
    LOCK,
    SHARD_BYTES,
    Journal,
    Plan,
    ShardWriter,
    Target,
    Written,
    make_plan,
    sync,
)
from aninfonce_jax.data.source import DataError, ImageSource
from aninfonce_jax.data.tfds_source import open_version
from aninfonce_jax.files import write_json

# Split -> the images that were left out; kept with the data set, to tell it from an older one.
_SKIPPED = "skipped.json"


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What was written.

    Attributes:
      folder: where the data set is.
      examples: split -> number of examples.
      skipped: ids of the images that could not be read, with the reason.
      fresh: False if it was there already.
    """

    folder: Path
    examples: Mapping[str, int]
    skipped: tuple[str, ...]
    fresh: bool


def prepare(
    target: Target,
    splits: Mapping[str, ImageSource],
    to: Path,
    *,
    skip_bad: bool = False,
    threads: int = 4,
    decode_mib: int = DECODE_MIB,
    shard_bytes: int = SHARD_BYTES,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Prepared:
    """Writes a data set, or goes on with writing it, unless it is there already.

    Args:
      target: what to write.
      splits: split -> its examples.
      to: TFDS's data_dir.
      skip_bad: leave out images that can't be read, instead of giving up.
      threads: threads that read, check and encode.
      decode_mib: memory, in MiB, that they may decode images in; one that needs more can't be
        read.
      shard_bytes: about how large a file may get.
      on_progress: called with the number of examples done and in all.

    Raises:
      DataError: counts are wrong, an image can't be read, or another process is at it.
    """
    _check_counts(target, splits)
    final = to / target.name / target.version
    if final.exists():
        return _check_finished(final, splits)
    work = final.with_name(f"{final.name}.incomplete")
    _make_folder(work)
    with _locked(work):
        plan = make_plan(work, target.name, splits, shard_bytes)
        journal = Journal(work, _fingerprint(target, splits, plan))
        _check_space(work, plan)
        writer = ShardWriter(target, skip_bad, threads, decode_mib)
        total = sum(map(len, splits.values()))
        done = 0
        for shard in plan.shards:
            if journal.has(shard.path):
                on_progress(done + len(shard.indices), total)
            else:
                report = functools.partial(_report_from, on_progress, done, total)
                journal.add(shard.path, writer.write(shard, splits[shard.split], report))
            done += len(shard.indices)
        features = _make_features(target, _class_names(splits))
        _write_metadata(work, target, features, plan, journal)
        # The journal goes last: without it, all shards would be written again.
        os.replace(work, final)
        sync(final.parent)
        for name in (JOURNAL, LOCK):
            (final / name).unlink()
    skipped = journal.skipped()
    _check_opens(final, total - len(skipped))
    return Prepared(final, _examples(final), skipped, fresh=True)


def _report_from(
    on_progress: Callable[[int, int], None], before: int, total: int, here: int
) -> None:
    on_progress(before + here, total)


# --- Before: is this what it should be? ---


def _class_names(splits: Mapping[str, ImageSource]) -> tuple[str, ...]:
    return next(iter(splits.values())).class_names


def _check_counts(target: Target, splits: Mapping[str, ImageSource]) -> None:
    classes = len(_class_names(splits))
    if target.classes is not None and classes != target.classes:
        raise DataError(
            f"{target.name} must have {target.classes:,} classes, got {classes:,}; "
            "prepare a part of it, or another data set, as `folder`"
        )
    for split, expected in (target.counts or {}).items():
        if len(splits[split]) != expected:
            raise DataError(
                f"{target.name} must have {expected:,} examples in {split}, got "
                f"{len(splits[split]):,}; fetch the missing files (class folders of any number "
                "of images are prepared as `folder`)"
            )


def _check_finished(folder: Path, splits: Mapping[str, ImageSource]) -> Prepared:
    """Accepts what an earlier preparation wrote if it had as many examples as this one."""
    have = _examples(folder)
    want = {split: len(source) for split, source in splits.items()}
    skipped = _read_skipped(folder / _SKIPPED)
    had = {split: count + len(skipped.get(split, ())) for split, count in have.items()}
    lines = tuple(itertools.chain.from_iterable(skipped.values()))
    if had != want:
        left_out = f" and {len(lines):,} left out" if lines else ""
        raise DataError(
            f"{folder} is there already, with {_shown(have)}{left_out}; expected {_shown(want)}: "
            "choose another --to, or remove it"
        )
    return Prepared(folder, have, lines, fresh=False)


def _read_skipped(path: Path) -> dict[str, list[str]]:
    if not path.exists():
        return {}
    try:
        return {
            split: [str(line) for line in lines]
            for split, lines in json.loads(path.read_bytes()).items()
        }
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise DataError(
            f"{path} can't be read: {error}; remove {path.parent} and start again"
        ) from error


def _make_folder(work: Path) -> None:
    try:
        os.fspath(work).encode()
    except UnicodeEncodeError as error:  # nor does ArrayRecord take bytes
        raise DataError(f"{work} must be a name in UTF-8; choose another --to") from error
    for path in (work, *work.parents):
        if path.exists() and not path.is_dir():
            raise DataError(f"{path} is a file, not a folder; choose another --to")
    work.mkdir(parents=True, exist_ok=True)


def _shown(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{split} {count:,}" for split, count in sorted(counts.items()))


def _fingerprint(target: Target, splits: Mapping[str, ImageSource], plan: Plan) -> str:
    """Returns what must be the same for a preparation to go on."""
    parts: list[Any] = [dataclasses.asdict(target), _class_names(splits), plan.sampled_ids]
    parts += [[shard.path.name, len(shard.indices)] for shard in plan.shards]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _check_space(work: Path, plan: Plan) -> None:
    written = sum(path.stat().st_size for path in work.iterdir())
    needed = plan.estimated_bytes - written
    free = shutil.disk_usage(work).free
    if free < needed:
        raise DataError(
            f"{work} needs about {needed / 2**30:,.1f} GiB more, got {free / 2**30:,.1f} GiB free; "
            "choose another --to, or make room"
        )


@contextlib.contextmanager
def _locked(work: Path) -> Iterator[None]:
    advice = "wait for it, or choose another --to"
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock.hold(work / LOCK, f"{work}", advice, say=warn))
        except lock.LockedError as error:
            raise DataError(str(error)) from error
        yield


# --- After: metadata, and a look at what was written ---


def _make_features(target: Target, class_names: Sequence[str]) -> Any:
    import tensorflow_datasets as tfds  # type: ignore[import-untyped]

    return tfds.features.FeaturesDict(
        {
            target.id_feature: tfds.features.Text(),
            "image": tfds.features.Image(shape=target.image_shape, encoding_format=target.encoding),
            "label": tfds.features.ClassLabel(names=class_names),
        }
    )


def _write_metadata(
    work: Path, target: Target, features: Any, plan: Plan, journal: Journal
) -> None:
    """Checks every shard against the journal and writes what TFDS wants to know."""
    import tensorflow_datasets as tfds

    by_split: dict[str, list[Written]] = {}
    for shard in plan.shards:
        written = journal.of(shard.path)
        with contextlib.closing(ArrayRecordReader(os.fspath(shard.path))) as reader:
            records = reader.num_records()
        expected = len(shard.indices) - len(written.skipped)
        if records != expected:
            raise DataError(
                f"{shard.path} must hold {expected:,} examples, got {records:,}; "
                f"remove {work} and start again"
            )
        by_split.setdefault(shard.split, []).append(written)
    infos = [
        tfds.core.SplitInfo(
            name=split,
            shard_lengths=[written.examples for written in shards],
            num_bytes=sum(written.payload for written in shards),
            filename_template=tfds.core.ShardedFileTemplate(
                data_dir=work,
                dataset_name=target.name,
                split=split,
                filetype_suffix="array_record",
            ),
        )
        for split, shards in by_split.items()
    ]
    skipped = {
        split: [line for written in shards for line in written.skipped]
        for split, shards in by_split.items()
    }
    if any(skipped.values()):
        write_json(work / _SKIPPED, skipped)
    tfds.folder_dataset.write_metadata(
        data_dir=work,
        features=features,
        split_infos=infos,
        version=target.version,
        description=target.description,
        supervised_keys=("image", "label"),
        # TFDS would check with TensorFlow; _check_opens does without.
        check_data=False,
    )


def _examples(folder: Path) -> dict[str, int]:
    try:
        splits = open_version(folder).info.splits
    except DataError as error:
        raise DataError(
            f"{folder} is there already but TFDS can't open it ({error}); choose another --to, "
            "or remove it"
        ) from error
    return {split: info.num_examples for split, info in splits.items()}


def _check_opens(folder: Path, expected: int) -> None:
    """Opens what was written as any user of TFDS would."""
    got = sum(_examples(folder).values())
    if got != expected:
        raise DataError(f"{folder} must hold {expected:,} examples, got {got:,}; remove it")
    builder = open_version(folder)
    for split in builder.info.splits:
        records = builder.as_data_source(split)
        for index in {0, len(records) - 1}:
            records[index]
