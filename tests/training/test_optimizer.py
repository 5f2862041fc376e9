import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from aninfonce_jax.training.optimizer import make_optimizer, make_schedule

PARAMS = {
    "encoder": {"Dense_0": {"kernel": jnp.full((3, 4), 0.5), "bias": jnp.full((4,), 0.5)}},
    "objective": {"concentration": jnp.zeros((3,))},
}


def first_update(optimizer, grads=None):
    grads = jax.tree.map(jnp.ones_like, PARAMS) if grads is None else grads
    updates, _ = optimizer.update(grads, optimizer.init(PARAMS), PARAMS)
    return updates


def test_warmup_then_cosine():
    schedule = make_schedule("cosine", 2.0, steps=110, warmup_steps=10, final_fraction=0.1)
    np.testing.assert_allclose([schedule(0), schedule(5), schedule(10)], [0.0, 1.0, 2.0])
    np.testing.assert_allclose(schedule(60), 2.0 * (0.1 + 0.9 / 2), rtol=1e-6)
    np.testing.assert_allclose([schedule(110), schedule(500)], 0.2, rtol=1e-6)


def test_warmup_then_constant():
    schedule = make_schedule("constant", 2.0, steps=110, warmup_steps=4, final_fraction=0.1)
    np.testing.assert_allclose([schedule(2), schedule(4), schedule(100)], [1.0, 2.0, 2.0])


def test_a_trapezoid_falls_over_the_second_half():
    schedule = make_schedule("trapezoid", 2.0, steps=100, warmup_steps=10, final_fraction=0.1)
    np.testing.assert_allclose([schedule(5), schedule(10), schedule(50)], [1.0, 2.0, 2.0])
    np.testing.assert_allclose(schedule(75), 2.0 * (1 + 0.1) / 2, rtol=1e-6)
    np.testing.assert_allclose([schedule(100), schedule(500)], 0.2, rtol=1e-6)
    # A warm-up that is longer than that half is gone through all the same.
    late = make_schedule("trapezoid", 2.0, steps=100, warmup_steps=80, final_fraction=0.1)
    np.testing.assert_allclose([late(40), late(80), late(100)], [1.0, 2.0, 0.2], rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "rate", "left"),
    # LARS moves a matrix by 0.1 % of its norm at rate 1, so it is not there yet.
    [
        ("adam", 0.05, 0.05),
        ("adamw", 0.05, 0.05),
        ("sgd", 0.1, 0.05),
        ("lars", 0.4, 0.8),
        ("muon", 0.2, 0.05),
    ],
)
def test_every_optimiser_minimises_a_quadratic(kind, rate, left):
    optimizer = make_optimizer(
        kind, steps=200, learning_rate=rate, concentration_learning_rate=rate
    )
    target = jax.tree.map(lambda x: x + 1, PARAMS)

    def loss(params):
        return sum(
            jnp.sum(jnp.square(a - b))
            for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(target), strict=True)
        )

    @jax.jit
    def step(params, state):
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    params, state = PARAMS, optimizer.init(PARAMS)
    for _ in range(200):
        params, state = step(params, state)
    assert loss(params) < left * loss(PARAMS)


def test_concentration_has_its_own_rate():
    updates = first_update(
        make_optimizer("adam", steps=100, learning_rate=1e-3, concentration_learning_rate=1e-2)
    )
    np.testing.assert_allclose(updates["encoder"]["Dense_0"]["kernel"], -1e-3, rtol=1e-4)
    np.testing.assert_allclose(updates["objective"]["concentration"], -1e-2, rtol=1e-4)


@pytest.mark.parametrize("kind", ["adamw", "sgd", "lars", "muon"])
def test_weight_decay_spares_biases_and_concentration(kind):
    optimizer = make_optimizer(kind, steps=100, learning_rate=1e-2, weight_decay=0.1)
    updates = first_update(optimizer, jax.tree.map(jnp.zeros_like, PARAMS))
    layer = updates["encoder"]["Dense_0"]
    assert (layer["kernel"] < 0).all()
    chex.assert_trees_all_equal(layer["bias"], jnp.zeros((4,)))
    chex.assert_trees_all_equal(updates["objective"]["concentration"], jnp.zeros((3,)))


def test_clipping_bounds_the_global_norm():
    updates = first_update(
        make_optimizer("sgd", steps=100, learning_rate=1.0, momentum=0.0, clip_norm=0.5),
        {**jax.tree.map(jnp.ones_like, PARAMS), "objective": {"concentration": jnp.zeros((3,))}},
    )
    np.testing.assert_allclose(optax.tree.norm(updates["encoder"]), 0.5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["adam", "muon", "lars"])
def test_a_rotation_stays_one_whatever_trains_the_encoder(kind):
    params = {**PARAMS, "encoder": {**PARAMS["encoder"], "rotation": {"matrix": jnp.eye(3)}}}
    optimizer = make_optimizer(kind, steps=100, learning_rate=0.3, rotation_learning_rate=0.05)
    gradient = jax.random.normal(jax.random.key(0), (3, 3))
    grads = jax.tree.map(jnp.ones_like, params)
    grads["encoder"]["rotation"]["matrix"] = gradient
    updates, _ = optimizer.update(grads, optimizer.init(params), params)
    matrix = optax.apply_updates(params, updates)["encoder"]["rotation"]["matrix"]
    np.testing.assert_allclose(matrix.T @ matrix, jnp.eye(3), atol=1e-6)
    turned = jnp.abs(matrix - matrix.T)[jnp.triu_indices(3, 1)] / 2
    np.testing.assert_allclose(turned, 0.05, rtol=0.05)


@pytest.mark.parametrize(
    ("kind", "head"), [("adam", 0.1), ("sgd", 0.1), ("muon", 0.01), ("adamw", 0.1)]
)
def test_a_head_of_the_objective_has_the_rate_of_the_encoder_but_for_muon(kind, head):
    params = {
        "encoder": {"kernel": jnp.zeros((3, 4))},
        "objective": {"concentration": jnp.zeros(3), "head": jnp.zeros((6, 3))},
    }
    optimizer = make_optimizer(
        kind,
        steps=10,
        learning_rate=0.1,
        concentration_learning_rate=0.01,
        schedule="constant",
    )
    grads = jax.tree.map(jnp.ones_like, params)
    updates, _ = optimizer.update(grads, optimizer.init(params), params)
    np.testing.assert_allclose(updates["objective"]["head"], -head, rtol=1e-5)
    np.testing.assert_allclose(updates["objective"]["concentration"], -0.01, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "setting", "message"),
    [
        ("adam", {"weight_decay": 0.1}, "adam has no weight decay"),
        ("adamw", {"momentum": 0.5}, "momentum is for sgd and lars"),
    ],
)
def test_what_a_kind_has_no_use_for_is_refused(kind, setting, message):
    with pytest.raises(ValueError, match=message):
        make_optimizer(kind, steps=10, learning_rate=1e-3, **setting)
