import gzip
import hashlib
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest
from image_files import real, write_cifar10, write_idx, write_mnist
from memory_limit import memory_limit

from aninfonce_jax.data.raw_files import Cifar10, Mnist
from aninfonce_jax.data.source import DataError


@pytest.mark.parametrize("split", ["train", "test"])
def test_mnist_gives_the_images_of_its_files(tmp_path, split):
    images, labels = write_mnist(tmp_path)[split]
    source = Mnist(tmp_path, split)
    assert len(source) == len(images)
    assert source.class_names == tuple("0123456789")
    for index in range(len(source)):
        example = source[index]
        np.testing.assert_array_equal(example.image, images[index, :, :, None])
        assert example.image.dtype == np.uint8
        assert (example.label, example.id) == (labels[index], f"{split}_{index:05}")


def test_mnist_under_other_names(tmp_path):
    images, _ = write_mnist(tmp_path)["test"]
    for stem, axes in (("images", 3), ("labels", 1)):
        path = tmp_path / f"t10k-{stem}-idx{axes}-ubyte.gz"
        (tmp_path / f"t10k-{stem}.idx{axes}-ubyte").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    np.testing.assert_array_equal(Mnist(tmp_path, "test")[2].image[:, :, 0], images[2])


def spoil(tmp_path, change):
    write_mnist(tmp_path)
    images = tmp_path / "train-images-idx3-ubyte.gz"
    labels = tmp_path / "train-labels-idx1-ubyte.gz"
    change(images, labels)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda images, labels: images.unlink(), "has no train-images-idx3-ubyte.gz"),
        (
            lambda images, labels: images.write_bytes(images.read_bytes()[:-100]),
            "train-images-idx3-ubyte.gz can't be read: .*; fetch the file again",
        ),
        (
            lambda images, labels: images.write_bytes(b"<html>"),
            "must be an idx file of bytes with 3 axes, starting with 00000803, got 3c68746d",
        ),
        (
            lambda images, labels: images.write_bytes(labels.read_bytes()),
            "must be an idx file of bytes with 3 axes, starting with 00000803, got 00000801",
        ),
        (
            lambda images, labels: images.write_bytes(
                gzip.compress(gzip.decompress(images.read_bytes())[:-1])
            ),
            r"must hold 9,424 bytes for shape \(12, 28, 28\), got 9,423",
        ),
        (
            lambda images, labels: images.write_bytes(gzip.compress(b"")),
            "got an empty file",
        ),
        (
            lambda images, labels: write_idx(labels, np.zeros(11)),
            "must hold a label for each of the 12 images of .*, got 11",
        ),
        (
            lambda images, labels: write_idx(labels, np.full(12, 10)),
            "must hold labels from 0 to 9, got 10",
        ),
    ],
)
def test_damaged_mnist_is_named(tmp_path, change, message):
    spoil(tmp_path, change)
    with pytest.raises(DataError, match=message):
        Mnist(tmp_path, "train")


def zeros_in_gzip(path, header, megabytes):
    """Writes an idx file of zeros without holding it in memory."""
    with gzip.open(path, "wb") as file:
        file.write(header)
        for _ in range(megabytes):
            file.write(bytes(2**20))


@pytest.mark.parametrize(
    ("shape", "megabytes", "message"),
    [
        # Twelve images are promised, and no more is unpacked than it takes to see that.
        ((12, 28, 28), 200, r"must hold 9,424 bytes for shape \(12, 28, 28\), got more"),
        ((2**32 - 1, 28, 28), 1, "may hold 1,073,741,824 bytes, as all of it is kept in memory"),
        ((2**32 - 1,) * 3, 1, "may hold 1,073,741,824 bytes"),
        ((1_000_000, 28, 28), 1, r"must hold 784,000,016 bytes .* bytes can't be; fetch"),
    ],
)
def test_no_more_is_unpacked_than_promised(tmp_path, shape, megabytes, message):
    write_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    zeros_in_gzip(path, struct.pack(">4B3I", 0, 0, 8, 3, *shape), megabytes)
    with memory_limit(16 * 2**20), pytest.raises(DataError, match=message):
        Mnist(tmp_path, "train")


def test_a_gzip_with_a_wrong_checksum_is_refused(tmp_path):
    write_mnist(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    data = bytearray(path.read_bytes())
    data[-8] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="can't be read: CRC check failed"):
        Mnist(tmp_path, "train")


def test_content_and_not_the_name_says_whether_it_is_packed(tmp_path):
    images, _ = write_mnist(tmp_path)["train"]
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.decompress(path.read_bytes()))
    np.testing.assert_array_equal(Mnist(tmp_path, "train")[5].image[:, :, 0], images[5])


def test_files_that_are_not_official_are_told(tmp_path):
    write_mnist(tmp_path)
    write_cifar10(tmp_path)
    remark = Mnist(tmp_path, "train").remark
    assert "train-images-idx3-ubyte.gz (and 1 more) is not the official file of MNIST" in remark
    assert "expected 6bbc9ace898e44ae57da46a324031adb" in remark
    remark = Cifar10(tmp_path, "test").remark
    content = (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").read_bytes()
    assert "test_batch.bin is not the official file of CIFAR-10: the md5 of its content" in remark
    assert f"is {hashlib.md5(content).hexdigest()}, expected 803d5f7f4d78ea53de84dbe8" in remark


@pytest.mark.parametrize("content", [b"airpl\xe9ne b c d e f g h i j", b"a " * 100_000, None])
def test_class_names_that_can_not_be_read(tmp_path, content):
    write_cifar10(tmp_path)
    path = tmp_path / "cifar-10-batches-bin" / "batches.meta.txt"
    if content is None:
        os.mkfifo(path)
    else:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"batches.meta.txt can't be read: .*, or remove it"):
        Cifar10(tmp_path, "test")


def test_class_names_do_not_command_a_terminal(tmp_path):
    write_cifar10(tmp_path)
    path = tmp_path / "cifar-10-batches-bin" / "batches.meta.txt"
    path.write_bytes(b"\x1b[2J b c d e f g h i j")
    assert Cifar10(tmp_path, "test").class_names[0] == r"\x1b[2J"


def test_missing_folders_and_splits(tmp_path):
    with pytest.raises(DataError, match="nowhere does not exist; expected the four idx files"):
        Mnist(tmp_path / "nowhere", "train")
    with pytest.raises(DataError, match="nowhere does not exist; expected cifar-10-batches-bin"):
        Cifar10(tmp_path / "nowhere", "train")
    with pytest.raises(DataError, match="has no split 'validation'; choose one of train, test"):
        Mnist(tmp_path, "validation")


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("inner", ["", "cifar-10-batches-bin"])
def test_cifar10_gives_the_images_of_its_files(tmp_path, split, inner):
    images, labels = write_cifar10(tmp_path)[split]
    source = Cifar10(tmp_path / inner, split)
    assert len(source) == len(images)
    assert source.class_names[:2] == ("airplane", "automobile")
    for index in range(len(source)):
        np.testing.assert_array_equal(source[index].image, images[index])
        assert source[index].label == labels[index]


def test_cifar10_takes_its_class_names_from_the_file(tmp_path):
    write_cifar10(tmp_path)
    names = tmp_path / "cifar-10-batches-bin" / "batches.meta.txt"
    names.write_text("\n".join("abcdefghij") + "\n\n")
    assert Cifar10(tmp_path, "test").class_names == tuple("abcdefghij")
    names.write_text("a\nb\n")
    with pytest.raises(DataError, match=r"batches.meta.txt must name 10 classes, got 2"):
        Cifar10(tmp_path, "test")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.unlink(), r"has no data_batch_3.bin; expected the binary version"),
        (
            lambda path: path.write_bytes(path.read_bytes()[:-5]),
            r"data_batch_3.bin must hold whole records of 3,073 bytes, got 9,214 bytes",
        ),
        (lambda path: path.write_bytes(b""), "got 0 bytes"),
        (
            lambda path: path.write_bytes(b"\xff" + path.read_bytes()[1:]),
            "must hold labels from 0 to 9, got 255",
        ),
    ],
)
def test_damaged_cifar10_is_named(tmp_path, change, message):
    write_cifar10(tmp_path)
    change(tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin")
    with pytest.raises(DataError, match=message):
        Cifar10(tmp_path, "train")


def test_packed_cifar10_says_how_to_unpack(tmp_path):
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"")
    with pytest.raises(
        DataError,
        match=r"must be unpacked: tar xf .*cifar-10-binary.tar.gz -C .* \(its md5 is d41d8.*: if",
    ):
        Cifar10(tmp_path, "train")


@pytest.mark.parametrize(("kind", "write"), [(Mnist, write_mnist), (Cifar10, write_cifar10)])
def test_a_pickled_source_leaves_its_pixels_behind(tmp_path, kind, write):
    write(tmp_path)
    source = kind(tmp_path, "train")
    data = pickle.dumps(source)
    assert len(data) < 5_000
    np.testing.assert_array_equal(pickle.loads(data)[3].image, source[3].image)


def test_the_real_mnist():
    folder = real("mnist")
    train, test = Mnist(folder, "train"), Mnist(folder, "test")
    assert (len(train), len(test)) == (60_000, 10_000)
    assert (train.remark, test.remark) == ("", "")
    assert [train[index].label for index in range(5)] == [5, 0, 4, 1, 9]
    assert train[0].image.shape == (28, 28, 1)
    assert 0.1 < train[0].image.mean() / 255 < 0.2


def test_the_real_cifar10(tmp_path):
    # The first file of the archive: unpacking all of it takes most of a minute.
    with tarfile.open(real("cifar-10-binary.tar.xz"), "r|xz") as archive:
        member = next(member for member in archive if member.name.endswith(".bin"))
        (tmp_path / "test_batch.bin").write_bytes(archive.extractfile(member).read())
    source = Cifar10(tmp_path, "test")
    # It is called as the first file, data_batch_1.bin, is not.
    assert "is 5dd7e06a14cb22eb9f671a540d1b7c25, expected 803d5f7f" in source.remark
    assert len(source) == 10_000
    labels = np.array([source[index].label for index in range(len(source))])
    assert np.all(np.abs(np.bincount(labels, minlength=10) - 1_000) < 100)
    # Photographs: neighbours in space, and the channels of a pixel, are alike.
    images = np.stack([source[index].image for index in range(500)]).astype(float)
    for axis in (1, 2, 3):
        pairs = np.moveaxis(images, axis, 0)
        assert np.corrcoef(pairs[:-1].ravel(), pairs[1:].ravel())[0, 1] > 0.85, axis
