"""Half of the scores give the whole log-sum-exp, and notice when they can not."""

import functools

import jax.numpy as jnp
import pytest
from jax import lax
from reference_points import SPREADS, assert_right, example

from aninfonce_jax.losses import symmetric

HIGHEST = lax.Precision.HIGHEST


@pytest.mark.parametrize("chunk_size", [1, 5, 8, 24, 100])
@pytest.mark.parametrize("spread", SPREADS)
def test_values_and_gradients_against_float64(spread: str, chunk_size: int) -> None:
    """Far apart, sums underflow and the general method takes over."""
    ours = functools.partial(symmetric.logsumexp, chunk_size=chunk_size, precision=HIGHEST)
    assert_right(ours, example(SPREADS[spread]))


def test_far_apart_is_noticed() -> None:
    """Without the general method these rows would come out as -∞."""
    points = example(SPREADS["far apart"])
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
