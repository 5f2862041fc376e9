"""Several processes on one machine start, speak, stop and end together."""

import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest
import small_run


def test_arguments_arrive_as_they_are(fakes):
    word = '--config.source.title=a b\'c "d" $HOME;é'
    done = fakes.run("local.sh", "--processes=2", word, "--workdir=some where")
    assert done.returncode == 0, done.stderr
    calls = fakes.calls("python")
    assert len(calls) == 2
    for number, call in enumerate(sorted(calls, key=lambda words: words[-1])):
        assert call[:4] == ["-m", "aninfonce_jax.main", word, "--workdir=some where"]
        assert call[-2:] == ["--num_processes=2", f"--process_id={number}"]
    assert calls[0][4] == calls[1][4]
    assert calls[0][4].startswith("--coordinator=127.0.0.1:")
    assert {line[:4] for line in done.stdout.splitlines()[1:]} == {"[0] ", "[1] "}


def test_one_process_is_run_as_ever(fakes):
    done = fakes.run("local.sh", "--workdir=some where")
    assert done.returncode == 0
    assert fakes.calls("python") == [["-m", "aninfonce_jax.main", "--workdir=some where"]]
    assert done.stdout.startswith("running: python -m aninfonce_jax.main '--workdir=some where'\n")


def test_lines_of_the_runtime_that_count_connections_are_left_out(fakes):
    fakes.environment["FAKE_LINE"] = "[Gloo] Rank 1 is connected to 1 peer ranks. Expected: 1"
    done = fakes.run("local.sh", "--processes=2")
    assert "[1] process 1 says:" in done.stdout
    assert "Gloo" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (("0", "0"), 0),
        (("75", "75"), 75),
        (("76", "134"), 134),
        (("0", "76"), 76),
        (("75", "1"), 1),
        (("2", "76"), 2),
        (("137", "76"), 76),
        (("137", "0"), 137),
    ],
)
def test_exit_codes_are_combined(fakes, codes, expected):
    for number, code in enumerate(codes):
        fakes.plan(number, code)
    assert fakes.run("local.sh", "--processes=2").returncode == expected


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_goes_to_all(fakes, number):
    for process in (0, 1):
        fakes.plan(process, "wait 75")
    launcher = fakes.start("local.sh", "--processes=2")
    while len(list(fakes.state.glob("ready-*"))) < 2:
        time.sleep(0.02)
    launcher.send_signal(number)
    out, err = launcher.communicate(timeout=60)
    assert launcher.returncode == 75
    assert out.count("saved") == 2
    assert "the same command goes on" in err


def test_those_that_do_not_end_are_ended(fakes):
    fakes.plan(0, "wait 76")
    fakes.plan(1, "1")
    done = fakes.run("local.sh", "--processes=2", "--grace=1")
    assert done.returncode == 1
    assert "process 1 ended with 1: failed" in done.stderr
    assert "1 processes still run 1 s later; they are ended" in done.stderr


def test_restarts_go_on_while_there_is_progress(fakes):
    fakes.plan(0, "save 75", "save 76", "save 134", "save 75", "0")
    done = fakes.run("local.sh", "--restarts=1", "--workdir=runs/a")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("starting again") == 4


def test_restarts_without_progress_come_to_an_end(fakes):
    fakes.plan(0, "save 75", "75")
    done = fakes.run("local.sh", "--restarts=2", "--workdir=runs/a")
    assert done.returncode == 1
    assert "3 starts without a new checkpoint (latest: run at step 0)" in done.stderr
    assert len(fakes.calls("python")) == 4


def test_a_failure_is_not_started_again(fakes):
    fakes.plan(0, "1")
    assert fakes.run("local.sh", "--restarts=2", "--workdir=runs/a").returncode == 1
    assert len(fakes.calls("python")) == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--processes=two"], "--processes takes a whole number, got 'two'"),
        (["--processes=0"], "--processes takes a whole number of at least 1, got '0'"),
        (["--processes="], "--processes needs a value"),
        (["--devices"], "--devices needs a value"),
        (["--restarts=1"], "--workdir is needed"),
        (["--restarts=1", "--workdir=s3://b/c"], "only gs:// can be used; mount this one"),
        (["--processes=2", "--process_id=0"], "--process_id=0 is set by --processes"),
        (
            ["--extras=gpu,tpuu"],
            "--extras: there is no extra 'tpuu'; there are test, docs, tpu, gpu",
        ),
        (["quickstart"], "unexpected argument 'quickstart'"),
        (["--workdir=a", "b"], "unexpected argument 'b'"),
    ],
)
def test_wrong_words_are_refused_in_one_line(fakes, words, expected):
    done = fakes.run("local.sh", *words)
    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert not fakes.calls("python")


@pytest.mark.slow
def test_two_processes_train_like_one(tmp_path):
    rows = {}
    for name, words in {"one": ["--devices=4"], "two": ["--processes=2", "--devices=2"]}.items():
        done = subprocess.run(
            ["bash", "launch/local.sh", *words, *small_run.flags(tmp_path / name, 12, 4)],
            cwd=small_run.ROOT,
            env=os.environ | small_run.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        text = (tmp_path / name / "metrics.jsonl").read_text()
        rows[name] = [json.loads(line) for line in text.splitlines()]
    losses = {name: [row["loss"] for row in found if "loss" in row] for name, found in rows.items()}
    assert len(losses["one"]) >= 3
    np.testing.assert_allclose(losses["one"], losses["two"], rtol=1e-5)
