import numpy as np
import pytest

from aninfonce_jax.scores import retrieval
from aninfonce_jax.scores.retrieval import retrieval as score

STYLE = np.array([False, False, True, True])


@pytest.fixture(scope="module")
def latents():
    points = np.random.default_rng(0).normal(size=(1200, 4))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def naive(latents, features, factors):
    half = len(latents) // 2
    found, best, chance = [], [], []
    for query in range(half):
        for x, into in ((features, found), (latents, best)):
            nearest = half + np.argmin(np.linalg.norm(x[half:] - x[query], axis=1))
            into.append(np.sum((latents[nearest] - latents[query])[factors] ** 2))
        chance.append(np.mean(np.sum((latents[half:] - latents[query])[:, factors] ** 2, axis=1)))
    return (np.mean(chance) - np.mean(found)) / (np.mean(chance) - np.mean(best))


@pytest.mark.parametrize("factors", [STYLE, ~STYLE])
def test_as_a_loop(latents, factors, monkeypatch):
    features = latents + 0.2 * np.random.default_rng(1).normal(size=latents.shape)
    found, (low, high) = score(latents, features, factors)
    assert found == pytest.approx(naive(latents, features, factors))
    assert low < found < high
    monkeypatch.setattr(retrieval, "_MOST_DISTANCES", 7000)  # several chunks, the last one shorter
    assert score(latents, features, factors)[0] == pytest.approx(found)


def test_a_rotation_finds_what_the_truth_finds(latents):
    rotation = np.linalg.qr(np.random.default_rng(2).normal(size=(4, 4)))[0]
    assert score(latents, latents @ rotation)[0] == pytest.approx(1)
    assert score(latents, latents @ rotation, STYLE)[0] == pytest.approx(1)


def test_noise_finds_nothing(latents):
    found, (low, high) = score(latents, np.random.default_rng(3).normal(size=(1200, 5)), STYLE)
    assert low < 0 < high
    assert abs(found) < 0.1


def test_what_lost_the_style_finds_content_alone(latents):
    content = latents[:, :2]
    assert score(latents, content, ~STYLE)[0] > 0.95
    assert score(latents, content, STYLE)[0] < 0.5


def test_factors_that_are_all_the_same_have_nothing_to_find():
    found, interval = score(np.ones((8, 2)), np.arange(16.0).reshape(8, 2))
    assert np.isnan(found)
    assert interval is None
