"""Preparation: what is written, and what an interruption leaves."""

import dataclasses
import io
import json

import numpy as np
import pytest
import tensorflow_datasets as tfds
from image_files import encode, random_image, write_cifar10, write_folder, write_mnist
from PIL import Image
from tensorflow_datasets.proto import tf_example_pb2

from aninfonce_jax.data import prepare as prepare_lib
from aninfonce_jax.data import shards
from aninfonce_jax.data.datasets import ImageFolder, open_dataset
from aninfonce_jax.data.prepare import prepare
from aninfonce_jax.data.raw_files import Cifar10, Mnist
from aninfonce_jax.data.recipes import _TARGETS, read
from aninfonce_jax.data.source import DataError

LAYOUT = {"train": {"ant": 30, "bee": 20}, "val": {"ant": 5, "bee": 6}}
# Makes about ten files of LAYOUT.
SMALL = 2_000


@pytest.fixture
def birds(tmp_path):
    write_folder(tmp_path / "birds", LAYOUT)
    return read("folder", tmp_path / "birds")


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def stop_after(monkeypatch, count):
    """Lets the writer fail in the middle of a shard, after `count` whole ones."""
    original = shards.ShardWriter.write
    calls = []

    def write(self, shard, source, on_progress):
        calls.append(shard.path.name)

        def report(done):
            if len(calls) > count:
                raise KeyboardInterrupt
            on_progress(done)

        return original(self, shard, source, report)

    monkeypatch.setattr(shards.ShardWriter, "write", write)
    return calls


@pytest.mark.parametrize(
    ("kind", "source", "write"),
    [("mnist", Mnist, write_mnist), ("cifar10", Cifar10, write_cifar10)],
)
def test_official_files_open_by_their_name_in_tfds(tmp_path, kind, source, write):
    written = write(tmp_path / "raw")
    target = dataclasses.replace(_TARGETS[kind], counts=None)
    splits = {split: source(tmp_path / "raw", split) for split in ("train", "test")}
    result = prepare(target, splits, tmp_path / "tfds")
    assert result.folder == tmp_path / "tfds" / kind / target.version
    for split, (images, labels) in written.items():
        assert result.examples[split] == len(images)
        by_directory = tfds.builder_from_directory(result.folder).as_data_source(split)
        by_name = tfds.data_source(kind, data_dir=tmp_path / "tfds", split=split)
        assert len(by_name) == len(by_directory) == len(images)
        seen = set()
        for record, named in zip(by_directory, by_name, strict=True):
            number = int(record["id"].decode().removeprefix(f"{split}_"))
            seen.add(number)
            for example in (record, named):
                np.testing.assert_array_equal(np.squeeze(example["image"]), images[number])
                assert example["label"] == labels[number]
        assert seen == set(range(len(images)))


def test_a_folder_keeps_its_files_as_they_are(tmp_path, birds):
    target, splits = birds
    result = prepare(target, splits, tmp_path / "tfds", shard_bytes=SMALL)
    assert result.fresh
    assert result.examples == {"train": 50, "validation": 11}
    builder = tfds.builder_from_directory(result.folder)
    assert builder.info.splits["train"].num_shards > 5
    assert builder.info.features["label"].names == ["ant", "bee"]
    records = builder.as_data_source("train", decoders={"image": tfds.decode.SkipDecoding()})
    ids = [record["id"].decode() for record in records]
    assert ids != sorted(ids), "records are shuffled for those who read them in order"
    for record in records:
        assert record["image"] == (tmp_path / "birds" / record["id"].decode()).read_bytes()
    leftovers = [name for name in files_in(result.folder) if "partial" in name or name == "lock"]
    assert leftovers == []


def test_records_are_what_tfds_would_write(tmp_path, birds):
    folder = prepare(*birds, tmp_path / "tfds").folder
    builder = tfds.builder_from_directory(folder)
    raw = builder.as_data_source(
        "train", deserialize_method=tfds.decode.DeserializeMethod.RAW_BYTES
    )
    for record, fields in zip(
        raw,
        builder.as_data_source("train", decoders={"image": tfds.decode.SkipDecoding()}),
        strict=True,
    ):
        theirs = tf_example_pb2.Example.FromString(builder.info.features.serialize_example(fields))
        assert tf_example_pb2.Example.FromString(record) == theirs


def test_doing_it_again_does_nothing(tmp_path, birds):
    first = prepare(*birds, tmp_path / "tfds")
    before = files_in(first.folder)
    again = prepare(*birds, tmp_path / "tfds")
    assert not again.fresh
    assert again.examples == first.examples
    assert files_in(first.folder) == before


@pytest.mark.parametrize("whole", [0, 1, 4, 9])
def test_an_interrupted_preparation_goes_on(tmp_path, birds, monkeypatch, whole):
    expected = files_in(prepare(*birds, tmp_path / "whole", shard_bytes=SMALL).folder)
    target = tmp_path / "tfds"
    with monkeypatch.context() as patch:
        stop_after(patch, whole)
        with pytest.raises(KeyboardInterrupt):
            prepare(*birds, target, shard_bytes=SMALL)
    assert [path.name for path in (target / "birds").iterdir()] == ["1.0.0.incomplete"]
    with pytest.raises(tfds.core.registered.DatasetNotFoundError):
        tfds.data_source("birds", data_dir=target, split="train")
    with monkeypatch.context() as patch:
        rest = stop_after(patch, 100)
        result = prepare(*birds, target, shard_bytes=SMALL)
    total = sum("array_record" in name for name in expected)
    assert len(rest) == total - whole
    assert files_in(result.folder) == expected


def test_a_finished_shard_that_was_cut_is_written_again(tmp_path, birds, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            prepare(*birds, tmp_path, shard_bytes=SMALL)
    shard = min((tmp_path / "birds" / "1.0.0.incomplete").glob("*-of-*"))
    shard.write_bytes(shard.read_bytes()[:100])
    result = prepare(*birds, tmp_path, shard_bytes=SMALL)
    assert len(list(tfds.builder_from_directory(result.folder).as_data_source("train"))) == 50


def test_other_inputs_start_anew(tmp_path, birds, monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            prepare(*birds, tmp_path / "tfds", shard_bytes=SMALL)
    (tmp_path / "birds" / "train" / "bee" / "new.JPEG").write_bytes(
        encode(random_image(16, 16, 99))
    )
    target, splits = read("folder", tmp_path / "birds")
    result = prepare(target, splits, tmp_path / "tfds", shard_bytes=SMALL)
    assert result.examples["train"] == 51
    ids = [e["id"] for e in tfds.builder_from_directory(result.folder).as_data_source("train")]
    assert len(set(ids)) == 51


def test_another_data_set_of_that_name_is_left_alone(tmp_path, birds):
    target, splits = birds
    folder = prepare(target, splits, tmp_path / "tfds").folder
    write_folder(tmp_path / "birds", {"test": {"ant": 1}})
    _, more = read("folder", tmp_path / "birds")
    with pytest.raises(
        DataError, match=r"is there already, with train 50, validation 11; expected test 1, train"
    ):
        prepare(target, more, tmp_path / "tfds")
    (folder / "dataset_info.json").unlink()
    with pytest.raises(DataError, match=r"is there already but TFDS can't open it .*remove it"):
        prepare(target, splits, tmp_path / "tfds")


def test_an_unreadable_image_is_named_or_left_out(tmp_path, birds):
    bad = tmp_path / "birds" / "train" / "ant" / "3.JPEG"
    bad.write_bytes(bad.read_bytes()[:-20])
    with pytest.raises(
        DataError,
        match=r"train/ant/3.JPEG: .*Premature end of JPEG file; fetch it again, .*--skip_bad",
    ):
        prepare(*birds, tmp_path / "tfds", shard_bytes=SMALL)
    result = prepare(*birds, tmp_path / "tfds", shard_bytes=SMALL, skip_bad=True)
    assert result.examples == {"train": 49, "validation": 11}
    assert len(result.skipped) == 1
    assert "train/ant/3.JPEG" in result.skipped[0]
    assert not prepare(*birds, tmp_path / "tfds").fresh


def test_images_that_went_away_are_not_left_out_in_silence(tmp_path, birds):
    """Also of a split of fewer than are fatal in a row."""
    for split, count in (("train", 20), ("val", 11)):
        (tmp_path / "birds" / split).rename(tmp_path / split)
        with pytest.raises(
            DataError, match=rf"{count} images in a row can't be read, .*; check that the data is"
        ):
            prepare(*birds, tmp_path / "tfds", skip_bad=True)
        (tmp_path / split).rename(tmp_path / "birds" / split)
    assert prepare(*birds, tmp_path / "tfds", skip_bad=True).skipped == ()


def test_odd_files_become_what_every_reader_decodes(tmp_path):
    """CMYK, alpha, other formats, and PNG under the name of JPEG."""
    folder = tmp_path / "odd" / "train" / "a"
    folder.mkdir(parents=True)
    pixels = random_image(20, 30)
    odd = {
        "cmyk.JPEG": encode(pixels, mode="CMYK", quality=100),
        "png.JPEG": encode(pixels, "PNG"),
        "alpha.png": encode(pixels, "PNG", mode="RGBA"),
        "grey.JPEG": encode(pixels[:, :, :1]),
        "plain.JPEG": encode(pixels, quality=95, subsampling=0),
        "é.webp": encode(pixels, "WEBP", lossless=True),
    }
    for name, data in odd.items():
        (folder / name).write_bytes(data)
    kept = {None: {"png.JPEG", "grey.JPEG", "plain.JPEG"}, "jpeg": {"grey.JPEG", "plain.JPEG"}}
    for encoding, unchanged in kept.items():
        target, splits = read("folder", tmp_path / "odd", f"odd_{encoding}".lower())
        target = dataclasses.replace(target, encoding=encoding)
        builder = tfds.builder_from_directory(prepare(target, splits, tmp_path / "tfds").folder)
        raw = builder.as_data_source("train", decoders={"image": tfds.decode.SkipDecoding()})
        for record, decoded in zip(raw, builder.as_data_source("train"), strict=True):
            name = record["id"].decode().rpartition("/")[2]
            assert (record["image"] == odd[name]) == (name in unchanged)
            image = Image.open(io.BytesIO(record["image"]))
            assert image.mode in ("RGB", "L")
            assert encoding is None or image.format == "JPEG"
            assert decoded["image"].shape == (20, 30, 3)
            if name != "grey.JPEG":
                error = np.abs(decoded["image"].astype(int) - pixels.astype(int)).mean()
                assert error < 3, (name, encoding)


def test_imagenet_is_recognised_by_its_counts(tmp_path):
    write_folder(tmp_path, {"train": {"n01": 2}, "val": {"n01": 1}})
    target, splits = read("imagenet", tmp_path)
    with pytest.raises(DataError, match=r"imagenet2012 must have 1,000 classes, got 1; .*`folder`"):
        prepare(target, splits, tmp_path / "tfds")
    target = dataclasses.replace(target, classes=None)
    with pytest.raises(DataError, match=r"must have 1,281,167 examples in train, got 2; fetch"):
        prepare(target, splits, tmp_path / "tfds")
    target = dataclasses.replace(target, counts=None)
    records = tfds.builder_from_directory(prepare(target, splits, tmp_path / "tfds").folder)
    assert records.as_data_source("validation")[0]["file_name"] == b"0.JPEG"


def test_two_at_once_are_refused(tmp_path, birds):
    work = tmp_path / "tfds" / "birds" / "1.0.0.incomplete"
    work.mkdir(parents=True)
    with (
        prepare_lib._locked(work),
        pytest.raises(DataError, match=r"is in use by process \d+ on .*; wait for it, or"),
    ):
        prepare(*birds, tmp_path / "tfds")
    assert prepare(*birds, tmp_path / "tfds").fresh


def test_a_full_disk_is_told_before_anything_is_written(tmp_path, birds, monkeypatch):
    usage = type("usage", (), {"free": 1_000})
    monkeypatch.setattr(prepare_lib.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DataError, match=r"needs about 0.0 GiB more, .*; choose another --to"):
        prepare(*birds, tmp_path / "tfds")


def test_progress_reaches_the_end(tmp_path, birds):
    seen = []
    prepare(*birds, tmp_path, shard_bytes=SMALL, on_progress=lambda *pair: seen.append(pair))
    assert seen == sorted(seen)
    assert seen[-1] == (61, 61)


def test_the_journal_names_only_whole_shards(tmp_path, birds, monkeypatch):
    stop_after(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        prepare(*birds, tmp_path, shard_bytes=SMALL)
    work = tmp_path / "birds" / "1.0.0.incomplete"
    journal = json.loads((work / "journal.json").read_text())["shards"]
    assert len(journal) == 2
    for name, entry in journal.items():
        assert (work / name).stat().st_size == entry["file_bytes"]
    assert len(list(work.glob("*.partial"))) == 1


def test_source_and_records_agree(tmp_path, birds):
    prepare(*birds, tmp_path / "tfds")
    raw = ImageFolder(tmp_path / "birds", "validation")
    stored = open_dataset("tfds:birds", tmp_path / "tfds", "validation")
    # Tuples with an id of their own each.
    assert {stored[i] for i in range(11)} == {raw[i] for i in range(11)}
