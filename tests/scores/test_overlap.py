import jax.numpy as jnp
import numpy as np
import pytest

from aninfonce_jax.scores import overlap


def views(seed, noise, count=40, dim=3):
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(count, dim))
    return first, first + noise * rng.normal(size=first.shape)


def test_counts_as_a_loop():
    first, second = views(0, 0.5)
    expected = np.zeros((2, overlap.BINS), int)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
            place = np.searchsorted(overlap.EDGES, cosine, side="right") - 1
            expected[int(i != j), place] += 1
    found = overlap.count_similarities(jnp.float32(first), jnp.float32(second))
    # A cosine beside an edge may be rounded over it.
    assert np.abs(np.cumsum(found - expected, axis=1)).max() <= 1
    assert np.sum(found, axis=1).tolist() == [40, 40 * 39]


def test_the_ends_of_the_range_are_counted_and_what_is_not_finite_is_not():
    x = jnp.array([[1.0, 0.0], [-2.0, 0.0], [jnp.nan, 1.0], [0.0, 0.0]])
    positives, negatives = np.asarray(overlap.count_similarities(x, x))
    assert (positives[-1], positives.sum()) == (2, 3)  # a zero has a cosine of 0
    assert (negatives[0], negatives.sum()) == (2, 6)


def test_disjoint_is_0_and_alike_is_1():
    counts = np.zeros((3, 2, 10))
    counts[:, 0, 8:], counts[:, 1, :8] = 5, 7
    assert overlap.overlap(counts) == (0, [0, 0])
    counts[:, 0], counts[:, 1] = 2, 6
    assert overlap.overlap(counts)[0] == pytest.approx(1)
    counts[:, 0], counts[:, 1] = np.eye(10)[0], np.eye(10)[9]  # on the wrong side
    assert overlap.overlap(counts)[0] == 1


def test_of_normals_it_is_the_area_under_both():
    """Two normals at a distance of 2 share 2 Φ(-1) of their area, of however few samples."""
    rng = np.random.default_rng(0)
    edges = np.linspace(-6, 8, 101)

    def batch(count):
        return [np.histogram(rng.normal(mean, size=count), edges)[0] for mean in (2, 0)]

    found, (low, high) = overlap.overlap([batch(5000) for _ in range(10)])
    assert found == pytest.approx(0.3173, abs=0.01)
    assert low < 0.3173 < high
    assert 0.005 < high - low < 0.05
    few, _ = overlap.overlap([batch(20) for _ in range(10)])
    assert few == pytest.approx(0.3173, abs=0.1)


def test_nothing_to_compare():
    assert np.isnan(overlap.overlap(np.zeros((2, 2, 5)))[0])
    assert overlap.overlap(np.ones((1, 2, 5)))[1] is None
