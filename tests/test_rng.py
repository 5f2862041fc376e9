import jax
import numpy as np

from aninfonce_jax import rng


def bits(key):
    return tuple(np.asarray(jax.random.key_data(key)).tolist())


def test_streams_and_steps_are_distinct_and_repeatable():
    keys = {
        bits(rng.at_step(rng.stream(seed, name), step))
        for seed in (0, 1)
        for name in ("data", "encoder", "evaluation")
        for step in range(5)
    }
    assert len(keys) == 2 * 3 * 5
    assert bits(rng.stream(3, "data")) == bits(rng.stream(3, "data"))


def test_a_key_does_not_depend_on_earlier_steps():
    root = rng.stream(0, "data")
    traced = jax.jit(lambda step: jax.random.key_data(rng.at_step(root, step)))(4711)
    assert tuple(np.asarray(traced).tolist()) == bits(rng.at_step(root, 4711))
