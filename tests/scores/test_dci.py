import numpy as np
import pytest
from sklearn.linear_model import Lasso

from aninfonce_jax.scores.dci import _disentanglement_and_completeness, dci
from aninfonce_jax.scores.estimates import standardised
from aninfonce_jax.scores.lasso import _descend


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def test_scores_of_importances_by_hand():
    """Feature 0 is shared evenly and weighs a half; feature 1 serves factor 1 alone."""
    d, c = _disentanglement_and_completeness(np.array([[1.0, 1.0], [0.0, 2.0]]))
    assert d == pytest.approx(0.5 * 0 + 0.5 * 1)
    entropy = -(1 / 3 * np.log2(1 / 3) + 2 / 3 * np.log2(2 / 3))
    assert c == pytest.approx((1 + 1 - entropy) / 2)
    assert _disentanglement_and_completeness(np.zeros((2, 2))).tolist() == [0, 0]


@pytest.mark.parametrize("readout", ["lasso", "trees"])
def test_a_permutation_scores_one_and_a_rotation_less(readout):
    z = normal(0, 500, 3)
    perfect = dci(z, z[:, [1, 2, 0]] * [2.0, -1.0, 5.0], readout=readout, draws=20)
    assert perfect.disentanglement.value > 0.97
    assert perfect.completeness.value > 0.97
    assert perfect.informativeness.value > 0.95
    assert perfect.importances.argmax(axis=0).tolist() == [2, 0, 1]
    turned = dci(z, z @ np.linalg.qr(normal(1, 3, 3))[0], readout=readout, draws=20)
    assert turned.disentanglement.value < 0.6
    assert turned.disentanglement.interval[1] < perfect.disentanglement.interval[0]


def test_disentangled_is_not_complete():
    """Each feature serves one factor, but each factor needs two."""
    parts = normal(0, 600, 4)
    z = np.stack([parts[:, 0] + parts[:, 1], parts[:, 2] + parts[:, 3]], axis=1)
    found = dci(z, parts, readout="lasso", draws=0)
    assert found.disentanglement.value > 0.97
    assert found.completeness.value == pytest.approx(0.5, abs=0.03)


def test_trees_see_what_the_lasso_does_not():
    z = np.random.default_rng(0).uniform(-1, 1, (600, 2))
    bent = np.stack([z[:, 0], np.where(z[:, 1] > 0, z[:, 1] - 1, z[:, 1] + 1)], axis=1)
    assert dci(z, bent, readout="trees", draws=0).informativeness.value > 0.95
    assert dci(z, bent, readout="lasso", draws=0).informativeness.value < 0.7


def test_the_lasso_is_the_lasso():
    x, noise = standardised(normal(0, 200, 5)), normal(1, 200, 2)
    y = standardised(x @ normal(2, 5, 2) + noise)
    got = _descend(x.T @ x / 200, x.T @ y / 200, np.array([0.1, 0.1]), np.zeros((5, 2)))
    expected = Lasso(alpha=0.1, tol=1e-8).fit(x, y).coef_.T
    np.testing.assert_allclose(got, expected, atol=1e-4)


def test_refusals_and_warnings():
    z = normal(0, 100, 2)
    with pytest.raises(ValueError, match="readout must be 'lasso' or 'trees'"):
        dci(z, z, readout="forest")
    with pytest.raises(ValueError, match="at least 40 samples"):
        dci(z[:20], z[:20])
    found = dci(z, z, readout="lasso", draws=0, concentration=[3, 3])
    assert found.disentanglement.interval is None
    assert "repeat" in found.completeness.warnings[0]


@pytest.mark.parametrize("readout", ["lasso", "trees"])
def test_factors_that_the_readout_does_not_find_are_named(readout):
    z = normal(0, 400, 2)
    found = dci(z, np.stack([z[:, 0], normal(1, 400)], axis=1), readout=readout, draws=0)
    for score in (found.disentanglement, found.completeness):
        (warning,) = score.warnings
        assert "does not find factors [1]" in warning
    assert dci(z, z, readout=readout, draws=0).disentanglement.warnings == ()
