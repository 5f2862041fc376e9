import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aninfonce_jax as an

POINTS = np.random.default_rng(0).normal(size=(16, 5)) + 0.3


def penalty(points, normalize=True):
    """The penalty in float64, point by point."""
    total = np.zeros(points.shape[1])
    for point in np.asarray(points, np.float64):
        total += point / np.linalg.norm(point) if normalize else point
    return points.shape[1] * np.sum((total / len(points)) ** 2)


@pytest.mark.parametrize("normalize", [True, False])
def test_is_that_of_a_loop_in_float64(normalize):
    found = an.centring_penalty(jnp.float32(POINTS), normalize=normalize)
    np.testing.assert_allclose(found, penalty(POINTS, normalize), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_summed_in_float32(dtype):
    points = jnp.asarray(POINTS, dtype)
    found = an.centring_penalty(points)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, penalty(np.asarray(points, np.float64)), rtol=1e-3)


def test_from_surrounding_the_origin_to_all_alike():
    evenly = jnp.concatenate([jnp.eye(5), -jnp.eye(5)])
    np.testing.assert_allclose(an.centring_penalty(evenly), 0, atol=1e-7)
    np.testing.assert_allclose(an.centring_penalty(jnp.ones((8, 5))), 5, rtol=1e-6)
    uniform = jax.random.normal(jax.random.key(0), (100_000, 5))
    assert an.centring_penalty(uniform) < 1e-3
    hemisphere = uniform.at[:, 0].set(jnp.abs(uniform[:, 0]))
    assert an.centring_penalty(hemisphere) > 0.5


def test_what_are_no_embeddings_is_refused():
    with pytest.raises(ValueError, match=r"embeddings must have shape \[batch, dim\]"):
        an.centring_penalty(jnp.ones(3))
    with pytest.raises(TypeError, match="floating point"):
        an.centring_penalty(jnp.ones((3, 2), jnp.int32))
