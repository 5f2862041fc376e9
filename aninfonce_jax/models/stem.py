"""The stem of a ResNet for large images, with a gradient of its own that moves less.

A 7x7 convolution of stride 2, a norm, a cut at zero, and the largest of 3x3 pixels around every
second one. Its maps are the largest of the network. A norm with a positive scale and the cut
keep the order of pixels, so the largest can be taken before them, of what the convolution puts
out: normalised maps are never written, and the sums of the norm's gradient run over the few
pixels that were taken. Where a scale is negative, kernel and scale change their sign first,
which changes nothing behind the norm.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from aninfonce_jax.models import batch_norm, convolution
from aninfonce_jax.models.batch_norm import ConvNorm, Moments
from aninfonce_jax.types import Array

SIZE = 7
_STRIDE = 2


class _Pass(NamedTuple):
    """A stem's result, what the convolution put out, the largest of it, and its moments."""

    out: Array
    y: Array
    largest: Array
    moments: Moments


@jax.custom_vjp
def train_stem(x: Array, weights: ConvNorm) -> tuple[Array, Moments]:
    """Applies the stem with the batch's own statistics.

    Args:
      x: images [batch, height, width, in].
      weights: kernel [7, 7, in, out], scale and bias.

    Returns:
      Maps [batch, height/4, width/4, out], and the moments of what the convolution puts out,
      which pass no gradient on.
    """
    sign, turned = _turned(weights)
    done = _stem(x, turned)
    return done.out, _turned_moments(done.moments, sign)


def evaluate_stem(x: Array, weights: ConvNorm, moments: Moments) -> Array:
    """Applies the stem with running statistics."""
    sign, turned = _turned(weights)
    return _stem(x, turned, _turned_moments(moments, sign)).out


def _turned(weights: ConvNorm) -> tuple[Array, ConvNorm]:
    """Returns the signs of the scales, and weights whose scales have none."""
    sign = jnp.where(weights.scale < 0, -1.0, 1.0)
    kernel = weights.kernel * batch_norm.along_channels(sign)
    return sign, ConvNorm(kernel, weights.scale * sign, weights.bias)


def _turned_moments(moments: Moments, sign: Array) -> Moments:
    return Moments(moments.mean * sign, moments.variance)


def _stem(x: Array, turned: ConvNorm, moments: Moments | None = None) -> _Pass:
    y = convolution.convolve(x, turned.kernel, _STRIDE)
    moments = batch_norm.moments_of(y) if moments is None else moments
    largest = convolution.max_pool(y)
    return _Pass(batch_norm.normalise_and_cut(largest, turned, moments), y, largest, moments)


_Kept = tuple[Array, ConvNorm, _Pass]


def _forward(x: Array, weights: ConvNorm) -> tuple[tuple[Array, Moments], _Kept]:
    sign, turned = _turned(weights)
    done = _stem(x, turned)
    return (done.out, _turned_moments(done.moments, sign)), (x, weights, done)


def _backward(kept: _Kept, gradients: tuple[Array, Moments]) -> tuple[Array, ConvNorm]:
    x, weights, (out, y, largest, moments) = kept
    sign, turned = _turned(weights)
    gradient = jnp.where(out > 0, gradients[0], 0)
    d_scale, d_bias = batch_norm.scale_and_bias_gradient(gradient, largest, moments)
    (dz,) = jax.vjp(convolution.max_pool, y)[1](gradient)
    dy = batch_norm.input_gradient(dz, y, turned, moments, d_scale, d_bias)
    d_kernel = convolution.kernel_gradient(x, dy, turned.kernel, _STRIDE)
    d_weights = ConvNorm(d_kernel * batch_norm.along_channels(sign), d_scale * sign, d_bias)
    return convolution.input_gradient(x, dy, turned.kernel, _STRIDE), d_weights


train_stem.defvjp(_forward, _backward)
