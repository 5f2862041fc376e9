"""Chips and the names of topologies."""

import pytest

from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.forecast.chips import CHIPS, Topology, parse_topologies


def only(name: str) -> Topology:
    (topology,) = parse_topologies(name)
    return topology


@pytest.mark.parametrize(
    ("name", "chips", "devices", "hosts", "per_node"),
    [
        ("v5e:4x4", 16, 16, 4, 16),
        ("v5e:2x4", 8, 8, 1, 8),
        ("v5e:1x1", 1, 1, 1, 1),
        # Hosts of the kinds with three sides have four chips.
        ("v5p:2x2x2", 8, 8, 2, 8),
        ("v4:2x2x2", 8, 16, 2, 16),
        ("v5p:2x2x4", 16, 16, 4, 16),
        # A v4 is two devices to its compiler.
        ("v4:2x2x4", 16, 32, 4, 32),
        ("v6e:16x16", 256, 256, 64, 256),
        ("h100:8", 8, 8, 1, 8),
        ("a100:4x8", 32, 32, 4, 8),
        ("H100:8", 8, 8, 1, 8),
        ("a100:16", 16, 16, 1, 16),
    ],
)
def test_a_topology_says_how_many(name, chips, devices, hosts, per_node):
    topology = only(name)
    assert (topology.chips, topology.size) == (chips, devices)
    assert (topology.hosts, topology.per_node) == (hosts, per_node)
    assert topology.name == name.lower()


def test_several_are_separated_by_commas_and_counted_once():
    names = [one.name for one in parse_topologies("v5e:4x4, h100:8,v5e:4x4")]
    assert names == ["v5e:4x4", "h100:8"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "--topology names what to compile for, such as v5e:4x4"),
        ("v5e:4x4,", "--topology names what to compile for"),
        ("v9:2x2", "unknown chip; known are v4, v5e"),
        ("4x4", "unknown chip"),
        ("v5e", "v5e takes 2 sides, such as 4x4"),
        ("v5e:4x4x4", "v5e takes 2 sides"),
        ("v5p:4x4", "v5p takes 3 sides, such as 2x2x4"),
        ("v5e:0x4", "v5e takes 2 sides"),
        ("h100:2x2x2", "h100 takes GPUs of one node, such as 8"),
        ("h100:eight", "h100 takes GPUs of one node"),
        ("h100:64", "a node has at most 8 h100, got 64; write nodes x GPUs, such as h100:4x8"),
        ("h100:4x16", "a node has at most 8 h100, got 16"),
        ("v5e:16x32", "a slice of v5e has at most 256 chips, got 512"),
    ],
)
def test_what_is_no_topology_gets_one_line_with_examples(text, says):
    with pytest.raises(ConfigError, match=says) as raised:
        parse_topologies(text)
    assert "\n" not in str(raised.value)
    assert "a100:8x8" in str(raised.value)


@pytest.mark.parametrize(
    ("name", "larger"),
    [
        ("v5e:4x4", "v5e:4x8"),
        ("v5e:4x8", "v5e:8x8"),
        ("v5p:2x2x4", "v5p:2x4x4"),
        ("h100:4", "h100:8"),
        ("h100:6", "h100:2x6"),
        ("h100:8", "h100:2x8"),
        ("h100:2x8", "h100:4x8"),
    ],
)
def test_the_next_larger_one_has_twice_the_chips(name, larger):
    assert only(name).doubled().name == larger
    assert only(larger).chips == 2 * only(name).chips


def test_one_chip_is_followed_by_a_host_of_four():
    assert only("v5e:1x1").doubled().name == "v5e:2x2"
    assert only("v5p:1x1x1").doubled().name == "v5p:2x2x1"


def test_nothing_is_larger_than_a_pod():
    assert only("v5e:16x16").doubled() is None


@pytest.mark.parametrize(
    ("name", "cores"), [("v5e:1x1", 24), ("v5e:4x4", 112), ("v5e:2x4", 224), ("h100:2x8", 208)]
)
def test_a_host_has_the_cores_of_its_size(name, cores):
    assert only(name).host_cores == cores


@pytest.mark.parametrize("chip", CHIPS.values(), ids=lambda chip: chip.name)
def test_peaks_are_those_of_a_chip(chip):
    """A slip of a unit would be off by a factor of eight or a thousand."""
    assert 100e12 < chip.flops["bfloat16"] < 2000e12
    assert chip.flops["bfloat16"] >= chip.flops["float32"] > chip.flops["highest"]
    assert chip.usable <= 1.01 * chip.memory
    assert 500e9 < chip.bandwidth < 10e12
    assert 100e9 < chip.links < chip.bandwidth
    assert chip.network < chip.links
