import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax import lax

from aninfonce_jax.models.convolution import SMALL_MAP, convolve, max_pool
from aninfonce_jax.placement import Placement

NUMBERS = ("NHWC", "HWIO", "NHWC")


def draw(size, taps, stride, dtype=jnp.float32):
    """Maps, a kernel, and a cotangent of their convolution."""
    result = (size - 1) // stride + 1
    shapes = [(8, size, size, 5), (taps, taps, 5, 4), (8, result, result, 4)]
    keys = jax.random.split(jax.random.key(0), 3)
    return [jax.random.normal(key, s, dtype) for key, s in zip(keys, shapes, strict=True)]


@functools.partial(jax.jit, static_argnums=(0, 4))
def run(function, x, kernel, cotangent, stride):
    """Values of a convolution, and its gradients."""
    values, backward = jax.vjp(lambda x, kernel: function(x, kernel, stride), x, kernel)
    return values, *backward(cotangent)


def by_lax(x, kernel, stride):
    pad = ((kernel.shape[0] // 2,) * 2,) * 2
    return lax.conv_general_dilated(x, kernel, (stride, stride), pad, dimension_numbers=NUMBERS)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("taps", [1, 3, 7])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_equals_lax(size, taps, stride):
    arrays = draw(size, taps, stride)
    given = run(convolve, *arrays, stride)
    expected = run(by_lax, *arrays, stride)
    chex.assert_trees_all_equal_shapes_and_dtypes(given, expected)
    chex.assert_trees_all_close(given, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("size", [2, 4])
def test_convolution_in_bfloat16(size):
    arrays = draw(size, 3, 2, jnp.bfloat16)
    given = run(convolve, *arrays, 2)
    expected = run(by_lax, *(a.astype(jnp.float32) for a in arrays), 2)
    assert {leaf.dtype for leaf in given} == {jnp.dtype("bfloat16")}
    given = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), given)
    # Half a unit in the last of eight bits, of the largest value.
    largest = max(np.max(np.abs(leaf)) for leaf in expected)
    chex.assert_trees_all_close(given, expected, rtol=0, atol=largest * 2.0**-8)


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_of_maps_that_are_not_square(width, stride):
    x, kernel, cotangent = draw(6, 3, stride)
    arrays = x[:, :, :width], kernel, cotangent[:, :, : -(-width // stride)]
    given, expected = run(convolve, *arrays, stride), run(by_lax, *arrays, stride)
    chex.assert_trees_all_close(given, expected, rtol=1e-5, atol=1e-4)


def test_the_gradient_of_a_float32_kernel_is_summed_in_float32():
    x, kernel, cotangent = draw(4, 3, 1)
    x, cotangent = x.astype(jnp.bfloat16), cotangent.astype(jnp.bfloat16)
    values, dx, given = run(convolve, x, kernel, cotangent, 1)
    assert (values.dtype, dx.dtype, given.dtype) == (jnp.bfloat16, jnp.bfloat16, jnp.float32)
    expected = run(by_lax, *(array.astype(jnp.float32) for array in (x, kernel, cotangent)), 1)[2]
    chex.assert_trees_all_close(given, expected, rtol=1e-5, atol=1e-4)
    rounded = expected.astype(jnp.bfloat16).astype(jnp.float32)
    assert np.max(np.abs(rounded - expected)) > 1e-2


def test_a_split_batch():
    placement = Placement.local()
    assert placement.size == 8
    x, kernel, cotangent = draw(2, 3, 1)
    split = jax.device_put((x, cotangent), placement.split)
    given = run(convolve, split[0], kernel, split[1], 1)
    assert len(given[0].addressable_shards) == 8
    chex.assert_trees_all_close(
        jax.device_get(given), run(convolve, x, kernel, cotangent, 1), rtol=1e-5, atol=1e-4
    )


def test_under_vmap():
    x, kernel, _ = draw(2, 3, 1)
    parts = jax.jit(jax.vmap(convolve, (0, None)))(x.reshape(2, 4, *x.shape[1:]), kernel)
    chex.assert_trees_all_close(
        parts.reshape(8, *parts.shape[2:]), convolve(x, kernel), rtol=1e-5, atol=1e-5
    )


@jax.jit
def pool_both_ways(x, cotangent):
    def native(x):
        return nn.max_pool(x, (3, 3), strides=(2, 2), padding=((1, 1), (1, 1)))

    pairs = [jax.vjp(function, x) for function in (max_pool, native)]
    return [(values, backward(cotangent)[0]) for values, backward in pairs]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("shape", [(1, 1), (2, 5), (7, 8)])
def test_pooling_equals_flax(shape, dtype):
    rng = np.random.default_rng(0)
    # Few values, zeros above all, as behind a ReLU: who has the gradient of equal ones?
    x = jnp.asarray(np.maximum(rng.integers(-3, 3, (8, *shape, 6)), 0), dtype)
    # Whole numbers, which add up exactly.
    results = tuple((n + 1) // 2 for n in shape)
    cotangent = jnp.asarray(rng.integers(-9, 9, (8, *results, 6)), dtype)
    given, expected = pool_both_ways(x, cotangent)
    chex.assert_trees_all_equal_shapes_and_dtypes(given, expected)
    chex.assert_trees_all_equal(given, expected)


def test_pooling_hides_no_nan():
    for index in range(9):
        x = jnp.zeros((1, 3, 3, 1)).at[0, index // 3, index % 3, 0].set(jnp.nan)
        given, expected = pool_both_ways(x, jnp.ones((1, 2, 2, 1)))
        np.testing.assert_array_equal(given[0], expected[0])


def lowered(platform, size):
    """The program of a convolution, pooling and their gradients, before optimisation."""
    x, kernel, _ = draw(size, 3, 1)

    def loss(kernel, x):
        return jnp.sum(max_pool(convolve(x, kernel)))

    return jax.jit(jax.grad(loss)).trace(kernel, x).lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.parametrize("size", [SMALL_MAP, SMALL_MAP + 1])
@pytest.mark.parametrize("platform", ["cpu", "tpu", "cuda"])
def test_only_cpus_do_without_native_operations(platform, size):
    text = lowered(platform, size)
    assert ("stablehlo.convolution" in text) == (platform != "cpu" or size > SMALL_MAP)
    assert ("select_and_scatter" in text) == (platform != "cpu")
