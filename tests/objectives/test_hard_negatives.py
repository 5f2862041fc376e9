import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aninfonce_jax.losses.contrast import aninfonce_loss
from aninfonce_jax.losses.own_negatives import own_negatives_loss
from aninfonce_jax.objectives.hard_negatives import HardNegatives
from aninfonce_jax.placement import Placement
from aninfonce_jax.scores.health import find_problems
from aninfonce_jax.sources.source import Latents
from aninfonce_jax.types import Pairs

BATCH, OWN, DIM = 8, 3, 4
VIEW1, VIEW2 = jax.random.normal(jax.random.key(0), (2, BATCH, DIM))
NEGATIVES = jax.random.normal(jax.random.key(1), (BATCH, OWN, DIM))
PAIRS = Pairs(VIEW1, VIEW2, own=NEGATIVES)
MATRIX = jax.random.normal(jax.random.key(2), (DIM, DIM))
LATENTS = Latents(
    lambda key, n: None, np.array([5.0, 4.0, 3.0, 2.0]), own_concentration=np.full(4, 1.5)
)


def evaluate(objective, params, devices=4):
    calls = []

    def encode(observations):
        calls.append(observations.shape)
        return observations @ MATRIX

    placement = Placement.local(devices)
    found = jax.jit(lambda p: objective(p, encode, PAIRS, jax.random.key(3), placement))(params)
    assert calls == [(BATCH * (2 + OWN), DIM)]
    return found


@pytest.mark.parametrize("joined", [True, False])
def test_it_is_the_loss_of_the_anchors_own_negatives(joined):
    objective = HardNegatives(joined=joined, concentration_start=3.0)
    params = objective.init(jax.random.key(0), DIM)
    view1, view2, own = VIEW1 @ MATRIX, VIEW2 @ MATRIX, NEGATIVES @ MATRIX
    weights = jnp.full(DIM, 3.0)
    ordinary = aninfonce_loss(view1, view2, weights, negatives="anchors").per_anchor
    expected = own_negatives_loss(view1, view2, own, weights, ordinary=ordinary if joined else None)
    for devices in (1, 4):
        loss, metrics = evaluate(objective, params, devices)
        np.testing.assert_allclose(loss, expected, rtol=1e-5)
    if joined:
        np.testing.assert_allclose(metrics["ordinary_loss"], jnp.mean(ordinary), rtol=1e-5)
        assert metrics["ordinary_loss"] < loss
    grads = jax.grad(lambda p: evaluate(objective, p)[0])(params)
    chex.assert_tree_all_finite(grads)
    assert (grads["concentration"] != 0).all()


def test_the_best_concentration_is_a_difference_where_they_are_alone():
    np.testing.assert_allclose(HardNegatives(joined=False).target(LATENTS), [3.5, 2.5, 1.5, 0.5])
    assert HardNegatives(joined=True).target(LATENTS) is None
    assert HardNegatives().floor(None) is HardNegatives().chance(8) is None
    embeddings = np.asarray(VIEW1)
    found = find_problems(HardNegatives(), 8, embeddings, loss=2.0, loss_floor=None, r2=0.5)
    assert isinstance(found, list)


def test_pairs_without_negatives_are_refused():
    objective = HardNegatives()
    params = objective.init(jax.random.key(0), DIM)
    pairs = Pairs(VIEW1, VIEW2)
    with pytest.raises(ValueError, match="negatives of each anchor's own"):
        objective(params, lambda x: x, pairs, jax.random.key(0), Placement.local(1))
    with pytest.raises(ValueError, match="no penalty is added"):
        HardNegatives(centring=1.0)
