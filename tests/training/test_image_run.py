"""A run on images, through the loop that every run goes through."""

import functools
import json
import os
import signal

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aninfonce_jax.build import build_experiment
from aninfonce_jax.placement import Placement
from aninfonce_jax.stop import Preempted, StopSignal
from aninfonce_jax.training import loop
from aninfonce_jax.training.feed import Feed
from aninfonce_jax.training.step import make_train_step
from aninfonce_jax.workdir import EVAL_FILE, read_metrics


def make_evaluate(experiment, placement):
    """Scores that cost nothing; the real ones are tested with the evaluation."""
    del experiment, placement

    def evaluate(weights, *, full):
        state = jax.tree.leaves(weights.model_state)
        scores = {"knn_accuracy": float(sum(np.sum(x) for x in state))}
        return scores | ({"readouts": {"backbone": {"grey": 0.5}}} if full else {})

    return evaluate


def train(config, workdir):
    with StopSignal() as stop:
        return loop.train(
            build_experiment(config),
            workdir,
            make_evaluate,
            placement=Placement.local(1),
            stop=stop,
            progress="off",
        )


def steps(config, devices, count=2):
    placement = Placement.local(devices)
    experiment = build_experiment(config)
    step = make_train_step(experiment, placement)
    state = jax.jit(experiment.init_state, out_shardings=placement.whole)()
    losses = []
    with Feed(
        experiment.source,
        experiment.batch_size,
        seed=experiment.seed,
        step=0,
        placement=placement,
    ) as feed:
        for _ in range(count):
            state, metrics = step(state, next(feed), 1)
            losses.append(metrics["loss"])
    return jax.device_get(state), np.concatenate(losses)


# For tests that compare others with it.
steps_on_one_device = functools.cache(functools.partial(steps, devices=1))

# Differences stay small that Adam's first steps would enlarge.
SGD = {"optimizer__kind": "sgd", "optimizer__learning_rate": 0.1}
# Two of them have heads, and ask which image a view shows, or what was done to it.
OBJECTIVES = {
    "aninfonce": {},
    "diet": {"objective__kind": "diet", "objective__examples": 60},
    "augself": {"objective__kind": "augself", "objective__width": 8},
}
slow = pytest.mark.slow


@pytest.mark.parametrize("objective", ["aninfonce", pytest.param("diet", marks=slow), "augself"])
@pytest.mark.parametrize("devices", [4, pytest.param(8, marks=slow)])
def test_one_and_several_devices_take_the_same_steps(image_config, objective, devices):
    config = image_config(**SGD, **OBJECTIVES[objective])
    (one, loss_one), (many, loss_many) = steps_on_one_device(config), steps(config, devices)
    np.testing.assert_allclose(loss_one, loss_many, rtol=1e-4)
    chex.assert_trees_all_close(one.params, many.params, rtol=1e-2, atol=1e-4)
    # BatchNorm's statistics are those of the global batch.
    chex.assert_trees_all_close(one.model_state, many.model_state, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("objective", ["diet", "augself"])
def test_both_the_head_and_the_encoder_are_trained(image_config, objective):
    config = image_config(**SGD, **OBJECTIVES[objective])
    before = jax.device_get(jax.jit(build_experiment(config).init_state)().params)
    after = steps_on_one_device(config)[0].params
    # In a ResNet some kernels are behind a scale that starts at zero.
    for name, least in (("objective", 1.0), ("encoder", 0.5)):
        moved = jax.tree.map(lambda a, b: np.any(a != b), before[name], after[name])
        assert np.mean(jax.tree.leaves(moved)) >= least


def test_micro_batches_hand_over_the_layers_that_heads_are_shown(image_config):
    config = image_config(**SGD, **OBJECTIVES["augself"], train__microbatches=2)
    state, losses = steps(config, 1)
    assert np.isfinite(losses).all()
    assert state.params["objective"]["head"]["params"]["crop_hidden1"]["kernel"].shape[1] == 8


def test_microbatches_average_the_running_statistics(image_config):
    whole, _ = steps(image_config(**SGD), 1, count=1)
    parts, losses = steps(image_config(**SGD, train__microbatches=2), 1, count=1)
    assert np.isfinite(losses).all()
    chex.assert_trees_all_equal_shapes_and_dtypes(whole.model_state, parts.model_state)
    # Means over two halves of a batch average to its mean, in the first layer.
    mean = "batch_stats", "backbone", "stem_norm", "mean"
    first, second = whole.model_state, parts.model_state
    for name in mean:
        first, second = first[name], second[name]
    np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-6)


# The one of them that has most to save.
@pytest.mark.parametrize(
    "objective", [*(pytest.param(name, marks=slow) for name in ("aninfonce", "diet")), "augself"]
)
def test_a_stopped_run_goes_on_as_if_nothing_had_happened(
    image_config, tmp_path, monkeypatch, objective
):
    config = image_config(**OBJECTIVES[objective])
    whole = train(config, tmp_path / "whole")

    def make_step_that_is_terminated(*args):
        step = make_train_step(*args)

        def run(state, batch, count):
            if int(state.step) == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            return step(state, batch, count)

        return run

    with monkeypatch.context() as patch:
        patch.setattr(loop, "make_train_step", make_step_that_is_terminated)
        with pytest.raises(Preempted, match="stopped at step 3 of 4"):
            train(config, tmp_path / "stopped")
    resumed = train(config, tmp_path / "stopped")
    chex.assert_trees_all_equal(
        jax.device_get(whole.state.weights), jax.device_get(resumed.state.weights)
    )
    assert whole.scores == resumed.scores
    rows = read_metrics(tmp_path / "stopped" / "metrics.jsonl")
    last = [row for row in rows if row["split"] == "train"][-1]
    assert last["examples_per_second"] > 0
    assert 0 <= last["data_wait_share"] <= 1
    assert last["unreadable_examples"] == 0
    # The scores of the untrained network outlive the session that took them.
    final = json.loads((tmp_path / "stopped" / EVAL_FILE).read_text())
    assert final["untrained"]["readouts"] == {"backbone": {"grey": 0.5}}


@pytest.fixture
def first_update(image_config):
    """Returns the first update of made-up parameters, by path, for a constant gradient."""
    shapes = jax.eval_shape(build_experiment(image_config()).init_state).params
    # Something to decay, also where a parameter starts at zero.
    params = jax.tree.map(lambda x: np.full(x.shape, 0.5, x.dtype), shapes)

    def update(name, gradient):
        config = image_config(
            optimizer__kind=name,
            optimizer__weight_decay=0.1,
            optimizer__learning_rate=0.5,
            optimizer__concentration_learning_rate=0.01,
            optimizer__warmup_steps=0,
            optimizer__schedule="constant",
        )
        optimizer = build_experiment(config).optimizer

        def run(params):
            grads = jax.tree.map(lambda x: jnp.full_like(x, gradient), params)
            return optimizer.update(grads, optimizer.init(params), params)[0]

        leaves = jax.tree_util.tree_leaves_with_path(jax.jit(run)(params))
        return {tuple(entry.key for entry in path): np.asarray(leaf) for path, leaf in leaves}

    return update


@pytest.mark.parametrize("name", ["lars", "sgd", "adamw"])
def test_only_kernels_decay(first_update, name):
    for path, update in first_update(name, gradient=0.0).items():
        assert np.any(update != 0) == (path[-1] == "kernel"), path


def test_lars_scales_only_kernels_and_concentrations_have_their_own_rate(first_update):
    for path, update in first_update("lars", gradient=0.01).items():
        if path[0] == "objective":
            np.testing.assert_allclose(update, -0.01, rtol=1e-3, err_msg=str(path))
        elif path[-1] == "kernel":
            assert np.all(np.abs(update) < 0.5 * 0.01), path
        else:
            np.testing.assert_allclose(update, -0.5 * 0.01, rtol=1e-6, err_msg=str(path))
