"""Small image data sets in the formats that the package reads, for tests."""

import gzip
import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
DATASETS = Path(os.environ.get("ANINFONCE_DATASETS", ROOT.parent / "shared" / "datasets"))


def real(name):
    """Returns the path of a real data set, or skips the test."""
    path = DATASETS / name
    if not path.exists():
        pytest.skip(f"{name} is not in {DATASETS}; set ANINFONCE_DATASETS to where it is")
    return path


def random_image(height, width, seed=0, channels=3):
    """Returns smooth pixels, uint8 [height, width, channels], different for every seed."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (4, 4, channels), dtype=np.uint8)
    planes = [
        Image.fromarray(coarse[:, :, c]).resize((width, height), Image.Resampling.BICUBIC)
        for c in range(channels)
    ]
    return np.stack([np.asarray(plane) for plane in planes], axis=2)


def encode(pixels, kind="JPEG", mode=None, **options):
    """Returns the bytes of an image file."""
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    buffer = io.BytesIO()
    (image.convert(mode) if mode else image).save(buffer, kind, **options)
    return buffer.getvalue()


def write_folder(root, layout, size=16):
    """Writes {split: {class: number of images}} as JPEG; returns all images by their id."""
    written = {}
    for split, classes in layout.items():
        for name, count in classes.items():
            folder = Path(root) / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                data = encode(random_image(size, size, seed=len(written)))
                (folder / f"{number}.JPEG").write_bytes(data)
                written[f"{split}/{name}/{number}.JPEG"] = data
    return written


def write_idx(path, array):
    """Writes bytes with their shape, as MNIST has them; gzipped if the name says so."""
    content = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    content += array.astype(np.uint8).tobytes()
    Path(path).write_bytes(gzip.compress(content) if str(path).endswith(".gz") else content)


def write_mnist(folder, train=12, test=5, size=28):
    """Writes the four files; returns {split: (images, labels)}."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    written = {}
    for split, prefix, count in (("train", "train", train), ("test", "t10k", test)):
        images = rng.integers(0, 256, (count, size, size), dtype=np.uint8)
        labels = np.arange(count, dtype=np.uint8) % 10
        write_idx(Path(folder) / f"{prefix}-images-idx3-ubyte.gz", images)
        write_idx(Path(folder) / f"{prefix}-labels-idx1-ubyte.gz", labels)
        written[split] = (images, labels)
    return written


def write_cifar10(folder, per_file=3):
    """Writes the six files; returns {split: (images [n, 32, 32, 3], labels)}."""
    folder = Path(folder) / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    written = {}
    names = {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}
    for split, files in names.items():
        images = rng.integers(0, 256, (per_file * len(files), 3, 32, 32), dtype=np.uint8)
        labels = rng.integers(0, 10, len(images), dtype=np.uint8)
        records = np.concatenate([labels[:, None], images.reshape(len(images), -1)], axis=1)
        for name, part in zip(files, np.split(records, len(files)), strict=True):
            (folder / name).write_bytes(part.tobytes())
        written[split] = (images.transpose(0, 2, 3, 1), labels)
    return written
