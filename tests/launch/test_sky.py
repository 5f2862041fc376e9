"""The SkyPilot task parses, and its commands start the program as they should."""

import os
import subprocess
import venv
from pathlib import Path

import pytest
import yaml

FILE = Path(__file__).resolve().parent.parent.parent / "launch" / "sky.yaml"


def test_the_program_is_told_who_it_is(fakes, tmp_path):
    task = yaml.safe_load(FILE.read_text())
    assert task["resources"]["job_recovery"]["recover_on_exit_codes"] == [75, 76, 134]
    workdir = tmp_path / "bucket" / "a run"
    variables = {
        "WORKDIR": str(workdir),
        "ARGUMENTS": "--config=c --config.source.title='a b'",
        "RESTARTS": task["envs"]["RESTARTS"],
        "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
        "SKYPILOT_NUM_NODES": "2",
        "SKYPILOT_NODE_RANK": "1",
        "SKYPILOT_TASK_ID": "sky-1",
    }
    fakes.plan(1, "75")
    done = subprocess.run(
        ["bash", "-c", task["run"]],
        cwd=fakes.checkout,
        env=fakes.environment | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 75, done.stderr
    (call,) = fakes.calls("python")
    assert call[2:] == [
        *(f"--workdir={workdir}", "--config=c", "--config.source.title=a b"),
        *("--coordinator=10.0.0.1:8476", "--num_processes=2", "--process_id=1"),
    ]


@pytest.mark.slow
def test_skypilot_reads_it(tmp_path):
    """In an environment of its own: SkyPilot asks for other versions of packages than we do."""
    python = os.environ.get("ANINFONCE_SKY_PYTHON", "")
    if not python:
        venv.create(tmp_path / "sky", with_pip=True)
        python = str(tmp_path / "sky" / "bin" / "python")
        install = [python, "-m", "pip", "install", "--quiet", "skypilot>=0.14"]
        assert subprocess.run(install, check=False).returncode == 0
    code = (
        "import sys, sky\n"
        "task = sky.Task.from_yaml(sys.argv[1])\n"
        "(resources,) = task.resources\n"
        "print(task.num_nodes, resources.use_spot, resources.job_recovery)"
    )
    # Only the parsing is of interest: an account, or a bucket by that name, is not at hand.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", code, str(FILE)],
        cwd=FILE.parent.parent,
        env=environment | {"HOME": str(tmp_path), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 True ")
    assert "[75, 76, 134]" in done.stdout
