import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import topologies
from jax.sharding import AxisType, PartitionSpec

from aninfonce_jax.placement import DATA_AXIS, Placement, Rows, on


def test_all_local_devices_or_the_first_few():
    assert Placement.local().mesh.shape == {DATA_AXIS: 8}
    assert Placement.local(2).mesh.shape == {DATA_AXIS: 2}
    assert list(Placement.local(2).mesh.devices) == jax.local_devices()[:2]
    assert Placement.local(2).size == 2
    assert Placement.local().mesh.axis_types == (AxisType.Auto,)


def test_batches_are_split_and_state_is_whole():
    placement = Placement.local(4)
    x = jnp.arange(32.0).reshape(8, 4)
    split = jax.jit(lambda x: placement.constrain({"x": x}))(x)["x"]
    assert split.sharding.spec == PartitionSpec(DATA_AXIS)
    assert {shard.data.shape for shard in split.addressable_shards} == {(2, 4)}
    np.testing.assert_array_equal(split, x)
    assert jax.device_put(x, placement.whole).sharding.is_fully_replicated
    assert jax.device_put(x, placement.split).sharding == split.sharding


def test_rows_of_the_host_become_a_global_batch():
    placement = Placement.local(4)
    rows = {"x": np.arange(8, dtype=np.float32), "label": np.arange(8, dtype=np.int32)}
    placed = placement.put_rows(rows)
    assert {array.sharding for array in placed.values()} == {placement.split}
    np.testing.assert_array_equal(placed["x"], rows["x"])


def test_a_process_loads_its_own_rows():
    placement = Placement.over(jax.local_devices()[:2], process=1, processes=2)
    assert placement.rows(8) == Rows(8, host=1, hosts=2)
    assert placement.rows(8).positions(2).tolist() == [20, 21, 22, 23]
    assert not placement.is_first
    assert Placement.local().is_first
    assert Placement.local().rows(8) == Rows(8)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((0,), "at least 1, got batch_size 0 and hosts 1"),
        ((8, 0, 0), "at least 1, got batch_size 8 and hosts 0"),
        ((8, 2, 2), "host must be from 0 to 1, got 2"),
        ((8, -1, 2), "host must be from 0 to 1, got -1"),
        ((7, 0, 2), "must be a multiple of the number of hosts, got 7 over 2"),
    ],
)
def test_rows_that_can_not_be(arguments, expected):
    with pytest.raises(ValueError, match=expected):
        Rows(*arguments)


def test_shapes_to_lower_or_restore_carry_their_place():
    placement = Placement.local(2)
    tree = on(placement.split, {"x": jax.ShapeDtypeStruct((4, 3), jnp.bfloat16)})
    assert tree["x"] == jax.ShapeDtypeStruct((4, 3), jnp.bfloat16, sharding=placement.split)


def test_an_abstract_topology_is_asked_of_its_platform(monkeypatch):
    asked = []

    def describe(name, platform, **options):
        asked.append((name, platform, options))
        return types.SimpleNamespace(devices=jax.local_devices()[:4])

    monkeypatch.setattr(topologies, "get_topology_desc", describe)
    assert Placement.of_topology("v5e:2x2", chips_per_host_bounds=(2, 2, 1)).size == 4
    assert asked == [("v5e:2x2", "tpu", {"chips_per_host_bounds": (2, 2, 1)})]


def test_memory_is_that_of_the_fullest_device_where_the_backend_tells():
    placement = Placement.local(2)
    assert placement.peak_memory() is None  # CPUs do not
    devices = [
        types.SimpleNamespace(memory_stats=lambda own=own: own)
        for own in ({"peak_bytes_in_use": 5}, {"peak_bytes_in_use": 7}, {}, None)
    ]
    mesh = types.SimpleNamespace(local_devices=devices)
    assert dataclasses.replace(placement, mesh=mesh).peak_memory() == 7
