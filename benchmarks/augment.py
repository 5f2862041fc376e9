"""SimCLR's augmentations: ours, jitted, against Kornia and Albumentations on the same cores.

    pip install torch==2.13.0 kornia==0.9.0 albumentations==2.0.8 "opencv-python-headless<5"
    python benchmarks/augment.py [--rounds=20]

Everyone turns the same uint8 images into float views: crop, flip, colour jitter, grey, and
at 224 pixels also blur, with the probabilities and ranges of our presets. The contestants take
turns; what counts is the ratio. They differ in what they can do: ours antialiases its crops,
blurs everybody to keep the batch together, and returns the parameters; Kornia works on the
batch in PyTorch without antialiasing; Albumentations works on one image at a time with OpenCV,
rounds to uint8 after every step, skips what does not apply, and gets one thread per core. The
threads share Python's lock, which small images feel; worker processes would not.
A contestant that is not installed is left out.
"""

import argparse
import functools
import importlib.util
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
from timing import interleave, ratio

from aninfonce_jax.data.augment import PRESETS, AugmentSpec, augment
from aninfonce_jax.distributed.cpu_threads import usable_cores

# Preset and batch size.
SETTINGS = [("simclr_cifar", 512), ("simclr", 32)]
BLUR_WINDOW = 23


def ours(images: np.ndarray, spec: AugmentSpec) -> Callable[[], object]:
    run = jax.jit(functools.partial(augment, spec=spec))
    root, steps = jax.random.key(0), itertools.count()
    return lambda: jax.block_until_ready(run(jax.random.fold_in(root, next(steps)), images))


def kornia_views(images: np.ndarray, spec: AugmentSpec) -> Callable[[], object]:
    import torch
    from kornia import augmentation as K

    steps = [
        K.RandomResizedCrop(
            (spec.size, spec.size),
            scale=spec.scale,
            ratio=spec.ratio,
            resample=spec.interpolation,
            cropping_mode="resample",
        ),
        K.RandomHorizontalFlip(p=spec.flip_probability),
        K.ColorJitter(
            spec.brightness, spec.contrast, spec.saturation, spec.hue, p=spec.jitter_probability
        ),
        K.RandomGrayscale(p=spec.grey_probability),
    ]
    if spec.blur_probability:
        window = (BLUR_WINDOW, BLUR_WINDOW)
        steps.append(K.RandomGaussianBlur(window, spec.sigma, p=spec.blur_probability))
    pipeline = K.AugmentationSequential(*steps)
    batch = torch.from_numpy(images)

    def run() -> object:
        with torch.inference_mode():
            return pipeline(batch.permute(0, 3, 1, 2).float() / 255)

    return run


def albumentations_views(images: np.ndarray, spec: AugmentSpec) -> Callable[[], object]:
    import albumentations as A
    import cv2

    cv2.setNumThreads(1)
    method = cv2.INTER_CUBIC if spec.interpolation == "bicubic" else cv2.INTER_LINEAR
    steps = [
        A.RandomResizedCrop((spec.size, spec.size), spec.scale, spec.ratio, interpolation=method),
        A.HorizontalFlip(p=spec.flip_probability),
        A.ColorJitter(
            *(
                (1 - reach, 1 + reach)
                for reach in (spec.brightness, spec.contrast, spec.saturation)
            ),
            (-spec.hue, spec.hue),
            p=spec.jitter_probability,
        ),
        A.ToGray(p=spec.grey_probability),
    ]
    if spec.blur_probability:
        steps.append(A.GaussianBlur((0, BLUR_WINDOW), spec.sigma, p=spec.blur_probability))
    # A pipeline per thread: they hold a random state.
    workers = usable_cores()
    pool = ThreadPoolExecutor(workers)
    pipelines = [A.Compose(steps) for _ in range(workers)]

    def part(worker: int) -> np.ndarray:
        own = images[worker::workers]
        views = np.stack([pipelines[worker](image=image)["image"] for image in own])
        return views.astype(np.float32) / 255

    return lambda: list(pool.map(part, range(workers)))


CONTESTANTS = {"kornia": kornia_views, "albumentations": albumentations_views}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    installed = {name: make for name, make in CONTESTANTS.items() if importlib.util.find_spec(name)}
    if absent := CONTESTANTS.keys() - installed.keys():
        print(f"not installed, left out: {', '.join(sorted(absent))}")
    print(f"{jax.default_backend()}, {rounds} rounds; medians, quartiles in brackets")
    rng = np.random.default_rng(0)
    for name, batch in SETTINGS:
        spec = PRESETS[name]
        images = rng.integers(0, 256, (batch, spec.size, spec.size, 3), np.uint8)
        runs = {"ours": ours(images, spec)}
        runs |= {other: make(images, spec) for other, make in installed.items()}
        seconds = interleave(runs, rounds)
        print(f"{name}, {spec.size} pixels, batch {batch}")
        for contestant, times in seconds.items():
            rate = f"{batch / np.median(times):10,.0f} images/s"
            against = "" if contestant == "ours" else ratio(seconds, contestant, "ours")
            print(f"  {contestant:16s}{rate}   {against and against + ' our time'}".rstrip())


if __name__ == "__main__":
    main()
