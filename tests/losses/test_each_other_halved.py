"""Half of the scores give the whole log-sum-exp, however far apart they are."""

import functools

import jax.numpy as jnp
import pytest
from jax import lax
from reference_points import SPREADS, assert_right, example

from aninfonce_jax.losses import each_other_halved, tiles
from aninfonce_jax.losses.plan import Plan


def plan(chunk_size: int) -> Plan:
    return Plan(
        strategy="chunked",
        contrast="each other, halved",
        keys="here",
        tile="chunked",
        axis_name=None,
        chunk_size=chunk_size,
        precision=lax.Precision.HIGHEST,
    )


@pytest.mark.parametrize("chunk_size", [1, 5, 8, 24, 100])
@pytest.mark.parametrize("spread", SPREADS)
def test_values_and_gradients_against_float64(spread: str, chunk_size: int) -> None:
    """Far apart, exponentials from one shift would underflow."""
    ours = functools.partial(each_other_halved.logsumexp, plan(chunk_size))
    assert_right(ours, example(SPREADS[spread]))


@pytest.mark.parametrize("spread", SPREADS)
def test_no_score_lies_outside_the_bounds(spread: str) -> None:
    points = example(SPREADS[spread])
    scores = points.vectors @ points.vectors.T + points.bias[:, None] + points.bias[None, :]
    ceiling, floor = each_other_halved._bounds(points)
    assert floor <= jnp.min(scores)
    assert jnp.max(scores) <= ceiling * (1 + 1e-6)
    # So that all of this file is about both methods.
    assert (ceiling - floor < each_other_halved._WIDEST_RANGE) == (spread == "near")


def test_nan_is_not_hidden() -> None:
    points = example(1.0)
    broken = points._replace(vectors=points.vectors.at[3].set(jnp.nan))
    values, _ = each_other_halved.logsumexp(plan(8), broken)
    contrasted = points.number != points.number[3]
    assert bool(jnp.all(jnp.isnan(values[contrasted])))


def test_a_tile_below_the_diagonal_is_never_computed() -> None:
    rows, columns = each_other_halved._pairs(tiles.cut_points(example(1.0), 3))
    assert len(rows) == 8 * 9 // 2
    assert bool(jnp.all(rows <= columns))
