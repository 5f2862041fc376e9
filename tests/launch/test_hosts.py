"""A run on hosts over ssh: copied, started, watched, started again, stopped."""

import io
import signal
import subprocess
import tarfile
import time

import pytest
from small_run import ROOT

RUN = ("run", "--hosts=one,me@two", "--poll=0", "--grace=1", "--patience=1")


@pytest.fixture
def workdir(tmp_path):
    return tmp_path / "of one test" / "shared" / "a run"


@pytest.fixture
def arguments(workdir):
    return (*RUN, "--copy", f"--workdir={workdir}")


def starts(fakes):
    """Returns the program's arguments at every start."""
    return [words[2:] for words in fakes.calls("python")]


def test_a_run_is_copied_started_and_watched_to_its_end(fakes, arguments, workdir):
    word = '--config.source.title=it\'s; $HOME "a"'
    (fakes.checkout / "notes to keep").write_text("here")
    done = fakes.run("hosts.sh", *arguments, word)
    assert done.returncode == 0, done.stderr
    common = [f"--workdir={workdir}", word, "--coordinator=one:8476", "--num_processes=2"]
    assert sorted(starts(fakes)) == [[*common, f"--process_id={n}"] for n in (0, 1)]
    assert "process 0 says:" in done.stdout
    assert "aninfonce_jax: done" in done.stdout
    for host in ("one", "me@two"):
        assert (fakes.state / "homes" / host / "aninfonce_jax" / "notes to keep").exists()


@pytest.mark.parametrize(
    ("first", "second"),
    [("save 75", "75"), ("134", "137")],
)
def test_it_is_started_again_after_codes_that_ask_for_it(fakes, arguments, first, second):
    fakes.plan(0, first, "0")
    fakes.plan(1, second, "0")
    done = fakes.run("hosts.sh", *arguments)
    assert done.returncode == 0, done.stderr
    assert len(starts(fakes)) == 4
    assert done.stdout.count("starting again") == 1


def test_a_failure_ends_it_with_the_ends_of_the_logs(fakes, arguments):
    fakes.plan(0, "76")
    fakes.plan(1, "1")
    done = fakes.run("hosts.sh", *arguments)
    assert done.returncode == 1
    assert "ended with 1: failed; the ends of the logs:" in done.stderr
    assert "--- process 1 on me@two: exited 1" in done.stderr
    assert "process 1 ends with 1" in done.stderr
    assert len(starts(fakes)) == 2


def test_restarts_without_progress_come_to_an_end(fakes, arguments):
    fakes.plan(0, "save 76", "76")
    fakes.plan(1, "76")
    done = fakes.run("hosts.sh", *arguments, "--restarts=1")
    assert done.returncode == 1
    assert "2 starts without a new checkpoint (latest: run at step 0)" in done.stderr
    assert len([words for words in starts(fakes) if "--process_id=0" in words]) == 3


def test_a_process_that_stays_behind_is_stopped(fakes, arguments):
    fakes.plan(0, "76", "0")
    fakes.plan(1, "hang", "0")
    done = fakes.run("hosts.sh", *arguments)
    assert done.returncode == 0, done.stderr
    assert "the others did not end within 1 s; they are stopped" in done.stdout


def test_ctrl_c_stops_all_and_they_save(fakes, arguments):
    for process in (0, 1):
        fakes.plan(process, "wait 75")
    launcher = fakes.start("hosts.sh", *arguments, "--grace=60")
    while len(list(fakes.state.glob("ready-*"))) < 2:
        time.sleep(0.02)
    launcher.send_signal(signal.SIGINT)
    out, _ = launcher.communicate(timeout=60)
    assert launcher.returncode == 75, out
    assert "stopping all processes" in out
    assert "stopped with 75: asked to stop; the state is saved; the same command goes on" in out


def test_the_same_command_finds_what_another_launcher_has_started(fakes, arguments):
    for process in (0, 1):
        fakes.plan(process, "wait 75")
    launcher = fakes.start("hosts.sh", *arguments, "--grace=60")
    while len(list(fakes.state.glob("ready-*"))) < 2:
        time.sleep(0.02)
    launcher.kill()
    launcher.communicate()
    again = fakes.start("hosts.sh", *arguments, "--grace=60")
    other = fakes.run("hosts.sh", *arguments, "--config.train.steps=5")
    assert other.returncode == 1
    assert "starting failed on one: aninfonce_jax: another run is under way" in other.stderr
    status = fakes.run("hosts.sh", "status", "--hosts=one,me@two")
    assert status.stdout == "process 0 on one: running\nprocess 1 on me@two: running\n"
    # What ends by another's hand is started again; so the watching one is stopped first.
    again.send_signal(signal.SIGTERM)
    out, err = again.communicate(timeout=60)
    assert again.returncode == 75, out + err
    assert fakes.run("hosts.sh", "stop", "--hosts=one,me@two").returncode == 0


def test_two_launchers_may_copy_at_once(fakes, arguments, workdir):
    """To folders that are not there yet, for two runs; each finds a whole package."""
    both = [
        fakes.start("hosts.sh", *RUN, "--copy", f"--name={name}", f"--workdir={workdir}-{name}")
        for name in ("a", "b")
    ]
    for launcher in both:
        out, err = launcher.communicate(timeout=120)
        assert launcher.returncode == 0, out + err
    assert len(starts(fakes)) == 4
    for host in ("one", "me@two"):
        folder = fakes.state / "homes" / host / "aninfonce_jax"
        assert not [path for path in folder.iterdir() if "checkout-" in path.name]


def test_what_is_read_while_a_checkout_is_unpacked_is_whole(tmp_path):
    """The old file or the new one, never none nor a part."""
    file, size = tmp_path / "long", 2_000_000
    command = '. launch/common.sh; echo "cd $(quoted "$1") && $(unpacking some.tar.gz)"'
    line = subprocess.run(
        ["bash", "-c", command, "-", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    file.write_bytes(b"0" * size)
    for digit in (b"1", b"2", b"3", b"4", b"5"):
        with tarfile.open(tmp_path / "some.tar.gz", "w:gz", compresslevel=1) as archive:
            entry = tarfile.TarInfo("long")
            entry.size = size
            archive.addfile(entry, io.BytesIO(digit * size))
        with subprocess.Popen(["bash", "-c", line]) as unpacking:
            while unpacking.poll() is None:
                assert len(file.read_bytes()) == size
        assert unpacking.returncode == 0
        assert file.read_bytes() == digit * size
    assert sorted(path.name for path in tmp_path.iterdir()) == [".launching", "long"]


def test_a_host_that_does_not_answer_is_named(fakes, arguments):
    (fakes.state / "me@two.down").touch()
    done = fakes.run("hosts.sh", *arguments)
    assert done.returncode == 1
    assert "copying failed on me@two: ssh: connect to host me@two" in done.stderr
    assert not starts(fakes)


def test_a_host_that_is_lost_and_does_not_come_back_ends_it(fakes, arguments):
    fakes.plan(0, "wait 76", "0")
    fakes.plan(1, "wait 75")
    launcher = fakes.start("hosts.sh", *arguments)
    while len(list(fakes.state.glob("ready-*"))) < 2:
        time.sleep(0.02)
    (fakes.state / "me@two.down").touch()
    # The first process hears of it from the runtime; here, by hand.
    fakes.run("hosts.sh", "stop", "--hosts=one")
    out, err = launcher.communicate(timeout=60)
    (fakes.state / "me@two.down").unlink()
    fakes.run("hosts.sh", "stop", "--hosts=one,me@two")
    assert launcher.returncode == 1, out
    assert "1 do not answer" in out
    assert "ended with 76: a peer was lost; starting again" in out
    assert "reaching the package failed on me@two" in err


def test_without_the_package_it_says_what_brings_it(fakes, workdir):
    done = fakes.run("hosts.sh", *RUN, f"--workdir={workdir}")
    assert done.returncode == 1
    assert "--copy brings it there" in done.stderr
    assert "no package in aninfonce_jax" in done.stderr


def test_hosts_from_a_file(fakes, workdir, tmp_path):
    file = tmp_path / "my hosts.txt"
    file.write_text("# the old machines\none\n\n  two # slow\n")
    words = ("run", f"--hosts={file}", f"--workdir={workdir}", "--dry-run")
    done = fakes.run("hosts.sh", *words)
    assert done.returncode == 0
    assert "--coordinator=one:8476 --num_processes=2 --process_id=1" in done.stdout
    assert not fakes.calls("ssh")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--hosts=a"], "a first word is needed: run, status, logs or stop"),
        (["run", "--workdir=/a"], "--hosts is needed: the machines"),
        (["run", "--hosts=a"], "--workdir is needed"),
        (["run", "--hosts=a", "--workdir=b"], "--workdir must begin with a slash"),
        (["run", "--hosts=a", "--workdir=s3://b/c"], "only gs:// can be used; mount this one"),
        (["run", "--hosts=a,-oProxyCommand=x", "--workdir=/b"], "is no name of a host"),
        (["run", "--hosts=a", "--workdir=/b", "--process_id=1"], "is set by this launcher"),
        (["run", "--hosts=a", "--workdir=/b", "--poll=x"], "--poll takes a whole number"),
        (["run", "--hosts=a", "--workdir=/b", "--name=../x"], "--name takes letters, digits"),
        (["run", "--hosts=a", "--workdir=/b", "--coordinator=a"], "must be HOST:PORT"),
        (["run", "--hosts=a", "--workdir=gs:///b"], "--workdir must be gs://BUCKET/..."),
        (
            ["run", "--hosts=a", "--workdir=/b", "--extras=gpuu"],
            "--extras: there is no extra 'gpuu'",
        ),
    ],
)
def test_wrong_words_are_refused_in_one_line(fakes, words, expected):
    done = fakes.run("hosts.sh", *words)
    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert not fakes.calls("ssh")
