"""Embeddings of a folder of images: two augmented views of each are a pair.

python examples/image_folder.py           # on images that it draws itself
python examples/image_folder.py PICTURES  # on PICTURES/train/<class>/*.png, PICTURES/test/...
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

# Small enough for a minute of one core; leave them out for a real run.
TINY = {
    "source.image_size": 16,
    "encoder.width": 0.125,
    "encoder.projector": "(32,)",
    "encoder.dim": 8,
    "train.steps": 20,
    "train.batch_size": 32,
    "optimizer.warmup_steps": 2,
    "eval.every": 20,
    "eval.held_out_batches": 1,
    "eval.train_examples": 64,
    "eval.readout_examples": 32,
    "eval.neighbours": 5,
    "checkpoint.every": 20,
    "log.every": 10,
}


def draw_images(folder: Path, of_each: int = 40) -> None:
    """Writes images of discs and bars in any colour."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:24, :24]
    for split in ("train", "test"):
        for shape in ("disc", "bar"):
            (folder / split / shape).mkdir(parents=True)
            for number in range(of_each):
                y, x = rng.uniform(8, 16, 2)
                inside = (rows - y) ** 2 + (columns - x) ** 2 < 30
                if shape == "bar":
                    inside = np.abs(rows - y) < 2
                image = np.where(inside[..., None], *rng.uniform(0, 255, (2, 3)))
                file = folder / split / shape / f"{number}.png"
                Image.fromarray(image.astype(np.uint8)).save(file)


def main(folder: Path, workdir: Path, settings: dict[str, object]) -> Path:
    flags = [f"--config.{key}={value}" for key, value in settings.items()]
    command = [sys.executable, "-m", "aninfonce_jax.main", "--config=cifar10_cpu:aninfonce"]
    command += ["--config.source.dataset=folder", f"--config.source.folder={folder}"]
    subprocess.run([*command, *flags, f"--workdir={workdir}", "--progress=off"], check=True)
    return workdir / "report.html"


if __name__ == "__main__":
    pictures = Path(sys.argv[1]) if sys.argv[1:] else Path("pictures")
    if not pictures.exists():
        draw_images(pictures)
    print(f"open {main(pictures, Path('runs/pictures'), {} if sys.argv[1:] else TINY)}")
