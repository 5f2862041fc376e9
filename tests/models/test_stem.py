import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from models.plain_blocks import PlainStem

from aninfonce_jax.models.batch_norm import ConvNorm, Moments
from aninfonce_jax.models.stem import evaluate_stem, train_stem
from aninfonce_jax.placement import Placement

PLAIN = PlainStem(8)


def draw(height=21, width=16):
    """Weights with scales of both signs, running moments, images, and a gradient."""
    keys = jax.random.split(jax.random.key(0), 7)
    kernel = jax.random.normal(keys[0], (7, 7, 3, 8)) / 12
    scale = jax.random.normal(keys[1], (8,))
    weights = ConvNorm(kernel, scale, jax.random.normal(keys[2], (8,)))
    running = Moments(jax.random.normal(keys[3], (8,)), jax.random.uniform(keys[4], (8,)) + 0.5)
    assert 0 < np.sum(scale < 0) < 8
    x = jax.random.uniform(keys[5], (8, height, width, 3))
    return weights, running, x, jax.random.normal(keys[6], (8, -(-height // 4), width // 4, 8))


def plain(x, weights, running, *, train):
    """The same by Flax, with the moments of the batch."""
    variables = {
        "params": {
            "stem_conv": {"kernel": weights.kernel},
            "stem_norm": {"scale": weights.scale, "bias": weights.bias},
        },
        "batch_stats": {"stem_norm": {"mean": running.mean, "var": running.variance}},
    }
    out, state = PLAIN.apply(variables, x, train=train, mutable=["batch_stats"])
    if not train:
        return out, running
    after = state["batch_stats"]["stem_norm"]
    old = (running.mean, running.variance)
    new = (after["mean"], after["var"])
    return out, Moments(*((a - 0.9 * b) / 0.1 for a, b in zip(new, old, strict=True)))


def ours(x, weights, running, *, train):
    if train:
        return train_stem(x, weights)
    return evaluate_stem(x, weights, running), running


@functools.partial(jax.jit, static_argnums=0, static_argnames="train")
def run(function, weights, running, x, gradient, *, train):
    out, backward, moments = jax.vjp(
        lambda x, weights: function(x, weights, running, train=train), x, weights, has_aux=True
    )
    return out, moments, backward(gradient)


@pytest.mark.parametrize("train", [True, False])
def test_equals_flax(train):
    given, expected = (run(function, *draw(), train=train) for function in (ours, plain))
    chex.assert_trees_all_equal_shapes_and_dtypes(given, expected)
    for one, other in zip(jax.tree.leaves(given), jax.tree.leaves(expected), strict=True):
        assert np.max(np.abs(one - other)) <= 1e-5 * np.max(np.abs(other))


def test_a_split_batch_counts_as_one():
    placement = Placement.local()
    assert placement.size == 8
    weights, running, x, gradient = draw()
    x = x * jnp.linspace(0.1, 1, 8).reshape(8, 1, 1, 1)
    whole = jax.device_put((weights, running), placement.whole)
    given = run(ours, *whole, *jax.device_put((x, gradient), placement.split), train=True)
    assert len(given[0].addressable_shards) == 8
    expected = run(plain, weights, running, x, gradient, train=True)
    for one, other in zip(jax.tree.leaves(given), jax.tree.leaves(expected), strict=True):
        assert np.max(np.abs(np.asarray(one) - other)) <= 1e-5 * np.max(np.abs(other))


def test_bfloat16_rounds_what_float32_computes():
    weights, running, x, gradient = draw()
    low = x.astype(jnp.bfloat16), gradient.astype(jnp.bfloat16)
    out, moments, (dx, d_weights) = run(ours, weights, running, *low, train=True)
    expected = run(ours, weights, running, x, gradient, train=True)
    assert out.dtype == dx.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves((moments, d_weights))} == {jnp.dtype("float32")}
    chex.assert_trees_all_close(out.astype(jnp.float32), expected[0], rtol=0.02, atol=0.05)
    error = np.linalg.norm(d_weights.kernel - expected[2][1].kernel)
    assert 0 < error < 0.05 * np.linalg.norm(expected[2][1].kernel)
