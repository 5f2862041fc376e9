"""Half of the scores give the whole log-sum-exp, and notice when they can not."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from aninfonce_jax.losses import symmetric
from aninfonce_jax.losses.symmetric import Points

COUNT, DIM = 23, 4
HIGHEST = lax.Precision.HIGHEST


def example(spread: float) -> Points:
    rng = np.random.default_rng(0)
    return Points(
        vectors=jnp.asarray(spread * rng.normal(size=(COUNT, DIM)), jnp.float32),
        bias=jnp.asarray(rng.normal(size=COUNT), jnp.float32),
        number=jnp.arange(COUNT, dtype=jnp.int32) % 9,
    )


def naive(points: Points) -> tuple[jax.Array, jax.Array]:
    vectors, bias, number = points
    scores = vectors @ vectors.T + bias[:, None] + bias[None, :]
    scores = jnp.where(number[:, None] == number[None, :], -jnp.inf, scores)
    return jax.nn.logsumexp(scores, axis=1), jnp.max(scores, axis=1)


def weighted(function, points: Points, vectors, bias) -> jax.Array:
    """A sum of the rows' values in which each row counts differently."""
    values, _ = function(Points(vectors, bias, points.number))
    return jnp.sum(values * jnp.arange(1, COUNT + 1, dtype=values.dtype))


@pytest.mark.parametrize("chunk_size", [1, 5, 8, 23, 100])
@pytest.mark.parametrize("spread", [0.3, 3.0, 30.0], ids=["near", "apart", "far apart"])
def test_values_and_gradients_against_float64(spread: float, chunk_size: int) -> None:
    """Far apart, sums underflow and the general method takes over."""
    points = example(spread)
    ours = functools.partial(symmetric.logsumexp, chunk_size=chunk_size, precision=HIGHEST)
    got = jax.jit(ours)(points)
    got_gradients = jax.jit(jax.grad(lambda *a: weighted(ours, points, *a), argnums=(0, 1)))(
        points.vectors, points.bias
    )
    with jax.enable_x64(True):
        wide = Points(*(jnp.asarray(np.float64(x)) for x in points[:2]), points.number)
        want = naive(wide)
        want_gradients = jax.grad(lambda *a: weighted(naive, wide, *a), argnums=(0, 1))(*wide[:2])
    largest = float(np.max(np.abs(want[0])))
    chex.assert_trees_all_close(got, jax.tree.map(np.float32, want), atol=1e-6 * (1 + largest))
    for mine, theirs in zip(got_gradients, want_gradients, strict=True):
        scale = np.max(np.abs(theirs)) * max(1, largest / 10)
        np.testing.assert_allclose(mine, theirs, atol=1e-5 * scale)


def test_far_apart_is_noticed() -> None:
    """Without the general method these rows would come out as -∞."""
    points = example(30.0)
    own = jnp.sum(points.vectors**2, axis=-1) + 2 * points.bias
    settings = symmetric._Settings(8, HIGHEST)
    partial = symmetric._half_forward(settings, points, jnp.max(own))
    assert bool(jnp.any(partial.total == 0))
    assert bool(jnp.all(jnp.isfinite(symmetric.logsumexp(points, *settings)[0])))


def test_nan_is_not_hidden() -> None:
    points = example(1.0)
    broken = points._replace(vectors=points.vectors.at[3].set(jnp.nan))
    values, _ = symmetric.logsumexp(broken, 8, HIGHEST)
    contrasted = points.number != points.number[3]
    assert bool(jnp.all(jnp.isnan(values[contrasted])))


def test_a_tile_below_the_diagonal_is_never_computed() -> None:
    rows, columns = symmetric._pairs(symmetric._cut(example(1.0), 3))
    assert len(rows) == 8 * 9 // 2
    assert bool(jnp.all(rows <= columns))
