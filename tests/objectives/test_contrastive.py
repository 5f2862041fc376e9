import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aninfonce_jax.losses.contrast as contrast
from aninfonce_jax.dgp import conditionals, marginals
from aninfonce_jax.dgp.spaces import Box
from aninfonce_jax.dgp.stream import LatentProcess
from aninfonce_jax.losses.centring import centring_penalty
from aninfonce_jax.losses.keeping import keeping_penalty
from aninfonce_jax.losses.spreading import spreading_penalty
from aninfonce_jax.objectives.contrastive import AnInfoNCE, InfoNCE, LpLoss
from aninfonce_jax.placement import Placement
from aninfonce_jax.sources.source import PowerScore
from aninfonce_jax.types import Pairs

DIM = 3
PLACEMENT = Placement.local(4)
VIEW1, VIEW2 = jax.random.normal(jax.random.key(0), (2, 8, DIM))
PAIRS = Pairs(VIEW1, VIEW2)
TRUTH = np.array([5.0, 2.0, 1.0])


def identity(observations):
    return observations


def evaluate(objective, params, pairs=PAIRS):
    # One program, as in a run: on a mesh every single operation would be one.
    key = jax.random.key(1)
    return jax.jit(lambda p: objective(p, identity, pairs, key, PLACEMENT))(params)


def test_aninfonce_uses_its_own_concentration():
    objective = AnInfoNCE(concentration_start=4.0)
    params = objective.init(jax.random.key(0), DIM)
    np.testing.assert_allclose(objective.concentration(params, DIM), [4.0] * DIM, rtol=1e-6)
    loss, metrics = evaluate(objective, params)
    expected = contrast.aninfonce_loss(VIEW1, VIEW2, jnp.full((DIM,), 4.0), negatives="anchors")
    np.testing.assert_allclose(loss, expected.loss, rtol=1e-6)
    np.testing.assert_allclose(metrics["alignment"] + metrics["uniformity"], loss, rtol=1e-5)
    grads = jax.grad(lambda p: evaluate(objective, p)[0])(params)
    chex.assert_tree_all_finite(grads)
    assert (grads["concentration"] != 0).all()


def test_without_the_norm_lengths_count():
    objective = AnInfoNCE(concentration_start=4.0, normalize=False)
    loss, _ = evaluate(objective, objective.init(jax.random.key(0), DIM))
    expected = contrast.aninfonce_loss(
        VIEW1, VIEW2, jnp.full((DIM,), 4.0), negatives="anchors", normalize=False
    )
    np.testing.assert_allclose(loss, expected.loss, rtol=1e-6)


@pytest.mark.parametrize("kind", [AnInfoNCE, InfoNCE])
def test_embeddings_are_read_out_as_they_are_compared(kind):
    on_sphere, plain = kind(normalize=True), kind(normalize=False)
    assert on_sphere.compares_directions
    assert not plain.compares_directions
    np.testing.assert_allclose(jnp.linalg.norm(on_sphere.compared(VIEW1), axis=1), 1, rtol=1e-6)
    chex.assert_trees_all_equal(plain.compared(VIEW1), VIEW1)
    assert not LpLoss().compares_directions


@pytest.mark.parametrize("transform", ["exp", "softplus"])
def test_jitter_spreads_the_start(transform):
    objective = AnInfoNCE(concentration_jitter=0.1, concentration_transform=transform)
    values = objective.concentration(objective.init(jax.random.key(0), DIM), DIM)
    assert jnp.ptp(values) > 0
    steady = AnInfoNCE(concentration_transform=transform)
    params = steady.init(jax.random.key(0), DIM)
    np.testing.assert_allclose(steady.concentration(params, DIM), [0.7] * DIM, rtol=1e-6)


def test_infonce_trains_one_temperature_or_none():
    trained = InfoNCE(temperature=0.5, train_temperature=True)
    params = trained.init(jax.random.key(0), DIM)
    chex.assert_shape(params["concentration"], (1,))
    fixed = InfoNCE(temperature=0.5)
    assert fixed.init(jax.random.key(0), DIM) == {}
    for objective, own in ((trained, params), (fixed, {})):
        np.testing.assert_allclose(
            evaluate(objective, own)[0],
            contrast.infonce_loss(VIEW1, VIEW2, temperature=0.5, negatives="anchors").loss,
            rtol=1e-6,
        )
    np.testing.assert_allclose(trained.concentration(params, DIM), [2.0] * DIM, rtol=1e-6)
    assert fixed.concentration({}, DIM) is None
    grads = jax.grad(lambda p: evaluate(trained, p)[0])(params)
    assert (grads["concentration"] != 0).all()


def test_lp():
    objective = LpLoss(exponent=1.0, temperature=0.7, negatives="both")
    np.testing.assert_allclose(
        evaluate(objective, {})[0],
        contrast.lp_loss(VIEW1, VIEW2, p=1.0, temperature=0.7, negatives="both").loss,
        rtol=1e-6,
    )
    assert objective.init(jax.random.key(0), DIM) == {}
    assert objective.concentration({}, DIM) is None


@pytest.mark.parametrize("negatives", ["anchors", "both"])
@pytest.mark.parametrize("kind", [AnInfoNCE, InfoNCE, LpLoss])
def test_chance_is_the_loss_of_embeddings_that_are_all_alike(kind, negatives):
    objective = kind(negatives=negatives)
    params = objective.init(jax.random.key(0), DIM)
    alike = jnp.ones((8, DIM))
    loss = evaluate(objective, params, Pairs(alike, alike))[0]
    assert objective.chance(8) == pytest.approx(float(loss), rel=1e-5)
    assert LpLoss(reduction="logmeanexp").chance(8) == 0.0


def test_a_fixed_temperature_bounds_the_gain():
    assert InfoNCE(temperature=10.0).largest_gain(1000) == pytest.approx(0.2)
    assert InfoNCE(temperature=0.1).largest_gain(1000) == pytest.approx(np.log(1000))
    assert InfoNCE(10.0, train_temperature=True).largest_gain(1000) == pytest.approx(np.log(1000))
    assert InfoNCE(10.0, normalize=False).largest_gain(1000) == pytest.approx(np.log(1000))


def unit(views):
    return views / jnp.linalg.norm(views, axis=-1, keepdims=True)


@pytest.mark.parametrize("objective", [AnInfoNCE(), InfoNCE(), LpLoss()])
def test_floor_is_the_loss_at_the_truth(objective):
    views = unit(VIEW1), unit(VIEW2)
    expected = contrast.aninfonce_loss(*views, jnp.float32(TRUTH), negatives="anchors").loss
    np.testing.assert_allclose(objective.floor(PowerScore(TRUTH))(*views), expected, rtol=1e-6)


def test_floor_of_a_quadratic_score_takes_latents_as_they_are():
    floor = AnInfoNCE(negatives="both").floor(PowerScore(TRUTH))(VIEW1, VIEW2)
    expected = contrast.aninfonce_loss(VIEW1, VIEW2, jnp.float32(TRUTH), normalize=False).loss
    np.testing.assert_allclose(floor, expected, rtol=1e-5)


@pytest.mark.parametrize("exponent", [1.0, 3.0])
def test_floor_of_another_power(exponent):
    floor = AnInfoNCE().floor(PowerScore(TRUTH, exponent))(VIEW1, VIEW2)
    distances = np.abs(np.asarray(VIEW1)[:, None] - np.asarray(VIEW2)[None]) ** exponent
    positive = -(np.diagonal(distances) * TRUTH[:, None]).sum(axis=0) / exponent
    anchors = np.abs(np.asarray(VIEW1)[:, None] - np.asarray(VIEW1)[None]) ** exponent
    scores = -(anchors * TRUTH).sum(axis=-1) / exponent
    np.fill_diagonal(scores, positive)
    expected = np.mean(np.log(np.exp(scores).sum(axis=1)) - positive)
    np.testing.assert_allclose(floor, expected, rtol=1e-5)


def test_no_other_sharpness_of_the_score_goes_below_the_floor():
    truth = np.array([25.0, 25.0, 5.0])
    process = LatentProcess(Box(DIM), marginals.Uniform(), conditionals.Normal(truth), identity)
    pairs = process.sample(jax.random.key(1), 2048)
    views = pairs.latents1, pairs.latents2

    def loss(sharpness):
        return contrast.aninfonce_loss(
            *views, jnp.float32(sharpness * truth), negatives="anchors", normalize=False
        ).loss

    floor = AnInfoNCE().floor(PowerScore(truth))(*views)
    np.testing.assert_allclose(floor, loss(1.0), rtol=1e-5)
    assert floor < min(loss(0.8), loss(1.25))


@pytest.mark.parametrize(
    "objective", [AnInfoNCE(hardness=0.5), InfoNCE(hardness=0.5), LpLoss(reduction="logmeanexp")]
)
def test_where_the_true_score_is_not_the_best_there_is_no_floor(objective):
    assert objective.floor(PowerScore(TRUTH)) is None


@pytest.mark.parametrize("objective", [AnInfoNCE(), InfoNCE(), LpLoss()])
def test_where_the_true_score_is_not_known_there_is_no_floor(objective):
    assert objective.floor(None) is None


PENALTIES = {
    "centring": centring_penalty(jnp.concatenate([VIEW1, VIEW2])),
    "spreading": spreading_penalty(VIEW1),
    "keeping": keeping_penalty(VIEW1, PAIRS.view1),
}
# The share of a run after which each is gone.
GONE_AT = {"centring": 1.0, "spreading": 0.5, "keeping": 0.25}


@pytest.mark.parametrize("name", PENALTIES)
def test_penalties_help_at_the_start_and_have_vanished_at_the_end(name):
    plain, penalised = AnInfoNCE(), AnInfoNCE(**{name: 2.0})
    params = plain.init(jax.random.key(0), DIM)

    def in_training(objective, progress):
        rest = identity, PAIRS, jax.random.key(1), PLACEMENT, jnp.float32(progress)
        return jax.jit(lambda p: objective.in_training(p, *rest))(params)

    loss, metrics = evaluate(plain, params)
    for share, weight in ((0, 2.0), (0.5, 1.0), (1, 0.0)):
        total, found = in_training(penalised, share * GONE_AT[name])
        # With spreading, loss and penalty nearly cancel: their own rounding is what is left.
        expected = loss + weight * PENALTIES[name]
        np.testing.assert_allclose(total, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found["loss"], loss, rtol=1e-6)
        np.testing.assert_allclose(found[name], PENALTIES[name], rtol=1e-6)
    np.testing.assert_allclose(in_training(penalised, 1)[0], loss, rtol=1e-6)
    # Evaluation, and objectives without it, know the loss alone.
    np.testing.assert_array_equal(evaluate(penalised, params)[0], loss)
    chex.assert_trees_all_equal(in_training(plain, 0), (loss, metrics))


def test_penalties_add_up():
    all_of_them = AnInfoNCE(centring=2.0, spreading=3.0, keeping=0.5)
    params = all_of_them.init(jax.random.key(0), DIM)
    rest = identity, PAIRS, jax.random.key(1), PLACEMENT, jnp.float32(0)
    total, found = jax.jit(lambda p: all_of_them.in_training(p, *rest))(params)
    expected = found["loss"] + 2 * PENALTIES["centring"] + 3 * PENALTIES["spreading"]
    expected += 0.5 * PENALTIES["keeping"]
    np.testing.assert_allclose(total, expected, rtol=1e-5)


def test_no_device_holds_all_pairs_for_a_penalty():
    """Each of four devices has a quarter of the 2²⁸ pairs, 256 MiB."""
    objective = AnInfoNCE(spreading=3.0)
    params = objective.init(jax.random.key(0), DIM)
    view = jax.ShapeDtypeStruct((16384, DIM), jnp.float32, sharding=PLACEMENT.split)

    def loss(view1, view2):
        rest = identity, Pairs(view1, view2), jax.random.key(1), PLACEMENT, jnp.float32(0)
        return objective.in_training(params, *rest)[0]

    compiled = jax.jit(jax.grad(loss)).lower(view, view).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 2**27


@pytest.mark.parametrize("name", PENALTIES)
def test_penalties_are_for_the_sphere(name):
    with pytest.raises(ValueError, match=f"{name} is for embeddings on the sphere"):
        AnInfoNCE(**{name: 1.0}, normalize=False)
