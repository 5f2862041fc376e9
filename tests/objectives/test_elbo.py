"""The evidence lower bound as an objective that trains a decoder along."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from aninfonce_jax.objectives import Elbo
from aninfonce_jax.placement import Placement
from aninfonce_jax.types import Pairs

SHAPE = (4, 4, 1)
PLACEMENT = Placement.local(1)


@pytest.fixture(scope="module")
def images():
    """Two kinds of images: the upper half bright, or the lower."""
    upper = np.zeros(SHAPE, np.float32)
    upper[:2] = 1.0
    kinds = np.stack([upper, 1 - upper])
    return jnp.asarray(kinds[np.arange(32) % 2])


def test_the_loss_is_the_sum_of_its_parts_and_sees_the_first_view_alone(images):
    objective = Elbo(SHAPE, widths=(8,))
    params = objective.init(jax.random.key(0), 6)
    outputs = jax.random.normal(jax.random.key(1), (len(images), 6))

    def loss(view2):
        pairs = Pairs(images, view2)
        return objective(params, lambda x: outputs, pairs, jax.random.key(2), PLACEMENT)

    value, parts = loss(images)
    np.testing.assert_allclose(value, parts["reconstruction"] + parts["divergence"], rtol=1e-6)
    assert loss(1 - images)[0] == value


def test_training_lowers_it_and_the_decoder_draws_the_images(images):
    objective = Elbo(SHAPE, widths=(16,))
    optimizer = optax.adam(1e-2)
    params = {"encoder": jnp.zeros((16, 4)), "own": objective.init(jax.random.key(0), 4)}

    def loss(params, key):
        def encode(x):
            return x.reshape(len(x), -1) @ params["encoder"]

        return objective(params["own"], encode, Pairs(images, images), key, PLACEMENT)[0]

    @jax.jit
    def step(carry, key):
        params, state = carry
        value, grads = jax.value_and_grad(loss)(params, key)
        updates, state = optimizer.update(grads, state)
        return (optax.apply_updates(params, updates), state), value

    keys = jax.random.split(jax.random.key(3), 400)
    (params, _), losses = jax.lax.scan(step, (params, optimizer.init(params)), keys)
    # One bit tells the two apart; a decoder that knows nothing needs a bit for each pixel.
    assert losses[0] > 10.0
    assert losses[-50:].mean() < 3.0
    outputs = images[:2].reshape(2, -1) @ params["encoder"]
    drawn = objective.decode(params["own"], objective.compared(outputs))
    assert ((drawn >= 0) & (drawn <= 1)).all()
    np.testing.assert_allclose(drawn, images[:2], atol=0.2)


def test_what_is_read_out_are_the_means():
    outputs = jnp.arange(8.0).reshape(2, 4)
    np.testing.assert_array_equal(Elbo(SHAPE).compared(outputs), outputs[:, :2])


def test_an_odd_number_of_outputs_is_refused():
    with pytest.raises(ValueError, match="so an even number of outputs; got 5"):
        Elbo(SHAPE).init(jax.random.key(0), 5)
