import pickle

import numpy as np
import pytest

from aninfonce_jax.data.matching import MatchedOrder
from aninfonce_jax.data.order import ShuffledOrder

FACTORS = np.random.default_rng(0).uniform(-1, 1, (3000, 2))
GROUPS = np.arange(3000) % 3


def order(concentration=(25.0, 400.0), seed=0):
    return MatchedOrder(ShuffledOrder(3000, seed), FACTORS, GROUPS, np.array(concentration), seed)


POSITIONS = np.arange(6000)


def test_a_second_view_is_of_the_same_group_and_as_far_as_the_concentration_says():
    anchors, found = ShuffledOrder(3000, 0)(POSITIONS), order()(POSITIONS)
    np.testing.assert_array_equal(GROUPS[found], GROUPS[anchors])
    inside = np.abs(FACTORS[anchors]).max(axis=1) < 0.4  # no draw leaves the square
    moved = (FACTORS[found] - FACTORS[anchors])[inside]
    assert moved.mean(axis=0) == pytest.approx([0, 0], abs=0.02)
    # Λ^-½ is 0.2 and 0.05; examples are about 0.03 apart.
    assert moved.std(axis=0) == pytest.approx([0.2, 0.056], abs=0.008)


def test_a_view_is_the_nearest_to_its_draw():
    found = order((1e12, 1e12))(POSITIONS)  # a draw that stays where it is finds itself
    np.testing.assert_array_equal(found, ShuffledOrder(3000, 0)(POSITIONS))


def test_a_view_follows_from_seed_and_position_alone():
    whole = order()(POSITIONS)
    np.testing.assert_array_equal(order()(POSITIONS[1000:1010]), whole[1000:1010])
    started = order()
    started(POSITIONS[:5])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(started))(POSITIONS[:50]), whole[:50])
    assert (order(seed=1)(POSITIONS) != whole).mean() > 0.9
    # The second epoch has other views of the same examples.
    anchors = ShuffledOrder(3000, 0)(POSITIONS)
    first, second = (dict(zip(anchors[x], whole[x], strict=True)) for x in np.split(POSITIONS, 2))
    assert np.mean([first[k] != second[k] for k in first]) > 0.5
