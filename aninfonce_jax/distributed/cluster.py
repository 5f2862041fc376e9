"""Which processes belong together: told by flags, or by the environment of a cluster.

Imports no jax, so that a bad flag answers at once. What is found here is handed to
`jax.distributed.initialize`; where only jax can find it (the metadata of a Cloud TPU, the API of
Kubernetes), that is left to jax.
"""

import dataclasses
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path

from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.config.values import shown
from aninfonce_jax.distributed.platforms import TPU_FILES, has_file

# Seconds that processes wait for each other at the start, as jax does.
INITIALIZATION_TIMEOUT = 300
# Seconds without a sign of life after which a process is taken to be lost, as jax does.
HEARTBEAT_TIMEOUT = 100

# Ports from 61440 on are what jax takes for jobs under Slurm and Open MPI.
_FIRST_PORT, _PORTS = 61440, 4096
_SLURM = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_PROCID")
_TPU_PORT = 8482


@dataclasses.dataclass(frozen=True)
class Flags:
    """What the command line says about processes; None: nothing.

    Attributes:
      coordinator: HOST:PORT of process 0.
      num_processes: how many there are.
      process_id: which one this is.
      initialization_timeout: seconds to wait for all of them at the start.
      heartbeat_timeout: seconds without a sign of life until one is taken to be lost.
    """

    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    initialization_timeout: int = INITIALIZATION_TIMEOUT
    heartbeat_timeout: int = HEARTBEAT_TIMEOUT


@dataclasses.dataclass(frozen=True)
class Cluster:
    """Processes that belong together.

    Attributes:
      kind: who says so.
      coordinator: HOST:PORT of process 0; None: jax finds it, like all that is None.
      num_processes: how many there are.
      process_id: which one this is.
      local_device_ids: the accelerators of this process; None: as jax decides.
      initialization_timeout: seconds to wait for all of them at the start.
      heartbeat_timeout: seconds without a sign of life until one is taken to be lost.
    """

    kind: str
    coordinator: str | None = None
    num_processes: int | None = None
    process_id: int | None = None
    local_device_ids: tuple[int, ...] | None = None
    initialization_timeout: int = INITIALIZATION_TIMEOUT
    heartbeat_timeout: int = HEARTBEAT_TIMEOUT


def find_cluster(flags: Flags, environ: Mapping[str, str]) -> Cluster | None:
    """Returns the processes that this one belongs to; None if it is on its own.

    Flags come first; what they leave open is taken from the environment.

    Raises:
      ConfigError: flags that do not go together, or several processes of which nobody says
        where the first one is.
    """
    _check_flags(flags)
    if flags.num_processes == 1:
        return None
    found = _of_environment(environ)
    given = {
        name: value
        for name, value in dataclasses.asdict(flags).items()
        if value is not None and not name.endswith("_timeout")
    }
    if not given and found is None:
        return None
    cluster = dataclasses.replace(
        found or Cluster("flags"),
        initialization_timeout=flags.initialization_timeout,
        heartbeat_timeout=flags.heartbeat_timeout,
        **given,
    )
    if cluster.kind in LEFT_TO_JAX and not given:
        return cluster
    missing = [
        f"--{name}"
        for name in ("coordinator", "num_processes", "process_id")
        if getattr(cluster, name) is None
    ]
    if missing:
        who = f"started by {cluster.kind}, " if found else ""
        raise ConfigError(
            f"several processes are to run together, but {who}nothing says what "
            f"{' and '.join(missing)} are; give each process --coordinator=HOST:PORT "
            "--num_processes=N --process_id=I, or --num_processes=1 to run on its own"
        )
    assert cluster.num_processes is not None
    assert cluster.process_id is not None
    assert cluster.coordinator is not None
    _check_address(f"what {cluster.kind} and JAX_COORDINATOR_PORT give", cluster.coordinator)
    if not 0 <= cluster.process_id < cluster.num_processes:
        raise ConfigError(
            f"--process_id must be from 0 to {cluster.num_processes - 1}, got {cluster.process_id}"
        )
    return cluster


def _check_flags(flags: Flags) -> None:
    for name, least in (
        ("num_processes", 1),
        ("process_id", 0),
        ("initialization_timeout", 1),
        ("heartbeat_timeout", 1),
    ):
        value = getattr(flags, name)
        if value is not None and value < least:
            raise ConfigError(f"--{name} must be at least {least}, got {value}")
    if flags.num_processes == 1 and flags.process_id:
        raise ConfigError(f"--process_id must be 0 with --num_processes=1, got {flags.process_id}")
    if flags.coordinator is not None:
        _check_address("--coordinator", flags.coordinator)


def _check_address(what: str, coordinator: str) -> None:
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"{what} must be HOST:PORT of process 0, got {shown(coordinator)}")


# --- Environments ---


def _of_environment(environ: Mapping[str, str]) -> Cluster | None:
    return (
        _slurm(environ)
        or _open_mpi(environ)
        or _tpu_workers(environ)
        or _tpu_machine(environ)
        or _kubernetes(environ)
    )


def _slurm(environ: Mapping[str, str]) -> Cluster | None:
    """Tasks of one `srun`; a batch script or a shell by itself is on its own."""
    of_step = _number(environ, "SLURM_STEP_NUM_TASKS")
    tasks = of_step or _number(environ, "SLURM_NTASKS")
    if tasks is None or tasks < 2:
        return None
    address = None
    if all(name in environ for name in _SLURM):
        job = _number(environ, "SLURM_JOB_ID") or 0
        address = f"{_first_node(environ['SLURM_STEP_NODELIST'])}:{_port(environ, job)}"
    elif of_step is None or "SLURM_PROCID" not in environ:
        return None
    return Cluster(
        "Slurm",
        address,
        tasks,
        _number(environ, "SLURM_PROCID"),
        _slurm_devices(environ),
    )


def _first_node(nodes: str) -> str:
    """Returns the first of `node1,node2`, `node[001-015],other` or `node[3,7]`."""
    match = re.match(r"([^,\[]+)(?:\[([^,\-\]]+)[^\]]*\]([^,]*))?", nodes)
    return nodes if match is None else "".join(part or "" for part in match.groups())


def _slurm_devices(environ: Mapping[str, str]) -> tuple[int, ...] | None:
    """Returns all GPUs of a node that has one task; jax would take the first alone."""
    tasks = environ.get("SLURM_STEP_TASKS_PER_NODE", environ.get("SLURM_TASKS_PER_NODE", ""))
    gpus = _number(environ, "SLURM_GPUS_ON_NODE")
    if gpus is None or not re.fullmatch(r"1(\(x\d+\))?", tasks):
        return None
    return tuple(range(gpus))


def _open_mpi(environ: Mapping[str, str]) -> Cluster | None:
    count = _number(environ, "OMPI_COMM_WORLD_SIZE")
    if count is None or count < 2:
        return None
    address = None
    # Open MPI 4 tells where its launcher is, which jax takes for the host of rank 0.
    uri = environ.get("OMPI_MCA_orte_hnp_uri", "")
    launcher = re.search(r"tcp://(.+?)[,:]|tcp6://\[(.+?)[,\]]", uri)
    job = uri.partition(".")[0]
    if launcher is not None and job.isdigit():
        host = launcher[1] or f"[{launcher[2]}]"
        address = f"{host}:{_port(environ, int(job) // _PORTS)}"
    return Cluster("Open MPI", address, count, _number(environ, "OMPI_COMM_WORLD_RANK"))


def _tpu_workers(environ: Mapping[str, str]) -> Cluster | None:
    """A Cloud TPU that tells its hosts in the environment, as GKE does."""
    hosts = environ.get("TPU_PROCESS_ADDRESSES", environ.get("TPU_WORKER_HOSTNAMES"))
    own = _number(environ, "TPU_WORKER_ID")
    if hosts is None or not _asks_for_tpu(environ):
        return None
    workers = hosts.split(",")
    slices = _number(environ, "MEGASCALE_NUM_SLICES") or 1
    if len(workers) * slices < 2:
        return None
    first = environ.get("MEGASCALE_COORDINATOR_ADDRESS") or workers[0]
    port = environ.get("JAX_COORDINATOR_PORT", _TPU_PORT)
    if own is not None:
        own += (_number(environ, "MEGASCALE_SLICE_ID") or 0) * len(workers)
    return Cluster("Cloud TPU", f"{first.split(':')[0]}:{port}", len(workers) * slices, own)


def _tpu_machine(environ: Mapping[str, str]) -> Cluster | None:
    """A Cloud TPU machine whose hosts only its metadata server knows: perhaps one, jax asks."""
    hosts = environ.get("TPU_PROCESS_ADDRESSES", environ.get("TPU_WORKER_HOSTNAMES"))
    has_chips = has_file(Path("/dev"), TPU_FILES)
    if hosts is not None or "TPU_SKIP_MDS_QUERY" in environ or not _asks_for_tpu(environ):
        return None
    if not has_chips or importlib.util.find_spec("libtpu") is None:
        return None
    return Cluster(_TPU_MACHINE)


def _kubernetes(environ: Mapping[str, str]) -> Cluster | None:
    """An indexed Job, where what jax needs to ask for its other pods is installed."""
    if not {"KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"} <= environ.keys():
        return None
    if importlib.util.find_spec("kubernetes") is None:
        return None
    return Cluster(_KUBERNETES)


_TPU_MACHINE = "a Cloud TPU machine"
_KUBERNETES = "Kubernetes"
LEFT_TO_JAX = (_TPU_MACHINE, _KUBERNETES)


def _asks_for_tpu(environ: Mapping[str, str]) -> bool:
    """Whether jax may use TPUs here: a run that is told to use the CPU is none of the pod's."""
    platforms = environ.get("JAX_PLATFORMS", "")
    return not platforms or "tpu" in platforms.split(",")


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else None


def _port(environ: Mapping[str, str], job: int) -> str:
    return environ.get("JAX_COORDINATOR_PORT") or str(_FIRST_PORT + job % _PORTS)
