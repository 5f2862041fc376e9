import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference_densities import quick_jit

from aninfonce_jax.dgp import rejection
from aninfonce_jax.dgp.rejection import sample_by_rejection


def propose_below(key, limit):
    """Uniform proposals, accepted if below the row's limit: uniform on [0, limit)."""
    draws = jax.random.uniform(key, limit.shape)
    return draws, draws < limit


@pytest.mark.parametrize("slots", [100, 20_000])
def test_accepted_samples_follow_each_rows_own_distribution(slots):
    limits = jnp.tile(jnp.array([0.05, 0.3, 1.0]), 4000)
    draws = quick_jit(lambda key: sample_by_rejection(key, propose_below, limits, slots))(
        jax.random.key(0)
    )
    for index, limit in enumerate((0.05, 0.3, 1.0)):
        scaled = np.sort(np.asarray(draws[index::3]) / limit)
        steps = np.arange(1, 4001) / 4000
        # Kolmogorov–Smirnov: larger once in a million.
        assert np.abs(scaled - steps).max() < 2.7 / np.sqrt(4000)


def test_rows_that_never_accept_become_nan_after_a_bounded_time(monkeypatch):
    monkeypatch.setattr(rejection, "_PATIENCE", 0.02)
    draws = sample_by_rejection(jax.random.key(0), propose_below, jnp.array([0.5, 0.0, 0.5]), 8)
    assert np.isnan(draws).tolist() == [False, True, False]


def test_rows_with_nan_parameters_are_not_waited_for():
    # Were they waited for, this would take 50,000 rounds of a slow proposal.
    rounds = []

    def propose(key, limit):
        jax.debug.callback(lambda: rounds.append(1))
        return propose_below(key, limit)

    draws = sample_by_rejection(jax.random.key(0), propose, jnp.array([1.0, jnp.nan, 1.0]), 8)
    jax.effects_barrier()
    assert np.isnan(draws).tolist() == [False, True, False]
    assert len(rounds) == 1


def test_works_under_vmap():
    limits = jnp.full((3, 20), 0.5)
    keys = jax.random.split(jax.random.key(0), 3)
    draws = jax.vmap(lambda key, limit: sample_by_rejection(key, propose_below, limit, 8))(
        keys, limits
    )
    chex.assert_shape(draws, (3, 20))
    for key, limit, row in zip(keys, limits, draws, strict=True):
        chex.assert_trees_all_close(sample_by_rejection(key, propose_below, limit, 8), row)
