import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from models.plain_blocks import PlainBottleneck

from aninfonce_jax.models.bottleneck import Bottleneck
from aninfonce_jax.placement import Placement

# Stride, and channels of the input: with a shortcut of its own but for the first.
BLOCKS = [(1, 32), (1, 12), (2, 32), (2, 12)]


def draw(stride, channels, dtype=jnp.float32):
    """Variables away from their start, maps of an odd size, and a gradient of the result."""
    x = jax.random.normal(jax.random.key(0), (8, 9, 9, channels))
    variables = PlainBottleneck(8, stride).init(jax.random.key(1), x, train=False)
    rng = np.random.default_rng(0)

    def noisy(path, leaf):
        noise = rng.uniform(0.5, 1.5, leaf.shape)
        signs = rng.choice([-1, 1], leaf.shape) if path[0] == "params" else 1
        return leaf if path[-1] == "kernel" else jnp.asarray(noise * signs, leaf.dtype)

    size = -(-9 // stride)
    gradient = jax.random.normal(jax.random.key(2), (8, size, size, 32))
    variables = traverse_util.path_aware_map(noisy, variables)
    return variables, x.astype(dtype), gradient.astype(dtype)


@functools.partial(jax.jit, static_argnames=("block", "train"))
def run(block, variables, x, gradient, *, train=True):
    """What a block puts out, the statistics after it, and gradients of weights and input."""

    def apply(params, x):
        out, state = block.apply(
            {**variables, "params": params}, x, train=train, mutable=["batch_stats"]
        )
        return out, state.get("batch_stats", variables["batch_stats"])

    out, backward, stats = jax.vjp(apply, variables["params"], x, has_aux=True)
    return out, stats, backward(gradient)


def assert_alike(given, expected, tolerance):
    """Compares trees leaf by leaf, relative to the largest value of each."""
    chex.assert_trees_all_equal_shapes_and_dtypes(given, expected)
    for one, other in zip(jax.tree.leaves(given), jax.tree.leaves(expected), strict=True):
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        assert np.max(np.abs(one - other)) <= tolerance * np.max(np.abs(other))


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(("stride", "channels"), BLOCKS)
def test_equals_flax(stride, channels, train):
    arrays = draw(stride, channels)
    given = run(Bottleneck(8, stride, jnp.float32), *arrays, train=train)
    expected = run(PlainBottleneck(8, stride), *arrays, train=train)
    assert_alike(given, expected, 1e-5)


def test_starts_as_flax_does():
    x = jnp.zeros((1, 4, 4, 12))
    given, expected = (
        jax.jit(functools.partial(block.init, train=True))(jax.random.key(3), x)
        for block in (Bottleneck(8, 1, jnp.float32), PlainBottleneck(8, 1))
    )
    paths = [set(traverse_util.flatten_dict(tree)) for tree in (given, expected)]
    assert paths[0] == paths[1]
    chex.assert_trees_all_equal(given["batch_stats"], expected["batch_stats"])
    assert not np.any(given["params"]["norm3"]["scale"])


def test_a_split_batch_counts_as_one():
    placement = Placement.local()
    assert placement.size == 8
    variables, x, gradient = draw(2, 12)
    # Each device's maps differ in size: statistics of its own would be far off.
    x = x * jnp.linspace(0.1, 1, 8).reshape(8, 1, 1, 1)
    block = Bottleneck(8, 2, jnp.float32)
    split = jax.device_put((x, gradient), placement.split)
    given = run(block, jax.device_put(variables, placement.whole), *split)
    assert len(given[0].addressable_shards) == 8
    assert_alike(jax.device_get(given), run(PlainBottleneck(8, 2), variables, x, gradient), 1e-5)


@pytest.mark.parametrize(("stride", "channels"), BLOCKS[::3])
def test_bfloat16_is_as_close_to_float32_as_flax_is(stride, channels):
    arrays = draw(stride, channels)
    exact = run(PlainBottleneck(8, stride), *arrays)
    rounded = draw(stride, channels, jnp.bfloat16)
    given = run(Bottleneck(8, stride, jnp.bfloat16), *rounded)
    plain = run(PlainBottleneck(8, stride, dtype=jnp.bfloat16), *rounded)
    assert given[0].dtype == given[2][1].dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves((given[1], given[2][0]))} == {
        jnp.dtype("float32")
    }

    def error(tree):
        return [
            np.linalg.norm(np.asarray(one, np.float64) - other) / np.linalg.norm(other)
            for one, other in zip(jax.tree.leaves(tree), jax.tree.leaves(exact), strict=True)
        ]

    assert np.mean(error(given)) < 1.1 * np.mean(error(plain))


def test_the_shortcut_alone_passes_a_gradient_where_the_branch_is_cut_off():
    # As at the start: a last scale of zero stops the branch's weights, but not its scale.
    variables, x, gradient = draw(1, 32)
    variables["params"]["norm3"]["scale"] = jnp.zeros(32)
    out, _, (weights, dx) = run(Bottleneck(8, 1, jnp.float32), variables, x, gradient)
    bias = variables["params"]["norm3"]["bias"].reshape(1, 1, 1, 32)
    chex.assert_trees_all_close(out, jnp.maximum(x + bias, 0), rtol=1e-5, atol=1e-6)
    chex.assert_trees_all_close(dx, jnp.where(out > 0, gradient, 0), rtol=1e-5, atol=1e-6)
    assert not np.any(weights["conv3"]["kernel"])
    assert np.all(weights["norm3"]["scale"] != 0)


def test_the_gradient_traces_no_convolution_that_nobody_needs():
    # FLOPs are counted in the traced program (forecast/arithmetic.py).
    arrays = draw(1, 32)
    block = Bottleneck(8, 1, jnp.float32)
    text = str(jax.make_jaxpr(functools.partial(run, block))(*arrays))
    # Three forward; of input and kernel for the first two; two products for the last one's input.
    assert text.count("conv_general_dilated[") == 3 + 4 + 2
