"""The phases share the wall time of a run, over all its sessions, and change nothing else."""

import contextlib
import dataclasses
import functools
import json
import time

import jax
import jax.numpy as jnp
import pytest
from training.toy_experiment import make_experiment

import aninfonce_jax as an
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.scores import registry
from aninfonce_jax.scores.registry import PHASES, phase_key
from aninfonce_jax.training import goodput, loop
from aninfonce_jax.training.goodput import Clock, entries
from aninfonce_jax.training.session import Session


class Hands:
    """A clock's hands, moved by the test."""

    def __init__(self, date=1000.0):
        self.time = self.compiled = 0.0
        self.date = date

    def clock(self):
        return Clock(lambda: self.time, lambda: self.date + self.time, lambda: self.compiled)

    def wait(self, seconds, compiling=0.0):
        self.time += seconds
        self.compiled += compiling


def told(seconds):
    return {phase: value for phase, value in seconds.items() if value}


def test_phases_share_the_time_and_compiling_is_taken_out_of_each():
    hands = Hands()
    clock = hands.clock()
    hands.wait(3)
    clock.enter("steps")
    hands.wait(10, compiling=4)
    with clock.phase("evaluation"):
        hands.wait(2, compiling=0.5)
        with clock.phase("checkpoint"):
            hands.wait(1)
        hands.wait(1)
    with contextlib.suppress(KeyError), clock.phase("input"):
        hands.wait(5)
        raise KeyError
    hands.wait(1)
    expected = {
        "setup": 3, "steps": 7, "compile": 4.5, "evaluation": 2.5, "checkpoint": 1, "input": 5,
    }  # fmt: skip
    assert told(clock.seconds) == expected
    assert clock.entered("steps", "evaluation") == 14
    assert sum(clock.seconds.values()) == hands.time


def test_what_a_killed_session_did_not_save_is_lost():
    hands = Hands()
    first = hands.clock()
    first.enter("steps")
    hands.wait(10)
    saved = json.loads(json.dumps(first.save()))
    hands.wait(4)
    seen = sum(first.seconds.values())  # in the last row; then 3 s until it was killed
    hands.wait(3 + 100)
    second = hands.clock()
    hands.wait(2)
    second.resume(saved, seen)
    assert told(second.seconds) == {"steps": 10, "repeated": 4, "away": 103, "setup": 2}
    assert sum(second.seconds.values()) == hands.time
    found = entries(second.seconds)
    assert found[registry.WALL_SECONDS] == 119
    assert found[registry.SECONDS] == 12
    assert found[registry.GOODPUT] == pytest.approx(10 / 119)
    assert found[phase_key("repeated")] == 4


def test_without_a_checkpoint_everything_seen_is_lost_and_clocks_may_go_wrong():
    clock = Hands().clock()
    clock.resume(None, 7.5)
    assert told(clock.seconds) == {"repeated": 7.5}
    # Another machine's date may lie in the future; a run that has ended is not waited for.
    saved = {"seconds": {"steps": 5.0}, "date": 5000.0}
    for hands, goes_on in ((Hands(), True), (Hands(date=9000.0), False)):
        clock = hands.clock()
        clock.resume(saved, 3.0, goes_on=goes_on)
        assert told(clock.seconds) == {"steps": 5}


def test_a_clock_without_time_has_no_goodput():
    assert entries(dict.fromkeys(PHASES, 0.0))[registry.GOODPUT] == 0


def test_a_moment_of_compiling_counts_once():
    now = 0.0
    watch = goodput._Compiling(lambda: now)
    trace, _, compile_ = goodput._COMPILING
    for end, event, duration in (
        (1.0, trace, 1.0),
        (3.0, trace, 1.0),  # within the next
        (4.0, trace, 1.5),  # within the next
        (6.0, trace, 4.5),  # from 1.5 on
        (9.0, compile_, 2.0),
        (9.5, "/jax/something/else", 9.0),
    ):
        now = end
        watch.add(event, duration)
    assert watch.total() == pytest.approx(1 + 4.5 + 2)


def test_what_jax_compiles_is_counted():
    began, slow = time.monotonic(), 0.05
    clock = Clock()
    clock.enter("evaluation")

    def slow_to_trace(x):
        time.sleep(slow)
        return x + 1

    jax.jit(slow_to_trace)(jnp.zeros(3))
    seconds = clock.seconds
    assert seconds["compile"] > slow
    assert seconds["evaluation"] < time.monotonic() - began - slow


class Device:
    """A device whose calls take their time while the host goes on."""

    SECONDS = 0.05

    def __init__(self, step):
        self._step = step

    def __call__(self, state, fed, count):
        def slowly(*results):
            time.sleep(self.SECONDS)
            return results

        state, metrics = self._step(state, fed, count)
        results = state.step, metrics["loss"]
        step, loss = self._slowly(slowly, results)
        return dataclasses.replace(state, step=step), {**metrics, "loss": loss}

    @functools.partial(jax.jit, static_argnums=(0, 1))
    def _slowly(self, call, results):
        return jax.pure_callback(call, jax.tree.map(jax.typeof, results), *results)


@pytest.fixture
def slow_device(monkeypatch):
    make = loop.make_train_step
    monkeypatch.setattr(loop, "make_train_step", lambda *given: Device(make(*given)))


@pytest.mark.usefixtures("slow_device")
def test_the_pace_is_that_of_work_done_from_the_first_row_on(tmp_path):
    experiment = make_experiment(checkpoint=an.CheckpointConfig(every=20))
    an.train(experiment, tmp_path, placement=an.Placement.local(1), progress="off")
    rows = workdir_lib.read_metrics(tmp_path / "metrics.jsonl")
    trained = [row for row in rows if row["split"] == "train"]
    assert len(trained) == 8
    for row in trained:  # of five steps, one call
        assert 0 < row[registry.STEPS_PER_SECOND] < 5 / Device.SECONDS * 1.1
    times = [row[registry.WALL_SECONDS] for row in rows]
    assert times == sorted(times)
    final = json.loads((tmp_path / workdir_lib.EVAL_FILE).read_text())
    phases = {phase: final[phase_key(phase)] for phase in PHASES}
    assert phases["steps"] > 8 * Device.SECONDS
    assert phases["compile"] > 0
    assert phases["checkpoint"] > 0
    assert phases["evaluation"] > 0
    assert phases["repeated"] == phases["away"] == 0
    assert final[registry.GOODPUT] == pytest.approx(phases["steps"] / sum(phases.values()))


def test_a_run_that_goes_on_has_the_time_of_all_its_sessions(tmp_path, monkeypatch):
    placement = an.Placement.local(1)
    save = Session._save

    class Killed(BaseException):
        pass

    def save_once(session, step, state):
        if session.tools.checkpoints.latest_step is not None:
            session.tools.writer.flush()
            raise Killed
        save(session, step, state)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "_save", save_once)
        with pytest.raises(Killed):
            an.train(make_experiment(), tmp_path, placement=placement, progress="off")
    seen = workdir_lib.read_metrics(tmp_path / "metrics.jsonl")[-1][registry.WALL_SECONDS]
    before = time.time()
    an.train(make_experiment(), tmp_path, placement=placement, progress="off")
    final = json.loads((tmp_path / workdir_lib.EVAL_FILE).read_text())
    assert final[phase_key("repeated")] > 0
    assert final[phase_key("away")] > 0
    assert seen < final[registry.WALL_SECONDS] < seen + time.time() - before + 60
    rows = workdir_lib.read_metrics(tmp_path / "metrics.jsonl")
    times = [row[registry.WALL_SECONDS] for row in rows]
    assert times == sorted(times)
    # Nothing is added to a run that has ended.
    an.train(make_experiment(), tmp_path, placement=placement, progress="off")
    assert json.loads((tmp_path / workdir_lib.EVAL_FILE).read_text()) == final
