import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aninfonce_jax import rng
from aninfonce_jax.build import build_experiment
from aninfonce_jax.placement import Placement
from aninfonce_jax.sources.process import ProcessSource
from aninfonce_jax.training.step import make_train_step
from aninfonce_jax.types import Weights


def run(config, devices, calls=2):
    placement = Placement.local(devices)
    experiment = build_experiment(config)
    step = make_train_step(experiment, placement)
    state = jax.jit(experiment.init_state, out_shardings=placement.whole)()
    losses = []
    for _ in range(calls):
        state, metrics = step(state, None, config.train.steps_per_dispatch)
        losses.append(metrics["loss"])
    return state, np.concatenate(losses)


# For tests that compare others with it, which change nothing of it.
run_plainly = functools.cache(functools.partial(run, devices=1))


@pytest.mark.parametrize("kind", ["aninfonce", "infonce", "supervised"])
def test_one_and_eight_devices_agree(small_config, kind):
    config = small_config(objective__kind=kind, optimizer__kind="adam")
    (one, loss_one), (eight, loss_eight) = run(config, 1), run(config, 8)
    np.testing.assert_allclose(loss_one, loss_eight, rtol=1e-5)
    chex.assert_trees_all_close(
        jax.device_get(one.params), jax.device_get(eight.params), rtol=1e-3, atol=1e-5
    )


@pytest.mark.parametrize(
    ("change", "devices"),
    [
        ({"train__microbatches": 4}, 1),
        ({"train__microbatches": 2}, 4),
        ({"objective__strategy": "chunked", "objective__chunk_size": 5}, 1),
        ({"objective__strategy": "ring"}, 4),
    ],
    ids=["microbatches", "microbatches on 4 devices", "chunked", "ring on 4 devices"],
)
def test_what_saves_memory_changes_no_result(small_config, change, devices):
    plain, saving = run_plainly(small_config()), run(small_config(**change), devices)
    np.testing.assert_allclose(plain[1], saving[1], rtol=1e-5)
    chex.assert_trees_all_close(
        jax.device_get(plain[0].params), jax.device_get(saving[0].params), rtol=1e-3, atol=1e-5
    )


def test_how_steps_are_dealt_out_to_calls_changes_no_bit(small_config):
    config = small_config(train__steps_per_dispatch=5)
    placement = Placement.local(1)
    experiment = build_experiment(config)
    step = make_train_step(experiment, placement)
    ends, all_losses = [], []
    for counts in ([5, 2], [1, 2, 4], [3, 1, 3]):
        state, losses = jax.jit(experiment.init_state, out_shardings=placement.whole)(), []
        for count in counts:
            state, metrics = step(state, None, count)
            losses.extend(np.asarray(metrics["loss"])[:count])
        ends.append(jax.device_get(state.params))
        all_losses.append(np.array(losses))
    assert step._cache_size() == 1
    for end, losses in zip(ends[1:], all_losses[1:], strict=True):
        chex.assert_trees_all_equal(end, ends[0])
        np.testing.assert_array_equal(losses, all_losses[0])


def test_dispatching_several_steps_changes_nothing(small_config):
    whole, losses = run(small_config(train__steps_per_dispatch=2), 1, calls=2)
    single, single_losses = run(small_config(train__steps_per_dispatch=1), 1, calls=4)
    np.testing.assert_allclose(losses, single_losses, rtol=1e-5)
    chex.assert_trees_all_close(whole.params, single.params, rtol=1e-4, atol=1e-6)
    assert int(whole.step) == int(single.step) == 4


def test_step_is_the_gradient_step_written_out(small_config):
    """One SGD step equals the same arithmetic done by hand on the batch of step 0."""
    rate = 0.1
    config = small_config(
        optimizer__kind="sgd",
        optimizer__learning_rate=rate,
        optimizer__momentum=0.0,
        optimizer__schedule="constant",
        optimizer__warmup_steps=0,
        train__steps_per_dispatch=1,
    )
    experiment = build_experiment(config)
    start = jax.jit(experiment.init_state)()
    pairs = jax.jit(lambda key: experiment.source.pairs(key, None, config.train.batch_size))(
        rng.at_step(start.key, 0)
    )

    def loss(encoder_params):
        params = {**start.params, "encoder": encoder_params}
        return experiment.loss(Weights(params, {}), pairs, jax.random.key(0), Placement.local(1))

    grads = jax.jit(jax.grad(loss))(start.params["encoder"])
    expected = jax.tree.map(lambda p, g: p - rate * g, start.params["encoder"], grads)
    state, _ = run(config, 1, calls=1)
    chex.assert_trees_all_close(state.params["encoder"], expected, rtol=1e-4, atol=1e-6)


def test_state_is_donated_and_step_compiles_once(small_config):
    config = small_config()
    placement = Placement.local(1)
    experiment = build_experiment(config)
    step = make_train_step(experiment, placement)
    first = jax.jit(experiment.init_state, out_shardings=placement.whole)()
    second, _ = step(first, None, 2)
    assert all(x.is_deleted() for x in jax.tree.leaves(first.params))
    step(second, None, 1)
    assert step._cache_size() == 1


def test_a_bad_step_is_not_taken(small_config):
    """From step 2 on the data are NaN: the state of step 2 must stay, untouched."""
    config = small_config(train__steps_per_dispatch=2)
    placement = Placement.local(1)
    experiment = build_experiment(config)

    class Poisoned(ProcessSource):
        def pairs(self, key, fed, batch_size):
            pairs = super().pairs(key, fed, batch_size)
            bad = jnp.all(jax.random.key_data(key) == jax.random.key_data(rng.at_step(root, 2)))
            return jax.tree.map(lambda x: jnp.where(bad, jnp.nan, x), pairs)

    root = rng.stream(config.seed, "data")
    poisoned = dataclasses.replace(experiment, source=Poisoned(experiment.source.process))
    step = make_train_step(poisoned, placement)
    state, metrics = step(jax.jit(experiment.init_state, out_shardings=placement.whole)(), None, 2)
    assert np.isfinite(metrics["loss"]).all()
    before = jax.device_get(state.params)
    state, metrics = step(state, None, 2)
    assert np.isnan(metrics["loss"]).all()
    assert int(state.step) == 2
    chex.assert_trees_all_equal(jax.device_get(state.params), before)


def test_average_follows_the_parameters(small_config):
    state, _ = run(small_config(train__ema_decay=0.5), 1)
    assert state.evaluated is state.average
    chex.assert_trees_all_equal_shapes_and_dtypes(state.average, state.weights)
    distance = max(
        float(jnp.max(jnp.abs(a - b)))
        for a, b in zip(jax.tree.leaves(state.average), jax.tree.leaves(state.weights), strict=True)
    )
    assert 0 < distance < 0.1
    plain, _ = run(small_config(train__ema_decay=0.0), 1)
    assert plain.evaluated.params is plain.params


def test_training_lowers_the_loss(small_config):
    config = small_config(
        train__steps=200,
        train__steps_per_dispatch=50,
        eval__every=50,
        log__every=50,
        checkpoint__every=50,
        optimizer__kind="adam",
        optimizer__learning_rate=3e-3,
        train__batch_size=64,
    )
    _, losses = run(config, 1, calls=4)
    assert losses[-20:].mean() < losses[:20].mean() - 0.2
