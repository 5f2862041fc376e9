"""What convolutions and their norms train and gather, and parts of norms with their gradients.

Parameters and running statistics are those of `nn.Conv` and `nn.BatchNorm`, by name and by
value. Their owners can't take a norm apart, which `bottleneck.py` and `stem.py` need to.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from aninfonce_jax.types import Array

# For all norms: the share of the past in running statistics, and what is added to a variance.
MOMENTUM = 0.9
EPSILON = 1e-5
# Marks statistics: small, and to compute them again goes over whole maps and all devices.
STATISTICS = "statistics"
# The axes of maps that a norm averages over.
PIXELS = (0, 1, 2)

_T = TypeVar("_T")


class ConvNorm(NamedTuple):
    """What a convolution and the norm behind it train, float32."""

    kernel: Array
    scale: Array
    bias: Array


class Moments(NamedTuple):
    """Moments of a norm's input, one of each per channel, float32."""

    mean: Array
    variance: Array


class Kernel(nn.Module):
    """The kernel of a convolution, float32, as `nn.Conv` would name it.

    Attributes:
      shape: height, width, in, out.
    """

    shape: tuple[int, ...]

    @nn.compact
    def __call__(self) -> Array:
        """Returns it."""
        init = nn.initializers.variance_scaling(2.0, "fan_out", "normal")
        kernel: Array = self.param("kernel", init, self.shape, jnp.float32)
        return kernel


class Norm(nn.Module):
    """What a norm trains and gathers, float32, as `nn.BatchNorm` would name it.

    Attributes:
      channels: how many are normalised, each by itself.
      scale_init: of the scale; the bias starts at zero.
    """

    channels: int
    scale_init: Callable[..., Array]

    def setup(self) -> None:
        """Declares them."""
        shape = (self.channels,)
        self._scale = self.param("scale", self.scale_init, shape, jnp.float32)
        self._bias = self.param("bias", nn.initializers.zeros, shape, jnp.float32)
        self._mean = self.variable("batch_stats", "mean", jnp.zeros, shape, jnp.float32)
        self._var = self.variable("batch_stats", "var", jnp.ones, shape, jnp.float32)

    def weights(self) -> tuple[Array, Array]:
        """Returns scale and bias."""
        return self._scale, self._bias

    def running(self) -> Moments:
        """Returns what was gathered."""
        return Moments(self._mean.value, self._var.value)

    def update(self, moments: Moments) -> None:
        """Moves what was gathered towards the moments of a batch."""
        if self.is_initializing():
            return
        for kept, new in zip((self._mean, self._var), moments, strict=True):
            kept.value = MOMENTUM * kept.value + (1 - MOMENTUM) * new


def sum_pixels(x: Array) -> Array:
    """Returns the sums of maps by channel, float32."""
    return jnp.sum(x, PIXELS, dtype=jnp.float32)


def count_pixels(x: Array) -> int:
    """Returns how many pixels maps have, over the whole batch."""
    return x.shape[0] * x.shape[1] * x.shape[2]


def moments_of(y: Array) -> Moments:
    """Returns the moments of maps, in one pass over them."""
    mean = sum_pixels(y) / count_pixels(y)
    square = sum_pixels(jnp.square(y.astype(jnp.float32))) / count_pixels(y)
    return mark_statistics(Moments(mean, jnp.maximum(square - jnp.square(mean), 0)))


def mark_statistics(tree: _T) -> _T:
    """Marks arrays as statistics, for policies of `jax.checkpoint`."""
    marked: _T = jax.tree.map(lambda leaf: checkpoint_name(leaf, STATISTICS), tree)
    return marked


def along_channels(x: Array) -> Array:
    """Returns [channels] as maps of one pixel."""
    return x[None, None, None]


def inverse_std(moments: Moments) -> Array:
    """Returns what a norm multiplies with."""
    return lax.rsqrt(moments.variance + EPSILON)


def normalise(y: Array, weights: ConvNorm, moments: Moments) -> Array:
    """Returns what a norm makes of y, float32."""
    gain = weights.scale * inverse_std(moments)
    centred = y.astype(jnp.float32) - along_channels(moments.mean)
    return centred * along_channels(gain) + along_channels(weights.bias)


def normalise_and_cut(y: Array, weights: ConvNorm, moments: Moments) -> Array:
    """Returns the positive part of what a norm makes of y, in the dtype of y."""
    return jnp.maximum(normalise(y, weights, moments), 0).astype(y.dtype)


def norm_gradient(
    dz: Array, y: Array, weights: ConvNorm, moments: Moments
) -> tuple[Array, Array, Array]:
    """Returns the gradients of a norm's input, scale and bias, by that of its result."""
    d_scale, d_bias = scale_and_bias_gradient(dz, y, moments)
    return input_gradient(dz, y, weights, moments, d_scale, d_bias), d_scale, d_bias


def scale_and_bias_gradient(dz: Array, y: Array, moments: Moments) -> tuple[Array, Array]:
    """Returns the gradients of a norm's scale and bias, by that of its result."""
    centred = y.astype(jnp.float32) - along_channels(moments.mean)
    d_scale = sum_pixels(dz.astype(jnp.float32) * centred) * inverse_std(moments)
    return d_scale, sum_pixels(dz)


def input_gradient(
    dz: Array, y: Array, weights: ConvNorm, moments: Moments, d_scale: Array, d_bias: Array
) -> Array:
    """Returns the gradient of a norm's input, in its dtype, by those of its result and weights."""
    inverse, pixels = inverse_std(moments), count_pixels(y)
    centred = y.astype(jnp.float32) - along_channels(moments.mean)
    along = centred * along_channels(inverse * d_scale / pixels)
    dy = dz.astype(jnp.float32) - along_channels(d_bias / pixels) - along
    return (dy * along_channels(weights.scale * inverse)).astype(y.dtype)
