import numpy as np
import pytest

from aninfonce_jax.scores.mutual_information import Binned, bin_warnings, mutual_information


def information(x, y, bins=10, weights=None):
    weights = np.ones(len(x)) if weights is None else weights
    return mutual_information(Binned(x, bins), Binned(y, bins), weights)


def test_a_table_that_can_be_counted_by_hand():
    """Of 400 rows 300 agree: I = log 2 + ¾ log ¾ + ¼ log ¼, and a half for the cells over 400."""
    x = np.repeat([0.0, 1.0], 200)[:, None]
    y = np.concatenate([np.zeros(150), np.ones(50), np.ones(150), np.zeros(50)])[:, None]
    plain = np.log(2) + 0.75 * np.log(0.75) + 0.25 * np.log(0.25)
    assert information(x, y)[0, 0] == pytest.approx(plain + (1 + 1 - 3) / 800)


def test_equal_columns_have_their_entropy():
    x = np.random.default_rng(0).normal(size=(500, 2))
    assert np.diag(information(x, x)) == pytest.approx(Binned(x, 10).entropies(np.ones(500)))
    assert np.diag(information(x, x)) == pytest.approx(np.log(10) + 9 / 1000, abs=1e-3)


def test_independent_columns_have_none_on_average():
    rng = np.random.default_rng(0)
    found = information(rng.normal(size=(1000, 12)), rng.normal(size=(1000, 12)))
    # Without the correction it would be 81 / 2000 = 0.04.
    assert found.mean() < 0.01


def test_increasing_maps_and_signs_do_not_matter():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 2))
    y = x + rng.normal(size=(500, 2))
    expected = information(x, y)
    np.testing.assert_allclose(information(np.exp(x), -3 * y), expected, atol=1e-12)


def test_weights_are_repetitions():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 4, (60, 2)).astype(float), rng.integers(0, 3, (60, 1)).astype(float)
    weights = rng.integers(0, 4, 60).astype(float)
    rows = np.repeat(np.arange(60), weights.astype(int))
    np.testing.assert_allclose(information(x, y, weights=weights), information(x[rows], y[rows]))


def test_few_samples_are_said():
    assert bin_warnings(2000, 20, 20) == []
    assert "pass 2000 samples" in bin_warnings(1999, 20, 20)[0]


def test_columns_of_few_values_need_few_samples():
    values = np.random.default_rng(0).integers(0, 2, (100, 3))
    assert Binned(values, 20).most_bins == 2
