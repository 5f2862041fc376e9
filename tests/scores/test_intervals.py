"""Intervals must hold what they promise: 95 of 100 cover the truth."""

import math

import numpy as np
import pytest

from aninfonce_jax.scores import identifiability, intervals, monitors

REPEATS = 400
# Two thousandths of all seeds give a coverage outside; the seed here is fixed.
NEAR_95 = (0.91, 0.985)


def coverage(truth, draw, repeats=REPEATS):
    """The share of intervals that hold the truth, of which each draws data of its own."""
    rng = np.random.default_rng(0)
    found = [draw(rng) for _ in range(repeats)]
    return np.mean([low <= truth <= high for low, high in found])


def assert_near_95(share):
    assert NEAR_95[0] <= share <= NEAR_95[1]


@pytest.mark.parametrize("accuracy", [0.1, 0.5, 0.96])
def test_an_accuracy_is_covered(accuracy):
    assert_near_95(
        coverage(accuracy, lambda rng: intervals.wilson(rng.binomial(200, accuracy) / 200, 200))
    )


@pytest.mark.parametrize("shares", [(0.1, 0.3, 0.6), (0.3, 0.4, 0.3), (0.05, 0.9, 0.05)])
def test_an_accuracy_over_pairs_is_covered_where_a_binomial_interval_is_not(shares):
    truth = shares[1] / 2 + shares[2]

    def draw(rng):
        return intervals.clustered_accuracy(rng.choice([0.0, 0.5, 1.0], p=shares, size=200))

    assert_near_95(coverage(truth, draw))
    assert coverage(0.75, lambda rng: naive(rng.choice([0.0, 1.0], p=[0.25, 0.75], size=200))) < 0.9


def naive(correct):
    """The interval that takes both views of an image for independent examples."""
    return intervals.wilson(correct.mean(), 2 * len(correct))


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_images_that_fared_alike_do_not_make_certainty(share):
    low, high = intervals.clustered_accuracy(np.full(200, share))
    assert 0 <= low <= share <= high <= 1
    assert 0.005 < high - low < 0.03


def test_a_mean_over_unequal_classes_is_worth_fewer_examples():
    assert intervals.effective_examples(np.repeat([0, 1, 2], 50)) == pytest.approx(150)
    assert intervals.effective_examples(np.repeat([0, 2], [190, 10])) == pytest.approx(38)


@pytest.mark.parametrize("noise", [0.02, 0.5, 1.0])
def test_r2_is_covered(noise):
    def draw(rng):
        z = rng.normal(size=(200, 2))
        return intervals.r2_intervals(z, z + noise * rng.normal(size=z.shape), [[1, 1]])[0]

    assert_near_95(coverage(1 - noise**2, draw))


@pytest.mark.parametrize("method", ["pearson", "spearman"])
@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_mcc_is_covered(method, noise):
    pearson = 1 / math.sqrt(1 + noise**2)
    truth = {"pearson": pearson, "spearman": 6 / math.pi * math.asin(pearson / 2)}[method]

    def draw(rng):
        z = rng.normal(size=(400, 2))
        h = noise * rng.normal(size=z.shape) - z
        score, interval = identifiability.mcc_with_interval(z, h[:, ::-1], method)
        assert interval[0] <= score <= interval[1]
        return interval

    assert_near_95(coverage(truth, draw))


@pytest.mark.parametrize("method", ["pearson", "spearman"])
@pytest.mark.parametrize("scale", [1e300, 1e-300])
def test_the_interval_of_mcc_does_not_depend_on_the_scale(method, scale):
    z, noise = np.random.default_rng(0).normal(size=(2, 100, 3))
    expected = identifiability.mcc_with_interval(z, z + noise, method)
    for latents, features in ((z, scale * (z + noise)), (scale * z, z + noise)):
        score, interval = identifiability.mcc_with_interval(latents, features, method)
        assert score == pytest.approx(expected[0], rel=1e-9)
        assert interval == pytest.approx(expected[1], rel=1e-9)


@pytest.mark.parametrize("samples", [200, 9])
def test_the_effective_rank_of_so_many_samples_is_covered(samples):
    mixing = np.random.default_rng(1).normal(size=(10, 10)) * np.geomspace(1, 0.05, 10)

    def scores(rng):
        return monitors.collapse_scores(rng.normal(size=(samples, 10)) @ mixing)

    rng = np.random.default_rng(2)
    mean = np.mean([scores(rng)["effective_rank"] for _ in range(2000)])
    share = coverage(mean, lambda rng: scores(rng)["effective_rank_interval"])
    assert_near_95(share)


def test_collapsed_features_have_no_interval():
    assert monitors.collapse_scores(np.ones((20, 3)))["effective_rank_interval"] is None


def test_a_loss_over_batches_is_covered():
    assert_near_95(coverage(0.0, lambda rng: intervals.mean_interval(rng.normal(size=8))))
    assert intervals.mean_interval([1.0]) is None
    assert intervals.mean_interval([1.0, math.nan]) is None


def test_the_jackknife_agrees_with_a_bootstrap():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(500, 3))
    h = z + [0.3, 0.8, 1.5] * rng.standard_t(8, size=z.shape)
    rows = [rng.integers(0, 500, size=500) for _ in range(2000)]
    scores = {
        "r2": (
            [(1 - np.sum((z[r] - h[r]) ** 2, 0) / np.sum((z[r] - z[r].mean(0)) ** 2, 0)).mean()
             for r in rows],
            intervals.r2_intervals(z, h, [[1, 1, 1]])[0],
        ),
        "pearson": (
            [identifiability.mcc(z[r], h[r]) for r in rows[:600]],
            identifiability.mcc_with_interval(z, h)[1],
        ),
        "spearman": (
            [identifiability.mcc(z[r], h[r], "spearman") for r in rows[:600]],
            identifiability.mcc_with_interval(z, h, "spearman")[1],
        ),
    }  # fmt: skip
    for name, (drawn, interval) in scores.items():
        low, high = np.quantile(drawn, [0.025, 0.975])
        width = high - low
        assert interval[1] - interval[0] == pytest.approx(width, rel=0.1), name
        np.testing.assert_allclose(interval, [low, high], atol=0.12 * width, err_msg=name)


@pytest.mark.parametrize("scale", [0.0, 1e-12, 1e-9, 1e-3])
def test_scores_next_to_one_have_finite_intervals_around_them(scale):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(64, 4))
    h = z + scale * rng.normal(size=z.shape)
    for method in identifiability.CORRELATIONS:
        score, (low, high) = identifiability.mcc_with_interval(z, h, method)
        assert low <= score + 1e-12
        assert score - 1e-12 <= high <= 1
        assert high - low < 0.02
    low, high = intervals.r2_intervals(z, h, [[1, 0, 0, 0]])[0]
    assert low <= 1 - np.sum((z - h)[:, 0] ** 2) / np.sum((z - z.mean(0))[:, 0] ** 2) <= high <= 1


def test_constant_factors_and_features_have_no_part_in_it():
    rng = np.random.default_rng(0)
    z = np.column_stack([rng.normal(size=50), np.ones(50)])
    assert intervals.r2_intervals(z, z, [[0, 1]]) == [[0.0, 0.0]]
    score, (low, high) = identifiability.mcc_with_interval(z, np.zeros((50, 2)))
    assert (score, low, high) == (0.0, 0.0, 0.0)


def test_seeds_span_a_range_until_there_are_enough_for_an_interval():
    own = [[0.4, 0.6], [0.55, 0.65], [0.2, 0.3]]
    assert intervals.over_seeds([0.5], own[:1]) == own[0]
    assert intervals.over_seeds([0.5, 0.6, 0.25], own) == [0.2, 0.65]
    assert intervals.over_seeds([0.5, 0.6], [own[0], None]) is None
    values = [0.5, 0.6, 0.4, 0.5]
    assert intervals.over_seeds(values, [None] * 4) == intervals.mean_interval(values)


def test_better_is_said_only_of_intervals_that_part():
    assert intervals.is_above([0.6, 0.7], [0.4, 0.5])
    assert not intervals.is_above([0.4, 0.5], [0.6, 0.7])
    assert not intervals.is_above([0.45, 0.7], [0.4, 0.5])
    assert not intervals.is_above([0.6, 0.7], None)
