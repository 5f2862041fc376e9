"""What bounds a step."""

import pytest

from aninfonce_jax.forecast.chips import parse_topologies
from aninfonce_jax.forecast.hlo import Collective
from aninfonce_jax.forecast.roofline import EFFICIENCY, find_bounds, sent


def topology(name):
    return parse_topologies(name)[0]


def gathering(size, group, kind="all-gather", nodes=1):
    return Collective(kind, 1, size, ("data",), group, nodes, is_async=True)


def test_each_part_takes_its_work_over_its_peak():
    v5e = topology("v5e:4x4")
    bounds = find_bounds(v5e, {"bfloat16": 16 * 197e12}, 819e9 / 4, [gathering(200e9, 16)])
    assert bounds.compute == pytest.approx(1)
    assert bounds.memory == pytest.approx(0.25)
    assert bounds.links == pytest.approx(15 / 16)
    assert bounds.network == 0
    assert (bounds.by, bounds.seconds) == ("compute", bounds.compute)
    assert bounds.range == (bounds.seconds, bounds.seconds / EFFICIENCY)


def test_products_of_the_highest_precision_take_six_passes_on_a_tpu():
    v5e = topology("v5e:1x1")
    one = find_bounds(v5e, {"float32": 1e12}, 0, []).compute
    assert find_bounds(v5e, {"highest": 1e12}, 0, []).compute == pytest.approx(6 * one)
    assert find_bounds(v5e, {"high": 1e12}, 0, []).compute == pytest.approx(3 * one)


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        ("all-reduce", 2 * 7 / 8),
        ("all-gather", 7 / 8),
        ("reduce-scatter", 7),
        ("all-to-all", 7 / 8),
        ("collective-permute", 1),
    ],
)
def test_a_ring_sends_its_share(kind, share):
    assert sent(gathering(800, 8, kind)) == (pytest.approx(800 * share), 0)


def test_a_group_of_one_sends_nothing():
    assert sent(gathering(800, 1, "all-reduce")) == (0, 0)


def test_between_nodes_a_node_s_devices_share_the_network():
    inside, outside = sent(gathering(800, 32, "all-reduce", nodes=4))
    assert inside == pytest.approx(800 * 2 * 7 / 8)
    assert outside == pytest.approx(800 * 2 * 3 / 4 / 8)


def test_around_a_ring_one_device_sends_to_the_next_node():
    assert sent(gathering(800, 32, "collective-permute", nodes=2)) == (800, 800)


def test_a_group_of_one_device_per_node_uses_the_network_alone():
    assert sent(gathering(800, 4, nodes=4)) == (0, pytest.approx(800 * 3 / 4))


def test_a_slow_network_bounds_what_fast_links_do_not():
    bounds = find_bounds(
        topology("a100:8x8"), {}, 0, [gathering(10e9, 64, "collective-permute", nodes=2)]
    )
    assert bounds.by == "network"
    assert bounds.network == pytest.approx(10e9 / 25e9)
