"""Negatives of an anchor's own, against plain sums and against Cor. 3.1."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aninfonce_jax as an
from aninfonce_jax.dgp.conditionals import VonMisesFisher
from aninfonce_jax.dgp.marginals import Uniform
from aninfonce_jax.dgp.spaces import Sphere
from aninfonce_jax.losses.own_negatives import own_negatives_loss

BATCH, OWN, DIM = 6, 3, 4


@pytest.fixture
def points():
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = [(BATCH, DIM), (BATCH, DIM), (BATCH, OWN, DIM)]
    return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]


def naive(view1, view2, own, weights, joined):
    view1, view2, own = (np.asarray(x, np.float64) for x in (view1, view2, own))
    view1, view2, own = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (view1, view2, own))

    def score(a, b):
        return -0.5 * np.sum(weights * (a - b) ** 2)

    losses = []
    for i, anchor in enumerate(view1):
        others = [*own[i], *(x for j, x in enumerate(view1) if j != i and joined)]
        scores = [score(anchor, view2[i]), *(score(anchor, x) for x in others)]
        losses.append(np.log(np.sum(np.exp(scores))) - scores[0])
    return np.mean(losses)


@pytest.mark.parametrize("joined", [False, True])
def test_it_is_the_sum_over_an_anchors_own_negatives(points, joined):
    weights = np.linspace(1, 5, DIM)
    ordinary = None
    if joined:
        ordinary = an.aninfonce_loss(*points[:2], weights, negatives="anchors").per_anchor
    found = own_negatives_loss(*points, weights, ordinary=ordinary)
    np.testing.assert_allclose(found, naive(*points, weights, joined), rtol=1e-5)


def test_shapes_that_do_not_fit_are_said(points):
    with pytest.raises(ValueError, match=r"own \[batch, k, dim\]"):
        own_negatives_loss(points[0], points[1], points[2][:, 0], 1.0)


def test_the_minimum_is_the_difference_of_the_concentrations():
    """Cor. 3.1: d = 20, Λ⁺ = 150, Λ⁻ = 100, the true encoder: within 2 % of 50."""
    sphere, anchors_count, own = Sphere(20), 2**13, 15
    keys = jax.random.split(jax.random.key(0), 3)

    @jax.jit
    def draw():
        anchors = Uniform().sample(keys[0], sphere, anchors_count)
        near = VonMisesFisher(150.0).sample(keys[1], sphere, anchors)
        hard = VonMisesFisher(100.0).sample(keys[2], sphere, jnp.repeat(anchors, own, axis=0))
        return anchors, near, hard.reshape(anchors_count, own, 20)

    anchors, near, hard = draw()
    slope = jax.jit(jax.grad(lambda c: own_negatives_loss(anchors, near, hard, c)))
    low, high = 20.0, 100.0
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    assert abs(low - 50) < 1
