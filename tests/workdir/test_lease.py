"""The lock of a remote work directory: one holder, by writes on conditions."""

import dataclasses
import subprocess
import sys
import threading

import pytest

from aninfonce_jax import lock
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.lock import Holder, LockedError
from aninfonce_jax.remote import RemoteError, locate
from aninfonce_jax.workdir import WorkdirError, lease

WHAT, ADVICE = "work directory gs://bucket/run", "wait for it"


@pytest.fixture
def path(fake_store, monkeypatch):
    monkeypatch.setattr(lease, "_POLL_SECONDS", 0.01)
    return locate("gs://bucket/run/lock")


def write(path, holder):
    lease.open_store(path.parent).write(path.name, holder.record()).result()


def read(path):
    found = lease.open_store(path.parent).read(path.name).result()
    return found.value if found.state == "value" else None


def away(**changes):
    return dataclasses.replace(lease._myself(), host="elsewhere", **changes)


def test_it_names_the_holder_and_is_gone_afterwards(path):
    with lease.hold(path, WHAT, ADVICE):
        assert Holder.parse(read(path)).pid == Holder.myself().pid
    assert read(path) is None


def test_a_second_one_is_refused_and_told_who(path):
    with (
        lease.hold(path, WHAT, ADVICE),
        pytest.raises(LockedError, match=f"{WHAT} is in use by process .*; {ADVICE}$"),
        lease.hold(path, WHAT, ADVICE),
    ):
        pass
    with lease.hold(path, WHAT, ADVICE):
        pass


def test_of_many_that_begin_together_one_gets_it(path):
    start, end = threading.Barrier(8), threading.Barrier(8)
    got = []

    def take():
        start.wait()
        try:
            with lease.hold(path, WHAT, ADVICE):
                got.append(True)
                end.wait()
        except LockedError:
            got.append(False)
            end.wait()

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [False] * 7 + [True]


def test_a_holder_of_this_machine_that_was_killed_is_followed_at_once(path):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = lock._process_start(child.pid)
    write(path, dataclasses.replace(lease._myself(), pid=child.pid, began=f"{started} x"))
    with pytest.raises(LockedError), lease.hold(path, WHAT, ADVICE):
        pass
    child.kill()
    child.communicate()
    said = []
    with lease.hold(path, WHAT, ADVICE, say=said.append):
        assert f"left without a release by process {child.pid}" in said[-1]


def test_one_elsewhere_is_dead_once_it_is_still(path):
    write(path, away())
    said = []
    with lease.hold(path, WHAT, ADVICE, say=said.append, still_seconds=0.05):
        pass
    assert "waiting up to" in said[0]
    assert "on elsewhere" in said[1]
    assert "taken over" in said[1]


def test_one_elsewhere_that_renews_it_is_believed(path, monkeypatch):
    write(path, away())
    monkeypatch.setattr(lease.time, "sleep", lambda seconds: write(path, away()))
    with (
        pytest.raises(LockedError, match=f"or remove {path} if you know that it has ended"),
        lease.hold(path, WHAT, ADVICE, still_seconds=60.0),
    ):
        pass


def test_one_that_lets_go_while_it_is_watched(path, monkeypatch):
    write(path, away())
    store = lease.open_store(path.parent)
    monkeypatch.setattr(lease.time, "sleep", lambda seconds: store.write(path.name, None).result())
    # It was there a moment ago: the next attempt gets it.
    with lease.hold(path, WHAT, ADVICE, still_seconds=60.0, patience=5.0):
        assert Holder.parse(read(path)).host != "elsewhere"


def test_of_two_that_follow_a_dead_one_the_slower_is_refused(path, monkeypatch):
    write(path, away())
    original = lease._lives

    def the_other_is_quicker(*arguments):
        lives = original(*arguments)
        write(path, away(pid=7))
        return lives

    monkeypatch.setattr(lease, "_lives", the_other_is_quicker)
    with (
        pytest.raises(LockedError, match="process 7 on elsewhere"),
        lease.hold(path, WHAT, ADVICE, still_seconds=0.01),
    ):
        pass
    assert Holder.parse(read(path)).pid == 7


def test_a_record_that_nobody_can_read_is_watched_too(path):
    lease.open_store(path.parent).write(path.name, b"\xff{").result()
    said = []
    with lease.hold(path, WHAT, ADVICE, say=said.append, still_seconds=0.02):
        assert "a process that left no name" in said[-1]


def test_renewing_makes_a_new_generation(path):
    with lease.hold(path, WHAT, ADVICE) as held:
        store = lease.open_store(path.parent)
        before = store.read(path.name).result().stamp.generation
        held.renew()
        held.check()
        assert store.read(path.name).result().stamp.generation != before
    assert read(path) is None


def test_a_write_whose_answer_was_lost_is_its_own(path):
    with lease.hold(path, WHAT, ADVICE) as held:
        # As if sent twice: the second finds the first, which has another generation.
        lease.open_store(path.parent).write(path.name, read(path)).result()
        held.renew()
        held.check()


def test_who_was_away_too_long_may_write_nothing_more(fake_store):
    folder = locate("gs://bucket/run")
    with workdir_lib.hold(folder):
        workdir_lib.write_config(folder, {"name": "x"}, "")
        workdir_lib.check_held(folder)
        write(folder / "lock", away(pid=7))
        held = workdir_lib.holding._leases[folder / "lock"]
        held.renew()
        with pytest.raises(RemoteError, match="taken over by process 7 on elsewhere"):
            workdir_lib.write_eval(folder, {"step": 1}, "hash", [])
    assert "bucket/run/eval.json" not in fake_store.objects
    # The other one keeps its lock.
    assert Holder.parse(read(folder / "lock")).pid == 7


def test_a_thread_renews_it_until_it_is_released(path, monkeypatch):
    monkeypatch.setattr(lock, "RENEW_SECONDS", 0.01)
    store = lease.open_store(path.parent)
    with lease.hold(path, WHAT, ADVICE):
        before = store.read(path.name).result().stamp.generation
        while store.read(path.name).result().stamp.generation == before:
            pass
    assert not [thread for thread in threading.enumerate() if thread.name == "renew lease"]


def test_a_store_that_is_away_is_one_line(path, monkeypatch):
    def fail(folder):
        raise ValueError("UNAVAILABLE: could not resolve host")

    monkeypatch.setattr(lease, "open_store", fail)
    with (
        pytest.raises(WorkdirError, match=r"can't be written: no connection \(UNAVAILABLE"),
        workdir_lib.hold(path.parent),
    ):
        pass


def test_the_same_thread_may_hold_it_twice_another_process_not(path):
    with workdir_lib.hold(path.parent), workdir_lib.hold(path.parent):
        pass
    write(path, dataclasses.replace(lease._myself(), began=Holder.myself().began + " other"))
    with (
        pytest.raises(WorkdirError, match="in use by process"),
        workdir_lib.hold(path.parent),
    ):
        pass
