"""Starts are counted by what they reach, wherever they take place."""

import json
import subprocess
import sys

import pytest


@pytest.fixture
def start(tmp_path, fakes):
    """Counts one start, and returns (exit code, what was said)."""

    def call(launch="a", restarts=1, rank="0", command=()):
        words = [f"--workdir={tmp_path / 'a run'}", f"--restarts={restarts}", f"--rank={rank}"]
        words += [f"--launch={launch}", *(("--", *command) if command else ())]
        done = subprocess.run(
            [sys.executable, "-S", fakes.checkout / "launch" / "again.py", *words],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return call


def test_a_new_checkpoint_begins_the_count_anew(start, tmp_path):
    for step in (10, 20, 30):
        (tmp_path / "a run" / "checkpoints" / str(step)).mkdir(parents=True)
        assert start() == (0, "")
        assert start() == (0, "")
    code, said = start()
    assert code == 1
    assert said == (
        "aninfonce_jax: 2 starts without a new checkpoint (latest: run at step 30), "
        "1 restarts are allowed; see the log for why, then launch it again\n"
    )
    # What is in the making, or was put aside, is no checkpoint.
    (tmp_path / "a run" / "checkpoints" / "40.orbax-checkpoint-tmp").mkdir()
    (tmp_path / "a run" / "checkpoints" / "50.damaged").mkdir()
    assert start()[0] == 1
    assert start(launch="b") == (0, "")


def test_members_of_a_comparison_count(start, tmp_path):
    for member in ("aninfonce", "infonce"):
        (tmp_path / "a run" / member / "checkpoints" / "7").mkdir(parents=True)
        assert start(restarts=0) == (0, "")
    code, said = start(restarts=0)
    assert code == 1
    assert "latest: aninfonce at step 7, infonce at step 7" in said


def test_the_command_takes_over(start):
    code, said = start(command=(sys.executable, "-S", "-c", "print('a b'); raise SystemExit(75)"))
    assert (code, said) == (75, "a b\n")


@pytest.mark.parametrize("rank", ["1", "0-1", "1-0"])
def test_only_the_first_process_counts(start, rank, tmp_path):
    for _ in range(3):
        assert start(rank=rank, restarts=0) == (0, "")
    assert not (tmp_path / "a run.starts.json").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"'])
def test_a_damaged_record_is_none(start, tmp_path, text):
    record = tmp_path / "a run.starts.json"
    record.write_text(text)
    assert start() == (0, "")
    assert json.loads(record.read_text()) == {"launch": "a", "starts": 1, "reached": {}}


def test_a_place_that_cannot_be_written_gets_one_line(start, tmp_path):
    (tmp_path / "a run.starts.json").mkdir()
    code, said = start()
    assert code == 1
    assert said.startswith(f"aninfonce_jax: starts can't be counted beside {tmp_path / 'a run'}: ")
    assert said.count("\n") == 1
