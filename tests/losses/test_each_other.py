"""Points that are each other's keys: every device makes the whole gradient of its own."""

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, Mesh
from jax.sharding import PartitionSpec as P
from reference_points import SPREADS, assert_right, example, gradients, naive

from aninfonce_jax.losses import each_other
from aninfonce_jax.losses.plan import Plan
from aninfonce_jax.losses.tiles import Points
from aninfonce_jax.types import Array

AXIS = "data"


def plan(**changes: Any) -> Plan:
    settings: dict[str, Any] = {
        "strategy": "named in metrics only",
        "contrast": "each other",
        "keys": "here",
        "axis_name": None,
        "tile": "chunked",
        "chunk_size": 5,
        "precision": lax.Precision.HIGHEST,
    }
    return Plan(**settings | changes)


def over_devices(devices: int, checked: bool = True, ring: bool = False, **changes: Any) -> Any:
    """Returns the log-sum-exp of all points, spread over so many devices."""
    changes |= {"axis_name": AXIS, "keys": "ring" if ring else "gathered"}
    mesh = Mesh(np.array(jax.devices()[:devices]), (AXIS,), axis_types=(AxisType.Auto,))
    return jax.shard_map(
        functools.partial(each_other.logsumexp, plan(**changes)),
        mesh=mesh,
        in_specs=P(AXIS),
        out_specs=P(AXIS),
        check_vma=checked,
    )


@pytest.mark.parametrize("tile", ["dense", "chunked", "pallas"])
@pytest.mark.parametrize("spread", SPREADS)
def test_values_and_gradients_against_float64(spread: str, tile: str) -> None:
    assert_right(functools.partial(each_other.logsumexp, plan(tile=tile)), example(SPREADS[spread]))


@pytest.mark.parametrize("chunk_size", [1, 24, 100])
def test_any_chunk_size(chunk_size: int) -> None:
    assert_right(functools.partial(each_other.logsumexp, plan(chunk_size=chunk_size)), example(1.0))


@pytest.mark.parametrize("tile", ["dense", "chunked"])
@pytest.mark.parametrize("ring", [False, True], ids=["gathered", "ring"])
@pytest.mark.parametrize(
    "devices", [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2)), 3, 8]
)
def test_points_of_many_devices(devices: int, ring: bool, tile: str) -> None:
    assert_right(over_devices(devices, ring=ring, tile=tile), example(1.0))


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("ring", [False, True], ids=["gathered", "ring"])
def test_kernels_on_many_devices(ring: bool, spread: str) -> None:
    """Interpreted kernels do not say which mesh axes their values vary over."""
    points = example(SPREADS[spread])
    assert_right(over_devices(3, ring=ring, tile="pallas", checked=False), points)


@pytest.mark.slow
@pytest.mark.parametrize("tile", ["dense", "chunked"])
def test_second_derivatives(tile: str) -> None:
    points = example(0.3)

    def curvature(logsumexp: Any) -> Array:
        def slope(vectors: Array) -> Array:
            d_vectors, d_bias = gradients(logsumexp, points._replace(vectors=vectors))
            return jnp.sum(jnp.sin(d_vectors)) + jnp.sum(d_bias**2)

        return jax.grad(slope)(points.vectors)

    for ours in (
        functools.partial(each_other.logsumexp, plan(tile=tile)),
        over_devices(4, tile=tile),
        over_devices(4, tile=tile, ring=True),
    ):
        chex.assert_trees_all_close(curvature(ours), curvature(naive), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("tile", ["dense", "chunked", "pallas"])
def test_a_point_without_others_has_no_gradient(tile: str) -> None:
    points = example(1.0)._replace(number=jnp.zeros(24, jnp.int32).at[:2].set(jnp.array([1, 2])))
    # Only the first two points may be scored with the rest, which may not among themselves.
    alone = Points(points.vectors[2:], points.bias[2:], points.number[2:])
    ours = functools.partial(each_other.logsumexp, plan(tile=tile))
    values, best = ours(alone)
    np.testing.assert_array_equal(values, np.full(22, -np.inf))
    np.testing.assert_array_equal(best, np.full(22, -np.inf))
    d_points = jax.grad(lambda *a: jnp.sum(ours(Points(*a, alone.number))[0]), argnums=(0, 1))(
        alone.vectors, alone.bias
    )
    for gradient in d_points:
        np.testing.assert_array_equal(gradient, np.zeros_like(gradient))
    assert_right(ours, points)


@pytest.mark.parametrize("tile", ["dense", "chunked", "pallas"])
def test_nan_is_not_hidden(tile: str) -> None:
    points = example(1.0)
    broken = points._replace(vectors=points.vectors.at[3].set(jnp.nan))
    values, _ = each_other.logsumexp(plan(tile=tile), broken)
    contrasted = points.number != points.number[3]
    assert bool(jnp.all(jnp.isnan(values[contrasted])))
