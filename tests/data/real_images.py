"""A few images from the real data sets, for tests that skip where these are absent."""

import functools
import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

FOLDER = Path(
    os.environ.get(
        "ANINFONCE_DATASETS", Path(__file__).resolve().parents[2].parent / "shared" / "datasets"
    )
)
CIFAR_RECORD = 1 + 3 * 32 * 32


def _existing(name: str) -> Path:
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"no {name} in {FOLDER}; set ANINFONCE_DATASETS to the folder that holds it")
    return path


@functools.cache
def cifar_images(count: int = 16) -> np.ndarray:
    """Returns images of CIFAR-10, uint8 [count, 32, 32, 3]."""
    with tarfile.open(_existing("cifar-10-binary.tar.xz"), "r|xz") as archive:
        for member in archive:
            if member.name.endswith("data_batch_1.bin"):
                data = archive.extractfile(member).read(count * CIFAR_RECORD)
                break
    records = np.frombuffer(data, np.uint8).reshape(count, CIFAR_RECORD)
    return records[:, 1:].reshape(count, 3, 32, 32).transpose(0, 2, 3, 1)


@functools.cache
def imagenet_images(count: int = 3) -> np.ndarray:
    """Returns images of ImageNet, uint8 [count, 224, 224, 3]."""
    images = []
    with tarfile.open(_existing("imagenette224_subset.tar")) as archive:
        for member in archive:
            if member.name.endswith(".JPEG"):
                encoded = io.BytesIO(archive.extractfile(member).read())
                images.append(np.asarray(Image.open(encoded).convert("RGB")))
            if len(images) == count:
                break
    return np.stack(images)


def made_up_images(count: int, height: int, width: int) -> np.ndarray:
    """Returns smooth colour gradients under noise, uint8 [count, height, width, 3]."""
    rng = np.random.default_rng(height * 1000 + width)
    y, x = np.mgrid[:height, :width]
    phases = rng.uniform(0, 6, (count, 1, 1, 3))
    waves = np.sin(0.2 * y[None, :, :, None] + phases) + np.cos(0.3 * x[None, :, :, None] - phases)
    noise = rng.normal(0, 0.3, (count, height, width, 3))
    return np.clip(128 + 64 * (waves + noise), 0, 255).astype(np.uint8)
