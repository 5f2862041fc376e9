"""What bounds a step: the time that each part of a machine would need for it at its peak."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from aninfonce_jax.forecast.chips import Topology
from aninfonce_jax.forecast.hlo import Collective

# The share of the bound that well-made steps are known to reach, at the lower end.
EFFICIENCY = 0.4
# How much of its output each chip sends, for a group of n in a ring.
_SENT: dict[str, Callable[[int], float]] = {
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "all-gather": lambda n: (n - 1) / n,
    # Puts out a share of what it takes in.
    "reduce-scatter": lambda n: n - 1.0,
    "all-to-all": lambda n: (n - 1) / n,
    "ragged-all-to-all": lambda n: (n - 1) / n,
    "collective-permute": lambda n: 1.0,
    "collective-broadcast": lambda n: 1.0,
}


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Seconds that a step takes at the least, by each part of the machine.

    Attributes:
      compute: products and convolutions.
      memory: what goes through HBM.
      links: what chips of a slice or node send each other.
      network: what nodes send each other.
    """

    compute: float
    memory: float
    links: float
    network: float

    @property
    def parts(self) -> dict[str, float]:
        """The seconds by name."""
        return dataclasses.asdict(self)

    @property
    def by(self) -> str:
        """Which part bounds the step."""
        return max(self.parts, key=self.parts.__getitem__)

    @property
    def seconds(self) -> float:
        """A step's time if everything overlaps and nothing stays behind its peak."""
        return max(self.parts.values())

    @property
    def range(self) -> tuple[float, float]:
        """A step's time at the bound, and at `EFFICIENCY` of it."""
        return self.seconds, self.seconds / EFFICIENCY


def find_bounds(
    topology: Topology,
    flops: Mapping[str, float],
    moved: float,
    collectives: Iterable[Collective],
) -> Bounds:
    """Returns the bounds of a step.

    Args:
      topology: where it runs.
      flops: over all devices, by how operands are multiplied.
      moved: bytes of HBM, of one device.
      collectives: of one device.
    """
    chip = topology.chip
    links = network = 0.0
    for one in collectives:
        inside, outside = sent(one)
        links += inside / chip.links
        network += outside / chip.network if outside else 0.0
    return Bounds(
        compute=sum(count / chip.flops[kind] for kind, count in flops.items()) / topology.size,
        memory=moved / chip.bandwidth,
        links=links,
        network=network,
    )


def sent(one: Collective) -> tuple[float, float]:
    """Returns the bytes that a device sends for a collective: over links, and over the network.

    If a group spans nodes, each node sends over the network what a member of a group of as many
    members as nodes would send, and the devices of a node share that. What goes from neighbour to
    neighbour leaves a node at one device only.
    """
    if one.group < 2:
        return 0.0, 0.0
    factor = _SENT[one.kind]
    if one.kind == "collective-permute":
        return factor(one.group) * one.bytes, factor(one.group) * one.bytes * (one.nodes > 1)
    # In each node; a group that has one device there uses no links.
    members = one.group // one.nodes
    inside = factor(members) * one.bytes if members > 1 else 0.0
    outside = factor(one.nodes) * one.bytes / members if one.nodes > 1 else 0.0
    return inside, outside
