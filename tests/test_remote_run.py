"""Whole runs in a remote work directory, against an emulator of Google Cloud Storage.

pip install 'aninfonce-jax[gcs]' gcp-storage-emulator
python -m pytest tests/test_remote_run.py -m slow -n0
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import gcs_emulator
import process_group
import pytest
from run_results import UNEQUAL, result_of
from small_configs import SMALL, as_flags

from aninfonce_jax.cli import EXIT_FAILED, EXIT_PREEMPTED, EXIT_USAGE
from aninfonce_jax.workdir.names import METRICS_PARTS

pytestmark = pytest.mark.slow
pytest.importorskip("gcsfs", reason="needs the extra gcs")
pytest.importorskip("gcp_storage_emulator", reason="needs gcp-storage-emulator")

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = SMALL | {"compare": (), "train.steps": 40, "eval.every": 6, "log.tensorboard": True}
RUN = "gs://bucket/runs/one"


@pytest.fixture(scope="module")
def store():
    with gcs_emulator.serve() as running:
        yield running


def start(store, *arguments, workdir=RUN):
    command = [sys.executable, "-m", "aninfonce_jax.main", f"--workdir={workdir}", *arguments]
    return subprocess.Popen(
        [*command, "--progress=plain"],
        cwd=ROOT,
        env=os.environ | store.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def train(store, workdir=RUN, **changes):
    return start(store, "--config=quickstart", *as_flags(SETTINGS | changes), workdir=workdir)


def finish(process, code=0):
    output, _ = process.communicate(timeout=900)
    assert process.returncode == code, output
    assert "Traceback" not in output, output
    return output


def last_line(output):
    """Returns what a command ends with, without what TensorStore logs."""
    lines = [line for line in output.splitlines() if line.startswith("aninfonce_jax: ")]
    return lines[-1]


def scores_in(store):
    """Returns the last evaluation but for what measures the machine."""
    scores = json.loads(store.read("runs/one/eval.json"))
    return {name: value for name, value in scores.items() if name not in UNEQUAL}


def wait_for_writes(store, process, count):
    target = store.writes + count
    while store.writes < target and process.poll() is None:
        time.sleep(0.01)


@pytest.fixture(scope="module")
def local(store, tmp_path_factory):
    """A run on this machine's disk that nobody disturbs."""
    folder = tmp_path_factory.mktemp("local") / "one"
    finish(train(store, workdir=folder))
    return result_of(folder)


@pytest.fixture(scope="module")
def remote(store):
    """A remote one that is killed three times, in the middle of saves too, and stopped once."""
    for writes in (9, 60, 130):
        process = train(store)
        wait_for_writes(store, process, writes)
        process.kill()
        process.communicate()
    process = train(store)
    wait_for_writes(store, process, 60)
    process.terminate()
    said = finish(process, EXIT_PREEMPTED)
    assert f"--workdir={RUN} goes on" in said
    return finish(train(store))


def test_a_killed_remote_run_ends_like_a_local_one(store, local, remote, tmp_path):
    assert f"report: {RUN}/report.html" in remote
    folder = store.download("runs/one", tmp_path)
    assert result_of(folder) == local
    assert not {"runs/one/lock", "runs/one/report.lock"} & set(store.names())
    assert not [name for name in store.names() if METRICS_PARTS.fullmatch(name.split("/")[-1])]
    assert store.names("runs/one/tensorboard/")
    assert store.names("runs/one/figures/")


def test_it_is_evaluated_and_reported_where_it_is(store, remote):
    before = scores_in(store)
    finish(start(store, "--mode=eval"))
    assert scores_in(store) == before
    page = store.read("runs/one/report.html")
    assert f"report: {RUN}/report.html" in finish(start(store, "--mode=report"))
    assert store.read("runs/one/report.html") == page
    assert b"</html>" in store.read("runs/one/report.html")


def test_one_that_is_running_is_not_started_again(store):
    other = "gs://bucket/runs/held"
    first = train(store, workdir=other, **{"train.steps": 4000})
    wait_for_writes(store, first, 5)
    said = finish(train(store, workdir=other, **{"train.steps": 4000}), EXIT_USAGE)
    assert f"work directory {other} is in use by process {first.pid}" in last_line(said)
    first.kill()
    first.communicate()


def test_a_damaged_checkpoint_is_passed_over_and_kept(store, remote, local, tmp_path):
    name = max(store.names("runs/one/checkpoints/40/"), key=lambda name: len(store.read(name)))
    content = bytearray(store.read(name))
    content[len(content) // 2] ^= 1
    store.write(name, bytes(content))
    said = finish(train(store))
    assert "checkpoint 40: damaged, not used" in said
    assert store.names("runs/one/checkpoints/40.damaged/")
    assert result_of(store.download("runs/one", tmp_path)) == local


def test_a_store_that_stumbles_is_asked_again(store, local, tmp_path):
    process = train(store, workdir="gs://bucket/runs/stumbling")
    for _ in range(4):
        wait_for_writes(store, process, 10)
        store.faults += [503, 503]
    finish(process)
    assert result_of(store.download("runs/stumbling", tmp_path)) == local


@pytest.mark.parametrize("mode", ["train", "report", "eval"])
def test_a_bucket_that_is_not_there(store, mode):
    workdir = "gs://nowhere/run"
    process = (
        train(store, workdir)
        if mode == "train"
        else start(store, f"--mode={mode}", workdir=workdir)
    )
    said = last_line(finish(process, EXIT_USAGE))
    assert said.startswith(f"aninfonce_jax: work directory {workdir} ")


def test_a_folder_that_may_not_be_written(store):
    store.denied = True
    try:
        said = last_line(finish(train(store, workdir="gs://bucket/runs/denied"), EXIT_USAGE))
    finally:
        store.denied = False
    assert "gs://bucket/runs/denied can't be written: permission denied" in said


def test_a_right_that_is_withdrawn_ends_the_run_with_a_line(store, local, tmp_path):
    process = train(store, workdir="gs://bucket/runs/withdrawn")
    wait_for_writes(store, process, 60)
    store.denied = True
    try:
        said = last_line(finish(process, EXIT_FAILED))
    finally:
        store.denied = False
    assert "permission denied" in said or "can't be written" in said
    finish(train(store, workdir="gs://bucket/runs/withdrawn"))
    assert result_of(store.download("runs/withdrawn", tmp_path)) == local


def test_two_processes_stop_and_go_on_in_a_bucket(store, tmp_path):
    """Both take part in its checkpoints, the first one of which is that of a signal."""
    arguments = [*process_group.flags(), "--workdir=gs://bucket/runs/two"]
    environment = store.environment
    with process_group.Group(
        tmp_path, 2, arguments, environment=environment, fault="1:4:SIGTERM"
    ) as group:
        assert group.wait() == [EXIT_PREEMPTED] * 2, group
    group = process_group.run(tmp_path, 2, arguments, environment=environment)
    assert "going on from step" in group.said(0)
    process_group.run(tmp_path, 2, [*process_group.flags(), f"--workdir={tmp_path / 'local'}"])
    folder = store.download("runs/two", tmp_path / "copy")
    process_group.assert_same_losses(folder, tmp_path / "local", tolerance=0)
