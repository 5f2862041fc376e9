import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor

from aninfonce_jax.scores import trees


def data(seed, rows=600):
    x = np.random.default_rng(seed).uniform(-1, 1, (rows, 3))
    return x, np.abs(x[:, 0]) + np.where(x[:, 1] > 0, 0.5, 0.0) * x[:, 0]


def test_a_step_is_found_where_it_is():
    """One split explains everything, and 0.9^n of the step is left after n trees."""
    x = np.linspace(0, 1, 400)[np.random.default_rng(0).permutation(400)][:, None]
    y = np.where(x[:, 0] > 0.25, 3.0, -1.0)
    fitted = trees.fit_trees(x, y)
    edge = fitted.edges[0][fitted.trees[0].last_left[0]]
    assert edge == pytest.approx(0.25, abs=0.04)
    one = trees.BoostedTrees(fitted.edges, fitted.mean, fitted.trees[:1])
    away = np.abs(x[:, 0] - 0.25) > 0.05
    np.testing.assert_allclose(
        (y - one(x))[away], 0.9 * (y - fitted.mean)[away], rtol=0.05, atol=0.05
    )
    assert np.abs(fitted(x) - y)[away].max() < 0.05


def test_as_good_as_a_known_implementation():
    x, y = data(0)
    other_x, other_y = data(1)
    reference = GradientBoostingRegressor(max_depth=4, random_state=0).fit(x, y)
    expected = 1 - np.mean((reference.predict(other_x) - other_y) ** 2) / other_y.var()
    got = 1 - np.mean((trees.fit_trees(x, y)(other_x) - other_y) ** 2) / other_y.var()
    assert got > expected - 0.02
    assert got > 0.95


def test_noise_gets_no_trees_to_speak_of():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(400, 3)), rng.normal(size=400)
    assert np.var(trees.fit_trees(x, y)(x)) < 0.15


def test_constant_features_and_targets():
    x = np.ones((50, 2))
    assert np.all(trees.fit_trees(x, np.full(50, 2.0))(x) == 2.0)
