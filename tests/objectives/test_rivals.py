"""VICReg and LeJEPA against their formulas in float64, on one device and on several."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aninfonce_jax.objectives import SIGReg, VICReg
from aninfonce_jax.placement import Placement
from aninfonce_jax.types import Pairs

BATCH, DIM = 40, 3
KEY = jax.random.key(5)
VIEW1 = np.random.default_rng(0).normal(size=(BATCH, DIM)) * [0.3, 1.0, 2.0]
VIEW2 = VIEW1 + 0.2 * np.random.default_rng(1).normal(size=(BATCH, DIM))


def vicreg(view1, view2, weights):
    """The authors' formula, entry by entry."""
    total = weights[0] * sum((a - b) ** 2 for a, b in zip(view1.flat, view2.flat, strict=True))
    total /= view1.size
    for view in (view1, view2):
        covariance = np.cov(view, rowvar=False)
        for i in range(DIM):
            total += weights[1] * max(0.0, 1 - np.sqrt(covariance[i, i] + 1e-4)) / DIM / 2
            total += weights[2] * sum(covariance[i, j] ** 2 for j in range(DIM) if j != i) / DIM
    return total


def sigreg(view1, view2, weight, directions):
    middle = (view1 + view2) / 2
    prediction = np.mean([(view1 - middle) ** 2, (view2 - middle) ** 2])
    t = np.linspace(-5, 5, 17)
    statistics = []
    for view in (view1, view2):
        for u in directions.T / np.linalg.norm(directions.T, axis=1, keepdims=True):
            empirical = np.mean(np.exp(1j * t[None] * (view @ u)[:, None]), axis=0)
            distance = np.abs(empirical - np.exp(-(t**2) / 2)) ** 2 * np.exp(-(t**2) / 2)
            statistics.append(BATCH * np.trapezoid(distance, t))
    return (1 - weight) * prediction + weight * np.mean(statistics)


def drawn(count):
    return np.asarray(jax.random.normal(KEY, (DIM, count)), np.float64)


CASES = {
    "vicreg": (VICReg(), lambda a, b: vicreg(a, b, (25, 25, 1))),
    "vicreg weighted": (VICReg(1.0, 2.0, 3.0), lambda a, b: vicreg(a, b, (1, 2, 3))),
    "sigreg": (SIGReg(directions=7), lambda a, b: sigreg(a, b, 0.05, drawn(7))),
    "sigreg weighted": (SIGReg(0.5, 2), lambda a, b: sigreg(a, b, 0.5, drawn(2))),
}


def evaluate(objective, placement, views):
    def loss(views):
        views = placement.constrain(views)
        return objective({}, lambda x: x, Pairs(views[:, 0], views[:, 1]), KEY, placement)[0]

    return jax.jit(jax.value_and_grad(loss))(jnp.asarray(views, jnp.float32))


@pytest.mark.parametrize("devices", [1, 2, 5, 8])
@pytest.mark.parametrize("case", list(CASES))
def test_value_and_gradient_are_those_of_the_formula(case, devices):
    objective, formula = CASES[case]
    views = np.stack([VIEW1, VIEW2], axis=1)
    value, gradient = evaluate(objective, Placement.local(devices), views)
    np.testing.assert_allclose(value, formula(VIEW1, VIEW2), rtol=1e-5)
    for index in [(0, 0, 0), (7, 1, 2), (39, 0, 1)]:
        moved = [views.copy(), views.copy()]
        moved[0][index] += 1e-5
        moved[1][index] -= 1e-5
        up, down = (formula(x[:, 0], x[:, 1]) for x in moved)
        np.testing.assert_allclose(gradient[index], (up - down) / 2e-5, rtol=1e-3, atol=1e-5)


def test_collapsed_embeddings_have_finite_gradients():
    for objective, _ in CASES.values():
        value, gradient = evaluate(objective, Placement.local(1), np.zeros((BATCH, 2, DIM)))
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()
