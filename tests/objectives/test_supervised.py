import jax
import numpy as np
import pytest

from aninfonce_jax.objectives.supervised import Supervised
from aninfonce_jax.placement import Placement
from aninfonce_jax.sources.source import PowerScore
from aninfonce_jax.types import Pairs

DIM = 3
PLACEMENT = Placement.local(4)
VIEW1, VIEW2 = jax.random.normal(jax.random.key(0), (2, 8, DIM))


def loss(pairs):
    return Supervised()({}, lambda x: x + 0.5, pairs, jax.random.key(1), PLACEMENT)[0]


def test_it_is_the_squared_error():
    np.testing.assert_allclose(loss(Pairs(VIEW1, VIEW2, VIEW1, VIEW2)), DIM * 0.25, rtol=1e-6)
    # The latents of a view are those of that view.
    swapped = np.mean(np.sum(np.square(VIEW1 + 0.5 - VIEW2), axis=-1) / 2) + np.mean(
        np.sum(np.square(VIEW2 + 0.5 - VIEW1), axis=-1) / 2
    )
    np.testing.assert_allclose(loss(Pairs(VIEW1, VIEW2, VIEW2, VIEW1)), swapped, rtol=1e-6)


def test_pairs_without_latents_are_refused():
    with pytest.raises(ValueError, match="needs pairs with known latents"):
        loss(Pairs(VIEW1, VIEW2))


def test_its_floor_is_zero_and_it_learns_no_concentration():
    for score in (PowerScore(np.ones(DIM)), None):
        assert Supervised().floor(score)(VIEW1, VIEW2) == 0
    assert Supervised().init(jax.random.key(0), DIM) == {}
    assert Supervised().concentration({}, DIM) is None
