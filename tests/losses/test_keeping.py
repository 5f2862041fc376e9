import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aninfonce_jax as an

DRAWS = np.random.default_rng(0)
POINTS = DRAWS.normal(size=(64, 4)) + 0.3
SEEN = np.tanh(POINTS @ DRAWS.normal(size=(4, 3))) + 0.1 * DRAWS.normal(size=(64, 3)) + 2.0


def penalty(points, seen, normalize=True):
    """The penalty in float64: what regressions on the embeddings leave of whitened observations."""
    points, seen = np.asarray(points, np.float64), np.asarray(seen, np.float64)
    if normalize:
        points = points / np.linalg.norm(points, axis=1, keepdims=True)
    points, seen = points - points.mean(axis=0), seen - seen.mean(axis=0)
    ridge = [1e-4 * np.mean(np.var(x, axis=0)) * np.eye(x.shape[1]) for x in (points, seen)]
    told = np.zeros((seen.shape[1],) * 2)
    inverse = np.linalg.inv(points.T @ points / len(points) + ridge[0])
    between = points.T @ seen / len(points)
    for i in range(seen.shape[1]):
        for j in range(seen.shape[1]):
            told[i, j] = between[:, i] @ inverse @ between[:, j]
    whitened = np.linalg.inv(seen.T @ seen / len(seen) + ridge[1]) @ told
    return seen.shape[1] - sum(whitened[i, i] for i in range(len(whitened)))


@pytest.mark.parametrize("normalize", [True, False])
def test_is_that_of_a_loop_in_float64(normalize):
    found = an.keeping_penalty(jnp.float32(POINTS), jnp.float32(SEEN), normalize=normalize)
    np.testing.assert_allclose(found, penalty(POINTS, SEEN, normalize), rtol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_summed_in_float32(dtype):
    points, seen = jnp.asarray(POINTS, dtype), jnp.asarray(SEEN, dtype)
    found = an.keeping_penalty(points, seen)
    assert found.dtype == jnp.float32
    expected = penalty(np.asarray(points, np.float64), np.asarray(seen, np.float64))
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_the_gradient_is_that_of_differences():
    direction = np.random.default_rng(1).normal(size=POINTS.shape)
    grad = jax.grad(lambda points: an.keeping_penalty(points, jnp.float32(SEEN)))(
        jnp.float32(POINTS)
    )
    step = 1e-5
    ahead, behind = (penalty(POINTS + sign * step * direction, SEEN) for sign in (1, -1))
    np.testing.assert_allclose(np.sum(grad * direction), (ahead - behind) / (2 * step), rtol=1e-3)


def test_from_nothing_told_to_all_of_it():
    z = jax.random.normal(jax.random.key(0), (2000, 5))
    unit = z / jnp.linalg.norm(z, axis=1, keepdims=True)
    mixed = unit @ jax.random.normal(jax.random.key(1), (5, 5)) + 1
    np.testing.assert_allclose(an.keeping_penalty(unit, mixed), 0, atol=0.1)
    assert an.keeping_penalty(jnp.ones((2000, 5)), mixed) == pytest.approx(5, abs=1e-3)
    # A product of two factors in the place of a third: spread about the origin, but one is lost.
    replaced = unit.at[:, 0].set(unit[:, 1] * unit[:, 2])
    assert an.keeping_penalty(replaced, mixed) > 0.8


def test_observations_of_any_shape_and_type_are_flattened():
    flat = an.keeping_penalty(jnp.float32(POINTS), jnp.float32(SEEN).round())
    shaped = jnp.int32(jnp.float32(SEEN).round()).reshape(64, 3, 1)
    np.testing.assert_array_equal(an.keeping_penalty(jnp.float32(POINTS), shaped), flat)


def test_what_is_not_to_be_compared_is_refused():
    with pytest.raises(ValueError, match=r"embeddings must have shape \[batch, dim\]"):
        an.keeping_penalty(jnp.ones(3), jnp.ones((3, 2)))
    with pytest.raises(ValueError, match=r"the 3 rows of the embeddings, got \(4, 2\)"):
        an.keeping_penalty(jnp.ones((3, 2)), jnp.ones((4, 2)))
    with pytest.raises(ValueError, match=r"the 3 rows of the embeddings, got \(3,\)"):
        an.keeping_penalty(jnp.ones((3, 2)), jnp.ones(3))
