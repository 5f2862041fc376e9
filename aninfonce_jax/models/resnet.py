"""Encoders of images: residual networks, and the projector that follows them.

Images are [batch, height, width, channels] throughout, the layout that convolutions want on
TPUs, and on GPUs with tensor cores.
"""

from functools import partial
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Primitive
from jax.extend.core.primitives import reduce_sum_p
from jax.typing import DTypeLike

from aninfonce_jax.models.batch_norm import (
    EPSILON,
    MOMENTUM,
    STATISTICS,
    ConvNorm,
    Kernel,
    Norm,
)
from aninfonce_jax.models.bottleneck import EXPANSION, Bottleneck
from aninfonce_jax.models.convolution import convolve
from aninfonce_jax.models.stem import SIZE, evaluate_stem, train_stem
from aninfonce_jax.types import Array

Stem = Literal["imagenet", "cifar"]
# What a projected ResNet returns, the embedding last.
LAYERS = ("backbone", "projector")

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

# Blocks per stage, and whether they are bottlenecks.
DEPTHS: dict[int, tuple[tuple[int, ...], bool]] = {
    # One block a stage: for small data and small machines.
    10: ((1, 1, 1, 1), False),
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
}
BASE_CHANNELS = 64
MIN_CHANNELS = 8

# No axis_name: under jit, the mean over a sharded batch already is the one over the global
# batch, and XLA adds the collectives. Flax takes mean and variance in float32 and normalises
# in float32 for any `dtype`, which is that of the result only.
_norm = partial(nn.BatchNorm, momentum=MOMENTUM, epsilon=EPSILON)

# Marks the output of a basic block's first convolution, for `_keep`.
_INNER_CONV = "inner_conv"
_keep_named = jax.checkpoint_policies.save_only_these_names(_INNER_CONV, STATISTICS)


def _keep(primitive: Primitive, *args: Any, **params: Any) -> bool:
    """Whether a value inside a block is kept for the gradient rather than computed again.

    Norms and activations, which cost next to nothing, are not kept, nor is a basic block's last
    convolution. A bottleneck keeps its input alone. The sums of the norms are kept: they are
    small, and to compute them again goes over whole maps and all devices.
    """
    return primitive is reduce_sum_p or bool(_keep_named(primitive, *args, **params))


def _conv(x: Array, channels: int, size: int, stride: int, name: str) -> Array:
    """Convolves without a bias, as a norm follows every convolution."""
    return convolve(x, Kernel((size, size, x.shape[-1], channels), name=name)(), stride)


def standardise(images: Array, dtype: DTypeLike) -> Array:
    """Returns images [..., 3] in [0, 1] less ImageNet's mean, over its standard deviation."""
    shape = (1,) * (images.ndim - 1) + (3,)
    mean = np.reshape(np.asarray(IMAGENET_MEAN, np.float32), shape)
    inverse_std = np.reshape(1 / np.asarray(IMAGENET_STD, np.float32), shape)
    return ((images.astype(jnp.float32) - mean) * inverse_std).astype(dtype)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut.

    Attributes:
      channels: of the convolutions.
      stride: of the first convolution and the shortcut.
      dtype: compute dtype.
    """

    channels: int
    stride: int
    dtype: DTypeLike

    @nn.compact
    def __call__(self, x: Array, *, train: bool) -> Array:
        """Maps [batch, height, width, in] to [batch, height/stride, width/stride, channels]."""
        norm = partial(_norm, use_running_average=not train, dtype=self.dtype)
        x = x.astype(self.dtype)
        residual = checkpoint_name(_conv(x, self.channels, 3, self.stride, "conv1"), _INNER_CONV)
        residual = nn.relu(norm(name="norm1")(residual))
        residual = _conv(residual, self.channels, 3, 1, "conv2")
        # As in a bottleneck, the branch starts at zero.
        residual = norm(scale_init=nn.initializers.zeros, name="norm2")(residual)
        if x.shape[-1] != self.channels or self.stride != 1:
            x = _conv(x, self.channels, 1, self.stride, "shortcut_conv")
            x = norm(name="shortcut_norm")(x)
        return nn.relu(x + residual)


class ResNet(nn.Module):
    """A residual network (He et al. 2016) up to its global average pooling.

    Attributes:
      depth: 10, 18, 34 or 50.
      stem: `imagenet` divides height and width by four before the first block (7x7
        convolution of stride 2, 3x3 max-pooling of stride 2); `cifar`, for small images,
        keeps them (3x3 convolution).
      width: multiplies the 64 channels of the first stage, and with them all others.
      dtype: compute dtype, float32 or bfloat16. Parameters, statistics of the norms and
        the returned features are float32 in any case.
      remat: whether gradients compute part of each block again, to keep less in memory.

    Raises:
      ValueError: on construction, for attributes other than these.
    """

    depth: int
    stem: Stem
    width: float = 1.0
    dtype: DTypeLike = jnp.float32
    remat: bool = False

    def __post_init__(self) -> None:
        if self.depth not in DEPTHS:
            raise ValueError(f"depth must be one of {sorted(DEPTHS)}, got {self.depth!r}")
        if self.stem not in ("imagenet", "cifar"):
            raise ValueError(f"stem must be 'imagenet' or 'cifar', got {self.stem!r}")
        if not 0 < self.width < float("inf"):
            raise ValueError(f"width must be a positive factor, got {self.width!r}")
        if jnp.dtype(self.dtype) not in (jnp.float32, jnp.bfloat16):
            raise ValueError(f"dtype must be float32 or bfloat16, got {self.dtype!r}")
        super().__post_init__()

    @property
    def channels(self) -> int:
        """Channels of the stem and of the first stage's 3x3 convolutions."""
        return max(MIN_CHANNELS, round(BASE_CHANNELS * self.width))

    @property
    def features(self) -> int:
        """The number of features returned."""
        blocks, bottleneck = DEPTHS[self.depth]
        return self.channels * 2 ** (len(blocks) - 1) * (EXPANSION if bottleneck else 1)

    @nn.compact
    def __call__(self, images: Array, *, train: bool) -> Array:
        """Maps images to features.

        Args:
          images: [batch, height, width, 3] in [0, 1], of any float dtype.
          train: whether norms use the batch's statistics, and update the running ones
            where `batch_stats` is mutable, rather than use the running ones.

        Returns:
          Features [batch, features], float32.

        Raises:
          ValueError: if images have another shape.
          TypeError: if images are integers, so likely not in [0, 1].
        """
        if images.ndim != 4 or images.shape[-1] != 3:
            raise ValueError(f"images must be [batch, height, width, 3], got {images.shape}")
        if not jnp.issubdtype(images.dtype, jnp.floating):
            raise TypeError(f"images must be floats in [0, 1], got {images.dtype}")
        x = standardise(images, self.dtype)
        if self.stem == "imagenet":
            x = self._image_stem(x, train=train)
        else:
            x = _conv(x, self.channels, 3, 1, "stem_conv")
            x = _norm(use_running_average=not train, dtype=self.dtype, name="stem_norm")(x)
            x = nn.relu(x)

        def apply(block: nn.Module, x: Array) -> Array:
            return block(x, train=train)

        if self.remat:
            apply = nn.remat(apply, policy=_keep)
        blocks, bottleneck = DEPTHS[self.depth]
        kind = Bottleneck if bottleneck else BasicBlock
        for stage, count in enumerate(blocks):
            for index in range(count):
                block = kind(
                    channels=self.channels * 2**stage,
                    stride=2 if stage > 0 and index == 0 else 1,
                    dtype=self.dtype,
                    name=f"stage{stage + 1}_block{index + 1}",
                )
                x = apply(block, x)
        return jnp.mean(x, axis=(1, 2), dtype=jnp.float32)

    def _image_stem(self, x: Array, *, train: bool) -> Array:
        kernel = Kernel((SIZE, SIZE, x.shape[-1], self.channels), name="stem_conv")()
        norm = Norm(self.channels, nn.initializers.ones, name="stem_norm")
        weights = ConvNorm(kernel, *norm.weights())
        if not train:
            return evaluate_stem(x, weights, norm.running())
        x, moments = train_stem(x, weights)
        norm.update(moments)
        return x


class Projector(nn.Module):
    """A multilayer perceptron from a backbone's features to embeddings, not normalised.

    Attributes:
      widths: hidden widths.
      dim: dimension of the embeddings.
      norm: whether a BatchNorm precedes each ReLU.
      dtype: compute dtype of the hidden layers.
    """

    widths: tuple[int, ...]
    dim: int
    norm: bool
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, features: Array, *, train: bool) -> Array:
        """Maps features [batch, features] to float32 embeddings [batch, dim]."""
        x = features
        for width in self.widths:
            x = nn.Dense(width, use_bias=not self.norm, dtype=self.dtype)(x)
            if self.norm:
                x = _norm(use_running_average=not train, dtype=self.dtype)(x)
            x = nn.relu(x)
        # In float32, so that embeddings are not rounded to the compute dtype; a TPU still
        # takes one bfloat16 pass for it at the default precision.
        return nn.Dense(self.dim, dtype=jnp.float32)(x)


class ProjectedResNet(nn.Module):
    """A backbone with a projector.

    Attributes:
      backbone: from images to features.
      projector: from features to embeddings.
    """

    backbone: ResNet
    projector: Projector

    def __call__(self, images: Array, *, train: bool = False) -> dict[str, Array]:
        """Returns the float32 features of both layers, [batch, features] each.

        Args:
          images: [batch, height, width, 3] in [0, 1].
          train: whether norms use the batch's statistics.
        """
        features = self.backbone(images, train=train)
        return dict(zip(LAYERS, (features, self.projector(features, train=train)), strict=True))
