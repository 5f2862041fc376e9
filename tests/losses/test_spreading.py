import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aninfonce_jax as an
from aninfonce_jax.losses import spreading

POINTS = np.random.default_rng(0).normal(size=(16, 5)) + 0.3


def penalty(points, normalize=True):
    """The penalty in float64, pair by pair."""
    points = np.asarray(points, np.float64)
    if normalize:
        points = points / np.linalg.norm(points, axis=1, keepdims=True)
    pairs = [
        np.exp(-2 * np.sum((points[i] - points[j]) ** 2))
        for i in range(len(points))
        for j in range(len(points))
        if i != j
    ]
    return np.log(np.mean(pairs))


@pytest.mark.parametrize("normalize", [True, False])
def test_is_that_of_a_loop_in_float64(normalize):
    found = an.spreading_penalty(jnp.float32(POINTS), normalize=normalize)
    np.testing.assert_allclose(found, penalty(POINTS, normalize), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_summed_in_float32(dtype):
    points = jnp.asarray(POINTS, dtype)
    found = an.spreading_penalty(points)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, penalty(np.asarray(points, np.float64)), rtol=1e-3)


def test_tiles_change_nothing(monkeypatch):
    points = jnp.float32(np.random.default_rng(1).normal(size=(64, 4)))
    whole = jax.value_and_grad(an.spreading_penalty)(points)
    monkeypatch.setattr(spreading, "_MOST_AT_ONCE", 100)
    # 64 keys are two tiles and a part of one.
    monkeypatch.setattr(spreading, "_TILE", 24)
    in_tiles = jax.value_and_grad(an.spreading_penalty)(points)
    np.testing.assert_allclose(in_tiles[0], whole[0], rtol=1e-6)
    np.testing.assert_allclose(in_tiles[1], whole[1], rtol=1e-5, atol=1e-8)


def test_memory_does_not_grow_with_the_square_of_the_batch():
    """All pairs of 16,384 would take 1 GiB."""
    points = jax.ShapeDtypeStruct((16384, 4), jnp.float32)
    compiled = jax.jit(jax.grad(an.spreading_penalty)).lower(points).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 2**28


def test_from_all_alike_to_spread_evenly():
    np.testing.assert_allclose(an.spreading_penalty(jnp.ones((8, 5))), 0, atol=1e-5)
    uniform = jax.random.normal(jax.random.key(0), (2000, 5))
    hemisphere = uniform.at[:, 0].set(jnp.abs(uniform[:, 0]))
    # One output that follows from the others, and whose mean is zero: what centring can't see.
    unit = uniform / jnp.linalg.norm(uniform, axis=1, keepdims=True)
    harmonic = unit.at[:, 0].set(unit[:, 1] * unit[:, 2])
    spread, folded, redundant = map(an.spreading_penalty, (uniform, hemisphere, harmonic))
    assert spread < folded - 0.1
    assert spread < redundant - 0.1


def test_what_are_no_embeddings_is_refused():
    with pytest.raises(ValueError, match=r"embeddings must have shape \[batch, dim\]"):
        an.spreading_penalty(jnp.ones(3))
    with pytest.raises(TypeError, match="floating point"):
        an.spreading_penalty(jnp.ones((3, 2), jnp.int32))
    with pytest.raises(ValueError, match="at least two embeddings, got 1"):
        an.spreading_penalty(jnp.ones((1, 2)))
