"""Where a run computes: its devices, its processes, and how arrays lie on them.

Everything that has to know about devices asks a `Placement`: the loop, the evaluation, the
checkpoints and ahead-of-time compilation. A placement may be abstract, over the devices of a
topology that is not at hand; then everything up to `compile()` works.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Self

import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.distributed.cpu_threads import provide_threads
from aninfonce_jax.distributed.peers import ALONE, Peers, of_runtime
from aninfonce_jax.types import Array, PyTree

# Called here because jax fixes the threads of its devices when it is first asked for them, and
# whoever asks has imported this module.
provide_threads()

DATA_AXIS = "data"
SLICE_AXIS = "slices"


@dataclasses.dataclass(frozen=True)
class Rows:
    """The part of every batch that one host loads.

    Hosts take contiguous rows, in their order, so that the whole batch reads the same on any
    number of hosts. Where the devices of a host do not follow each other in the mesh, it takes
    the rows of each.

    Attributes:
      batch_size: of the whole batch, over all hosts.
      host: which host this is.
      hosts: how many there are.
      places: of its devices in the mesh, in ascending order; (): they follow each other.
      devices: how many the mesh has; only read with `places`.
    """

    batch_size: int
    host: int = 0
    hosts: int = 1
    places: tuple[int, ...] = ()
    devices: int = 1

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
        first = batch * self.batch_size
        if self.places:
            each = self.batch_size // self.devices
            own = np.arange(each) + each * np.asarray(self.places)[:, None]
            return (first + own).reshape(-1).astype(np.int64)
        local = self.batch_size // self.hosts
        start = first + self.host * local
        return np.arange(start, start + local, dtype=np.int64)


@dataclasses.dataclass(frozen=True)
class Placement:
    """Devices in a mesh, and this process among all that share it.

    Attributes:
      mesh: the devices; the batch is split over all its axes: `data`, or `slices` and `data`
        where the devices lie in several slices with a slower network in between.
      process: which process this is.
      processes: how many there are.
      peers: the processes among each other.

    Example:
      >>> an.Placement.local(1).size
      1
    """

    mesh: Mesh
    process: int = 0
    processes: int = 1
    peers: Peers = dataclasses.field(default=ALONE, compare=False)

    @classmethod
    def over(
        cls, devices: Sequence[Any], *, slices: int = 1, process: int = 0, processes: int = 1
    ) -> Self:
        """Returns a placement over these devices, real or abstract, in `ring_order`.

        Args:
          devices: that share a batch.
          slices: into how many parts they fall that a slower network joins.
          process: which process this is.
          processes: how many there are.
        """
        devices = ring_order(devices)
        # Explicit axes, the default of jax.make_mesh, would make every product of a sharded
        # batch with itself an error; the compiler places collectives here.
        if slices == 1:
            mesh = Mesh(np.asarray(devices), (DATA_AXIS,), axis_types=(AxisType.Auto,))
        else:
            parts = np.asarray(in_slices(devices, slices))
            mesh = Mesh(parts, (SLICE_AXIS, DATA_AXIS), axis_types=(AxisType.Auto,) * 2)
        return cls(mesh, process, processes)

    @classmethod
    def local(cls, devices: int | None = None, slices: int = 1) -> Self:
        """Returns a placement over the first `devices` devices of this process, or all."""
        available = jax.local_devices()
        return cls.over(available[: devices or len(available)], slices=slices)

    @classmethod
    def everywhere(cls, slices: int = 1) -> Self:
        """Returns a placement over all devices of all processes that `jax.distributed` joined.

        Without `jax.distributed`, that is over the devices of this process.
        """
        placement = cls.over(
            jax.devices(),
            slices=slices,
            process=jax.process_index(),
            processes=jax.process_count(),
        )
        return dataclasses.replace(placement, peers=of_runtime())

    @classmethod
    def of_topology(
        cls, name: str, platform: str = "tpu", *, slices: int = 1, **options: Any
    ) -> Self:
        """Returns an abstract placement, such as "v5e:4x4", to compile for.

        Args:
          name: the topology, as the platform's compiler calls it.
          platform: "tpu", or another one whose compiler is installed.
          slices: into how many parts its devices fall; see `over`.
          **options: what else `jax.experimental.topologies.get_topology_desc` takes.
        """
        devices = topologies.get_topology_desc(name, platform, **options).devices
        return cls.over(devices, slices=slices)

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
        return NamedSharding(self.mesh, PartitionSpec(self.axis_name))

    @property
    def axis_name(self) -> str | tuple[str, ...]:
        """The axis, or axes, of the mesh that a batch is split over."""
        names: tuple[str, ...] = self.mesh.axis_names
        return names[0] if len(names) == 1 else names

    def rows(self, batch_size: int) -> Rows:
        """Returns the rows of a batch of `batch_size` that this process loads."""
        rows = Rows(batch_size, self.process, self.processes)
        each = self.size // self.processes
        in_order = tuple(range(self.process * each, (self.process + 1) * each))
        # Abstract devices may belong to no process at all.
        if self._places in (in_order, ()):
            return rows
        return dataclasses.replace(rows, places=self._places, devices=self.size)

    @functools.cached_property
    def _places(self) -> tuple[int, ...]:
        """Where the devices of this process are among all, in ascending order."""
        devices = self.mesh.devices.flat
        if self.processes == 1:
            return tuple(range(self.size))
        return tuple(i for i, device in enumerate(devices) if device.process_index == self.process)

    def peak_memory(self) -> int | None:
        """Returns the most bytes that were in use on any device of this process so far.

        None where the backend does not tell, as CPUs don't.
        """
        stats = [device.memory_stats() or {} for device in self.mesh.local_devices]
        peaks = [own["peak_bytes_in_use"] for own in stats if "peak_bytes_in_use" in own]
        return max(peaks, default=None)

    def put_rows(self, rows: PyTree) -> PyTree:
        """Makes global arrays, split over the devices, of every process's rows."""
        if self.processes == 1:
            return jax.tree.map(
                lambda x: jax.make_array_from_process_local_data(self.split, x), rows
            )

        def one(x: np.ndarray) -> Array:
            parts = np.split(x, len(self._places))
            devices = self.mesh.devices.flat
            shards = [
                jax.device_put(part, devices[place])
                for part, place in zip(parts, self._places, strict=True)
            ]
            shape = (len(parts[0]) * self.size, *x.shape[1:])
            return jax.make_array_from_single_device_arrays(shape, self.split, shards)

        return jax.tree.map(one, rows)

    def put_whole(self, tree: PyTree) -> PyTree:
        """Puts what this process has on each of its devices, whole."""
        return jax.device_put(tree, self.whole)

    def fetch(self, tree: PyTree) -> PyTree:
        """Returns whole arrays of NumPy, also of those that lie on several processes' devices.

        All processes must call it together.
        """

        def one(x: Any) -> np.ndarray:
            if isinstance(x, jax.Array) and not (x.is_fully_addressable or x.is_fully_replicated):
                x = _identity(self.whole)(x)
            return np.asarray(x)

        return jax.tree.map(one, tree)

    def constrain(self, tree: PyTree) -> PyTree:
        """Constrains every array, inside jit, to be split along its first axis."""

        def one(x: Array) -> Array:
            return jax.lax.with_sharding_constraint(x, self.split)

        return jax.tree.map(one, tree)


def in_slices(devices: Sequence[Any], slices: int) -> list[list[Any]]:
    """Returns devices slice by slice: as they tell themselves, or else in equal parts, in order.

    Raises:
      ConfigError: they can't be divided so, or lie in another number of slices.
    """
    by_slice: dict[int, list[Any]] = {}
    for device in devices:
        by_slice.setdefault(getattr(device, "slice_index", None) or 0, []).append(device)
    if len(by_slice) > 1:
        parts = [by_slice[index] for index in sorted(by_slice)]
    else:
        each = max(1, len(devices) // slices)
        parts = [list(devices[i : i + each]) for i in range(0, len(devices), each)]
    if len(parts) != slices or len({len(part) for part in parts}) > 1:
        sizes = ", ".join(map(str, (len(by_slice[i]) for i in sorted(by_slice))))
        found = f", in slices of {sizes}" if len(by_slice) > 1 else ""
        raise ConfigError(
            f"train.slices={slices} does not fit the devices, of which there are "
            f"{len(devices)}{found}; set it to the number of slices, or to 1"
        )
    return parts


def local_count() -> int:
    """Returns how many devices this process has."""
    return jax.local_device_count()


def local_platform() -> str:
    """Returns what kind of devices this process has: "cpu", "gpu" or "tpu"."""
    return jax.default_backend()


@functools.cache
def _identity(sharding: Sharding) -> Any:
    return jax.jit(lambda x: x, out_shardings=sharding)


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
