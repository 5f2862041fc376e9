import numpy as np
import pytest

from aninfonce_jax.scores.spectra import alpha_req, lidar, rankme


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def with_spectrum(values, rows=400):
    """Rows whose covariance has exactly these eigenvalues."""
    x = normal(0, rows, len(values))
    left = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[0]
    turn = np.linalg.qr(normal(1, len(values), len(values)))[0]
    return left * np.sqrt(rows * np.asarray(values)) @ turn


def test_rankme_by_hand():
    """Singular values in the ratio 3 : 1 have shares ¾ and ¼."""
    expected = np.exp(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)))
    estimate = rankme(with_spectrum([9.0, 1.0]))
    assert estimate.value == pytest.approx(expected)
    assert estimate.interval[0] < expected < estimate.interval[1]


def test_rankme_of_extremes():
    assert rankme(with_spectrum([1.0] * 5)).value == pytest.approx(5)
    offset = rankme(1e4 + normal(0, 300, 5))
    assert offset.value < 1.1
    assert "offset for a collapse" in offset.warnings[0]
    assert "20 samples for 30 directions" in rankme(normal(0, 20, 30)).warnings[0]
    with pytest.raises(ValueError, match="at least 2 samples"):
        rankme(np.ones((1, 3)))
    with pytest.raises(ValueError, match="must not all be zero"):
        rankme(np.zeros((10, 2)))


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.5])
def test_alpha_of_a_power_law(alpha):
    estimate = alpha_req(with_spectrum(np.arange(1, 21) ** -alpha))
    assert estimate.value == pytest.approx(alpha, abs=1e-9)
    assert estimate.interval[0] < alpha < estimate.interval[1]
    assert estimate.warnings == ()


def test_alpha_where_there_is_no_power_law():
    values = np.concatenate([np.ones(10), 1e-3 * np.ones(10)])
    assert any("no power law" in text for text in alpha_req(with_spectrum(values)).warnings)
    with pytest.raises(ValueError, match="at least 3 eigenvalues"):
        alpha_req(with_spectrum([1.0, 1.0]))


def test_the_error_of_alpha_is_its_scatter():
    spectrum = np.sqrt(np.arange(1, 11) ** -1.0)
    estimates = [alpha_req(normal(seed, 500, 10) * spectrum) for seed in range(40)]
    widths = [e.interval[1] - e.interval[0] for e in estimates]
    scatter = np.std([e.value for e in estimates], ddof=1)
    assert np.mean(widths) / (2 * 1.96) == pytest.approx(scatter, rel=0.3)


def test_spectra_do_not_see_rotations_or_scales():
    x = with_spectrum([4.0, 2.0, 1.0, 0.5])
    turned = 3 * x @ np.linalg.qr(normal(2, 4, 4))[0]
    assert rankme(turned).value == pytest.approx(rankme(x).value)
    assert alpha_req(turned).value == pytest.approx(alpha_req(x).value)
    views = x[:, None] + 0.1 * normal(3, 400, 3, 4)
    other = -2 * views @ np.linalg.qr(normal(2, 4, 4))[0]
    assert lidar(other).value == pytest.approx(lidar(views).value)


def test_lidar_counts_what_tells_objects_apart():
    objects = np.zeros((500, 1, 6))
    objects[:, 0, :3] = with_spectrum([1.0] * 3, 500)
    views = objects + 0.05 * normal(1, 500, 4, 6)
    # The rest of the six varies between views alone; all six by RankMe once noise is as large.
    assert lidar(views).value == pytest.approx(3.0, abs=0.15)
    low, high = lidar(views).interval
    assert low < lidar(views).value < high


def test_lidar_of_known_ratios():
    """Between over within: 16 and 4 in two directions, so shares 0.8 and 0.2."""
    means = with_spectrum([16.0, 4.0], 20_000)
    views = means[:, None] + normal(2, 20_000, 2, 2)
    # The means of two views carry half of the noise as well.
    shares = np.array([16.5, 4.5]) / 21
    expected = np.exp(-np.sum(shares * np.log(shares)))
    assert lidar(views).value == pytest.approx(expected, rel=0.02)


def test_lidar_refusals():
    with pytest.raises(ValueError, match=r"np\.stack"):
        lidar(normal(0, 10, 3))
    with pytest.raises(ValueError, match="collapsed"):
        lidar(np.ones((10, 2, 3)))
