"""Who is lost, who hangs: threads of a watch, with a store in memory and short times."""

import threading
import time
import types

import pytest
from memory_store import MemoryStore

from aninfonce_jax.distributed import watch as watch_lib
from aninfonce_jax.distributed.watch import TRAINING, Failure, Pace, Watch


@pytest.fixture(autouse=True)
def short_times(monkeypatch):
    monkeypatch.setattr(watch_lib, "_ASK_SECONDS", 0.05)
    monkeypatch.setattr(watch_lib, "_GRACE_SECONDS", 0.5)
    monkeypatch.setattr(watch_lib, "_SLOW_SECONDS", 0.2)


class Left:
    """Takes note of how a watch would have ended its process."""

    def __init__(self):
        self.event = threading.Event()
        self.said = []

    def __call__(self, message, code):
        self.said.append((message, code))
        self.event.set()


def make(store, process=0, processes=2, **settings):
    left = Left()
    settings = {"heartbeat_timeout": 2.0, "hang_timeout": 0.0, **settings}
    return Watch(store, "w/", process, processes, leave=left, **settings), left


def wait_for(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def test_a_failure_that_is_told_is_heard_and_left_for():
    store = MemoryStore()
    (one, _), (two, left) = make(store), make(store, 1)
    with one, two:
        one.tell(Failure(0, "disk full", 1))
        wait_for(lambda: two.failure is not None)
        assert str(two.failure) == "process 0 failed: disk full"
        # The main thread does not leave by itself.
        assert left.event.wait(20)
    assert left.said[0] == ("process 0 failed: disk full", 1)


def test_what_a_process_has_said_is_not_said_again_as_it_leaves():
    store = MemoryStore()
    (one, _), (two, left) = make(store), make(store, 1)
    with one, two:
        one.tell(Failure(0, "disk full", 1))
        two.leaving(1)
        assert two.describe_abort() == ("", 1)
        assert left.event.wait(20)
    assert left.said[0] == ("", 1)


def test_the_first_failure_counts():
    store = MemoryStore()
    (one, _), (two, _) = make(store), make(store, 1)
    with one, two:
        two.tell(Failure(1, "first", 1))
        one.tell(Failure(0, "second", 2))
        wait_for(lambda: one.failure is not None)
        assert one.failure == Failure(1, "first", 1)


def test_a_process_without_signs_of_life_is_lost():
    store = MemoryStore()
    (one, _), (two, _), (three, _) = (make(store, i, 3) for i in range(3))
    with one, two:
        with three:
            three.at(TRAINING, 7)
            wait_for(lambda: len(one._signs) == 3)
        # It is gone without a word.
        wait_for(lambda: two.failure is not None)
    assert two.failure.process == 2
    assert two.failure.code == 76
    assert "process 2 gave no sign of life for 2 s, last seen: 2: training at step 7" in str(
        two.failure
    )


def test_a_coordinator_that_does_not_answer_is_lost():
    store = MemoryStore()
    two, left = make(store, 1)
    with two:
        two.at("saving", 12)
        store.is_lost = True
        assert left.event.wait(20)
    message, code = left.said[0]
    assert code == 76
    assert "process 0, which coordinates all, has not answered for 2 s" in message
    assert "saving at step 12" in message


def test_a_slow_step_is_told_with_where_everyone_is(capsys):
    store = MemoryStore()
    (one, _), (two, _) = make(store), make(store, 1)
    with one, two:
        two.at(TRAINING, 8)
        two.doing("waiting for data")
        wait_for(lambda: 1 in one._signs and one._signs[1].position.detail)
        for step in range(10):
            one.at(TRAINING, step)
        one.doing("waiting for the devices")
        said = ""

        def is_told():
            nonlocal said
            said += capsys.readouterr().err
            return "process 1" in said

        wait_for(is_told)
    assert "no step was done for" in said
    assert "process 1: training at step 8, waiting for data" in said
    assert "process 0: training at step 9, waiting for the devices" in said


def test_no_progress_ends_the_run_of_all():
    store = MemoryStore()
    (one, _), (two, left) = make(store, hang_timeout=0.5), make(store, 1)
    with one, two:
        wait_for(lambda: two.failure is not None)
        assert left.event.wait(20)
    assert left.said[0][1] == 76
    assert "no progress for" in left.said[0][0]


def test_progress_is_no_hang(monkeypatch):
    now = 0.0
    monkeypatch.setattr(watch_lib, "time", types.SimpleNamespace(monotonic=lambda: now))
    one, _ = make(MemoryStore(), hang_timeout=1.0)
    for step in range(30):
        one.at(TRAINING, step)
        now += 0.9
        one._judge_pace(now)
    assert one._to_tell is None
    now += 0.2
    one._judge_pace(now)
    assert "no progress for 1 s" in one._to_tell.reason


def test_a_broken_connection_is_explained_by_who_is_lost():
    store = MemoryStore()
    one, _ = make(store, heartbeat_timeout=20.0)
    two, _ = make(store, 1, heartbeat_timeout=20.0)
    with one:
        with two:
            wait_for(lambda: 1 in one._signs)
        began = time.monotonic()
        failure = one.connection_broke()
    assert failure.process == 1
    # Without the broken connection it would have taken all of the 20 s.
    assert time.monotonic() - began < 18


def test_an_abort_is_explained():
    one, _ = make(MemoryStore(), 1)
    one.at("evaluating", 3)
    message, code = one.describe_abort()
    assert "can't be reached any more" in message
    assert "evaluating at step 3" in message
    assert code == 76


def test_a_pace_is_known_after_some_steps():
    pace = Pace()
    for _ in range(4):
        pace.add(10.0, 10)
    assert pace.limit(1) is None
    pace.add(1000.0, 10)  # one that compiled
    assert pace.limit(1) == 20.0
    assert pace.limit(50) == 1000.0
