"""Tri-factor contrastive learning against plain sums."""

import jax
import numpy as np
import pytest

from aninfonce_jax.losses.tricl import decorrelation_penalty, spectral_tri_loss
from aninfonce_jax.objectives.tricl import TriCL
from aninfonce_jax.placement import Placement
from aninfonce_jax.sources.source import Latents
from aninfonce_jax.types import Pairs

BATCH, DIM = 8, 3
VIEW1, VIEW2 = jax.random.normal(jax.random.key(0), (2, BATCH, DIM))
IMPORTANCE = np.array([3.0, 1.0, 0.5], np.float32)


def scores(a, b, importance):
    return np.einsum("id,d,jd->ij", *(np.asarray(x, np.float64) for x in (a, importance, b)))


def spectral(view1, view2, importance):
    positive = np.diag(scores(view1, view2, importance))
    others = scores(view1, view1, importance)
    others = [others[i, j] ** 2 for i in range(BATCH) for j in range(BATCH) if i != j]
    return -2 * positive.mean() + np.mean(others)


def softmax(view1, view2, importance):
    positive = np.diag(scores(view1, view2, importance))
    others = scores(view1, view1, importance)
    losses = [
        np.log(sum(np.exp(others[i, j]) for j in range(BATCH) if j != i) + np.exp(positive[i]))
        - positive[i]
        for i in range(BATCH)
    ]
    return np.mean(losses)


def penalty(*views):
    points = np.concatenate([np.asarray(view, np.float64) for view in views])
    moment = sum(np.outer(z, z) for z in points) / len(points)
    return np.sum((moment - np.eye(DIM)) ** 2)


def test_the_spectral_form_is_a_sum_over_pairs():
    expected = spectral(VIEW1, VIEW2, IMPORTANCE)
    np.testing.assert_allclose(spectral_tri_loss(VIEW1, VIEW2, IMPORTANCE), expected, rtol=1e-5)


def test_features_with_unit_second_moment_have_no_penalty():
    np.testing.assert_allclose(decorrelation_penalty(VIEW1), penalty(VIEW1), rtol=1e-5)
    corners = np.sqrt(3) * np.concatenate([np.eye(3), -np.eye(3)]).astype(np.float32)
    np.testing.assert_allclose(decorrelation_penalty(corners), 0, atol=1e-10)


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("form", ["infonce", "spectral"])
@pytest.mark.parametrize("normalize", [False, True])
def test_the_objective_adds_contrast_and_penalty(form, normalize, devices):
    objective = TriCL(form=form, normalize=normalize, decorrelation=0.5, importance_start=0.7)
    params = objective.init(jax.random.key(0), DIM)
    pairs, placement = Pairs(VIEW1, VIEW2), Placement.local(devices)
    rest = (lambda x: x), pairs, jax.random.key(1), placement
    loss, metrics = jax.jit(lambda p: objective(p, *rest))(params)
    views = [np.asarray(view, np.float64) for view in (VIEW1, VIEW2)]
    if normalize:
        views = [v / np.linalg.norm(v, axis=1, keepdims=True) * np.sqrt(DIM) for v in views]
    naive = {"infonce": softmax, "spectral": spectral}[form]
    expected = naive(*views, np.full(DIM, 0.7))
    np.testing.assert_allclose(metrics["contrast"], expected, rtol=1e-5)
    np.testing.assert_allclose(loss, expected + 0.5 * penalty(*views), rtol=1e-5)
    np.testing.assert_allclose(objective.concentration(params, DIM), [0.7] * DIM, rtol=1e-6)
    assert objective.target(Latents(lambda key, n: None, np.ones(DIM))) is None
