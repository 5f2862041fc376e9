"""Points that are each other's keys, and their log-sum-exp from a matrix of all scores."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.losses.tiles import Points
from aninfonce_jax.types import Array

COUNT, DIM = 24, 4
# Rows count differently, so that to mix them up shows.
COTANGENT = np.linspace(-1, 2, COUNT)
# Further apart than 30, and exponentials of some rows underflow beside those of others.
SPREADS = {"near": 0.3, "apart": 3.0, "far apart": 30.0}

Logsumexp = Callable[[Points], tuple[Array, Array]]


def example(spread: float) -> Points:
    rng = np.random.default_rng(0)
    return Points(
        vectors=jnp.asarray(spread * rng.normal(size=(COUNT, DIM)), jnp.float32),
        bias=jnp.asarray(rng.normal(size=COUNT), jnp.float32),
        number=jnp.arange(COUNT, dtype=jnp.int32) % 9,
    )


def naive(points: Points) -> tuple[Array, Array]:
    vectors, bias, number, _ = points
    scores = vectors @ vectors.T + bias[:, None] + bias[None, :]
    scores = jnp.where(number[:, None] == number[None, :], -jnp.inf, scores)
    return jax.nn.logsumexp(scores, axis=1), jnp.max(scores, axis=1)


def gradients(logsumexp: Logsumexp, points: Points) -> tuple[Array, Array]:
    """Returns those of vectors and biases, of a sum of the rows in which each has its weight."""

    def total(vectors: Array, bias: Array) -> Array:
        values, _ = logsumexp(Points(vectors, bias, points.number))
        return jnp.sum(values * jnp.asarray(COTANGENT, values.dtype))

    return jax.jit(jax.grad(total, argnums=(0, 1)))(points.vectors, points.bias)


def assert_right(logsumexp: Logsumexp, points: Points) -> None:
    """Compares values, maxima and gradients with float64."""
    with jax.enable_x64(True):
        wide = Points(*(jnp.asarray(np.float64(x)) for x in points[:2]), points.number)
        want: Any = jax.tree.map(np.asarray, (*naive(wide), *gradients(naive, wide)))
    largest = float(np.max(np.abs(want[0])))
    got = (*jax.jit(logsumexp)(points), *gradients(logsumexp, points))
    for mine, theirs in zip(got[:2], want[:2], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-6 * (1 + largest))
    for mine, theirs in zip(got[2:], want[2:], strict=True):
        scale = np.max(np.abs(theirs)) * max(1, largest / 10)
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5 * scale)
