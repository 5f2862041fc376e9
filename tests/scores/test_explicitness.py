import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

from aninfonce_jax.scores import explicitness as module
from aninfonce_jax.scores.explicitness import explicitness


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("readout", module.READOUTS)
def test_what_is_there_is_found_and_what_is_not_is_not(readout):
    z = normal(0, 600, 2)
    found = explicitness(z, np.stack([z[:, 0], normal(1, 600)], axis=1), readout=readout)
    assert found.per_factor[0] > 0.95
    assert abs(found.per_factor[1]) < 0.1
    assert found.value == pytest.approx(found.per_factor.mean())
    assert found.interval[0] <= found.value <= found.interval[1]


def test_a_bent_factor_is_seen_by_the_nonlinear_readouts_alone():
    z = np.random.default_rng(0).uniform(-1, 1, (800, 1))
    h = np.concatenate([np.sin(3 * z), np.cos(3 * z)], axis=1)
    scores = {readout: explicitness(z, h, readout=readout).value for readout in module.READOUTS}
    # By hand: the squared correlation of z and sin 3z is 0.686.
    assert scores["linear"] == pytest.approx(0.686, abs=0.05)
    assert scores["kernel"] > 0.95
    assert scores["trees"] > 0.95


def test_a_folded_factor_is_lost_to_all():
    z = normal(0, 300, 1)
    for readout in module.READOUTS:
        assert explicitness(z, np.abs(z), readout=readout).value < 0.1


@pytest.mark.parametrize("readout", module.READOUTS)
def test_order_sign_and_scale_do_not_matter(readout):
    z = normal(0, 300, 2)
    h = z @ normal(1, 2, 3) + 0.3 * normal(2, 300, 3)
    expected = explicitness(z, h, readout=readout).value
    moved = h[:, ::-1] * [2.0, -0.5, 1.0] + 3.0
    assert explicitness(z, moved, readout=readout).value == pytest.approx(expected, abs=0.02)


def test_the_kernel_readout_is_kernel_ridge_regression(monkeypatch):
    """With every row a landmark, one bandwidth and one penalty."""
    x, y, other = normal(0, 60, 2), normal(1, 60, 1), normal(2, 30, 2)
    monkeypatch.setattr(module, "PENALTIES", (1e-2,))
    monkeypatch.setattr(module, "BANDWIDTHS", (1.0,))
    scale = 2 * np.median([np.sum((a - b) ** 2) for a in x for b in x if (a != b).any()])
    got = module._kernel_ridge(x, y, other, seed=0)
    inputs = np.concatenate([x, other])
    k = np.exp(-((inputs[:, None] - inputs[None]) ** 2).sum(-1) / scale)
    # Features are centred at the mean of the fitted rows.
    centre = np.eye(90) - np.concatenate([np.ones((90, 60)) / 60, np.zeros((90, 30))], axis=1)
    k = centre @ k @ centre.T
    reference = KernelRidge(alpha=60 * 1e-2, kernel="precomputed").fit(k[:60, :60], y - y.mean())
    # Directions of less than 1e-10 of the kernel's largest are left out.
    np.testing.assert_allclose(got, reference.predict(k[60:, :60]) + y.mean(), atol=1e-5)


def test_chunks_change_nothing(monkeypatch):
    z = normal(0, 200, 2)
    expected = explicitness(z, z**3).value
    monkeypatch.setattr(module, "CHUNK", 7)
    assert explicitness(z, z**3).value == pytest.approx(expected, abs=1e-9)


def test_few_samples_are_said_or_refused():
    z = normal(0, 50, 2)
    assert "25 samples to fit 9 features" in explicitness(z, normal(1, 50, 9)).warnings[-1]
    with pytest.raises(ValueError, match="at least 40 samples, got 20"):
        explicitness(z[:20], z[:20])
    with pytest.raises(ValueError, match="readout must be one of linear, kernel, trees"):
        explicitness(z, z, readout="forest")
