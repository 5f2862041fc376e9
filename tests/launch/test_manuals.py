"""Every launcher has a manual that names its flags, and shows what it would do without doing it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "launch"
# Read by launchers, not called.
SOURCED = {"common.sh", "environment.sh", "fleet.sh"}
# What a launcher needs for a dry run.
WORDS = {
    "install.sh": ["--extras=gpu"],
    "local.sh": ["--processes=2", "--devices=2", "--workdir=/w/a run"],
    "hosts.sh": ["run", "--hosts=a,b", "--copy", "--workdir=/w/a run"],
    "gke.sh": [
        *("submit", "--name=a", "--image=i", "--tpu=v6e", "--topology=4x4"),
        "--workdir=gs://b/a run",
    ],
    "slurm.sbatch": ["--workdir=/w/a run"],
    "tpu_vm.sh": ["run", "--tpu=a", "--zone=z", "--type=v6e-16", "--workdir=gs://b/a run"],
    "worker.sh": ["--dry-run", "status", "one"],
}
SCRIPTS = sorted(
    path.name
    for path in [*FOLDER.glob("*.sh"), *FOLDER.glob("*.sbatch")]
    if path.name not in SOURCED and not path.name.startswith("test")
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_manuals(fakes, script):
    done = fakes.run(script, "--help")
    assert done.returncode == 0
    assert done.stderr == ""
    assert len(done.stdout) > 200
    assert max(map(len, done.stdout.splitlines())) < 100
    text = (FOLDER / script).read_text()
    flags = set(re.findall(r"^ +(--[a-z_-]+)(?:=\*|\*|\))", text, re.MULTILINE))
    missing = {flag for flag in flags if not re.search(rf"{flag}\b", done.stdout)}
    # What is refused because the launcher sets it is no flag of its own.
    assert missing <= {"--num_processes", "--process_id", "--coordinator"}
    assert "set -euo pipefail" in text


@pytest.mark.parametrize("script", SCRIPTS)
def test_dry_runs_call_nothing(fakes, script):
    words = WORDS[script]
    done = fakes.run(script, *words, *([] if "--dry-run" in words else ["--dry-run"]))
    assert done.returncode == 0, done.stderr
    assert done.stdout
    for tool in ("python", "ssh", "scp", "gcloud", "kubectl"):
        assert not fakes.calls(tool)
    if any(word.startswith("--workdir=") for word in words):
        assert "a run" in done.stdout
