"""Processes that die, hang, fail or never come: the others say so and leave, in bounded time."""

import re
import signal
import socket

import pytest
from process_group import Group, flags, free_port

pytestmark = pytest.mark.slow

FAST = ["--heartbeat_timeout=6"]


def group_of(folder, **settings):
    arguments = [*flags(settings.pop("changes", None)), f"--workdir={folder / 'run'}", *FAST]
    return Group(folder, settings.pop("processes", 2), arguments, **settings)


def test_a_killed_process_is_named_by_the_others(tmp_path):
    with group_of(tmp_path, processes=3, fault="2:3:SIGKILL") as group:
        assert group.wait(120) == [76, 76, -signal.SIGKILL], group
    for rank in (0, 1):
        assert "process 2 gave no sign of life" in group.complaint(rank)
        assert "last seen: 2: " in group.complaint(rank)


def test_without_process_0_the_others_leave(tmp_path):
    with group_of(tmp_path, processes=3, fault="0:3:SIGKILL") as group:
        assert group.wait(120) == [-signal.SIGKILL, 76, 76], group
    for rank in (1, 2):
        assert re.search(
            "process 0, which coordinates all,? .*(reached|answer)", group.complaint(rank)
        )


@pytest.mark.parametrize(
    ("stopped", "words"),
    [
        (1, "process 1 gave no sign of life for 6 s"),
        (0, "process 0, which coordinates all, has not"),
    ],
)
def test_a_stopped_process_is_given_up_and_finds_itself_alone(tmp_path, stopped, words):
    with group_of(tmp_path, fault=f"{stopped}:3:SIGSTOP") as group:
        other = 1 - stopped
        assert group.members[other].wait(120) == 76, group
        assert words in group.complaint(other)
        assert group.members[stopped].poll() is None
        group.members[stopped].send_signal(signal.SIGCONT)
        assert group.members[stopped].wait(60) == 76, group
        assert group.complaint(stopped)


def test_a_process_that_does_not_get_on_ends_the_run(tmp_path):
    # It counts while they set up and compile, too, which takes long on a machine that is busy.
    changes = {"train.hang_timeout": 60}
    with group_of(tmp_path, fault="1:3:sleep", changes=changes) as group:
        assert group.wait(300) == [76, 76], group
    for rank in (0, 1):
        assert "(train.hang_timeout)" in group.complaint(rank)
        assert "process 1: training at step 2" in group.complaint(rank)


def test_those_who_came_say_who_is_missing(tmp_path):
    with group_of(
        tmp_path,
        processes=4,
        missing=[1, 3],
        own={i: ["--initialization_timeout=8"] for i in range(4)},
    ) as group:
        assert group.wait(120) == [76, 76], group
    for rank in (0, 2):
        said = group.complaint(rank)
        assert "processes 1, 3 of 4 did not come to process 0" in said
        assert "1 others came: 2 (" in said


def test_without_process_0_nobody_answers(tmp_path):
    timeouts = {1: ["--initialization_timeout=4"]}
    with group_of(tmp_path, missing=[0], own=timeouts) as group:
        assert group.wait(120) == [76], group
    assert f"process 0 at localhost:{group.port} did not answer within 4 s" in group.complaint(1)


def test_two_of_one_number_are_refused(tmp_path):
    with group_of(tmp_path, processes=3, own={2: ["--process_id=1"]}) as group:
        assert group.wait(120) == [2, 2, 2], group
    assert "two processes call themselves 1" in group.said(0)


def test_an_error_of_one_reaches_all(tmp_path):
    with group_of(tmp_path, processes=3, fault="1:3:error") as group:
        assert group.wait(120) == [1, 1, 1], group
    assert "No space left on device" in group.complaint(1)
    for rank in (0, 2):
        assert "process 1 failed: OSError: [Errno 28] No space left on device" in group.complaint(
            rank
        )


def test_an_error_of_process_0_reaches_all(tmp_path):
    with group_of(tmp_path, processes=3, fault="0:3:error") as group:
        assert group.wait(120) == [1, 1, 1], group
    for rank in (1, 2):
        assert "process 0 failed: OSError: [Errno 28] No space left on device" in group.complaint(
            rank
        )


def test_a_work_directory_that_cannot_be_written_is_everybodys(tmp_path):
    (tmp_path / "run").write_text("in the way")
    with group_of(tmp_path) as group:
        assert group.wait(120) == [2, 2], group
    for rank in (0, 1):
        assert "can't be written" in group.complaint(rank)


def test_a_typo_of_one_reaches_all(tmp_path):
    with group_of(tmp_path, own={1: ["--config.train.stesp=4"]}) as group:
        assert group.wait(120) == [2, 2], group
    for rank in (0, 1):
        assert "unknown flag '--config.train.stesp'" in group.complaint(rank)


def test_a_loss_that_is_not_finite_ends_all(tmp_path):
    changes = {"optimizer.learning_rate": 1e30, "optimizer.warmup_steps": 0}
    with group_of(tmp_path, changes=changes) as group:
        assert group.wait(120) == [1, 1], group
    for rank in (0, 1):
        assert "was not finite at step" in group.complaint(rank)


def test_hosts_with_other_device_counts_are_refused(tmp_path):
    with group_of(tmp_path, devices_of={1: 1}) as group:
        assert group.wait(120) == [2, 2], group
    for rank in (0, 1):
        assert "the number of local devices is 1 there and 2 here" in group.complaint(rank)


def test_hosts_with_another_kind_of_device_are_refused(tmp_path):
    """Before jax is asked for devices: it would wait for those of its own kind on all hosts."""
    with group_of(tmp_path, environment_of={1: {"JAX_PLATFORMS": "cuda"}}) as group:
        assert group.wait(120) == [2, 2], group
    for rank in (0, 1):
        said = "the platform of its devices is 'gpu' there and 'cpu' here"
        assert said in group.complaint(rank)


def test_hosts_whose_variables_set_jax_otherwise_are_refused(tmp_path):
    """Each would begin with weights of its own, and nobody would notice."""
    with group_of(tmp_path, environment_of={1: {"JAX_DEFAULT_PRNG_IMPL": "rbg"}}) as group:
        assert group.wait(120) == [2, 2], group
    for rank in (0, 1):
        said = "jax_default_prng_impl is 'rbg' there and 'threefry2x32' here"
        assert said in group.complaint(rank)


def test_hosts_that_are_to_do_different_things_are_refused(tmp_path):
    with group_of(tmp_path, own={1: ["--mode=eval"]}) as group:
        assert group.wait(120) == [2, 2], group
    for rank in (0, 1):
        assert "--mode is 'eval' there and 'train' here" in group.complaint(rank)


def test_a_folder_that_is_not_shared_is_refused(tmp_path):
    """Each process has another folder of the same name: as on hosts without shared storage."""
    with group_of(tmp_path, own={1: [f"--workdir={tmp_path / 'other'}"]}) as group:
        assert group.wait(120) == [2, 2], group
    assert "--workdir is" in group.complaint(1)


def test_a_port_in_use_is_told(tmp_path):

    with socket.create_server(("", free_port())) as taken:
        port = taken.getsockname()[1]
        given = [f"--coordinator=localhost:{port}", "--initialization_timeout=5"]
        with group_of(tmp_path, own={0: given, 1: given}) as group:
            assert group.wait(120) == [2, 76], group
    assert f"process 0 can't listen at localhost:{port}" in group.complaint(0)
