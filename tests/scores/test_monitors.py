import numpy as np
import pytest

from aninfonce_jax.scores import monitors
from aninfonce_jax.scores.labelled import Labelled
from aninfonce_jax.scores.monitors import collapse_scores, knn_accuracy


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def labelled(seed, count, classes=4, dim=5, separation=1.0):
    labels = np.arange(count) % classes
    means = separation * normal(99, classes, dim)
    return Labelled(means[labels] + normal(seed, count, dim), labels)


# --- Neighbours ---


def naive_knn(bank, queries, classes, neighbours, temperature):
    right = 0
    for feature, label in zip(queries.features, queries.labels, strict=True):
        norms = np.linalg.norm(bank.features, axis=1) * np.linalg.norm(feature)
        cosines = bank.features @ feature / norms
        votes = np.zeros(classes)
        for i in np.argsort(-cosines)[:neighbours]:
            votes[bank.labels[i]] += np.exp(cosines[i] / temperature)
        right += np.argmax(votes) == label
    return right / len(queries.labels)


@pytest.mark.parametrize(("neighbours", "temperature"), [(1, 0.07), (7, 0.07), (50, 1.0)])
def test_knn_as_a_loop(neighbours, temperature):
    bank, queries = labelled(0, 60), labelled(1, 50)
    expected = naive_knn(bank, queries, 4, neighbours, temperature)
    got = knn_accuracy(bank, queries, classes=4, neighbours=neighbours, temperature=temperature)
    assert got == pytest.approx(expected)
    assert 0.3 < got < 1


def test_knn_in_chunks(monkeypatch):
    bank, queries = labelled(0, 60), labelled(1, 50)
    # Seven queries at a time, of which the last chunk has one.
    monkeypatch.setattr(monitors, "_MOST_SIMILARITIES", 7 * 60)
    got = knn_accuracy(bank, queries, classes=4, neighbours=7)
    assert got == pytest.approx(naive_knn(bank, queries, 4, 7, 0.07))


def test_a_bank_smaller_than_the_neighbours():
    bank, queries = labelled(0, 60), labelled(1, 50)
    got = knn_accuracy(bank, queries, classes=4, temperature=0.3)
    assert got == pytest.approx(naive_knn(bank, queries, 4, 60, 0.3))


def test_length_and_low_temperatures_play_no_part_in_who_is_nearest():
    bank = labelled(0, 60, separation=9.0)
    queries = Labelled(1e3 * np.asarray(bank.features), bank.labels)
    assert knn_accuracy(bank, queries, classes=4, temperature=1e-4) == 1.0


def test_features_of_zeros_are_no_error():
    nothing = Labelled(np.zeros((8, 5)), np.arange(8) % 4)
    assert knn_accuracy(nothing, nothing, classes=4) == 0.25


def test_bad_input_of_knn_is_refused():
    bank, queries = labelled(0, 60), labelled(1, 50)
    with pytest.raises(ValueError, match=r"bank must have .* 60 of 60 without one \(-1\)"):
        knn_accuracy(Labelled(bank.features, np.full(60, -1)), queries, classes=4)
    with pytest.raises(ValueError, match="queries must have labels from 0 to 2, got 3"):
        knn_accuracy(labelled(0, 60, classes=3), queries, classes=3)
    with pytest.raises(ValueError, match="bank 6, queries 5"):
        knn_accuracy(labelled(0, 60, dim=6), queries, classes=4)
    with pytest.raises(ValueError, match="neighbours must be at least 1, got 0"):
        knn_accuracy(bank, queries, classes=4, neighbours=0)
    with pytest.raises(ValueError, match="temperature must be positive, got 0"):
        knn_accuracy(bank, queries, classes=4, temperature=0)


# --- Collapse ---


def test_a_normal_distribution_uses_all_directions():
    scores = collapse_scores(normal(0, 4000, 16))
    assert 15.5 < scores["effective_rank"] <= 16
    np.testing.assert_allclose(scores["spread"], 1, atol=0.05)
    assert scores["spread_min"] == scores["spread"].min()
    assert scores["spread_median"] == np.median(scores["spread"])


def test_features_along_a_line_have_rank_one():
    scores = collapse_scores(normal(0, 200, 1) * normal(1, 1, 16) + normal(2, 1, 16))
    assert scores["effective_rank"] == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("shape", [(300, 12), (12, 300)])
def test_effective_rank_as_defined(shape):
    features = normal(0, *shape) * np.geomspace(1, 1e-3, shape[1]) + 5
    values = np.linalg.svd(features - features.mean(axis=0), compute_uv=False)
    shares = values[values > 1e-9] / values.sum()
    expected = np.prod(shares**-shares)
    assert collapse_scores(features)["effective_rank"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("noise", [0.0, 1e-7])
def test_constant_features_have_rank_zero_whatever_the_rounding(noise):
    features = np.float32(normal(0, 1, 16) + noise * normal(1, 100, 16))
    scores = collapse_scores(features)
    assert scores["effective_rank"] == 0
    np.testing.assert_allclose(scores["spread"], 0, atol=1e-5)


def test_one_dead_feature_shows_in_the_smallest_spread():
    features = normal(0, 500, 8)
    features[:, 3] = 0
    scores = collapse_scores(features)
    assert scores["spread_min"] == 0
    assert scores["spread_median"] > 0.9
    assert 6.9 < scores["effective_rank"] <= 7


def test_all_zeros_and_one_sample_are_collapsed():
    assert collapse_scores(np.zeros((5, 3)))["effective_rank"] == 0
    assert collapse_scores(np.ones((1, 3)))["effective_rank"] == 0


def test_bad_features_are_refused():
    with pytest.raises(ValueError, match=r"features of shape \[samples, feature_dim\], got \(3,\)"):
        collapse_scores(np.ones(3))
    with pytest.raises(ValueError, match="got 6 NaN or infinite of 6"):
        collapse_scores(np.full((2, 3), np.nan))
