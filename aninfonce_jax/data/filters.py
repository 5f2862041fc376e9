"""Crops and blurs as products with small matrices, which is what accelerators do best.

Either is separable: one matrix combines the rows of an image, another its columns. Images
are laid out [height, 3, width] here, so that both products take a single call for the three
channels, and that the long axis is the last.
"""

import functools

import jax
import jax.numpy as jnp

from aninfonce_jax.data.augment_spec import Interpolation
from aninfonce_jax.types import Array

# A blur narrower than this, in pixels, is none at all.
_MIN_SIGMA = 1e-3
# The one of Keys' cubic kernels that Pillow uses.
_CUBIC = -0.5


def crop_matrix(
    start: Array,
    stop: Array,
    reverse: Array | bool,
    *,
    length: int,
    size: int,
    interpolation: Interpolation,
) -> Array:
    """Returns the weights with which `length` pixels make `size` new ones, [size, length].

    The new pixels divide [start, stop) evenly. When they are wider than the old ones the
    kernel is stretched accordingly, against aliasing. Pixels outside of the interval take
    part where the kernel reaches them, those outside of the image do not. All this is
    Pillow's `resize` with a `box`.

    Args:
      start: where the crop starts, in pixels, scalar.
      stop: where it ends, in pixels, scalar.
      reverse: whether the new pixels are in opposite order.
      length: of the image's axis.
      size: of the view's axis.
      interpolation: the kernel.
    """
    step = (stop - start) / size
    position = jnp.arange(size, dtype=jnp.float32) + 0.5
    position = jnp.where(reverse, size - position, position)
    centre = start + step * position
    pixel = jnp.arange(length, dtype=jnp.float32) + 0.5
    distance = jnp.abs(pixel[None, :] - centre[:, None]) / jnp.maximum(step, 1.0)
    kernel = _triangle if interpolation == "bilinear" else _cubic
    return _normalised(kernel(distance))


def blur_matrix(sigma: Array, size: int) -> Array:
    """Returns the weights of a Gaussian blur, [size, size]; the identity for sigma = 0.

    Near the border the weights of the pixels that exist are scaled up.
    """
    pixel = jnp.arange(size, dtype=jnp.float32)
    offset = pixel[None, :] - pixel[:, None]
    return _normalised(jnp.exp(-0.5 * (offset / jnp.maximum(sigma, _MIN_SIGMA)) ** 2))


def filter_image(image: Array, rows: Array, columns: Array) -> Array:
    """Applies one matrix to the rows of an image and another to its columns.

    Args:
      image: [height, 3, width].
      rows: [new height, height].
      columns: [new width, width].

    Returns:
      [new height, 3, new width].
    """
    # HIGH: accelerators would otherwise round the operands to bfloat16, which is an error of
    # half a grey level; three bfloat16 products leave a hundredth of it.
    product = functools.partial(jnp.einsum, precision=jax.lax.Precision.HIGH)
    return product("scw,tw->sct", product("sh,hcw->scw", rows, image), columns)


def _normalised(weights: Array) -> Array:
    return weights / jnp.sum(weights, axis=1, keepdims=True)


def _triangle(distance: Array) -> Array:
    return jnp.maximum(1 - distance, 0.0)


def _cubic(distance: Array) -> Array:
    near = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance**2 + 1
    far = (((distance - 5) * distance + 8) * distance - 4) * _CUBIC
    return jnp.where(distance < 1, near, jnp.where(distance < 2, far, 0.0))
