import numpy as np
import pytest

from aninfonce_jax.scores.disentanglement import _preference, infomec, mig, sap


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


GAPS = [lambda z, h, **given: mig(z, h, bins=8, **given), sap]


@pytest.mark.parametrize("score", GAPS)
def test_each_factor_in_a_feature_of_its_own_scores_one(score):
    z = normal(0, 2000, 3)
    h = z[:, [2, 0, 1]] * [1.0, -2.0, 30.0]
    assert score(z, h).value == pytest.approx(1.0, abs=0.02)
    assert score(z, normal(1, 2000, 3)).value < 0.02


@pytest.mark.parametrize("score", GAPS)
def test_order_signs_and_scales_do_not_matter(score):
    z = normal(0, 800, 3)
    h = z @ normal(1, 3, 3)
    expected = score(z, h, draws=20)
    moved = score(z, h[:, [1, 2, 0]] * [-3.0, 0.5, 1.0], draws=20)
    assert moved.value == pytest.approx(expected.value, abs=1e-9)
    assert moved.interval == pytest.approx(expected.interval, abs=1e-9)


def test_sap_by_hand():
    """Of a feature cos·a + sin·b the squared correlations are cos² and sin²."""
    z = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]] * 5, float)
    c, s = np.cos(0.3), np.sin(0.3)
    h = z @ np.array([[c, -s], [s, c]])
    assert sap(z, h, draws=0).per_factor == pytest.approx([c**2 - s**2] * 2)


def test_a_repeated_feature_leaves_no_gap():
    z = normal(0, 2000, 2)
    h = np.concatenate([z, z[:, :1]], axis=1)
    assert mig(z, h, bins=8, draws=0).per_factor == pytest.approx([0.0, 1.0], abs=0.02)
    assert sap(z, h, draws=0).per_factor == pytest.approx([0.0, 1.0], abs=0.02)


def test_the_interval_covers_another_sample():
    z, h = normal(0, 800, 2), None
    h = z + 0.5 * normal(1, 800, 2)
    estimate = sap(z, h)
    other = normal(2, 100_000, 2)
    truth = sap(other, other + 0.5 * normal(3, 100_000, 2), draws=0).value
    assert estimate.interval[0] < truth < estimate.interval[1]
    assert estimate.interval[1] - estimate.interval[0] < 0.1


def test_repeated_concentrations_are_warned_of():
    z = normal(0, 400, 2)
    assert any("repeat" in text for text in mig(z, z, draws=0, concentration=[5, 5]).warnings)
    assert any("samples for 20 × 20 cells" in text for text in mig(z, z, draws=0).warnings)


def test_preference_by_hand():
    """Rows prefer one of two columns by 3:1 and 1:0: shares ¾ and 1, mean 7/8, rescaled ¾."""
    nmi = np.array([[0.3, 0.1], [0.0, 0.9]])
    assert _preference(nmi, nmi > 0) == pytest.approx(0.75)
    # If the first row is no more than chance it prefers nothing.
    assert _preference(nmi, nmi > 0.5) == pytest.approx(0.5)
    assert _preference(np.ones((4, 3)), np.ones((4, 3), bool)) == pytest.approx(0.0)
    assert _preference(np.eye(3), np.eye(3) > 0) == pytest.approx(1.0)


def test_infomec_tells_modular_from_compact():
    z = normal(0, 4000, 2)
    perfect = infomec(z, -z[:, ::-1], bins=8, draws=20)
    assert perfect.modularity.value > 0.97
    assert perfect.compactness.value > 0.97
    assert perfect.explicitness.value == pytest.approx(1.0)
    # Two copies of each factor: each feature tells of one factor, each factor needs none alone.
    copies = infomec(z, np.concatenate([z, z], axis=1), bins=8, draws=0)
    assert copies.modularity.value > 0.97
    assert copies.compactness.value == pytest.approx(1 / 3, abs=0.03)
    # One feature for both factors.
    sum_of_both = infomec(z, z.sum(axis=1, keepdims=True), bins=8, draws=0)
    assert sum_of_both.modularity.value < 0.1


def test_infomec_of_what_is_told_by_chance():
    """Information by chance prefers a column, too: a lost factor is no compact one."""
    z = normal(0, 2000, 3)
    lost = infomec(z, z[:, :2], bins=8, draws=0)
    assert lost.compactness.value == pytest.approx(2 / 3, abs=0.02)
    padded = infomec(z, np.concatenate([z, normal(1, 2000, 3)], axis=1), bins=8, draws=0)
    assert padded.modularity.value == pytest.approx(0.5, abs=0.02)
    nothing = infomec(z, normal(2, 2000, 3), bins=8, draws=0)
    assert (nothing.modularity.value, nothing.compactness.value) == (0.0, 0.0)


def test_few_values_are_not_taken_for_too_few_samples():
    z = normal(0, 200, 2) > 0
    assert mig(z, z, draws=0).warnings == infomec(z, z, draws=0).modularity.warnings == ()


def test_infomec_leaves_dead_features_out():
    z = normal(0, 1000, 2)
    found = infomec(z, np.concatenate([z, 1e-3 * normal(1, 1000, 1)], axis=1), bins=8, draws=0)
    assert found.active.tolist() == [True, True, False]
    assert not found.information[2].any()
    assert any("left out" in text for text in found.modularity.warnings)
