import jax
import jax.numpy as jnp
import numpy as np
from aninfonce_jax.mesh import DATA_AXIS, make_mesh, replicated, shard_batch
from jax.sharding import PartitionSpec


def test_mesh_takes_all_devices_or_the_first_few():
    assert make_mesh().shape == {DATA_AXIS: 8}
    assert make_mesh(2).shape == {DATA_AXIS: 2}
    assert list(make_mesh(2).devices) == jax.local_devices()[:2]


def test_batches_are_split_and_state_is_whole():
    mesh = make_mesh(4)
    x = jnp.arange(32.0).reshape(8, 4)
    split = jax.jit(lambda x: shard_batch(mesh, {"x": x}))(x)["x"]
    assert split.sharding.spec == PartitionSpec(DATA_AXIS)
    assert {shard.data.shape for shard in split.addressable_shards} == {(2, 4)}
    np.testing.assert_array_equal(split, x)
    assert jax.device_put(x, replicated(mesh)).sharding.is_fully_replicated
