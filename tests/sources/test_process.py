import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aninfonce_jax.dgp import conditionals, marginals
from aninfonce_jax.dgp.products import ProductConditional, ProductMarginal
from aninfonce_jax.dgp.spaces import Box, Product, Real, Sphere
from aninfonce_jax.dgp.stream import LatentProcess
from aninfonce_jax.losses import contrast
from aninfonce_jax.objectives.contrastive import AnInfoNCE
from aninfonce_jax.sources.process import ProcessSource, ProcessWithNegatives

DIM = 3
TRUTH = [5.0, 2.0, 1.0]
UNIFORM = marginals.Uniform()


def source(space, conditional, marginal=UNIFORM, mixing=lambda x: x):
    return ProcessSource(LatentProcess(space, marginal, conditional, mixing))


def known(*args, **settings):
    return source(*args, **settings).known.latents


def test_pairs_come_with_the_latents_that_made_them():
    doubling = source(Box(DIM), conditionals.Normal(TRUTH), mixing=lambda x: jnp.tile(2 * x, 2))
    pairs = doubling.pairs(jax.random.key(0), None, 16)
    chex.assert_shape((pairs.latents1, pairs.latents2), (16, DIM))
    chex.assert_trees_all_equal(pairs.view2, jnp.tile(2 * pairs.latents2, 2))
    chex.assert_trees_all_equal(pairs, doubling.pairs(jax.random.key(0), None, 16))
    chex.assert_shape(doubling.example(), (2, 2 * DIM))
    latents, observations = doubling.known.latents.draw(jax.random.key(1), 8)
    chex.assert_shape(latents, (8, DIM))
    chex.assert_trees_all_equal(observations, jnp.tile(2 * latents, 2))


def test_nothing_is_fed_and_fresh_keys_are_held_out():
    own = source(Box(DIM), conditionals.Normal(TRUTH))
    assert own.fed(16) is None
    assert own.held_out(16) is own
    assert own.known.examples is own.known.interventions is None
    with pytest.raises(NotImplementedError, match="is fed, but has no feed"):
        own.open_feed(None, seed=0, step=0)


@pytest.mark.parametrize(
    ("conditional", "space", "expected"),
    [
        (conditionals.Anisotropic(TRUTH), Sphere(DIM), TRUTH),
        (conditionals.VonMisesFisher(4.0), Sphere(DIM, 3.0), [4.0] * DIM),
        (conditionals.Laplace(TRUTH), Box(DIM), TRUTH),
        (conditionals.Bimodal(conditionals.Normal(TRUTH), 0.1), Box(DIM), TRUTH),
    ],
)
def test_the_concentration_of_a_process_is_known(conditional, space, expected):
    np.testing.assert_allclose(known(space, conditional).concentration, expected)


def test_a_product_has_no_concentration_for_all_factors():
    space = Product((Sphere(2), Box(1)))
    conditional = ProductConditional((conditionals.VonMisesFisher(2.0), conditionals.Normal([1.0])))
    latents = known(space, conditional, marginal=ProductMarginal((UNIFORM, UNIFORM)))
    assert latents.concentration is None
    assert latents.score is None


@pytest.mark.parametrize(
    ("space", "conditional", "exponent"),
    [
        (Sphere(DIM), conditionals.Anisotropic(TRUTH), 2),
        (Sphere(DIM, 2.0), conditionals.Anisotropic(TRUTH, "paper"), 2),
        (Box(DIM), conditionals.Normal(TRUTH), 2),
        (Box(DIM), conditionals.Laplace(TRUTH), 1),
        (Box(DIM), conditionals.GeneralizedNormal(TRUTH, 3.0), 3),
    ],
)
def test_the_score_of_uniform_anchors_is_known(space, conditional, exponent):
    score = known(space, conditional).score
    np.testing.assert_allclose(score.concentration, TRUTH)
    assert score.exponent == exponent


def test_floor_of_a_von_mises_fisher_does_not_depend_on_the_radius():
    views = jax.random.normal(jax.random.key(0), (2, 8, DIM))
    views = views / jnp.linalg.norm(views, axis=-1, keepdims=True)
    expected = contrast.infonce_loss(*views, temperature=0.25, negatives="anchors").loss
    for radius in (1.0, 3.0):
        score = known(Sphere(DIM, radius), conditionals.VonMisesFisher(4.0)).score
        floor = AnInfoNCE().floor(score)(*(radius * views))
        np.testing.assert_allclose(floor, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("space", "conditional", "marginal"),
    [
        (Box(DIM), conditionals.Bimodal(conditionals.Normal(TRUTH), 0.1), UNIFORM),
        (Box(DIM, boundary="wrap"), conditionals.Normal(TRUTH), UNIFORM),
        (Sphere(DIM), conditionals.Normal(TRUTH), UNIFORM),
        (Box(DIM), conditionals.Normal(TRUTH), marginals.Normal()),
        (Real(DIM), conditionals.Normal(TRUTH), marginals.Normal()),
        (Sphere(DIM), conditionals.Anisotropic(TRUTH), marginals.VonMisesFisher(1.0)),
    ],
)
def test_where_the_true_score_has_not_this_form_it_is_not_told(space, conditional, marginal):
    latents = known(space, conditional, marginal=marginal)
    assert latents.score is None
    np.testing.assert_allclose(latents.concentration, TRUTH)


def test_negatives_of_an_anchors_own_are_drawn_near_it():
    process = LatentProcess(
        Sphere(DIM), UNIFORM, conditionals.Anisotropic([900.0, 800.0, 700.0]), lambda x: 2 * x
    )
    plain = ProcessSource(process)
    own = ProcessWithNegatives(process, conditionals.Anisotropic([90.0, 80.0, 70.0]), 5)
    key = jax.random.key(0)
    pairs, alone = (jax.jit(lambda x=x: x.pairs(key, None, 64))() for x in (own, plain))
    # The pairs are those of the process alone; two programs may round differently.
    chex.assert_trees_all_close(pairs.view2, alone.view2, rtol=1e-6)
    chex.assert_shape(pairs.own, (64, 5, DIM))
    distances = jnp.linalg.norm(pairs.own - pairs.view1[:, None], axis=-1)
    others = jnp.linalg.norm(pairs.own - jnp.roll(pairs.view1, 1, axis=0)[:, None], axis=-1)
    assert jnp.mean(distances) < 0.5 < jnp.mean(others)
    assert jnp.mean(distances) > jnp.mean(jnp.linalg.norm(pairs.view2 - pairs.view1, axis=-1))
    known = own.known.latents
    np.testing.assert_allclose(known.concentration, [900, 800, 700])
    np.testing.assert_allclose(known.own_concentration, [90, 80, 70])
