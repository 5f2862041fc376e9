"""A Python that is missing or too old is said in one line; the rest is what runs these tests."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def clone(tmp_path):
    """The files that a launcher needs, without an environment."""
    shutil.copytree(ROOT / "launch", tmp_path / "launch")
    for name in ("setup.cfg", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def fake_python(folder, body):
    """A python that runs `body` first; $2 is the code it was asked to run."""
    path = folder / "fake-python"
    path.write_text(f'#!/usr/bin/env bash\n{body}\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return str(path)


def launch(clone, script, python):
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("VIRTUAL_ENV", "CONDA_PREFIX")
    }
    return subprocess.run(
        ["bash", f"launch/{script}"],
        cwd=clone,
        env=environment | {"PYTHON": python},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("script", ["local.sh", "test.sh", "test_oldest.sh"])
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("exit 3", "can't be run; install Python 3.11 or newer"),
        (
            'case "$2" in *print*) echo 3.9; exit;; *version_info*) exit 1;; esac',
            "Python 3.11 or newer is needed, {python} is 3.9; set PYTHON to a newer one",
        ),
        ('case "$2" in *ensurepip*) exit 1;; esac', "{python} has no venv module; install it"),
    ],
)
def test_what_is_missing_is_said_in_one_line(clone, script, body, expected):
    python = fake_python(clone, body)
    result = launch(clone, script, python)
    assert result.returncode == 2
    assert expected.format(python=python) in result.stderr
    assert result.stderr.count("\n") == 1
    assert not list(clone.glob(".venv*"))


def test_no_python_at_all(clone):
    result = launch(clone, "local.sh", "no-such-python")
    assert result.returncode == 2
    assert "no no-such-python found; install Python 3.11 or newer" in result.stderr


def test_lower_bounds_are_exact_versions_of_what_is_required():
    result = subprocess.run(
        [sys.executable, "launch/lower_bounds.py"], cwd=ROOT, capture_output=True, check=True
    )
    bounds = result.stdout.decode().splitlines()
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", line) for line in bounds)
    assert {"jax", "numpy", "pytest"} <= {line.partition("==")[0] for line in bounds}


@pytest.mark.parametrize("name", ["common.sh", "environment.sh", "fleet.sh"])
def test_what_launchers_share_is_no_launcher(name):
    run = subprocess.run(
        ["bash", ROOT / "launch" / name, "--help"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert run.stdout == ""
    assert f"launch/{name} is for the other launchers; see bash launch/local.sh" in run.stderr
    assert run.stderr.count("\n") == 1
