import numpy as np
import pytest
from sphere_pairs import pairs, uniform

from aninfonce_jax.diagnosis.score_matching import (
    fit_concentration,
    missing_products,
    missing_terms,
)

TRUTH = np.array([8.0, 6.0, 4.0])


def test_concentration_is_found_with_its_error():
    fits = [fit_concentration(*pairs(seed, 1000)) for seed in range(30)]
    scores = np.array([(fit.concentration - TRUTH) / fit.errors for fit in fits])
    assert np.abs(scores).max() < 5
    assert np.std(scores) == pytest.approx(1, abs=0.25)
    mean = np.mean([fit.concentration for fit in fits], axis=0)
    np.testing.assert_allclose(mean, TRUTH, rtol=0.05)


def test_the_marginal_plays_no_part():
    u, v = pairs(0, 8000)
    chosen = u[:, 0] > 0
    fit = fit_concentration(u[chosen], v[chosen])
    assert np.all(np.abs(fit.concentration - TRUTH) < 4 * fit.errors)


def test_unrelated_views_have_no_concentration():
    fit = fit_concentration(uniform(0, 4000, 3), uniform(1, 4000, 3))
    assert np.all(np.abs(fit.concentration) < 4 * fit.errors)
    assert np.isfinite(fit.scale).all()


def test_a_missing_term_is_estimated():
    """The density ℓ + Σ b_k v_k, made by keeping draws of ℓ in proportion to exp(Σ b_k v_k)."""
    u, v = pairs(0, 20_000)
    wanted = np.array([0.8, 0.0, -0.5])
    rng = np.random.default_rng(5)
    kept = np.log(rng.uniform(size=len(u))) < v @ wanted - np.abs(wanted).sum()
    fit = fit_concentration(u[kept], v[kept])
    ones = np.ones_like(fit.anchors)
    coefficients, errors = missing_terms(fit, ones, 0 * ones)
    assert np.all(np.abs(coefficients - wanted) < 4 * errors + 0.1 * np.abs(wanted))
    assert abs(coefficients[0]) > 6 * errors[0]


def test_off_diagonal_entries_are_those_of_a_rotation():
    u, v = pairs(0, 20_000, (10.0, 3.0, 5.0))
    angle = 0.2
    turn = np.eye(3)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    wanted = (turn.T @ np.diag([10.0, 3.0, 5.0]) @ turn)[0, 1:]
    coefficients, errors = missing_products(fit_concentration(u @ turn, v @ turn), 0)
    # One step from the diagonal falls short of a large entry by a little.
    np.testing.assert_allclose(coefficients, wanted, atol=4 * errors.max() + 0.2)
    assert abs(coefficients[0]) > 5 * errors[0]
    assert abs(coefficients[1]) < 4 * errors[1]


def test_nothing_is_missing_where_nothing_is():
    scores = []
    for seed in range(30):
        fit = fit_concentration(*pairs(seed, 800))
        ones = np.ones_like(fit.anchors)
        for found in (missing_terms(fit, ones, 0 * ones), missing_products(fit, 0)):
            scores.append(found[0] / found[1])
    assert np.std(np.concatenate(scores)) == pytest.approx(1, abs=0.2)
