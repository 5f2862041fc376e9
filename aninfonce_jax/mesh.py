"""Devices, and how arrays lie on them."""

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from aninfonce_jax.types import Array, PyTree

DATA_AXIS = "data"


def make_mesh(devices: int | None = None) -> Mesh:
    """Returns a one-dimensional mesh over the first `devices` local devices, or all."""
    local = jax.local_devices()
    chosen = local[: devices or len(local)]
    # Explicit axes, the default of jax.make_mesh, would make every product of a sharded
    # batch with itself an error; the compiler places collectives here.
    return Mesh(np.asarray(chosen), (DATA_AXIS,), axis_types=(AxisType.Auto,))


def replicated(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of values that every device holds whole."""
    return NamedSharding(mesh, PartitionSpec())


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of a batch, split over the mesh along its first axis."""
    return NamedSharding(mesh, PartitionSpec(DATA_AXIS))


def shard_batch(mesh: Mesh, tree: PyTree) -> PyTree:
    """Constrains every array, inside jit, to be split over the mesh along its first axis."""
    sharding = batch_sharding(mesh)

    def constrain(x: Array) -> Array:
        return jax.lax.with_sharding_constraint(x, sharding)

    return jax.tree.map(constrain, tree)
