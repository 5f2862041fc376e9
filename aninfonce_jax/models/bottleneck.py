"""A bottleneck block, with a gradient of its own that moves less through memory.

A step of a large ResNet waits for memory rather than for arithmetic, so this cuts what it moves.

A 1x1 convolution y = h W is linear in its input, so the statistics of the norm behind it follow
from the moments of h, which has a quarter of y's channels:

    mean(y) = mean(h) W,    var(y) = diag(Wᵀ cov(h) W)

So y is never written: one pass computes it, normalises it, adds the shortcut and cuts at zero.
The gradient needs no y either. With g the gradient of what the norm puts out, hᵀg gives the sums
that the norm's own gradient takes, and what the norm subtracts from g along y is h times a small
matrix (`_conv_norm_gradient`).

What the first two convolutions put out, the block's input and its result are kept for the
gradient, and no more: norms and cuts are computed again inside the operations that use them.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import DTypeLike

from aninfonce_jax.models.batch_norm import (
    PIXELS,
    ConvNorm,
    Kernel,
    Moments,
    Norm,
    along_channels,
    count_pixels,
    inverse_std,
    mark_statistics,
    moments_of,
    norm_gradient,
    normalise,
    normalise_and_cut,
    sum_pixels,
)
from aninfonce_jax.models.convolution import convolve, input_gradient, kernel_gradient
from aninfonce_jax.types import Array

# A bottleneck puts out this many times the channels of its 3x3 convolution.
EXPANSION = 4


class _InputMoments(NamedTuple):
    """Mean [in] and covariance [in, in] of a 1x1 convolution's input, float32."""

    mean: Array
    covariance: Array


# By "conv1" (1x1), "conv2" (3x3), "conv3" (1x1) and, unless the shortcut is the block's input
# itself, "shortcut" (1x1).
Weights = Mapping[str, ConvNorm]
Statistics = Mapping[str, Moments]


class Bottleneck(nn.Module):
    """A bottleneck of 1x1, 3x3 and 1x1 convolutions beside a shortcut.

    Attributes:
      channels: of the 3x3 convolution.
      stride: of the 3x3 convolution ("v1.5") and of the shortcut.
      dtype: compute dtype.
    """

    channels: int
    stride: int
    dtype: DTypeLike

    @nn.compact
    def __call__(self, x: Array, *, train: bool) -> Array:
        """Maps [batch, height, width, in] to [batch, height/stride, width/stride, out]."""
        narrow, wide = self.channels, EXPANSION * self.channels
        shapes = {
            "conv1": (1, 1, x.shape[-1], narrow),
            "conv2": (3, 3, narrow, narrow),
            "conv3": (1, 1, narrow, wide),
        }
        if x.shape[-1] != wide or self.stride != 1:
            shapes["shortcut"] = (1, 1, x.shape[-1], wide)
        weights, norms = {}, {}
        for key, shape in shapes.items():
            name = key if key != "shortcut" else "shortcut_conv"
            # The branch starts at zero and the block as its shortcut: trains more stably
            # with large batches (Goyal et al. 2017).
            init = nn.initializers.zeros if key == "conv3" else nn.initializers.ones
            norms[key] = Norm(shape[-1], init, name=name.replace("conv", "norm"))
            weights[key] = ConvNorm(Kernel(shape, name=name)(), *norms[key].weights())
        x = x.astype(self.dtype)
        if not train:
            running = {key: norm.running() for key, norm in norms.items()}
            return _block(x, weights, self.stride, running).out
        out, statistics = train_block(x, weights, self.stride)
        for key, norm in norms.items():
            norm.update(statistics[key])
        return out


class _Pass(NamedTuple):
    """A block's result, what is kept of the way to it, and the moments that it used."""

    out: Array
    y1: Array
    y2: Array
    inputs: Mapping[str, _InputMoments]
    statistics: Statistics


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def train_block(x: Array, weights: Weights, stride: int) -> tuple[Array, Statistics]:
    """Applies a block with the batch's own statistics.

    Args:
      x: maps [batch, height, width, in].
      weights: of the block.
      stride: of its 3x3 convolution and shortcut.

    Returns:
      Maps [batch, height/stride, width/stride, out], and the moments of each norm's input,
      which pass no gradient on.
    """
    done = _block(x, weights, stride)
    return done.out, done.statistics


def _block(x: Array, weights: Weights, stride: int, running: Statistics | None = None) -> _Pass:
    """Applies a block, with the batch's own statistics unless running ones are given."""
    first, second, third = (weights[f"conv{index}"] for index in (1, 2, 3))
    inputs: dict[str, _InputMoments] = {}
    statistics = dict(running or {})
    y1 = convolve(x, first.kernel)
    if running is None:
        statistics["conv1"] = moments_of(y1)
    y2 = convolve(normalise_and_cut(y1, first, statistics["conv1"]), second.kernel, stride)
    if running is None:
        statistics["conv2"] = moments_of(y2)
    h = normalise_and_cut(y2, second, statistics["conv2"])
    if running is None:
        inputs["conv3"], statistics["conv3"] = _moments_behind(h, third.kernel)
    shortcut = x
    if "shortcut" in weights:
        x = _every(x, stride)
        if running is None:
            inputs["shortcut"], statistics["shortcut"] = _moments_behind(
                x, weights["shortcut"].kernel
            )
        shortcut = _conv_norm(x, weights["shortcut"], statistics["shortcut"]).astype(x.dtype)
    out = _conv_norm(h, third, statistics["conv3"]) + shortcut.astype(jnp.float32)
    return _Pass(jnp.maximum(out, 0).astype(x.dtype), y1, y2, inputs, statistics)


_Kept = tuple[Array, Weights, _Pass]


def _forward(x: Array, weights: Weights, stride: int) -> tuple[tuple[Array, Statistics], _Kept]:
    done = _block(x, weights, stride)
    return (done.out, done.statistics), (x, weights, done)


def _backward(
    stride: int, kept: _Kept, gradients: tuple[Array, Statistics]
) -> tuple[Array, Weights]:
    x, weights, (out, y1, y2, inputs, statistics) = kept
    first, second, third = (weights[f"conv{index}"] for index in (1, 2, 3))
    gradient = jnp.where(out > 0, gradients[0], 0)
    # Written once, where the next block's gradient is made: without the barrier the compiler
    # would cut it anew, from twice the bytes, in each of the three operations that read it.
    gradient, total = lax.optimization_barrier((gradient, sum_pixels(gradient)))

    h = normalise_and_cut(y2, second, statistics["conv2"])
    dh, d_third = _conv_norm_gradient(
        h, third, inputs["conv3"], statistics["conv3"], gradient, total
    )
    dy2, *d_norm2 = norm_gradient(jnp.where(h > 0, dh, 0), y2, second, statistics["conv2"])
    h1 = normalise_and_cut(y1, first, statistics["conv1"])
    dh1 = input_gradient(h1, dy2, second.kernel, stride)
    d_kernel2 = kernel_gradient(h1, dy2, second.kernel, stride)
    dy1, *d_norm1 = norm_gradient(jnp.where(h1 > 0, dh1, 0), y1, first, statistics["conv1"])
    dx = input_gradient(x, dy1, first.kernel, 1)
    d_weights = {
        "conv1": ConvNorm(kernel_gradient(x, dy1, first.kernel, 1), *d_norm1),
        "conv2": ConvNorm(d_kernel2, *d_norm2),
        "conv3": d_third,
    }
    if "shortcut" in weights:
        x_small, spread = jax.vjp(lambda x: _every(x, stride), x)
        gradient, d_weights["shortcut"] = _conv_norm_gradient(
            x_small,
            weights["shortcut"],
            inputs["shortcut"],
            statistics["shortcut"],
            gradient,
            total,
        )
        (gradient,) = spread(gradient)
    return dx + gradient, d_weights


train_block.defvjp(_forward, _backward)


# --- Statistics ---


def _moments_behind(h: Array, kernel: Array) -> tuple[_InputMoments, Moments]:
    """Returns the moments of a 1x1 convolution's input, and of what it puts out."""
    mean = sum_pixels(h) / count_pixels(h)
    covariance = _sums_of_products(h, h) / count_pixels(h) - mean[:, None] * mean[None]
    matrix = _matrix(kernel, h.dtype)
    variance = jnp.sum(matrix * _exact_product(covariance, matrix), axis=0)
    moments = Moments(_exact_product(mean[None], matrix)[0], jnp.maximum(variance, 0))
    return mark_statistics(_InputMoments(mean, covariance)), mark_statistics(moments)


# --- Parts of a block ---


def _every(x: Array, stride: int) -> Array:
    return x[:, ::stride, ::stride]


def _conv_norm(h: Array, weights: ConvNorm, moments: Moments) -> Array:
    """Returns a 1x1 convolution, normalised, float32."""
    return normalise(_product(h, weights.kernel[0, 0]), weights, moments)


def _matrix(kernel: Array, dtype: DTypeLike) -> Array:
    """Returns a 1x1 kernel as products in `dtype` see it, float32."""
    return kernel[0, 0].astype(dtype).astype(jnp.float32)


def _product(x: Array, matrix: Array) -> Array:
    """Multiplies channels [..., in] with a matrix [in, out]: operands as x, float32 out."""
    return lax.conv_general_dilated(
        x,
        matrix.astype(x.dtype)[None, None],
        (1, 1),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        preferred_element_type=jnp.float32,
    )


def _sums_of_products(x: Array, y: Array) -> Array:
    """Returns the sums over pixels of x [..., m] times y [..., n], [m, n], float32."""
    sums = ((PIXELS, PIXELS), ((), ()))
    return lax.dot_general(x, y, sums, preferred_element_type=jnp.float32)


def _exact_product(x: Array, y: Array) -> Array:
    """Multiplies small matrices as float32, on any platform."""
    return jnp.matmul(x, y, precision=lax.Precision.HIGHEST)


# --- Gradients ---


def _conv_norm_gradient(
    h: Array,
    weights: ConvNorm,
    inputs: _InputMoments,
    moments: Moments,
    gradient: Array,
    total: Array,
) -> tuple[Array, ConvNorm]:
    """Returns the gradients of a 1x1 convolution with a norm, without what it put out.

    With y = h W, its mean m and inverse standard deviation r, and g the gradient of
    z = s r (y - m) + b, the gradient of y is

        s r (g - mean(g) - r (y - m) mean(g r (y - m)))

    Its sums with h, and its product with Wᵀ, need y only in the form of hᵀy = hᵀh W and
    y Wᵀ = h (W Wᵀ).

    Args:
      h: input of the convolution [batch, height, width, in].
      weights: of both.
      inputs: the moments of h.
      moments: of what the convolution put out.
      gradient: g.
      total: its sum over pixels.

    Returns:
      The gradients of h, in its dtype, and of the weights.
    """
    inverse = inverse_std(moments)
    gain = weights.scale * inverse
    matrix = _matrix(weights.kernel, h.dtype)
    products = _sums_of_products(h, gradient)
    d_scale = inverse * (jnp.sum(products * matrix, axis=0) - moments.mean * total)
    along = inverse * d_scale
    d_matrix = gain[None] * (
        products
        - inputs.mean[:, None] * total[None]
        - along[None] * _exact_product(inputs.covariance, matrix)
    )
    back = gain * along / count_pixels(h)
    constant = _exact_product(
        (back * moments.mean - gain * total / count_pixels(h))[None], matrix.T
    )
    # In the dtype of h, so that it takes no more memory than h where it is written.
    subtracted = _product(h, _exact_product(matrix * back[None], matrix.T)).astype(h.dtype)
    dh = _product(gradient, (matrix * gain[None]).T) - subtracted.astype(jnp.float32)
    dh = (dh + along_channels(constant[0])).astype(h.dtype)
    return dh, ConvNorm(d_matrix[None, None], d_scale, total)
