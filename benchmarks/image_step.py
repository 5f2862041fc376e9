"""A training step on images: ours against plain PyTorch, whole and in parts.

    pip install torch==2.13.0
    python benchmarks/image_step.py [--rounds=10] [--objective=aninfonce] [--batch-size=128] \
        [--cpu-time]

The setting is that of configs/cifar10_cpu.py: a narrow ResNet-10, 32 pixels, SimCLR's
augmentations for CIFAR, both views as anchors and negatives, Adam. Either side makes two views of
the same uint8 images, encodes them, takes the loss and a step; no one loads images. PyTorch
has the choice of two memory layouts, applies each colour step to the samples that are due for it
rather than to all, and takes a fused Adam. It is not compiled. The contestants take turns; what
counts is the ratio. On a single core that others use too, --cpu-time leaves out what they take.
"""

import argparse
import itertools
import math
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch.nn.functional as F
from timing import interleave, ratio
from torch import Tensor, nn

from aninfonce_jax.build import build_shapes
from aninfonce_jax.config import resolve
from aninfonce_jax.config.file import load_config
from aninfonce_jax.config.schema import Config
from aninfonce_jax.data.augment import AugmentSpec
from aninfonce_jax.data.pipeline import ImageBatch
from aninfonce_jax.distributed.cpu_threads import usable_cores
from aninfonce_jax.models.resnet import DEPTHS, IMAGENET_MEAN, IMAGENET_STD
from aninfonce_jax.placement import Placement
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.training.step import make_train_step
from aninfonce_jax.types import Array, PyTree, Weights

CONFIG = "configs/cifar10_cpu.py"
ATTEMPTS = 10
Run = Callable[[], object]


def our_parts(experiment: Experiment, images: np.ndarray) -> dict[str, Run]:
    """Returns functions that do a step of ours, and parts of it."""
    placement = Placement.local(1)
    step = make_train_step(experiment, placement)
    state = jax.jit(experiment.init_state, out_shardings=placement.whole)()
    weights = jax.tree.map(jnp.copy, state.weights)
    count = len(images)
    batch = placement.put_rows(
        ImageBatch(
            images,
            np.zeros(count, np.int32),
            np.arange(count, dtype=np.int32),
            np.ones(count, bool),
        )
    )
    keys = map(jax.random.key, itertools.count())
    draw = jax.jit(experiment.source.pairs, static_argnums=2)
    pairs = draw(next(keys), batch, count)
    views = jnp.concatenate([pairs.view1, pairs.view2])

    @jax.jit
    def encode(weights: Weights, views: Array) -> PyTree:
        def total(params: PyTree) -> tuple[Array, PyTree]:
            variables = {"params": params["encoder"], **weights.model_state}
            layers, new = experiment.encoder.apply(variables, views, train=True)
            return jnp.sum(layers[experiment.encoder.layers[-1]] ** 2), new

        return jax.grad(total, has_aux=True)(weights.params)

    def take_step():
        nonlocal state
        state, metrics = step(state, batch, 1)
        jax.block_until_ready(metrics)

    return {
        "step": take_step,
        "encoder": lambda: jax.block_until_ready(encode(weights, views)),
        "augmentation": lambda: jax.block_until_ready(draw(next(keys), batch, count)),
    }


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, fan_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(fan_in, channels, 3, stride, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or fan_in != channels:
            conv = nn.Conv2d(fan_in, channels, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, in, height, width] to [batch, channels, height/stride, width/stride]."""
        return F.relu(self.branch(x) + self.shortcut(x), inplace=True)


def torch_encoder(
    channels: int, blocks: tuple[int, ...], widths: tuple[int, ...], dim: int
) -> nn.Module:
    """Returns a ResNet of basic blocks with ImageNet's stem, and its projector."""
    stem = nn.Conv2d(3, channels, 7, 2, 3, bias=False)
    layers = [stem, nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    fan_in = channels
    for stage, count in enumerate(blocks):
        for index in range(count):
            layers.append(Block(fan_in, channels * 2**stage, 2 if stage and not index else 1))
            fan_in = channels * 2**stage
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    for width in widths:
        layers += [nn.Linear(fan_in, width, bias=False), nn.BatchNorm1d(width)]
        layers.append(nn.ReLU(inplace=True))
        fan_in = width
    return nn.Sequential(*layers, nn.Linear(fan_in, dim))


def draw_grid(count: int, spec: AugmentSpec) -> Tensor:
    """Draws crops and flips, [count, size, size, 2], as `grid_sample` takes them."""
    area = torch.empty(count, ATTEMPTS).uniform_(*spec.scale)
    ratios = torch.empty(count, ATTEMPTS).uniform_(*map(math.log, spec.ratio)).exp()
    sides = torch.stack([(area * ratios).sqrt(), (area / ratios).sqrt()], 2)
    fits = (sides <= 1).all(2)
    # The first attempt that fits; the whole image, if none does.
    sides = sides[torch.arange(count), fits.int().argmax(1)]
    sides = torch.where(fits.any(1)[:, None], sides, 1.0)
    centres = (1 - sides) * (2 * torch.rand(count, 2) - 1)
    flips = torch.where(torch.rand(count) < spec.flip_probability, -1.0, 1.0)
    theta = torch.zeros(count, 2, 3)
    theta[:, 0, 0], theta[:, 1, 1], theta[:, :, 2] = sides[:, 0] * flips, sides[:, 1], centres
    return F.affine_grid(theta, [count, 3, spec.size, spec.size], align_corners=False)


def grey(x: Tensor) -> Tensor:
    return 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]


def shift_hue(x: Tensor, turns: Tensor) -> Tensor:
    red, green, blue = x.unbind(1)
    value = x.amax(1)
    chroma = value - x.amin(1)
    unit = 1 / torch.where(chroma > 0, chroma, 1.0)
    others = torch.where(value == green, 2 + (blue - red) * unit, 4 + (red - green) * unit)
    sixths = torch.where(value == red, (green - blue) * unit, others)
    phase = torch.tensor([5.0, 3.0, 1.0])[:, None, None]
    angle = ((sixths[:, None] + 6 * turns) + phase).remainder(6)
    return value[:, None] - chroma[:, None] * torch.minimum(angle, 4 - angle).clamp(0, 1)


JITTER = (
    lambda x, f: (f * x).clamp(0, 1),
    lambda x, f: torch.lerp(grey(x).mean((2, 3), keepdim=True), x, f).clamp(0, 1),
    lambda x, f: torch.lerp(grey(x), x, f).clamp(0, 1),
    shift_hue,
)


def torch_view(images: Tensor, spec: AugmentSpec) -> Tensor:
    """Makes one view of images [batch, 3, height, width] in [0, 1]."""
    count = len(images)
    x = F.grid_sample(images, draw_grid(count, spec), padding_mode="border", align_corners=False)
    reach = torch.tensor([spec.brightness, spec.contrast, spec.saturation, spec.hue])
    numbers = (2 * torch.rand(count, 4) - 1) * reach + torch.tensor([1.0, 1.0, 1.0, 0.0])
    order = torch.rand(count, 4).argsort(1)
    order[torch.rand(count) >= spec.jitter_probability] = -1
    for place, (number, apply) in itertools.product(range(4), enumerate(JITTER)):
        due = (order[:, place] == number).nonzero()[:, 0]
        x[due] = apply(x[due], numbers[due, number, None, None, None])
    due = (torch.rand(count) < spec.grey_probability).nonzero()[:, 0]
    x[due] = grey(x[due]).expand(-1, 3, -1, -1)
    return x


def torch_parts(
    config: Config, experiment: Experiment, images: np.ndarray, layout: torch.memory_format
):
    """Returns functions that do a step of PyTorch's, and parts of it."""
    spec, dim = experiment.source.spec, config.encoder.dim
    backbone = experiment.encoder.module.backbone
    blocks, _ = DEPTHS[backbone.depth]
    encoder = torch_encoder(backbone.channels, blocks, config.encoder.projector, dim)
    encoder = encoder.to(memory_format=layout)
    anisotropic = config.objective.kind == "aninfonce"
    objective = config.objective
    start = objective.concentration_start if anisotropic else 1 / objective.temperature
    free = nn.Parameter(torch.full((dim,), math.log(start)), requires_grad=anisotropic)
    trained = [*encoder.parameters(), *([free] if anisotropic else [])]
    adam = torch.optim.Adam(trained, config.optimizer.learning_rate, fused=True)
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    mean, std = (torch.tensor(x)[:, None, None] for x in (IMAGENET_MEAN, IMAGENET_STD))
    target = torch.arange(2 * len(images)).roll(len(images))

    @torch.no_grad()
    def draw() -> Tensor:
        scaled = (pixels.float() / 255).contiguous()
        return torch.cat([torch_view(scaled, spec), torch_view(scaled, spec)])

    def encode(views: Tensor) -> Tensor:
        return encoder(((views - mean) / std).contiguous(memory_format=layout))

    def take_step():
        z = F.normalize(encode(draw()))
        scaled = z * free.exp()
        logits = torch.addmm(-0.5 * (scaled * z).sum(1)[None, :], scaled, z.T)
        loss = F.cross_entropy(logits.fill_diagonal_(-math.inf), target)
        adam.zero_grad()
        loss.backward()
        adam.step()
        loss.item()

    views = draw()

    def encode_and_back():
        adam.zero_grad()
        (encode(views) ** 2).sum().backward()

    return {"step": take_step, "encoder": encode_and_back, "augmentation": draw}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--objective", choices=("infonce", "aninfonce"), default="aninfonce")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--cpu-time", action="store_true")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.cpu_time else time.perf_counter
    threads = usable_cores()
    torch.set_num_threads(threads)
    changes = {"source.folder": "none", "train.batch_size": arguments.batch_size}
    (config,) = resolve(load_config(f"{CONFIG}:{arguments.objective}"), changes).runs.values()
    experiment, size = build_shapes(config), config.source.image_size
    shape = (arguments.batch_size, size, size, 3)
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    sides = {
        "ours": our_parts(experiment, images),
        "torch": torch_parts(config, experiment, images, torch.contiguous_format),
        "torch, channels last": torch_parts(config, experiment, images, torch.channels_last),
    }
    print(
        f"{arguments.rounds} rounds, batch {arguments.batch_size}, {arguments.objective}, "
        f"{threads} threads; medians, quartiles in brackets"
    )
    for part in sides["ours"]:
        contestants = {name: runs[part] for name, runs in sides.items()}
        seconds = interleave(contestants, arguments.rounds, clock)
        print(f"{part}: {1e3 * np.median(seconds['ours']):.0f} ms of ours")
        for name in list(seconds)[1:]:
            print(f"  {name}: {ratio(seconds, name, 'ours')} our time")


if __name__ == "__main__":
    main()
