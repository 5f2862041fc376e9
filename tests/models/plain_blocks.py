"""Parts of a ResNet written plainly with Flax, for comparison; names are those of ours."""

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike


def convolution(channels: int, size: int, stride: int, **options) -> Callable:
    pad = (size // 2, size // 2)
    return nn.Conv(
        channels, (size, size), (stride, stride), padding=(pad, pad), use_bias=False, **options
    )


class PlainBottleneck(nn.Module):
    channels: int
    stride: int
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x, *, train):
        norm = partial(nn.BatchNorm, not train, momentum=0.9, epsilon=1e-5, dtype=self.dtype)
        conv = partial(convolution, dtype=self.dtype)
        narrow, wide = self.channels, 4 * self.channels
        y = nn.relu(norm(name="norm1")(conv(narrow, 1, 1, name="conv1")(x)))
        y = nn.relu(norm(name="norm2")(conv(narrow, 3, self.stride, name="conv2")(y)))
        y = norm(name="norm3")(conv(wide, 1, 1, name="conv3")(y))
        if x.shape[-1] != wide or self.stride != 1:
            x = norm(name="shortcut_norm")(conv(wide, 1, self.stride, name="shortcut_conv")(x))
        return nn.relu(x + y)


class PlainStem(nn.Module):
    channels: int

    @nn.compact
    def __call__(self, x, *, train):
        y = convolution(self.channels, 7, 2, name="stem_conv")(x)
        y = nn.relu(nn.BatchNorm(not train, momentum=0.9, epsilon=1e-5, name="stem_norm")(y))
        return nn.max_pool(y, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))
