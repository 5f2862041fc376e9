import dataclasses
import itertools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import topologies
from jax.sharding import AxisType, PartitionSpec

from aninfonce_jax import placement
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.placement import DATA_AXIS, Placement, Rows, in_slices, on, ring_order


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


def chips(*shape, slices=1, cores=1, corner=0):
    """Devices that tell where they are, as a TPU's do, in a disorder that is always the same."""
    grid = itertools.product(range(slices), *map(range, shape), range(cores))
    devices = [
        types.SimpleNamespace(slice_index=s, coords=[x + corner for x in coords], core_on_chip=core)
        for s, *coords, core in grid
    ]
    return [devices[i] for i in np.random.default_rng(0).permutation(len(devices))]


def hops(devices):
    """Returns how far each device is from the next, and the last from the first."""
    following = [*devices[1:], devices[0]]
    pairs = zip(devices, following, strict=True)
    return [sum(abs(a - b) for a, b in zip(x.coords, y.coords, strict=True)) for x, y in pairs]


GRIDS = [(2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (16, 16), (3, 4), (4, 3), (2, 2, 1), (2, 1, 1)]
GRIDS += [(4, 4, 1), (2, 2, 4), (4, 4, 4), (8, 8, 8), (3, 3, 2), (1, 6, 3)]


@pytest.mark.parametrize("shape", GRIDS, ids=str)
def test_neighbours_follow_each_other_around_a_ring(shape):
    devices = chips(*shape, corner=1)
    ordered = ring_order(devices)
    assert sorted(map(id, ordered)) == sorted(map(id, devices))
    assert set(hops(ordered)) == {1}
    # It depends on where devices are, not on the order in which they come.
    assert [x.coords for x in ring_order(ordered[::-1])] == [x.coords for x in ordered]


@pytest.mark.parametrize("shape", [(1, 4), (3, 3), (1,), (3, 5, 1)], ids=str)
def test_grids_without_a_ring_keep_their_order(shape):
    devices = chips(*shape)
    assert ring_order(devices) == devices


def test_a_box_with_a_gap_keeps_its_order():
    devices = chips(4, 4)[1:]
    assert ring_order(devices) == devices


def test_devices_that_are_nowhere_keep_their_order():
    assert ring_order(jax.devices()[::-1]) == jax.devices()[::-1]
    assert ring_order([]) == []


def test_slices_follow_each_other_and_cores_of_a_chip_stay_together():
    ordered = ring_order(chips(4, 2, slices=2, cores=2))
    assert [x.slice_index for x in ordered] == [0] * 16 + [1] * 16
    for first in (0, 16):
        assert hops(ordered[first : first + 16]) == [0, 1] * 8


@pytest.mark.parametrize(
    ("devices", "slices", "are_there"),
    [
        (chips(1), 2, "are 1;"),
        (chips(6), 4, "are 6;"),
        (chips(4, slices=2), 4, "are 8, in slices of 4, 4;"),
        (chips(4, slices=2)[1:], 2, r"are 7, in slices of \d, \d;"),
    ],
)
def test_slices_that_are_not_there(devices, slices, are_there):
    expected = f"^train.slices={slices} does not fit the devices, of which there {are_there} set it"
    with pytest.raises(ConfigError, match=expected):
        in_slices(devices, slices)


def test_a_placement_lies_along_the_ring(monkeypatch):
    monkeypatch.setattr(placement, "ring_order", lambda devices: devices[::-1])
    assert list(Placement.local(4).mesh.devices) == jax.local_devices()[3::-1]
