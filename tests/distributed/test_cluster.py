"""Which processes belong together, by flags and by environments."""

import pytest

from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.distributed.cluster import Cluster, Flags, find_cluster

SLURM = {
    "SLURM_JOB_ID": "5000",
    "SLURM_STEP_NODELIST": "node[003-006,009],other",
    "SLURM_NTASKS": "8",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
}
MPI = {
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
}
TPU = {
    "TPU_WORKER_HOSTNAMES": "job-0.svc,job-1.svc",
    "TPU_WORKER_ID": "1",
}


def test_a_laptop_is_on_its_own():
    assert find_cluster(Flags(), {"HOME": "/root"}) is None


def test_flags_say_it_all():
    flags = Flags("host:1234", 4, 2, initialization_timeout=7, heartbeat_timeout=9)
    assert find_cluster(flags, {}) == Cluster(
        "flags", "host:1234", 4, 2, initialization_timeout=7, heartbeat_timeout=9
    )


def test_one_process_is_on_its_own_wherever_it_is():
    for environ in ({}, SLURM, MPI, TPU):
        assert find_cluster(Flags(num_processes=1), environ) is None


def test_tasks_of_slurm():
    found = find_cluster(Flags(), SLURM)
    assert (found.kind, found.num_processes, found.process_id) == ("Slurm", 8, 5)
    assert found.coordinator == f"node003:{61440 + 5000 % 4096}"


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("node001", "node001"),
        ("node001,host2", "node001"),
        ("node[001-015],host2", "node001"),
        ("node[3,7-9]", "node3"),
        ("rack[1-2]-n", "rack1-n"),
    ],
)
def test_the_first_node_of_a_list(nodes, first):
    found = find_cluster(Flags(), {**SLURM, "SLURM_STEP_NODELIST": nodes})
    assert found.coordinator.split(":")[0] == first


@pytest.mark.parametrize(
    "change",
    [
        {"SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "8"},
        {"SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1"},
        {"SLURM_STEP_NODELIST": None, "SLURM_STEP_NUM_TASKS": None},
        {"SLURM_PROCID": None},
    ],
    ids=["one task of many", "one task", "a batch script", "a login shell of salloc"],
)
def test_a_single_task_of_slurm_is_on_its_own(change):
    environ = {name: value for name, value in {**SLURM, **change}.items() if value is not None}
    assert find_cluster(Flags(), environ) is None


def test_one_task_per_node_has_all_its_gpus():
    more = {"SLURM_GPUS_ON_NODE": "4", "SLURM_STEP_TASKS_PER_NODE": "1(x8)"}
    assert find_cluster(Flags(), {**SLURM, **more}).local_device_ids == (0, 1, 2, 3)
    several = {**more, "SLURM_STEP_TASKS_PER_NODE": "4(x2)"}
    assert find_cluster(Flags(), {**SLURM, **several}).local_device_ids is None


def test_ranks_of_open_mpi():
    found = find_cluster(Flags(), MPI)
    assert (found.kind, found.num_processes, found.process_id) == ("Open MPI", 4, 2)
    assert found.coordinator == f"10.96.0.1:{61440 + 1531576320 // 4096 % 4096}"
    assert find_cluster(Flags(), {**MPI, "OMPI_COMM_WORLD_SIZE": "1"}) is None


def test_ranks_that_do_not_know_the_first_are_refused():
    environ = {name: MPI[name] for name in MPI if "uri" not in name}
    with pytest.raises(ConfigError, match="started by Open MPI, nothing says what --coordinator"):
        find_cluster(Flags(), environ)
    found = find_cluster(Flags(coordinator="first:99"), environ)
    assert (found.coordinator, found.num_processes, found.process_id) == ("first:99", 4, 2)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({**SLURM, "SLURM_STEP_NODELIST": None}, "started by Slurm, nothing says what --coord"),
        ({**TPU, "TPU_WORKER_ID": None}, "started by Cloud TPU, nothing says what --process_id"),
        ({**TPU, "TPU_WORKER_ID": "x"}, "started by Cloud TPU, nothing says what --process_id"),
    ],
)
def test_half_an_environment_is_refused_rather_than_run_on_its_own(environ, message):
    environ = {name: value for name, value in environ.items() if value is not None}
    with pytest.raises(ConfigError, match=message):
        find_cluster(Flags(), environ)
    assert find_cluster(Flags(num_processes=1), environ) is None


def test_workers_of_a_tpu_pod():
    found = find_cluster(Flags(), TPU)
    assert (found.coordinator, found.num_processes, found.process_id) == ("job-0.svc:8482", 2, 1)
    assert find_cluster(Flags(), {**TPU, "TPU_WORKER_HOSTNAMES": "localhost"}) is None
    assert find_cluster(Flags(), {**TPU, "JAX_PLATFORMS": "cpu"}) is None


def test_slices_of_a_tpu_pod():
    environ = {
        **TPU,
        "MEGASCALE_NUM_SLICES": "3",
        "MEGASCALE_SLICE_ID": "2",
        "MEGASCALE_COORDINATOR_ADDRESS": "job-s0-0.svc:8080",
    }
    found = find_cluster(Flags(), environ)
    assert (found.coordinator, found.num_processes, found.process_id) == (
        *("job-s0-0.svc:8482", 6, 5),
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (Flags(coordinator="host"), "--coordinator must be HOST:PORT of process 0, got 'host'"),
        (Flags(coordinator="host:99999"), "--coordinator must be HOST:PORT"),
        (Flags(coordinator=":4444"), "--coordinator must be HOST:PORT of .*':4444'"),
        (Flags("h:1", 2), "nothing says what --process_id are"),
        (Flags(process_id=1), "--coordinator and --num_processes"),
        (Flags("h:1", 2, 2), "--process_id must be from 0 to 1, got 2"),
        (Flags("h:1", 0, 0), "--num_processes must be at least 1, got 0"),
        (Flags("h:1", 1, 1), "--process_id must be 0 with --num_processes=1, got 1"),
        (Flags(initialization_timeout=0), "--initialization_timeout must be at least 1, got 0"),
    ],
)
def test_flags_that_do_not_go_together(flags, message):
    with pytest.raises(ConfigError, match=message):
        find_cluster(flags, {})


@pytest.mark.parametrize(
    ("change", "shown"),
    [({"JAX_COORDINATOR_PORT": "abc"}, ":abc'"), ({"SLURM_STEP_NODELIST": ""}, "got ':6")],
)
def test_an_environment_that_names_no_address_is_refused(change, shown):
    with pytest.raises(ConfigError, match=r"JAX_COORDINATOR_PORT.* must be HOST:PORT") as caught:
        find_cluster(Flags(), SLURM | change)
    assert shown in str(caught.value)
