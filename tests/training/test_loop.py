import json
import os
import signal

import chex
import jax
import numpy as np
import pytest

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.config_schema import ConfigError
from aninfonce_jax.evaluation.runner import make_evaluate
from aninfonce_jax.mesh import make_mesh, replicated
from aninfonce_jax.stop import Preempted, StopSignal
from aninfonce_jax.training import loop
from aninfonce_jax.training.checkpoint import Checkpoints
from aninfonce_jax.training.step import make_train_step

# Fields of a row that measure the machine, not the run.
TIMINGS = {"steps_per_second"}


def train(config, workdir):
    with StopSignal() as stop:
        return loop.train(
            config, workdir, make_evaluate, stop=stop, progress_mode="off", command="repeat me"
        )


def saved_state(config, workdir):
    experiment = loop.build_experiment(config)
    with Checkpoints(workdir / workdir_lib.CHECKPOINT_FOLDER, keep=3) as checkpoints:
        target = loop.abstract_state(experiment, replicated(make_mesh(8)))
        return jax.device_get(checkpoints.restore_latest(target).state)


def rows(workdir):
    return [
        {name: value for name, value in row.items() if name not in TIMINGS}
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


def test_a_run_leaves_everything_behind(small_config, tmp_path):
    config = small_config(dgp__space="box", dgp__marginal="uniform")
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


@pytest.mark.parametrize("calls", [1, 2, 5])
def test_a_terminated_run_equals_the_uninterrupted(small_config, tmp_path, monkeypatch, calls):
    # A row of metrics spans two calls, so some of the stops fall into its middle.
    config = small_config(optimizer__ema_decay=0.9, log__every=4)
    train(config, tmp_path / "whole")

    def make_step_that_is_terminated(*args):
        step, done = make_train_step(*args), 0

        def run(state, batch):
            nonlocal done
            done += 1
            if done == calls:
                os.kill(os.getpid(), signal.SIGTERM)
            return step(state, batch)

        return run

    with monkeypatch.context() as patch:
        patch.setattr(loop, "make_train_step", make_step_that_is_terminated)
        with pytest.raises(Preempted, match=rf"stopped at step {2 * calls} of 12"):
            train(config, tmp_path / "stopped")
    train(config, tmp_path / "stopped")
    assert_same_run(config, tmp_path / "whole", tmp_path / "stopped")


def test_another_config_is_refused_with_the_difference(small_config, tmp_path):
    train(small_config(train__steps=4), tmp_path)
    with pytest.raises(ConfigError, match=r"another config \(seed: 0 -> 7\)"):
        train(small_config(train__steps=4, seed=7), tmp_path)
    train(small_config(train__steps=4, log__every=4), tmp_path)


def test_a_process_that_never_accepts_is_refused_before_anything_is_written(small_config, tmp_path):
    config = small_config(
        dgp__space="sphere",
        dgp__marginal="uniform",
        dgp__conditional="anisotropic",
        dgp__sampler="paper",
        dgp__shell=1e-3,
        dgp__concentration__layout="constant",
        dgp__concentration__low=1e-6,
        dgp__concentration__high=1e-6,
    )
    with pytest.raises(ConfigError, match=r"Λ from 1e-06 to 1e-06 with shell = 0.001 on a sphere"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_divergence_keeps_the_last_good_state(small_config, tmp_path):
    config = small_config(
        optimizer__name="sgd",
        optimizer__learning_rate=1e30,
        optimizer__schedule="constant",
        optimizer__warmup_steps=0,
        encoder__output="none",
        objective__normalize=False,
    )
    with pytest.raises(loop.DivergedError, match=r"not finite at step \d+; the state of step"):
        train(config, tmp_path)
    state = saved_state(config, tmp_path)
    chex.assert_tree_all_finite(state.params)
    assert 0 < int(state.step) < 12


def test_damaged_checkpoint_falls_back_and_ends_the_same(small_config, tmp_path):
    config = small_config()
    train(config, tmp_path / "whole")
    train(config, tmp_path / "damaged")
    latest = tmp_path / "damaged" / workdir_lib.CHECKPOINT_FOLDER / "12"
    biggest = max((p for p in latest.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(biggest.read_bytes())
    content[len(content) // 2] ^= 1
    biggest.write_bytes(content)
    train(config, tmp_path / "damaged")
    assert_same_run(config, tmp_path / "whole", tmp_path / "damaged")


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [(1, "stopped before the first step"), (4, "stopped at step 12 of 12; the state is saved")],
)
def test_a_stop_during_an_evaluation_is_heeded(small_config, tmp_path, evaluation, message):
    config = small_config()
    train(config, tmp_path / "whole")

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
    with StopSignal() as stop, pytest.raises(Preempted, match=message):
        loop.train(
            config, stopped, make_evaluate_that_is_terminated, stop=stop, progress_mode="off"
        )
    train(config, stopped)
    assert_same_run(config, tmp_path / "whole", stopped)
