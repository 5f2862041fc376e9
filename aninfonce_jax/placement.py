"""Where a run computes: its devices, its processes, and how arrays lie on them.

Everything that has to know about devices asks a `Placement`: the loop, the evaluation, the
checkpoints and ahead-of-time compilation. A placement may be abstract, over the devices of a
topology that is not at hand; then everything up to `compile()` works.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import jax
import numpy as np
from jax.experimental import multihost_utils, topologies
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from aninfonce_jax.types import Array, PyTree

DATA_AXIS = "data"


@dataclasses.dataclass(frozen=True)
class Rows:
    """The part of every batch that one host loads.

    Hosts take contiguous rows, in their order, so that the whole batch reads the same on any
    number of hosts.

    Attributes:
      batch_size: of the whole batch, over all hosts.
      host: which host this is.
      hosts: how many there are.
    """

    batch_size: int
    host: int = 0
    hosts: int = 1

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.hosts < 1:
            raise ValueError(
                "batch_size and hosts must be at least 1, got "
                f"batch_size {self.batch_size} and hosts {self.hosts}"
            )
        if not 0 <= self.host < self.hosts:
            raise ValueError(f"host must be from 0 to {self.hosts - 1}, got {self.host}")
        if self.batch_size % self.hosts:
            raise ValueError(
                f"batch_size must be a multiple of the number of hosts, got {self.batch_size} "
                f"over {self.hosts}"
            )

    def positions(self, batch: int) -> np.ndarray:
        """Returns the places of this host's rows of a batch in the order of all examples."""
        local = self.batch_size // self.hosts
        start = batch * self.batch_size + self.host * local
        return np.arange(start, start + local, dtype=np.int64)


@dataclasses.dataclass(frozen=True)
class Placement:
    """Devices in a one-dimensional mesh, and this process among all that share it.

    Attributes:
      mesh: the devices; the batch is split over its only axis.
      process: which process this is.
      processes: how many there are.
    """

    mesh: Mesh
    process: int = 0
    processes: int = 1

    @classmethod
    def over(cls, devices: Sequence[Any], *, process: int = 0, processes: int = 1) -> Self:
        """Returns a placement over these devices, real or abstract, in `ring_order`."""
        devices = ring_order(devices)
        # Explicit axes, the default of jax.make_mesh, would make every product of a sharded
        # batch with itself an error; the compiler places collectives here.
        mesh = Mesh(np.asarray(devices), (DATA_AXIS,), axis_types=(AxisType.Auto,))
        return cls(mesh, process, processes)

    @classmethod
    def local(cls, devices: int | None = None) -> Self:
        """Returns a placement over the first `devices` devices of this process, or all."""
        available = jax.local_devices()
        return cls.over(available[: devices or len(available)])

    @classmethod
    def of_topology(cls, name: str, platform: str = "tpu", **options: Any) -> Self:
        """Returns an abstract placement, such as "v5e:4x4", to compile for.

        Args:
          name: the topology, as the platform's compiler calls it.
          platform: "tpu", or another one whose compiler is installed.
          **options: what else `jax.experimental.topologies.get_topology_desc` takes.
        """
        return cls.over(topologies.get_topology_desc(name, platform, **options).devices)

    @property
    def size(self) -> int:
        """The number of devices."""
        return int(self.mesh.size)

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes what only one may write."""
        return self.process == 0

    @property
    def whole(self) -> NamedSharding:
        """The sharding of values that every device holds whole."""
        return NamedSharding(self.mesh, PartitionSpec())

    @property
    def split(self) -> NamedSharding:
        """The sharding of a batch, split over the devices along its first axis."""
        return NamedSharding(self.mesh, PartitionSpec(DATA_AXIS))

    def rows(self, batch_size: int) -> Rows:
        """Returns the rows of a batch of `batch_size` that this process loads."""
        return Rows(batch_size, self.process, self.processes)

    def peak_memory(self) -> int | None:
        """Returns the most bytes that were in use on any device of this process so far.

        None where the backend does not tell, as CPUs don't.
        """
        stats = [device.memory_stats() or {} for device in self.mesh.local_devices]
        peaks = [own["peak_bytes_in_use"] for own in stats if "peak_bytes_in_use" in own]
        return max(peaks, default=None)

    def put_rows(self, rows: PyTree) -> PyTree:
        """Makes global arrays, split over the devices, of every process's rows."""
        return jax.tree.map(lambda x: jax.make_array_from_process_local_data(self.split, x), rows)

    def wait_for_all(self, name: str) -> None:
        """Waits until every process has come to the place of this name."""
        if self.processes > 1:
            multihost_utils.sync_global_devices(f"aninfonce_jax:{name}")

    def constrain(self, tree: PyTree) -> PyTree:
        """Constrains every array, inside jit, to be split along its first axis."""

        def one(x: Array) -> Array:
            return jax.lax.with_sharding_constraint(x, self.split)

        return jax.tree.map(one, tree)


def on(sharding: Sharding, tree: PyTree) -> PyTree:
    """Returns shapes and dtypes of a tree's arrays, placed by `sharding`: to restore or lower."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)


def ring_order(devices: Sequence[Any]) -> list[Any]:
    """Returns devices such that each is a neighbour of the next, and the last of the first.

    What travels around the devices of a mesh then crosses one link at a time. On TPU pods of 64
    chips or more the compiler makes a transfer blocking where it joins chips that are no
    neighbours. Devices tell where they are by `coords`; others, such as CPUs and GPUs, keep
    their order. So do those of a grid that has no such cycle: a line, an odd number of chips, or
    a box with gaps. Slices, which a slower network joins, follow each other.

    The order depends on coordinates and slices alone, and is the same in every process. The
    devices of one process need not follow each other.
    """
    slices: dict[int, list[Any]] = {}
    for device in devices:
        slices.setdefault(getattr(device, "slice_index", None) or 0, []).append(device)
    return [device for index in sorted(slices) for device in _cycle_of_slice(slices[index])]


def _cycle_of_slice(devices: list[Any]) -> list[Any]:
    """Returns the devices of one slice, chip by chip around a cycle, if there is one."""
    chips: dict[tuple[int, ...], list[Any]] = {}
    for device in devices:
        coords = getattr(device, "coords", None)
        if coords is None:
            return devices
        chips.setdefault(tuple(coords), []).append(device)
    corner, far = np.min(list(chips), axis=0), np.max(list(chips), axis=0)
    cycle = _cycle_of_grid(tuple(int(size) for size in far - corner + 1))
    if cycle is None or len(cycle) != len(chips):
        return devices
    return [device for point in cycle for device in chips[tuple(np.add(point, corner).tolist())]]


def _cycle_of_grid(shape: tuple[int, ...]) -> list[tuple[int, ...]] | None:
    """Returns all points of a grid, neighbour by neighbour and back to the first, if possible."""
    even = [axis for axis, size in enumerate(shape) if size % 2 == 0]
    if not even:
        return None
    # The rows of an even axis are walked to and fro; the first place of each row is left free
    # for the way back.
    rows = shape[even[0]]
    columns = _to_and_fro(shape[: even[0]] + shape[even[0] + 1 :])
    if len(columns) == 1 and rows > 2:
        return None

    def point(row: int, column: tuple[int, ...]) -> tuple[int, ...]:
        return (*column[: even[0]], row, *column[even[0] :])

    cycle = [point(0, columns[0])]
    for row in range(rows):
        cycle += [point(row, column) for column in columns[1:][:: -1 if row % 2 else 1]]
    return cycle + [point(row, columns[0]) for row in reversed(range(1, rows))]


def _to_and_fro(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Returns all points of a grid, neighbour by neighbour."""
    if not shape:
        return [()]
    inner = _to_and_fro(shape[1:])
    return [(i, *rest) for i in range(shape[0]) for rest in inner[:: -1 if i % 2 else 1]]
