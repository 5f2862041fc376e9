"""The estimator on a folder of images: two changed copies of each image are a pair.

python examples/image_folder_fit.py           # on images that it draws itself
python examples/image_folder_fit.py PICTURES  # on PICTURES/train/<class>/*, PICTURES/test/<class>/*

All images are held in memory. For folders that are too large for that, for a ResNet and for the
augmentations of the paper see image_folder.py.
"""

import sys
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

import aninfonce_jax as an

SIDE, STEPS = 16, 300


def draw_images(folder: Path, of_each: int) -> None:
    """Writes images of red and blue discs and bars, wherever and however bright."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:SIDE, :SIDE]
    for split in ("train", "test"):
        for kind in ("red disc", "blue disc", "red bar", "blue bar"):
            (folder / split / kind).mkdir(parents=True)
            for number in range(of_each):
                y, x = rng.uniform(5, 11, 2)
                inside = (rows - y) ** 2 + (columns - x) ** 2 < 14
                if kind.endswith("bar"):
                    inside = np.abs(rows - y) < 2
                colour = rng.uniform(150, 255) * np.array([1, 0, 0] if "red" in kind else [0, 0, 1])
                image = np.where(inside[..., None], colour, rng.uniform(20, 80))
                Image.fromarray(image.astype(np.uint8)).save(
                    folder / split / kind / f"{number}.png"
                )


def read_images(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Returns the images of a split [n, SIDE, SIDE, 3], and the names of their folders [n]."""
    files = sorted(file for file in folder.glob("*/*") if file.is_file())
    images = [Image.open(file).convert("RGB").resize((SIDE, SIDE)) for file in files]
    return np.stack([np.asarray(image) for image in images]), np.array(
        [file.parent.name for file in files]
    )


def change(key: jax.Array, images: jax.Array) -> jax.Array:
    """Moves every image by up to three pixels and makes it brighter or darker."""
    where, light = jax.random.split(key)
    by = jax.random.randint(where, (len(images), 2), -3, 4)
    moved = jax.vmap(lambda image, step: jnp.roll(image, step, axis=(0, 1)))(images, by)
    factors = jax.random.uniform(light, (len(images), 1, 1, 1), minval=0.7, maxval=1.3)
    return jnp.clip(moved * factors, 0.0, 1.0)


class SmallNetwork(nn.Module):
    """Two convolutions and two layers: put your network here, or encoder="resnet18"."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for width in (16, 32):
            x = nn.relu(nn.Conv(width, (3, 3), strides=2)(x))
        return nn.Dense(8)(nn.relu(nn.Dense(64)(x.reshape(len(x), -1))))


def main(folder: Path) -> float:
    images, _ = read_images(folder / "train")
    model = an.AnInfoNCE(dim=8, encoder=SmallNetwork(), steps=STEPS, standardise=False)
    model.fit(an.pairs.augmented(images, change))

    unseen, kinds = read_images(folder / "test")
    # What is held tightly between two views counts for more: in such units distances are alike.
    points = model.transform(unseen) * np.sqrt(model.concentration_)
    distances = np.linalg.norm(points[:, None] - points, axis=2) + np.diag(
        np.full(len(points), np.inf)
    )
    found = float(np.mean(kinds[np.argmin(distances, axis=1)] == kinds))
    print(f"the nearest other image is of the same folder in {found:.0%} of the cases")
    return found


if __name__ == "__main__":
    pictures = Path(sys.argv[1]) if sys.argv[1:] else Path("drawn-pictures")
    if not pictures.exists():
        draw_images(pictures, of_each=60)
    main(pictures)
