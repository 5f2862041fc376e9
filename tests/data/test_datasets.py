import contextlib
import json
import os
import pickle

import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordWriter
from image_files import encode, random_image, real, write_cifar10, write_folder, write_mnist

from aninfonce_jax.data.datasets import ImageFolder, list_splits, open_dataset
from aninfonce_jax.data.decode import Decoder
from aninfonce_jax.data.headers import CorruptImageError
from aninfonce_jax.data.prepare import prepare
from aninfonce_jax.data.recipes import read
from aninfonce_jax.data.shards import _serialize
from aninfonce_jax.data.source import DataError

LAYOUT = {"train": {"ant": 3, "bee": 2, "cat": 4}, "val": {"ant": 1, "cat": 2}}


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "insects"
    write_folder(root, LAYOUT)
    return root


@pytest.fixture
def prepared(tmp_path, folder):
    prepare(*read("folder", folder), tmp_path / "tfds")
    return tmp_path / "tfds"


def test_a_folder_gives_its_files(tmp_path):
    written = write_folder(tmp_path, LAYOUT)
    source = open_dataset("folder", tmp_path, "train")
    assert source.class_names == ("ant", "bee", "cat")
    assert [source[index].label for index in range(9)] == [0, 0, 0, 1, 1, 2, 2, 2, 2]
    for index in range(len(source)):
        assert source[index].image == written[source[index].id]
    assert list_splits("folder", tmp_path) == ("train", "validation")


def test_labels_mean_the_same_in_every_split(folder):
    source = ImageFolder(folder, "validation")
    assert source.class_names == ("ant", "bee", "cat")
    assert [source[index].label for index in range(3)] == [0, 2, 2]


def test_a_folder_without_train_has_its_own_labels(tmp_path):
    write_folder(tmp_path, {"test": {"y": 1, "x": 1}})
    assert ImageFolder(tmp_path, "test").class_names == ("x", "y")


def test_names_of_any_script_and_files_that_are_no_images(folder):
    strange = folder / "train" / "日本 蟻"
    strange.mkdir()
    data = encode(random_image(8, 8))
    for name in ("é Ω.jpg", "UPPER.PNG", "no_image.txt", ".hidden.jpg", "._resource.JPEG"):
        (strange / name).write_bytes(data)
    (folder / "train" / ".git").mkdir()
    with open(os.fsencode(strange) + b"/latin\xe9.jpeg", "wb") as file:
        file.write(data)
    source = ImageFolder(folder, "train")
    assert source.class_names == ("ant", "bee", "cat", "日本 蟻")
    ids = [source[index].id for index in range(9, len(source))]
    assert ids == [
        "train/日本 蟻/UPPER.PNG",
        "train/日本 蟻/latin\\xe9.jpeg",
        "train/日本 蟻/é Ω.jpg",
    ]
    assert all(source[index].image == data for index in range(9, 12))
    assert (
        "train: 日本 蟻/no_image.txt is passed over, because images end in .jpeg" in source.remark
    )


def test_files_that_do_not_end_like_an_image_are_counted(folder):
    assert ImageFolder(folder, "train").remark == ""
    for name in ("photo", "photo.bak", "photo.dng", "\x1b[31m"):
        (folder / "train" / "ant" / name).write_bytes(b"")
    remark = ImageFolder(folder, "train").remark
    assert "4 files, such as ant/\\x1b[31m, are passed over" in remark
    assert "\n" not in remark


@pytest.mark.parametrize(
    ("change", "split", "message"),
    [
        (
            lambda root: (root / "train" / "dog").mkdir(),
            "train",
            r"class folder .*dog holds no image; expected files ending in \.jpeg, .*remove it",
        ),
        (
            lambda root: write_folder(root, {"val/": {"dog": 1}}),
            "validation",
            "dog is a class that the training split lacks; expected one of its 3 classes",
        ),
        (
            lambda root: (root / "test").mkdir(),
            "test",
            "test has no class folders; expected test/<class>/",
        ),
        (lambda root: None, "test", "has no split 'test'; .*found the splits train, validation"),
    ],
)
def test_a_folder_that_is_not_right(folder, change, split, message):
    change(folder)
    with pytest.raises(DataError, match=message):
        ImageFolder(folder, split)


def test_a_missing_folder(tmp_path):
    with pytest.raises(DataError, match="nowhere does not exist; expected <split>/<class>"):
        ImageFolder(tmp_path / "nowhere", "train")
    with pytest.raises(DataError, match="nowhere does not exist"):
        list_splits("folder", tmp_path / "nowhere")


def test_many_files_make_a_small_source(tmp_path):
    (tmp_path / "train" / "a").mkdir(parents=True)
    for number in range(2_000):
        (tmp_path / "train" / "a" / f"{number:05}.JPEG").touch()
    assert len(pickle.dumps(ImageFolder(tmp_path, "train"))) < 2_000 * 25


@pytest.mark.parametrize("name", ["tfds:insects", "tfds:insects:1.0.0"])
def test_tfds_gives_what_was_prepared(folder, prepared, name):
    raw = ImageFolder(folder, "train")
    source = open_dataset(name, prepared, "train")
    assert source.class_names == raw.class_names
    assert list_splits(name, prepared) == ("train", "validation")
    by_id = {raw[index].id: raw[index] for index in range(len(raw))}
    assert {source[index].id for index in range(len(source))} == set(by_id)
    for index in np.arange(len(source)):
        assert source[index] == by_id[source[index].id]
    again = pickle.loads(pickle.dumps(source))
    assert again[1] == source[1]


def test_part_of_a_split(prepared):
    assert len(open_dataset("tfds:insects", prepared, "train[:3]")) == 3
    assert len(open_dataset("tfds:insects", prepared, "train+validation")) == 12


def edit_info(folder, **changes):
    path = folder / "insects" / "1.0.0" / "dataset_info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_tfds_that_is_not_right(prepared):
    with pytest.raises(DataError, match="no TFDS data set 'wasps'; expected wasps/VERSION/dataset"):
        open_dataset("tfds:wasps", prepared, "train")
    with pytest.raises(DataError, match=r"expected insects/2.0.0/.*found the versions 1\.0\.0"):
        open_dataset("tfds:insects:2.0.0", prepared, "train")
    with pytest.raises(DataError, match="no split 'test'; choose one of train, validation"):
        open_dataset("tfds:insects", prepared, "test")
    edit_info(prepared, fileFormat="tfrecord")
    with pytest.raises(DataError, match=r"must be stored as array_record, .* got tfrecord"):
        open_dataset("tfds:insects", prepared, "train")


def test_a_shard_that_is_missing(prepared):
    next((prepared / "insects" / "1.0.0").glob("*train.array_record*")).unlink()
    with pytest.raises(DataError, match="1 of the 1 files of insects/train are missing, the first"):
        open_dataset("tfds:insects", prepared, "train")


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_shard_is_an_error_of_reading(prepared, damage):
    path = next((prepared / "insects" / "1.0.0").glob("*train.array_record*"))
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[len(data) // 2 :]
    else:
        data[len(data) // 4 : len(data) * 3 // 4] = bytes(len(data) // 2)
    path.write_bytes(data)
    source = open_dataset("tfds:insects", prepared, "train")
    with pytest.raises(OSError, match=r"record . of insects/train can't be read"):
        [source[index] for index in range(len(source))]


def write_records(prepared, *examples):
    """Puts other records in the place of the training split's."""
    path = next((prepared / "insects" / "1.0.0").glob("*train.array_record*"))
    writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for label, name in examples:
        fields = {"image": encode(random_image(8, 8)), "label": label, "id": name}
        writer.write(_serialize(fields))
    writer.close()


def test_records_that_say_impossible_things(prepared):
    labels = (2, -1, 3, -2, 2**62)
    write_records(prepared, *((label, b"caf\xe9\x1b[2J") for label in labels))
    source = open_dataset("tfds:insects", prepared, "train[:5]")
    assert source[0].id == r"caf\xe9\x1b[2J"
    assert [source[0].label, source[1].label] == [2, -1]
    for index in (2, 3, 4):
        with pytest.raises(OSError, match=rf"must have a label below 3, got {labels[index]}"):
            source[index]


def test_features_that_would_import_code_are_refused(prepared):
    path = prepared / "insects" / "1.0.0" / "features.json"
    for name in ("antigravity.Feature", "tensorflow_datasets.scripts.cli.main.Feature"):
        text = path.read_text().replace("tensorflow_datasets.core.features.text_feature.Text", name)
        path.write_text(text)
        with pytest.raises(DataError, match=rf"features.json asks for the Python class {name}; "):
            open_dataset("tfds:insects", prepared, "train")
        with pytest.raises(DataError, match="asks for the Python class"):
            list_splits("tfds:insects", prepared)
        path.write_text(text.replace(name, "tensorflow_datasets.core.features.text_feature.Text"))


def damages(data):
    rng = np.random.default_rng(len(data))
    for place in rng.integers(0, len(data), 8).tolist():
        yield data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :]
    yield from (data[:end] for end in (0, 1, len(data) // 2, len(data) - 1))
    yield from (b"[]", b"{}", b"null", b"\xff\xfe", b"[" * 100_000)


@pytest.mark.parametrize(
    "name",
    ["dataset_info.json", "features.json", "label.labels.txt", "*train.array_record*"],
)
def test_no_damaged_file_of_tfds_ends_in_anything_else(prepared, name):
    path = next((prepared / "insects" / "1.0.0").glob(name))
    data = path.read_bytes()
    decoder = Decoder(8)
    for content in damages(data):
        path.write_bytes(content)
        with contextlib.suppress(DataError):
            source = open_dataset("tfds:insects", prepared, "train")
            for index in range(min(len(source), 9)):
                with contextlib.suppress(OSError, CorruptImageError):
                    assert decoder(source[index].image).shape == (8, 8, 3)


def test_official_files_by_name(tmp_path):
    write_mnist(tmp_path / "mnist")
    write_cifar10(tmp_path)
    assert len(open_dataset("mnist", tmp_path / "mnist", "train")) == 12
    assert len(open_dataset("cifar10", str(tmp_path), "test")) == 3
    assert list_splits("cifar10", tmp_path) == ("train", "test")


@pytest.mark.parametrize(
    "call", [lambda: open_dataset("svhn", ".", "train"), lambda: list_splits("svhn", ".")]
)
def test_an_unknown_name_lists_the_known(call):
    with pytest.raises(
        DataError, match="'svhn'; choose mnist, cifar10, causal3dident, folder or tfds:NAME"
    ):
        call()


def test_the_real_image_folder(tmp_path):
    import tarfile

    with tarfile.open(real("imagenette224_subset.tar")) as archive:
        # Python 3.11.4 is the first to know filters.
        archive.extractall(
            tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {})
        )
    train = ImageFolder(tmp_path / "imagenette224", "train")
    validation = ImageFolder(tmp_path / "imagenette224", "validation")
    assert (len(train), len(validation)) == (2_000, 500)
    assert train.class_names == validation.class_names
    assert np.bincount([validation[index].label for index in range(500)]).tolist() == [50] * 10


@pytest.mark.parametrize("folder", ["gs://bucket/data", "s3://bucket/data", "gs:/bucket/data"])
@pytest.mark.parametrize("name", ["cifar10", "folder", "tfds:mnist"])
def test_a_remote_folder_is_refused(name, folder):
    with pytest.raises(DataError, match="copy it to a disk here, or mount it"):
        open_dataset(name, folder, "train")
    with pytest.raises(DataError, match="copy it to a disk here, or mount it"):
        list_splits(name, folder)
