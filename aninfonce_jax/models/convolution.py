"""Convolution and pooling, which on a CPU are computed in another form that is faster there.

Which form is taken is decided when a program is lowered, for the platform it is lowered for;
TPUs and GPUs get XLA's own operations, also where a CPU compiles for them.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from aninfonce_jax.types import Array

# Up to this height and width of the result, one matrix product is the faster convolution.
SMALL_MAP = 2
_NUMBERS = ("NHWC", "HWIO", "NHWC")


# Whether XLA's own operations are taken on every platform.
_is_portable: contextvars.ContextVar[bool] = contextvars.ContextVar("portable", default=False)


@contextlib.contextmanager
def portable() -> Iterator[None]:
    """What is traced within it is the same on every platform, for converters that ask for that."""
    token = _is_portable.set(True)
    try:
        yield
    finally:
        _is_portable.reset(token)


def _by_platform(
    *operands: Array, cpu: Callable[..., Array], default: Callable[..., Array]
) -> Array:
    if _is_portable.get():
        return default(*operands)
    found: Array = lax.platform_dependent(*operands, cpu=cpu, default=default)
    return found


def convolve(x: Array, kernel: Array, stride: int = 1) -> Array:
    """Convolves maps with half a kernel of zeros on every side.

    The product is taken in the dtype of x. The gradient of the kernel is summed, over devices
    too, in the kernel's own dtype: float32 where x is bfloat16.

    Args:
      x: maps [batch, height, width, in].
      kernel: [size, size, in, out], of an odd size.
      stride: along height and width.

    Returns:
      Maps [batch, ceil(height / stride), ceil(width / stride), out], of the dtype of x.
    """
    sizes = [-(-size // stride) for size in x.shape[1:3]]
    if max(sizes) > SMALL_MAP:
        return _convolve(x, kernel, stride)
    product = partial(_convolve_by_product, stride=stride, sizes=sizes)

    def native(x: Array, kernel: Array) -> Array:
        return _convolve(x, kernel, stride)

    return _by_platform(x, kernel, cpu=product, default=native)


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def _convolve(x: Array, kernel: Array, stride: int) -> Array:
    return _native(x, kernel.astype(x.dtype), stride)


def _native(x: Array, kernel: Array, stride: int) -> Array:
    pad = kernel.shape[0] // 2
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), ((pad, pad),) * 2, dimension_numbers=_NUMBERS
    )


def _convolve_forward(x: Array, kernel: Array, stride: int) -> tuple[Array, tuple[Array, Array]]:
    return _convolve(x, kernel, stride), (x, kernel)


def _convolve_backward(
    stride: int, kept: tuple[Array, Array], gradient: Array
) -> tuple[Array, Array]:
    x, kernel = kept
    dx = _native_input_gradient(x, gradient, kernel, stride)
    return dx, kernel_gradient(x, gradient, kernel, stride)


_convolve.defvjp(_convolve_forward, _convolve_backward)


def input_gradient(x: Array, gradient: Array, kernel: Array, stride: int) -> Array:
    """Returns the gradient of `convolve`'s maps, by that of its result."""
    sizes = gradient.shape[1:3]

    def native(gradient: Array, kernel: Array) -> Array:
        return _native_input_gradient(x, gradient, kernel, stride)

    def product(gradient: Array, kernel: Array) -> Array:
        convolve_x = partial(_convolve_by_product, kernel=kernel, stride=stride, sizes=sizes)
        return _transposed(convolve_x, x, gradient)

    if max(sizes) > SMALL_MAP:
        return native(gradient, kernel)
    return _by_platform(gradient, kernel, cpu=product, default=native)


def _native_input_gradient(x: Array, gradient: Array, kernel: Array, stride: int) -> Array:
    kernel = kernel.astype(x.dtype)
    return _transposed(lambda x: _native(x, kernel, stride), x, gradient)


def _transposed(function: Callable[[Array], Array], x: Array, gradient: Array) -> Array:
    """Applies the transpose of a linear function, without the function itself as `jax.vjp`."""
    (dx,) = jax.linear_transpose(function, jax.ShapeDtypeStruct(x.shape, x.dtype))(gradient)
    return dx


def kernel_gradient(x: Array, gradient: Array, kernel: Array, stride: int) -> Array:
    """Returns the gradient of `convolve`'s kernel, in its dtype, by that of its result."""
    taps = kernel.shape[0]
    pads = []
    for size, result in zip(x.shape[1:3], gradient.shape[1:3], strict=True):
        # As many zeros behind, or rows left out, as make one result for each tap.
        pads.append((taps // 2, taps - 1 - taps // 2 - size + (result - 1) * stride + 1))
    # The batch takes the place of the channels that are summed over.
    return lax.conv_general_dilated(
        x,
        gradient,
        (1, 1),
        pads,
        rhs_dilation=(stride, stride),
        dimension_numbers=("CHWN", "IHWO", "HWNC"),
        preferred_element_type=kernel.dtype,
    )


def _convolve_by_product(x: Array, kernel: Array, stride: int, sizes: Sequence[int]) -> Array:
    """Convolves by a product of all patches with the part of the kernel that meets pixels."""
    pad = kernel.shape[0] // 2
    (top, bottom), (left, right) = (
        _taps_that_meet_pixels(size, kernel.shape[0], stride, pad, result)
        for size, result in zip(x.shape[1:3], sizes, strict=True)
    )
    x = jnp.pad(x, [(0, 0), (pad, pad), (pad, pad), (0, 0)])
    height, width = ((size - 1) * stride + 1 for size in sizes)
    patches = jnp.concatenate(
        [
            x[:, row : row + height : stride, column : column + width : stride]
            for row in range(top, bottom)
            for column in range(left, right)
        ],
        axis=-1,
    )
    kernel = kernel.astype(x.dtype)
    return patches @ kernel[top:bottom, left:right].reshape(-1, kernel.shape[-1])


def _taps_that_meet_pixels(
    size: int, taps: int, stride: int, padding: int, result: int
) -> tuple[int, int]:
    """The range of taps, along one axis, that lie on the map for any pixel of the result."""
    starts = [index * stride - padding for index in range(result)]
    return min(max(0, -start) for start in starts), max(min(taps, size - start) for start in starts)


def max_pool(x: Array) -> Array:
    """Takes the largest of 3x3 pixels around every second one, along height and width.

    If several are equal, the first in order of rows and columns has the gradient.

    Args:
      x: maps [batch, height, width, channels].

    Returns:
      Maps [batch, ceil(height / 2), ceil(width / 2), channels].
    """
    return _by_platform(x, cpu=_max_pool_by_slices, default=_max_pool)


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
