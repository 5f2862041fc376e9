import chex
import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.objectives.objective import Objective, join_views, split_views
from aninfonce_jax.types import Pairs

VIEW1, VIEW2 = jax.random.normal(jax.random.key(0), (2, 8, 3))


def test_views_come_back_in_their_order():
    first, second = split_views(2 * join_views(Pairs(VIEW1, VIEW2)))
    chex.assert_trees_all_equal((first, second), (2 * VIEW1, 2 * VIEW2))


def test_images_are_joined_whole():
    joined = join_views(Pairs(jnp.zeros((4, 5, 6, 3)), jnp.ones((4, 5, 6, 3))))
    chex.assert_shape(joined, (8, 5, 6, 3))
    np.testing.assert_array_equal(joined[::2], 0)
    np.testing.assert_array_equal(joined[1::2], 1)


def test_an_objective_needs_nothing_but_a_loss():
    class Attraction(Objective):
        def __call__(self, params, encode, pairs, key, placement):
            return jnp.mean(jnp.square(encode(pairs.view1) - encode(pairs.view2))), {}

    objective = Attraction()
    assert objective.init(jax.random.key(0), 3) == {}
    assert objective.concentration({}, 3) is None
    assert objective.chance(8) is None
    assert objective.largest_gain(8) == float("inf")
    assert not objective.compares_directions
    chex.assert_trees_all_equal(objective.compared(VIEW1), VIEW1)
