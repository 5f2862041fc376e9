import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from aninfonce_jax.mesh import make_mesh
from aninfonce_jax.training.objective import (
    Contrastive,
    Supervised,
    build_objective,
    ground_truth_loss,
    join_views,
    split_views,
)

import aninfonce_jax.losses.contrast as contrast
from aninfonce_jax.config.schema import DgpConfig, MixingConfig, ObjectiveConfig
from aninfonce_jax.dgp.stream import build_process
from aninfonce_jax.types import Pairs

DIM = 3
MESH = make_mesh(4)
VIEW1, VIEW2 = jax.random.normal(jax.random.key(0), (2, 8, DIM))
PAIRS = Pairs(VIEW1, VIEW2, VIEW1, VIEW2)


def test_views_come_back_in_their_order():
    first, second = split_views(2 * join_views(PAIRS))
    chex.assert_trees_all_equal((first, second), (2 * VIEW1, 2 * VIEW2))


def test_images_are_joined_whole():
    joined = join_views(Pairs(jnp.zeros((4, 5, 6, 3)), jnp.ones((4, 5, 6, 3))))
    chex.assert_shape(joined, (8, 5, 6, 3))
    np.testing.assert_array_equal(joined[::2], 0)
    np.testing.assert_array_equal(joined[1::2], 1)


def test_aninfonce_uses_its_own_concentration():
    objective = build_objective(ObjectiveConfig(concentration_start=4.0), DIM)
    params = objective.init(jax.random.key(0))
    np.testing.assert_allclose(objective.concentration(params), [4.0] * DIM, rtol=1e-6)
    loss, metrics = objective(params, VIEW1, VIEW2, PAIRS, MESH)
    expected = contrast.aninfonce_loss(VIEW1, VIEW2, jnp.full((DIM,), 4.0), negatives="anchors")
    np.testing.assert_allclose(loss, expected.loss, rtol=1e-6)
    np.testing.assert_allclose(metrics["alignment"] + metrics["uniformity"], loss, rtol=1e-5)
    grads = jax.grad(lambda p: objective(p, VIEW1, VIEW2, PAIRS, MESH)[0])(params)
    chex.assert_tree_all_finite(grads)
    assert (grads["concentration"] != 0).all()


def test_without_the_norm_lengths_count():
    objective = build_objective(ObjectiveConfig("aninfonce_no_l2", concentration_start=4.0), DIM)
    params = objective.init(jax.random.key(0))
    loss, _ = objective(params, VIEW1, VIEW2, PAIRS, MESH)
    concentration = jnp.full((DIM,), 4.0)
    expected = contrast.aninfonce_loss(
        VIEW1, VIEW2, concentration, negatives="anchors", normalize=False
    )
    np.testing.assert_allclose(loss, expected.loss, rtol=1e-6)
    assert not objective.normalize
    assert build_objective(ObjectiveConfig(), DIM).normalize


def test_jitter_spreads_the_start():
    objective = build_objective(ObjectiveConfig(concentration_jitter=0.1), DIM)
    values = objective.concentration(objective.init(jax.random.key(0)))
    assert jnp.ptp(values) > 0


def test_infonce_trains_one_temperature_or_none():
    trained = build_objective(
        ObjectiveConfig("infonce", train_temperature=True, concentration_start=2.0), DIM
    )
    params = trained.init(jax.random.key(0))
    chex.assert_shape(params["concentration"], (1,))
    fixed = build_objective(ObjectiveConfig("infonce", temperature=0.5), DIM)
    assert fixed.init(jax.random.key(0)) == {}
    for objective, own in ((trained, params), (fixed, {})):
        np.testing.assert_allclose(
            objective(own, VIEW1, VIEW2, PAIRS, MESH)[0],
            contrast.infonce_loss(VIEW1, VIEW2, temperature=0.5, negatives="anchors").loss,
            rtol=1e-6,
        )
    np.testing.assert_allclose(trained.concentration(params), [2.0] * DIM, rtol=1e-6)
    assert fixed.concentration({}) is None


def test_lp():
    objective = build_objective(ObjectiveConfig("lp", "both", exponent=1.0, temperature=0.7), DIM)
    np.testing.assert_allclose(
        objective({}, VIEW1, VIEW2, PAIRS, MESH)[0],
        contrast.lp_loss(VIEW1, VIEW2, p=1.0, temperature=0.7, negatives="both").loss,
        rtol=1e-6,
    )
    assert objective.concentration({}) is None


def test_supervised_is_the_squared_error():
    objective = build_objective(ObjectiveConfig("supervised"), DIM)
    assert isinstance(objective, Supervised)
    loss, _ = objective({}, VIEW1 + 0.5, VIEW2 + 0.5, PAIRS, MESH)
    np.testing.assert_allclose(loss, DIM * 0.25, rtol=1e-6)
    with pytest.raises(ValueError, match="needs pairs with known latents"):
        objective({}, VIEW1, VIEW2, Pairs(VIEW1, VIEW2), MESH)


def test_floor_is_the_loss_at_the_truth():
    truth = jnp.array([5.0, 2.0, 1.0])
    config = ObjectiveConfig(negatives="anchors")
    unit1 = VIEW1 / jnp.linalg.norm(VIEW1, axis=-1, keepdims=True)
    unit2 = VIEW2 / jnp.linalg.norm(VIEW2, axis=-1, keepdims=True)
    floor = ground_truth_loss(config, DgpConfig(dim=DIM), truth)(unit1, unit2)
    expected = contrast.aninfonce_loss(unit1, unit2, truth, negatives="anchors").loss
    np.testing.assert_allclose(floor, expected, rtol=1e-6)


def test_floor_of_a_von_mises_fisher_does_not_depend_on_the_radius():
    unit1 = VIEW1 / jnp.linalg.norm(VIEW1, axis=-1, keepdims=True)
    unit2 = VIEW2 / jnp.linalg.norm(VIEW2, axis=-1, keepdims=True)
    expected = contrast.infonce_loss(unit1, unit2, temperature=0.25, negatives="anchors").loss
    for radius in (1.0, 3.0):
        dgp = DgpConfig(dim=DIM, conditional="vmf", radius=radius)
        floor = ground_truth_loss(ObjectiveConfig(), dgp, jnp.full((DIM,), 4.0))
        np.testing.assert_allclose(floor(radius * unit1, radius * unit2), expected, rtol=1e-5)


BOX = DgpConfig(dim=DIM, space="box", conditional="normal")
TRUTH = jnp.array([5.0, 2.0, 1.0])


def test_floor_of_a_normal_in_a_box_equals_the_quadratic_score():
    floor = ground_truth_loss(ObjectiveConfig(negatives="both"), BOX, TRUTH)(VIEW1, VIEW2)
    expected = contrast.aninfonce_loss(VIEW1, VIEW2, TRUTH, normalize=False).loss
    np.testing.assert_allclose(floor, expected, rtol=1e-5)


def test_no_other_sharpness_of_the_score_goes_below_the_floor():
    truth = jnp.array([25.0, 25.0, 5.0])
    process = build_process(
        dataclasses.replace(BOX, mixing=MixingConfig(layers=0)), jax.random.key(0)
    )
    pairs = process.sample(jax.random.key(1), 2048)
    views = pairs.latents1, pairs.latents2

    def loss(sharpness):
        return contrast.aninfonce_loss(
            *views, sharpness * truth, negatives="anchors", normalize=False
        ).loss

    floor = ground_truth_loss(ObjectiveConfig(), BOX, truth)(*views)
    np.testing.assert_allclose(floor, loss(1.0), rtol=1e-5)
    assert floor < min(loss(0.8), loss(1.25))


@pytest.mark.parametrize(
    ("objective", "process"),
    [
        ({}, {"conditional": "bimodal"}),
        ({}, {"box_boundary": "wrap"}),
        ({}, {"space": "sphere"}),
        ({}, {"marginal": "normal"}),
        ({}, {"space": "real", "marginal": "normal"}),
        ({}, {"space": "sphere", "conditional": "anisotropic", "marginal": "vmf"}),
        ({"hardness": 0.5}, {}),
        ({"kind": "infonce", "hardness": 0.5}, {}),
        ({"kind": "lp", "reduction": "logmeanexp"}, {}),
    ],
)
def test_where_the_true_score_is_not_the_best_there_is_no_floor(objective, process):
    dgp = dataclasses.replace(BOX, **process)
    assert ground_truth_loss(ObjectiveConfig(**objective), dgp, TRUTH) is None


def test_floor_of_a_supervised_run_is_zero_whatever_the_process():
    dgp = dataclasses.replace(BOX, marginal="normal")
    assert ground_truth_loss(ObjectiveConfig("supervised"), dgp, TRUTH)(VIEW1, VIEW2) == 0


def test_contrastive_is_what_a_config_builds_by_default():
    assert isinstance(build_objective(ObjectiveConfig(), DIM), Contrastive)
