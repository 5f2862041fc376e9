"""Convolution and pooling, which on a CPU are computed in another form that is faster there.

Which form is taken is decided when a program is lowered, for the platform it is lowered for;
TPUs and GPUs get XLA's own operations, also where a CPU compiles for them.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jax import lax

from aninfonce_jax.types import Array

# Up to this height and width of the result, one matrix product is the faster convolution.
SMALL_MAP = 2


def convolve(
    x: Array,
    kernel: Array,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    **options: Any,
) -> Array:
    """Convolves maps: `lax.conv_general_dilated` for `nn.Conv`, without dilation or groups.

    Args:
      x: maps [batch, height, width, in].
      kernel: [height, width, in, out].
      strides: along height and width.
      padding: zeros before and after, along height and width.
      **options: what else `lax.conv_general_dilated` takes.

    Returns:
      Maps [batch, height, width, out].
    """

    def native(x: Array, kernel: Array) -> Array:
        return lax.conv_general_dilated(x, kernel, strides, padding, **options)

    sizes = [
        (size + sum(pad) - taps) // stride + 1
        for size, taps, stride, pad in zip(
            x.shape[1:3], kernel.shape[:2], strides, padding, strict=True
        )
    ]
    if max(sizes) > SMALL_MAP:
        return native(x, kernel)
    product = partial(_convolve_by_product, strides=strides, padding=padding, sizes=sizes)
    return lax.platform_dependent(x, kernel, cpu=product, default=native)


def _convolve_by_product(
    x: Array,
    kernel: Array,
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    sizes: Sequence[int],
) -> Array:
    """Convolves by a product of all patches with the part of the kernel that meets pixels."""
    (top, bottom), (left, right) = map(
        _taps_that_meet_pixels, x.shape[1:3], kernel.shape[:2], strides, padding, sizes
    )
    x = jnp.pad(x, [(0, 0), *padding, (0, 0)])
    height, width = ((size - 1) * stride + 1 for size, stride in zip(sizes, strides, strict=True))
    patches = jnp.concatenate(
        [
            x[:, row : row + height : strides[0], column : column + width : strides[1]]
            for row in range(top, bottom)
            for column in range(left, right)
        ],
        axis=-1,
    )
    return patches @ kernel[top:bottom, left:right].reshape(-1, kernel.shape[-1])


def _taps_that_meet_pixels(
    size: int, taps: int, stride: int, padding: tuple[int, int], result: int
) -> tuple[int, int]:
    """The range of taps, along one axis, that lie on the map for any pixel of the result."""
    starts = [index * stride - padding[0] for index in range(result)]
    return min(max(0, -start) for start in starts), max(min(taps, size - start) for start in starts)


def max_pool(x: Array) -> Array:
    """Takes the largest of 3x3 pixels around every second one, along height and width.

    Of equal ones, the first in order of rows and columns has the gradient.

    Args:
      x: maps [batch, height, width, channels].

    Returns:
      Maps [batch, ceil(height / 2), ceil(width / 2), channels].
    """
    return lax.platform_dependent(x, cpu=_max_pool_by_slices, default=_max_pool)


def _max_pool(x: Array) -> Array:
    return nn.max_pool(x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))


def _max_pool_by_slices(x: Array) -> Array:
    # Columns before rows: the first of equal ones then is the one that XLA's own takes.
    return _largest_of_three(_largest_of_three(x, axis=2), axis=1)


def _largest_of_three(x: Array, axis: int) -> Array:
    count = (x.shape[axis] + 1) // 2
    pads = [(1, 1) if index == axis else (0, 0) for index in range(x.ndim)]
    x = jnp.pad(x, pads, constant_values=-jnp.inf)
    left, middle, right = (
        lax.slice_in_dim(x, start, start + 2 * count - 1, 2, axis) for start in range(3)
    )
    return _first_largest(_first_largest(left, middle), right)


def _first_largest(x: Array, y: Array) -> Array:
    """`jnp.maximum`, whose gradient goes to both of two equal ones by halves."""
    return jnp.where((x >= y) | jnp.isnan(x), x, y)
