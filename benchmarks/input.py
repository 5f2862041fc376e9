"""Host work for images: decoding to a fixed size, and whole batches, in images per second.

    python benchmarks/input.py [--rounds=15] [--size=256] [--images=DIR]

Contestants take turns on the same images, each in one thread; what counts is the ratio.
Without --images, which is searched for JPEG files, the images are mosaics of the ImageNet
subset in ANINFONCE_DATASETS (default ../shared/datasets), cut to the sizes of ImageNet: its
own images have 224 pixels only. Images per second are per second of processor time, hence
per core; waiting for other programs is not in them.
"""

import argparse
import importlib.util
import io
import os
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import cv2
import numpy as np
from PIL import Image
from timing import interleave, ratio

from aninfonce_jax.data.datasets import open_dataset
from aninfonce_jax.data.decode import Decoder
from aninfonce_jax.data.pipeline import Loading, evaluation_batches
from aninfonce_jax.data.prepare import prepare
from aninfonce_jax.data.recipes import read
from aninfonce_jax.placement import Rows

ROOT = Path(__file__).resolve().parent.parent
DATASETS = Path(os.environ.get("ANINFONCE_DATASETS", ROOT.parent / "shared" / "datasets"))
ARCHIVE = "imagenette224_subset.tar"
# Height and width: small, ImageNet's most frequent size, and a large one.
SHAPES = [(224, 224), (375, 500), (900, 1200)]
IMAGES = 24


# --- Images ---


def photographs() -> Iterator[np.ndarray]:
    """Yields images of 224 x 224 pixels, shuffled."""
    path = DATASETS / ARCHIVE
    if not path.exists():
        raise SystemExit(f"{ARCHIVE} is not in {DATASETS}; set ANINFONCE_DATASETS, or use --images")
    with tarfile.open(path) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        for index in np.random.default_rng(0).permutation(len(members)):
            data = archive.extractfile(members[index]).read()
            yield np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def mosaics(shape: tuple[int, int], count: int, source: Iterator[np.ndarray]) -> list[bytes]:
    """Returns JPEG files of `shape`, tiled from photographs, with ImageNet's usual quality."""
    rows, columns = (-(-side // 224) for side in shape)
    files = []
    for _ in range(count):
        tiles = [[next(source) for _ in range(columns)] for _ in range(rows)]
        whole = np.concatenate([np.concatenate(row, axis=1) for row in tiles])
        buffer = io.BytesIO()
        Image.fromarray(whole[: shape[0], : shape[1]]).save(buffer, "JPEG", quality=92)
        files.append(buffer.getvalue())
    return files


def found_images(folder: Path) -> list[bytes]:
    paths = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".jpeg", ".jpg"))
    chosen = np.random.default_rng(0).permutation(len(paths))[:200]
    return [paths[index].read_bytes() for index in chosen]


# --- Decoding ---


def pillow(size: int, draft: bool) -> Callable[[bytes], np.ndarray]:
    def run(data: bytes) -> np.ndarray:
        image = Image.open(io.BytesIO(data))
        if draft:
            image.draft("RGB", (size, size))
        image = image.convert("RGB")
        side = min(image.size)
        left, top = (image.width - side) / 2, (image.height - side) / 2
        box = (left, top, left + side, top + side)
        return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box))

    return run


def opencv(size: int) -> Callable[[bytes], np.ndarray]:
    def run(data: bytes) -> np.ndarray:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        height, width = pixels.shape[:2]
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        square = pixels[top : top + side, left : left + side]
        small = cv2.resize(square, (size, size), interpolation=cv2.INTER_AREA)
        return cv2.cvtColor(small, cv2.COLOR_BGR2RGB)

    return run


def tensorflow_data(size: int, files: list[bytes]) -> Callable[[], None]:
    """Returns a pass of tf.data over the files, in one thread."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)

    def load(data: tf.Tensor) -> tf.Tensor:
        shape = tf.io.extract_jpeg_shape(data)
        side = tf.minimum(shape[0], shape[1])
        window = [(shape[0] - side) // 2, (shape[1] - side) // 2, side, side]
        pixels = tf.io.decode_and_crop_jpeg(data, window, channels=3)
        return tf.cast(tf.image.resize(pixels, (size, size), antialias=True), tf.uint8)

    dataset = tf.data.Dataset.from_tensor_slices(files).map(load)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    dataset = dataset.with_options(options)

    def run() -> None:
        for _ in dataset:
            pass

    return run


def each(decode: Callable[[bytes], np.ndarray], files: list[bytes]) -> Callable[[], None]:
    def run() -> None:
        for data in files:
            decode(data)

    return run


# --- Measuring ---


def compare(title: str, contestants: dict[str, Callable[[], object]], images: int, rounds: int):
    """Prints images per second of processor time, and how much longer others take than ours."""
    processor: dict[str, list[float]] = {name: [] for name in contestants}

    def timed(name: str, run: Callable[[], object]) -> Callable[[], None]:
        def measured() -> None:
            begin = time.process_time()
            run()
            processor[name].append(time.process_time() - begin)

        return measured

    seconds = interleave({name: timed(name, run) for name, run in contestants.items()}, rounds)
    # Without the round that `interleave` throws away, too.
    processor = {name: times[1:] for name, times in processor.items()}
    ours = next(iter(contestants))
    print(f"{title}; {rounds} rounds of {images} images")
    for name in contestants:
        line = f"  {name:28s}{images / np.median(processor[name]):8,.0f} images/s per core"
        if name != ours:
            line += f"   takes {ratio(processor, name, ours)} our time"
            line += f", by the clock {ratio(seconds, name, ours)}"
        print(line, flush=True)


def compare_decoding(title: str, files: list[bytes], size: int, rounds: int) -> None:
    contestants = {
        "ours": each(Decoder(size), files),
        "Pillow": each(pillow(size, draft=False), files),
        "Pillow, scaled decoding": each(pillow(size, draft=True), files),
        "OpenCV": each(opencv(size), files),
    }
    if importlib.util.find_spec("tensorflow"):
        contestants["tf.data"] = tensorflow_data(size, files)
    compare(title, contestants, len(files), rounds)


def compare_batches(files: list[bytes], size: int, rounds: int, folder: Path) -> None:
    """Whole batches of a data set on disk, in this process."""
    import tensorflow_datasets as tfds

    images = folder / "images" / "train" / "a"
    images.mkdir(parents=True)
    for number, data in enumerate(files):
        (images / f"{number:04}.JPEG").write_bytes(data)
    prepare(*read("folder", folder / "images"), folder)
    batch = len(files) // 2

    def ours(name: str, where: Path) -> Callable[[], None]:
        source = open_dataset(name, where, "train")

        def run() -> None:
            with evaluation_batches(source, Decoder(size), Rows(batch), loading=Loading()) as all_:
                for _ in all_:
                    pass

        return run

    def files_with_pillow() -> None:
        decode = pillow(size, draft=False)
        np.stack([decode(path.read_bytes()) for path in sorted(images.iterdir())])

    def records_as_tfds_gives_them() -> None:
        for record in tfds.data_source("images", data_dir=folder, split="train"):
            image = Image.fromarray(record["image"])
            np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))

    contestants = {
        "ours, from records": ours("tfds:images", folder),
        "ours, from files": ours("folder", folder / "images"),
        "Pillow in a loop, from files": files_with_pillow,
        "tfds.data_source and Pillow": records_as_tfds_gives_them,
    }
    compare("whole batches", contestants, len(files), rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--images", type=Path)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    if not importlib.util.find_spec("tensorflow"):
        print("tf.data is left out: tensorflow is not installed")
    if arguments.images:
        sets = {f"images of {arguments.images}": found_images(arguments.images)}
    else:
        source = photographs()
        sets = {f"{w} x {h} pixels": mosaics((h, w), IMAGES, source) for h, w in SHAPES}
    for title, files in sets.items():
        compare_decoding(f"{title} to {arguments.size}", files, arguments.size, arguments.rounds)
    with tempfile.TemporaryDirectory() as folder:
        files = list(sets.values())[len(sets) // 2]
        compare_batches(files, arguments.size, arguments.rounds, Path(folder))


if __name__ == "__main__":
    main()
