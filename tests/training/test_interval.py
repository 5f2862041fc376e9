import jax.numpy as jnp
import numpy as np

from aninfonce_jax.training.interval import Interval


def test_the_steps_of_several_calls_are_joined_without_what_is_no_step():
    interval = Interval()
    assert interval.joined() == {} == interval.save()
    interval.add({"loss": jnp.float32([1, 2, 9]), "score": jnp.float32([3, 4, 9])}, 2)
    interval.add({"loss": jnp.float32([5, 9]), "score": jnp.float32([6, 9])}, 1)
    assert interval.save() == {"loss": [1, 2, 5], "score": [3, 4, 6]}

    other = Interval()
    other.restore({})
    assert other.joined() == {}
    other.restore(interval.save())
    other.add({"loss": jnp.float32([7]), "score": jnp.float32([8])}, 1)
    np.testing.assert_array_equal(other.joined()["loss"], [1, 2, 5, 7])
    assert other.means() == {"loss": 3.75, "score": 5.25}
    other.clear()
    assert other.joined() == {}


def test_the_loss_that_is_shown_is_that_of_a_settled_call():
    interval = Interval()
    assert interval.known_loss() is None
    metrics = {"loss": jnp.float32([1, 2, 9])}
    interval.add(metrics, 2)
    assert interval.known_loss() is None
    interval.settle(metrics, 2)
    assert interval.known_loss() == 1.5
    interval.clear()
    assert interval.known_loss() == 1.5
