"""A checkout of the launchers, and programs on PATH that answer in place of the real ones."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


class Fakes:
    """Runs launchers with stand-ins for the programs that they call.

    Args:
      folder: where all of it lives; its name has a space, as folders do.
    """

    def __init__(self, folder: Path) -> None:
        self.started: list[subprocess.Popen[str]] = []
        self.checkout = folder / "a checkout"
        self.state = folder / "fakes"
        programs = folder / "programs"
        for made in (self.checkout, self.state, programs):
            made.mkdir(parents=True)
        shutil.copytree(
            ROOT / "launch",
            self.checkout / "launch",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        # Which extras there are.
        shutil.copy(ROOT / "setup.cfg", self.checkout)
        tools = Path(__file__).parent / "fake_tools.py"
        for name in ("python", "ssh", "scp", "gcloud", "kubectl"):
            script = programs / name
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{tools}" {name} "$@"\n')
            script.chmod(0o755)
        self.environment = os.environ | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "FAKES": str(self.state),
            "ANINFONCE_AS_IS": "1",
            # What renders manifests; the package's own python is a stand-in.
            "PYTHON": sys.executable,
        }

    def plan(self, process: int, *steps: str) -> None:
        """Says what a process does at each of its starts; the last step stays for ever."""
        (self.state / f"process-{process}").write_text("\n".join(steps) + "\n")

    def start(self, script: str, *arguments: str) -> subprocess.Popen[str]:
        """Starts a launcher."""
        process = subprocess.Popen(
            ["bash", f"launch/{script}", *arguments],
            cwd=self.checkout,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a launcher to its end."""
        with self.start(script, *arguments) as process:
            out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def calls(self, tool: str) -> list[list[str]]:
        """Returns the arguments of every call of a tool, in order."""
        path = self.state / "calls.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        # A tool may be in the midst of writing the last line.
        whole = [json.loads(line) for line in lines if line.endswith("\n")]
        return [words[1:] for words in whole if words[0] == tool]

    def stop(self) -> None:
        """Ends what a test that failed has left running."""
        for process in self.started:
            with process:
                if process.poll() is None:
                    process.kill()


@pytest.fixture
def fakes(tmp_path):
    """Stand-ins for python, ssh, scp, gcloud and kubectl, and launchers to call them."""
    fakes = Fakes(tmp_path / "of one test")
    yield fakes
    fakes.stop()
