"""Chips, their published peaks, and how a topology is named.

Peaks are those of the makers, dense (no sparsity). Nothing reaches them: they bound what a step
can take from below. Where a maker's pages differ, the smaller number is taken.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Literal

from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.config.values import shown

Platform = Literal["tpu", "gpu"]

_GOOGLE = "Google's Cloud TPU documentation, system architecture"
_NVIDIA = "NVIDIA's data sheet"
EXAMPLES = "v5e:4x4, v6e:8x8, v5p:2x2x4, v4:2x2x4, h100:8, a100:8x8"
_GIB = 2**30
_GB = 10**9
_TERA = 1e12


@dataclasses.dataclass(frozen=True)
class Chip:
    """An accelerator, as its compiler sees it: one device each, but for a v4, which is two.

    All numbers are those of a device.

    Attributes:
      name: as in a topology.
      title: as its maker calls it.
      platform: whose compiler makes its programs.
      source: where the numbers come from.
      flops: per second, by how an operand is multiplied: "bfloat16" for products of bfloat16,
        "float32" for float32 at jax's default precision, "high" and "highest" for float32 at
        the precisions of that name. A TPU makes float32 products of one, three or six of
        bfloat16; a GPU takes TF32, and plain float32 units from "high" on.
      memory: bytes of HBM.
      usable: bytes of it that a program can have.
      bandwidth: of HBM, bytes per second.
      links: bytes per second that a chip can send to others of its slice or node.
      network: bytes per second that a chip's share of its host's network can send; 0 where a
        topology never leaves the links.
      dimensions: how many a topology's shape has.
      per_chip: devices of a chip.
      per_host: chips of a host, of a topology that has several hosts.
      cores: virtual CPUs of such a host, as Google Cloud rents it out.
      largest: chips of the largest slice, or GPUs of the largest node, that there is.
    """

    name: str
    title: str
    platform: Platform
    source: str
    flops: Mapping[str, float]
    memory: int
    usable: int
    bandwidth: float
    links: float
    network: float
    dimensions: tuple[int, ...]
    per_chip: int
    per_host: int
    cores: int
    largest: int


def _tpu(
    name: str,
    *,
    teraflops: float,
    gib: int,
    usable: float,
    bandwidth: float,
    links: float,
    dimensions: int,
    cores: int,
    largest: int,
    per_chip: int = 1,
) -> Chip:
    peak = teraflops / per_chip * _TERA
    return Chip(
        name=name,
        title=f"TPU {name}",
        platform="tpu",
        source=_GOOGLE,
        flops={"bfloat16": peak, "float32": peak, "high": peak / 3, "highest": peak / 6},
        memory=gib * _GIB // per_chip,
        usable=int(usable * _GIB),
        bandwidth=bandwidth * _GB / per_chip,
        links=links * _GB / per_chip,
        network=0.0,
        dimensions=(dimensions,),
        per_chip=per_chip,
        per_host=4,
        cores=cores,
        largest=largest,
    )


def _gpu(
    name: str,
    title: str,
    *,
    tensor: float,
    tf32: float,
    float32: float,
    gb: int,
    bandwidth: float,
    links: float,
    network: float,
    cores: int,
    largest: int = 8,
) -> Chip:
    plain = float32 * _TERA
    return Chip(
        name=name,
        title=title,
        platform="gpu",
        source=_NVIDIA,
        flops={
            "bfloat16": tensor * _TERA,
            "float32": tf32 * _TERA,
            "high": plain,
            "highest": plain,
        },
        memory=gb * _GB,
        # jax's allocator takes three quarters unless XLA_PYTHON_CLIENT_MEM_FRACTION says more.
        usable=gb * _GB * 3 // 4,
        bandwidth=bandwidth * _GB,
        # Data sheets count both directions.
        links=links / 2 * _GB,
        network=network * _GB,
        dimensions=(1, 2),
        per_chip=1,
        per_host=8,
        cores=cores,
        largest=largest,
    )


# TPUs, as read in November 2026. Peak, memory and its bandwidth, and the links of v5e, v5p and v6e:
#   docs.cloud.google.com/tpu/docs/v4, /v5e, /v5p, /v6e. Links are given there in both directions
#   together (v5e 400 GB/s, v6e 800 GB/s) or as 4,800 Gbit/s (v5p); here it is one direction.
#   One page of v5e has 800 GiB/s for its memory, which is more than 819 GB/s.
# v4 has no links there. Six of 50 GB/s each are those of Jouppi et al., "TPU v4" (2023); this was
#   not looked up again, and neither were the virtual CPUs of v4, v5p and v6e. Those of v5e are on
#   its page: 112 for four chips (ct5lp-hightpu-4t), 224 for eight and 24 for one.
# Chips of a host in slices of several: four, by the machine types ct4p-hightpu-4t,
#   ct5lp-hightpu-4t, ct5p-hightpu-4t and ct6e-standard-4t.
# `usable` is what the compiler itself says when a program does not fit.
# `largest` is a pod. The compiler takes more than a pod of v5e or v6e, which nobody can rent.
#
# GPUs: NVIDIA's data sheets, dense. Those of H100 agree with
#   glennklockwood.com/garden/processors/h100 (989.4, 494.7, 66.9 TFLOP/s, 3.35 TB/s, 900 GB/s),
#   those of A100 with what others list (312 TFLOP/s, 19.5 in float32, 1,555 and 2,039 GB/s,
#   600 GB/s). Not looked up: H200, TF32 of A100, the network (a card of 200 Gbit/s for each A100
#   and of 400 for each H100, as in NVIDIA's own machines; clouds rent out less) and virtual CPUs.
#   Sixteen A100 share a node in Google's a2-megagpu-16g; of the others eight are the most.
CHIPS: dict[str, Chip] = {
    chip.name: chip
    for chip in (
        _tpu("v4", teraflops=275, gib=32, usable=15.25, bandwidth=1200, links=300,
             dimensions=3, cores=240, largest=4096, per_chip=2),
        _tpu("v5e", teraflops=197, gib=16, usable=15.75, bandwidth=819, links=200,
             dimensions=2, cores=112, largest=256),
        _tpu("v5p", teraflops=459, gib=95, usable=95.74, bandwidth=2765, links=600,
             dimensions=3, cores=208, largest=8960),
        _tpu("v6e", teraflops=918, gib=32, usable=31.25, bandwidth=1638, links=400,
             dimensions=2, cores=180, largest=256),
        _gpu("a100-40", "NVIDIA A100 SXM 40 GB", tensor=312, tf32=156, float32=19.5, gb=40,
             bandwidth=1555, links=600, network=25, cores=96, largest=16),
        _gpu("a100", "NVIDIA A100 SXM 80 GB", tensor=312, tf32=156, float32=19.5, gb=80,
             bandwidth=2039, links=600, network=25, cores=96, largest=16),
        _gpu("h100", "NVIDIA H100 SXM 80 GB", tensor=989, tf32=494, float32=67, gb=80,
             bandwidth=3350, links=900, network=50, cores=208),
        _gpu("h200", "NVIDIA H200 SXM 141 GB", tensor=989, tf32=494, float32=67, gb=141,
             bandwidth=4800, links=900, network=50, cores=208),
    )
}  # fmt: skip
# Virtual CPUs of hosts with another number of chips, where it is known.
_OTHER_CORES = {("v5e", 1): 24, ("v5e", 8): 224}


@dataclasses.dataclass(frozen=True)
class Topology:
    """Chips that work on one step together.

    Attributes:
      chip: which.
      shape: of a TPU slice, its sides; of GPUs, those of one node, or nodes and those of each.
    """

    chip: Chip
    shape: tuple[int, ...]

    @property
    def name(self) -> str:
        """As a command line names it."""
        return f"{self.chip.name}:{'x'.join(map(str, self.shape))}"

    @property
    def chips(self) -> int:
        """The number of chips."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """The number of devices that a batch is split over."""
        return self.chips * self.chip.per_chip

    @property
    def per_node(self) -> int:
        """Devices that reach each other without the network."""
        return self.size if self.chip.platform == "tpu" else self.shape[-1]

    @property
    def hosts(self) -> int:
        """Machines that hold the chips."""
        if self.chip.platform == "gpu":
            return self.size // self.per_node
        # Flat slices of eight chips can be had as one host.
        alone = self.chip.per_host * (2 if self.chip.dimensions == (2,) else 1)
        return 1 if self.chips <= alone else self.chips // self.chip.per_host

    @property
    def host_cores(self) -> int:
        """Virtual CPUs of each machine."""
        return _OTHER_CORES.get((self.chip.name, self.chips // self.hosts), self.chip.cores)

    def doubled(self) -> "Topology | None":
        """Returns the next larger one of the same kind; None if there is none."""
        if self.chip.platform == "gpu":
            if len(self.shape) == 1 and 2 * self.size <= self.chip.per_host:
                return Topology(self.chip, (2 * self.size,))
            nodes = self.shape[0] if len(self.shape) == 2 else 1
            return Topology(self.chip, (2 * nodes, self.shape[-1]))
        if 2 * self.chips > self.chip.largest:
            return None
        if self.chips == 1:
            # There are hosts of one chip and of four; slices of two are rare.
            return Topology(self.chip, (2, 2, 1)[: len(self.shape)])
        at = self.shape.index(min(self.shape))
        shape = tuple(2 * side if index == at else side for index, side in enumerate(self.shape))
        return Topology(self.chip, tuple(sorted(shape)))


def parse_topologies(text: str) -> list[Topology]:
    """Returns the topologies that a command line names, with commas between them.

    Raises:
      ConfigError: one of them has another form, or names a chip that is not known.
    """
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise ConfigError(
            f"--topology names what to compile for, such as {EXAMPLES}; got {shown(text)}"
        )
    return [_parse(name) for name in dict.fromkeys(names)]


def _parse(name: str) -> Topology:
    chip_name, _, sides = name.lower().partition(":")
    if chip_name not in CHIPS:
        raise ConfigError(
            f"--topology={shown(name)}: unknown chip; known are {', '.join(CHIPS)}, "
            f"for example {EXAMPLES}"
        )
    chip = CHIPS[chip_name]
    is_shape = re.fullmatch(r"[1-9]\d{0,3}(x[1-9]\d{0,3})*", sides)
    shape = tuple(map(int, sides.split("x"))) if is_shape else ()
    if len(shape) not in chip.dimensions:
        expected = {
            "tpu": f"{chip.dimensions[0]} sides, such as "
            + ("2x2x4" if chip.dimensions[0] == 3 else "4x4"),
            "gpu": "GPUs of one node, such as 8, or nodes x GPUs, such as 4x8",
        }[chip.platform]
        raise ConfigError(
            f"--topology={shown(name)}: {chip.name} takes {expected}; examples: {EXAMPLES}"
        )
    topology = Topology(chip, shape)
    if chip.platform == "tpu" and topology.chips > chip.largest:
        raise ConfigError(
            f"--topology={shown(name)}: a slice of {chip.name} has at most {chip.largest:,} chips, "
            f"got {topology.chips:,}; examples: {EXAMPLES}"
        )
    if chip.platform == "gpu" and topology.per_node > chip.largest:
        raise ConfigError(
            f"--topology={shown(name)}: a node has at most {chip.largest} {chip.name}, got "
            f"{topology.per_node}; write nodes x GPUs, such as {chip.name}:4x8; "
            f"examples: {EXAMPLES}"
        )
    return topology
