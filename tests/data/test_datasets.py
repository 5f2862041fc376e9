import json
import os
import pickle

import numpy as np
import pytest
from image_files import encode, picture, real, write_cifar10, write_folder, write_mnist

from aninfonce_jax.data.datasets import ImageFolder, list_splits, open_dataset
from aninfonce_jax.data.prepare import prepare
from aninfonce_jax.data.recipes import read
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
    data = encode(picture(8, 8))
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
    with pytest.raises(DataError, match="'svhn'; choose mnist, cifar10, folder or tfds:NAME"):
        call()


def test_the_real_image_folder(tmp_path):
    import tarfile

    with tarfile.open(real("imagenette224_subset.tar")) as archive:
        archive.extractall(tmp_path, filter="data")
    train = ImageFolder(tmp_path / "imagenette224", "train")
    validation = ImageFolder(tmp_path / "imagenette224", "validation")
    assert (len(train), len(validation)) == (2_000, 500)
    assert train.class_names == validation.class_names
    assert np.bincount([validation[index].label for index in range(500)]).tolist() == [50] * 10
