"""One holder at a time, whoever dies how: processes here, records of other machines in files."""

import dataclasses
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from aninfonce_jax import lock

ADVICE = "wait for it"
HOLD = (
    "import sys, pathlib, time; from aninfonce_jax import lock\n"
    "with lock.hold(pathlib.Path(sys.argv[1]), 'it', 'wait'):\n"
    "    print('held', flush=True); time.sleep(600)\n"
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lock"


def hold(path, **kwargs):
    return lock.hold(path, "it", ADVICE, **kwargs)


def start_holder(path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    return process


def write_record(path, **changes):
    record = dataclasses.asdict(lock.Holder.myself()) | {"pid": 999_999_999} | changes
    path.write_text(json.dumps(record))


def test_it_is_free_again_afterwards_and_leaves_nothing(path):
    for _ in range(2):
        with hold(path):
            assert json.loads(path.read_text())["pid"] == os.getpid()
        assert not path.exists()
    with pytest.raises(KeyError), hold(path):
        raise KeyError
    assert not path.exists()


def test_a_living_process_is_named_and_nothing_is_changed(path):
    process = start_holder(path)
    before = path.read_bytes(), path.stat().st_mtime_ns
    with pytest.raises(lock.LockedError) as error, hold(path):
        pass
    message = str(error.value)
    assert message.startswith(
        f"it is in use by process {process.pid} on {lock.Holder.myself().host}"
    )
    assert message.endswith("; wait for it")
    assert "\n" not in message
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    process.send_signal(signal.SIGKILL)
    process.communicate()
    said = []
    with hold(path, say=said.append):
        pass
    assert f"by process {process.pid}" in said[0]
    assert "taken over" in said[0]


def test_a_second_hold_in_the_same_process_is_refused_too(path):
    with hold(path), pytest.raises(lock.LockedError, match=f"process {os.getpid()}"), hold(path):
        pass


def test_patience_waits_for_the_release(path, monkeypatch):
    held, waited_for = threading.Event(), threading.Event()

    def until_waited_for():
        with hold(path):
            held.set()
            assert waited_for.wait(30)

    thread = threading.Thread(target=until_waited_for)
    thread.start()
    held.wait()
    sleep = time.sleep
    monkeypatch.setattr(lock.time, "sleep", lambda seconds: (waited_for.set(), sleep(seconds)))
    with hold(path, patience=30):
        assert waited_for.is_set()
        thread.join()


def test_a_record_of_another_machine_is_believed_while_it_is_renewed(path, monkeypatch):
    monkeypatch.setattr(lock, "_POLL_SECONDS", 0.02)
    write_record(path, host="far-away", boot="x")
    ended = threading.Event()

    def renew():
        while not ended.wait(0.05):
            os.utime(path)

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        with pytest.raises(lock.LockedError, match=r"on far-away .*, or remove .*lock if you know"):
            hold(path, still_seconds=10).__enter__()
    finally:
        ended.set()
        thread.join()
    said = []
    with hold(path, still_seconds=0.2, say=said.append):
        assert json.loads(path.read_text())["host"] == lock.Holder.myself().host
    assert "far-away" in said[0]


def test_an_old_record_of_another_machine_is_not_waited_for(path):
    write_record(path, host="far-away", boot="x")
    os.utime(path, (time.time() - 3600,) * 2)
    started = time.monotonic()
    with hold(path, still_seconds=600):
        assert time.monotonic() - started < 60


@pytest.mark.parametrize("record", ["", "{", "[]", "7", '{"pid": 1}', "[" * 4000, "\0" * 100])
def test_a_record_that_says_nothing_is_of_nobody(path, record):
    path.write_text(record)
    with hold(path):
        pass


def test_nothing_in_a_record_can_steer_the_terminal(path):
    holder = dataclasses.replace(lock.Holder.myself(), command="\x1b[31m\nred")
    assert str(holder).isprintable()


def test_a_name_that_is_taken_is_an_error(path):
    os.mkfifo(path)
    with pytest.raises(OSError, match="not a regular file"), hold(path):
        pass
    path.unlink()
    path.symlink_to("elsewhere")
    with pytest.raises(OSError, match="symbolic link"), hold(path):
        pass
    assert not path.with_name("elsewhere").exists()
    path.unlink()
    path.mkdir()
    with pytest.raises(IsADirectoryError), hold(path):
        pass


@pytest.fixture
def no_flock(monkeypatch):
    def fail(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", fail)
    monkeypatch.setattr(lock, "_SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(lock, "_POLL_SECONDS", 0.02)


@pytest.mark.usefixtures("no_flock")
def test_without_kernel_locks_the_record_alone_decides(path):
    with hold(path), pytest.raises(lock.LockedError, match=f"process {os.getpid()}"), hold(path):
        pass
    assert not path.exists()
    write_record(path)  # of a process that is gone
    with hold(path, still_seconds=0.1):
        pass


@pytest.mark.usefixtures("no_flock")
def test_without_kernel_locks_the_last_of_two_that_begin_together_wins(path, monkeypatch):
    def the_other_writes(seconds):
        write_record(path, host="other")

    monkeypatch.setattr(lock.time, "sleep", the_other_writes)
    with pytest.raises(lock.LockedError, match="on other"), hold(path):
        pass


def test_a_forked_child_does_not_keep_the_lock_of_a_dead_parent(path):
    # The child says when it runs: until then it has not let go of what it inherits.
    forking = "    import os; os.fork() or print(os.getpid(), flush=True)"
    code = HOLD.replace("    print('held', flush=True)", forking)
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE
    ) as parent:
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        try:
            with hold(path):
                pass
        finally:
            os.kill(child, signal.SIGKILL)
