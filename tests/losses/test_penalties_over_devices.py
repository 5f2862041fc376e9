"""The penalties that hold weak factors, on eight devices: values and gradients are those of one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import aninfonce_jax as an
from aninfonce_jax.losses import spreading

DRAWS = np.random.default_rng(0)
POINTS = jnp.float32(DRAWS.normal(size=(64, 4)) + 0.3)
SEEN = jnp.float32(np.tanh(POINTS @ DRAWS.normal(size=(4, 3))) + 2.0)
# Each with what it compares, and the relative error of float32: keeping solves equations.
PENALTIES = {
    "centring": (an.centring_penalty, (POINTS,), 1e-5),
    "spreading": (an.spreading_penalty, (POINTS,), 1e-5),
    "keeping": (an.keeping_penalty, (POINTS, SEEN), 1e-4),
}


@pytest.mark.parametrize("mode", ["pmap", "checked", "unchecked"])
def test_spreading_takes_tiles_on_many_devices_too(mode, monkeypatch):
    monkeypatch.setattr(spreading, "_MOST_AT_ONCE", 100)
    monkeypatch.setattr(spreading, "_TILE", 24)
    test_value_and_gradient_are_those_of_one_device("spreading", mode)


@pytest.mark.parametrize("mode", ["pmap", "checked", "unchecked"])
@pytest.mark.parametrize("name", PENALTIES)
def test_value_and_gradient_are_those_of_one_device(name, mode):
    penalty, arrays, tolerance = PENALTIES[name]
    shift = jnp.linspace(-0.1, 0.2, 4)

    def of_shift(shift, points, *others, axis_name=None):
        return penalty(points + shift[None], *others, axis_name=axis_name)

    def local(shift, *arrays):
        # The contract of the losses: gradients of replicated parameters are averaged.
        value, grad = jax.value_and_grad(of_shift)(shift, *arrays, axis_name="data")
        return value, jax.lax.pmean(grad, "data")

    if mode == "pmap":
        run = jax.pmap(local, axis_name="data", in_axes=(None, *(0 for _ in arrays)))
        spread = [x.reshape(8, 8, -1) for x in arrays]
        value, grad = jax.tree.map(lambda x: x[0], run(shift, *spread))
    else:
        mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
        mapped = functools.partial(
            jax.shard_map,
            mesh=mesh,
            in_specs=(P(), *(P("data") for _ in arrays)),
            out_specs=P(),
            check_vma=mode == "checked",
        )
        value, grad = jax.jit(mapped(local))(shift, *arrays)
    expected = jax.value_and_grad(of_shift)(shift, *arrays)
    np.testing.assert_allclose(value, expected[0], rtol=1e-5)
    np.testing.assert_allclose(grad, expected[1], rtol=tolerance, atol=1e-6)
