import contextlib
import dataclasses
import json
import os
import shutil
import signal

import chex
import jax
import numpy as np
import pytest
from shared_folders import make_once
from stopped_runs import stopping_at_the_first_save

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.build import build_experiment
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.evaluation.runner import make_evaluate
from aninfonce_jax.placement import Placement
from aninfonce_jax.scores import registry
from aninfonce_jax.stop import Preempted, StopSignal
from aninfonce_jax.training import loop
from aninfonce_jax.training.session import DivergedError, Session, UnfinishedError
from aninfonce_jax.training.step import make_train_step


def train(config, workdir, make_evaluate=make_evaluate, stop=None):
    with contextlib.nullcontext(stop) if stop else StopSignal() as stop:
        return loop.train(
            build_experiment(config),
            workdir,
            make_evaluate,
            placement=Placement.local(),
            stop=stop,
            progress="off",
            command="repeat me",
        )


def restored(config, workdir):
    experiment = build_experiment(config)
    with loop.open_checkpoints(workdir, experiment) as checkpoints:
        return checkpoints.restore_latest(loop.abstract_state(experiment, Placement.local()))


def saved_state(config, workdir):
    return jax.device_get(restored(config, workdir).state)


def rows(workdir):
    return [
        {name: value for name, value in row.items() if name not in registry.TIMINGS}
        for row in workdir_lib.read_metrics(workdir / "metrics.jsonl")
    ]


def assert_same_run(config, one, other):
    chex.assert_trees_all_equal(
        jax.tree.map(np.asarray, jax.tree.leaves(saved_params(config, one))),
        jax.tree.map(np.asarray, jax.tree.leaves(saved_params(config, other))),
    )
    assert rows(one) == rows(other)


def saved_params(config, workdir):
    state = saved_state(config, workdir)
    return {"params": state.params, "opt_state": state.opt_state, "step": state.step}


@pytest.fixture(scope="session")
def plain_run(small_config, tmp_path_factory):
    """The work directory of a run of `small_config()`, which nobody has disturbed."""
    return make_once(tmp_path_factory, "plain-run", lambda folder: train(small_config(), folder))


def test_a_run_leaves_everything_behind(small_config, tmp_path):
    config = small_config(source__space="box", source__marginal="uniform")
    result = train(config, tmp_path)
    assert int(result.state.step) == config.train.steps
    assert workdir_lib.read_config(tmp_path) == config
    assert json.loads((tmp_path / "config.json").read_text())["command"] == "repeat me"
    evaluations = [row for row in rows(tmp_path) if row["split"] == "eval"]
    assert [row["step"] for row in evaluations] == [0, 4, 8, 12]
    logged = [row for row in rows(tmp_path) if row["split"] == "train"]
    assert [row["step"] for row in logged] == [2, 4, 6, 8, 10, 12]
    final = json.loads((tmp_path / workdir_lib.EVAL_FILE).read_text())
    assert final["step"] == 12
    assert np.shape(final["map"]) == (4, 4)
    assert final["r2"] == evaluations[-1]["r2"] == result.scores["r2"]
    assert len(final["concentration"]) == 4
    assert final["loss_floor"] < final["loss"]


def test_a_finished_run_is_not_run_again(small_config, tmp_path):
    config = small_config()
    first = train(config, tmp_path)
    before = rows(tmp_path)
    again = train(config, tmp_path)
    assert again.scores == first.scores
    assert rows(tmp_path) == before


def falling_then_rising(experiment, placement):
    """Stands for an evaluation: the loss falls up to the second one, and rises from there."""
    losses = iter([3.0, 2.0, 2.5, 2.6, 2.7])
    return lambda weights, *, full: {"loss": next(losses), "details": full}


def test_a_run_gives_up_when_evaluations_do_not_become_better(small_config, tmp_path):
    config = small_config(train__steps=20, eval__every=4, checkpoint__every=8)
    experiment = dataclasses.replace(build_experiment(config), config=None, patience=2)

    def run(make_evaluate):
        with StopSignal() as stop:
            return loop.train(
                experiment,
                tmp_path,
                make_evaluate,
                placement=Placement.local(),
                stop=stop,
                progress="off",
            )

    result = run(falling_then_rising)
    assert int(result.state.step) == 12  # evaluations of steps 0, 4, 8 and 12; the best is of 4
    assert result.scores["details"]  # the last one has all scores, though it was not planned
    with loop.open_checkpoints(tmp_path, experiment) as checkpoints:
        assert checkpoints.all_steps() == (8, 12)
        target = loop.abstract_state(experiment, Placement.local())
        assert checkpoints.restore_best(target).step == 8
        assert checkpoints.restore_latest(target).step == 12
    # It is over, and stays so: nothing is evaluated, no step is taken.
    assert int(run(lambda *_: None).state.step) == 12


@pytest.fixture(scope="module")
def averaged_run(small_config, tmp_path_factory):
    """A config, and the work directory of its run, which nobody has disturbed."""
    # A row of metrics spans two calls, so some of the stops fall into its middle.
    config, folder = (
        small_config(train__ema_decay=0.9, log__every=4),
        tmp_path_factory.mktemp("run"),
    )
    train(config, folder)
    return config, folder


@pytest.mark.parametrize("calls", [1, 2, 5])
def test_a_terminated_run_equals_the_uninterrupted(averaged_run, tmp_path, monkeypatch, calls):
    config, whole = averaged_run

    def make_step_that_is_terminated(*args):
        step, done = make_train_step(*args), 0

        def run(state, batch, count):
            nonlocal done
            done += 1
            if done == calls:
                os.kill(os.getpid(), signal.SIGTERM)
            return step(state, batch, count)

        return run

    with monkeypatch.context() as patch:
        patch.setattr(loop, "make_train_step", make_step_that_is_terminated)
        with pytest.raises(Preempted, match=rf"stopped at step {2 * calls} of 12"):
            train(config, tmp_path)
    train(config, tmp_path)
    assert_same_run(config, whole, tmp_path)


def test_a_resume_off_the_grid_ends_like_the_uninterrupted(small_config, tmp_path):
    """Stopped at a step that the new intervals do not divide, which may change on resuming."""
    often = {"train__steps": 16, "train__steps_per_dispatch": 4, "eval__every": 8}
    whole = small_config(**often, log__every=8, checkpoint__every=8)
    train(whole, tmp_path / "whole")
    config = small_config(**often, log__every=3, checkpoint__every=3)
    with (
        stopping_at_the_first_save() as stop,
        pytest.raises(Preempted, match="stopped at step 3 of 16"),
    ):
        train(config, tmp_path / "off", stop=stop)
    train(whole, tmp_path / "off")
    chex.assert_trees_all_equal(
        saved_params(whole, tmp_path / "whole"), saved_params(whole, tmp_path / "off")
    )
    evaluated, logged = (
        [row["step"] for row in rows(tmp_path / "off") if row["split"] == split]
        for split in ("eval", "train")
    )
    assert evaluated == [0, 8, 16]
    assert logged == [3, 8, 16]


def test_the_end_must_be_reached_evaluated_and_saved(small_config, tmp_path, monkeypatch):
    monkeypatch.setattr(Session, "_save", lambda *_: None)
    with pytest.raises(UnfinishedError, match=r"reached 4, .* its last checkpoint of None"):
        train(small_config(train__steps=4), tmp_path)


def test_a_checkpoint_of_another_seed_is_passed_over(small_config, tmp_path, capfd):
    config = small_config(train__steps=8)
    whole = train(config, tmp_path / "whole")
    train(small_config(train__steps=8, seed=7), tmp_path / "other")
    saved = tmp_path / "whole" / workdir_lib.CHECKPOINT_FOLDER
    shutil.rmtree(saved / "8")
    shutil.copytree(tmp_path / "other" / workdir_lib.CHECKPOINT_FOLDER / "8", saved / "8")
    again = train(config, tmp_path / "whole")
    assert again.scores == whole.scores
    assert "warning: checkpoint 8 belongs to another run" in capfd.readouterr().err
    # One beyond the end does not make a run that is done an unfinished one.
    shutil.copytree(tmp_path / "other" / workdir_lib.CHECKPOINT_FOLDER / "8", saved / "9")
    assert train(config, tmp_path / "whole").scores == whole.scores
    assert "warning: checkpoint 9 belongs to another run" in capfd.readouterr().err


def test_damaged_scores_of_a_finished_run_are_made_again(small_config, tmp_path, capfd):
    config = small_config(train__steps=4)
    train(config, tmp_path)
    path = tmp_path / workdir_lib.EVAL_FILE
    text, before = path.read_text(), rows(tmp_path)
    intact = json.loads(text)
    damaged = {
        "missing": None,
        "cut": text[:-20],
        "changed": json.dumps(intact | {"r2": intact["r2"] + 1e-3}),
        "no object": "[]",
    }
    for damage, content in damaged.items():
        path.unlink() if content is None else path.write_text(content)
        train(config, tmp_path)
        again = json.loads(path.read_text())
        changing = registry.TIMINGS | {"digest"}
        assert {k: v for k, v in again.items() if k not in changing} == {
            k: v for k, v in intact.items() if k not in changing
        }, damage
        assert rows(tmp_path) == before
        assert "it is made again" in capfd.readouterr().err


def test_a_checkpoint_holds_every_row_so_far(small_config, plain_run):
    assert restored(small_config(), plain_run).extra["rows"] == workdir_lib.read_metrics(
        plain_run / "metrics.jsonl"
    )


def test_another_config_is_refused_with_the_difference(small_config, tmp_path):
    train(small_config(train__steps=4), tmp_path)
    with pytest.raises(ConfigError, match=r"another config \(seed: 0 -> 7\)"):
        train(small_config(train__steps=4, seed=7), tmp_path)
    train(small_config(train__steps=4, log__every=4), tmp_path)


def test_divergence_keeps_the_last_good_state(small_config, tmp_path):
    config = small_config(
        optimizer__kind="sgd",
        optimizer__learning_rate=1e30,
        optimizer__schedule="constant",
        optimizer__warmup_steps=0,
        encoder__output="none",
        objective__normalize=False,
    )
    with pytest.raises(DivergedError, match=r"not finite at step \d+; the state of step"):
        train(config, tmp_path)
    state = saved_state(config, tmp_path)
    chex.assert_tree_all_finite(state.params)
    assert 0 < int(state.step) < 12
    with pytest.raises(DivergedError, match=rf"not finite at step {int(state.step) + 1};"):
        train(config, tmp_path)


def test_damaged_checkpoint_falls_back_and_ends_the_same(small_config, plain_run, tmp_path):
    damaged = shutil.copytree(plain_run, tmp_path / "damaged")
    latest = damaged / workdir_lib.CHECKPOINT_FOLDER / "12"
    biggest = max((p for p in latest.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(biggest.read_bytes())
    content[len(content) // 2] ^= 1
    biggest.write_bytes(content)
    train(small_config(), damaged)
    assert_same_run(small_config(), plain_run, damaged)


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [(1, "stopped before the first step"), (4, "stopped at step 12 of 12; the state is saved")],
)
def test_a_stop_during_an_evaluation_is_heeded(
    small_config, plain_run, tmp_path, evaluation, message
):
    config = small_config()

    def make_evaluate_that_is_terminated(*args):
        evaluate, done = make_evaluate(*args), 0

        def run(weights, *, full):
            nonlocal done
            done += 1
            if done == evaluation:
                os.kill(os.getpid(), signal.SIGTERM)
            return evaluate(weights, full=full)

        return run

    stopped = tmp_path / "stopped"
    with pytest.raises(Preempted, match=message):
        train(config, stopped, make_evaluate_that_is_terminated)
    train(config, stopped)
    assert_same_run(config, plain_run, stopped)
