"""Every launcher has a manual that names its flags, and shows what it would do without doing it."""

import re
import shutil
from pathlib import Path

import pytest

from aninfonce_jax import command_line

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
    "release.sh": ["--output=/w/a run"],
    "slurm.sbatch": ["--workdir=/w/a run"],
    "tpu_vm.sh": ["run", "--tpu=a", "--zone=z", "--type=v6e-16", "--workdir=gs://b/a run"],
    "worker.sh": ["--dry-run", "status", "one"],
    "test.sh": ["tests/losses"],
    "test_oldest.sh": ["tests/losses"],
}
SCRIPTS = sorted(
    path.name
    for path in [*FOLDER.glob("*.sh"), *FOLDER.glob("*.sbatch")]
    if path.name not in SOURCED
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


# Flags with values, of the launchers that ask for machines before the program reads its own.
@pytest.mark.parametrize("script", ["local.sh", "hosts.sh", "tpu_vm.sh", "gke.sh"])
def test_a_flag_without_its_value_does_not_reach_the_program(fakes, script):
    text = (FOLDER / script).read_text()
    flags = set(re.findall(r"^    (--[a-z]+)=\*\)", text, re.MULTILINE))
    assert len(flags) >= 3
    for flag in sorted(flags):
        done = fakes.run(script, *WORDS[script], flag, "3", "--dry-run")
        expected = f"aninfonce_jax: {flag} needs a value: {flag}=VALUE; see --help\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)


@pytest.mark.parametrize("script", ["local.sh", "hosts.sh", "tpu_vm.sh", "gke.sh", "slurm.sbatch"])
@pytest.mark.parametrize("flag", ["--restart=3", "--confg", "-x"])
def test_a_flag_that_nobody_has_is_refused_before_anything_is_done(fakes, script, flag):
    done = fakes.run(script, *WORDS[script], flag, "--dry-run")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"unknown flag '{flag.partition('=')[0]}'" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", ["watch", "status", "logs", "delete"])
def test_verbs_of_gke_that_make_no_manifest_take_no_flags_of_one(fakes, verb):
    done = fakes.run("gke.sh", verb, "--name=a", "--namspace=b", "--dry-run")
    assert done.returncode == 2
    assert done.stderr.startswith(f"aninfonce_jax: {verb} takes --name, --namespace and --poll;")


@pytest.mark.parametrize("script", ["local.sh", "gke.sh"])
def test_what_the_program_takes_is_passed_on(fakes, script):
    words = ["--config", "a file", "--config.seed=-3", "--config.eval.every", "-1", "--mode=train"]
    done = fakes.run(script, *WORDS[script], *words, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "a file" in done.stdout


def test_launchers_know_the_flags_of_the_program():
    flags = {*command_line._FLAGS, *command_line._CLUSTER_FLAGS, "--help", "--version"}
    assert set((FOLDER / "program_flags.txt").read_text().split()) == flags


@pytest.mark.parametrize("script", ["install.sh", "local.sh", "hosts.sh"])
def test_an_extra_that_does_not_exist_is_refused(fakes, script):
    done = fakes.run(script, *WORDS[script], "--extras=gpuu", "--dry-run")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--extras: there is no extra 'gpuu'; there are " in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("script", ["local.sh", "hosts.sh", "slurm.sbatch", "tpu_vm.sh"])
def test_a_work_directory_in_a_bucket_gets_what_it_needs(fakes, script):
    words = [word for word in WORDS[script] if not word.startswith("--workdir")]
    done = fakes.run(script, *words, "--workdir=gs://b/run", "--dry-run")
    extras = "tpu,gcs" if script == "tpu_vm.sh" else "gcs"
    assert re.search(rf"(--extras=|environment.sh ){extras}\b", done.stdout), done.stdout
    if script == "local.sh":
        done = fakes.run(script, "--extras=gpu,gcs", "--workdir=gs://b/run", "--dry-run")
        assert "environment.sh gpu,gcs\n" in done.stdout


@pytest.mark.parametrize(
    ("script", "tool"), [("hosts.sh", "ssh"), ("tpu_vm.sh", "gcloud"), ("gke.sh", "kubectl")]
)
def test_a_program_that_is_not_installed_is_named_first(fakes, script, tool):
    # Only what every machine has, and not the one that the launcher is for.
    programs = fakes.state / "bare"
    programs.mkdir()
    for name in ("bash", "dirname", "sed", "cat", "awk"):
        (programs / name).symlink_to(shutil.which(name))
    fakes.environment["PATH"] = str(programs)
    done = fakes.run(script, *WORDS[script])
    assert done.returncode == 2
    assert done.stderr.startswith(f"aninfonce_jax: {tool} is not installed here: ")
    assert done.stderr.count("\n") == 1
