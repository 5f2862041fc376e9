import functools

import chex
import jax
import numpy as np
import pytest
from reference_densities import (
    projected,
    quadrature_on_line,
    quadrature_on_sphere,
    quick_jit,
    worst_deviation,
)

from aninfonce_jax.dgp.conditionals import Laplace as LaplaceConditional
from aninfonce_jax.dgp.conditionals import VonMisesFisher as VonMisesFisherConditional
from aninfonce_jax.dgp.marginals import (
    GeneralizedNormal,
    Laplace,
    Normal,
    Uniform,
    VonMisesFisher,
)
from aninfonce_jax.dgp.products import ProductConditional, ProductMarginal
from aninfonce_jax.dgp.spaces import Box, Product, Real, Sphere

COUNT = 60_000
SIGMAS = 5.0
SPREAD = [(Normal, 2), (Laplace, 1), (functools.partial(GeneralizedNormal, exponent=3.0), 3)]


@functools.partial(quick_jit, static_argnums=2)
def draw(key, marginal, space):
    return marginal.sample(key, space, COUNT)


def check(draw_points, references):
    """Compares the coordinates of points with references, and says how often if they differ.

    Once, in a run of the whole suite on a loaded machine, points were those of the test before.
    If it comes again, this tells memory that was read before it was written from a program that
    went wrong once, and from a wrong program.
    """

    def deviation(points):
        columns = np.split(np.asarray(points), len(references), axis=1)
        return max(map(worst_deviation, columns, references))

    points = draw_points()
    found = deviation(points)
    if not found < SIGMAS:
        later = {"read again": deviation(points), "drawn again": deviation(draw_points())}
        jax.clear_caches()
        pytest.fail(f"off by {found} sigmas; {later}, compiled again {deviation(draw_points())}")


@pytest.mark.parametrize(("kind", "exponent"), SPREAD)
@pytest.mark.parametrize("space", [Real(2), Box(2, -1.0, 2.0)], ids=["real", "box"])
def test_spread_marginals_on_the_line(kind, exponent, space):
    scales = np.array([0.4, 2.0])
    references = []
    for scale in scales:
        center = 0.5 if isinstance(space, Box) else 0.0
        low, high = (-1.0, 2.0) if isinstance(space, Box) else (-40 * scale, 40 * scale)
        references.append(
            quadrature_on_line(
                lambda x, c=center, s=scale: -(np.abs((x - c) / s) ** exponent) / exponent,
                low, high,
            )
        )  # fmt: skip
    check(lambda: draw(jax.random.key(0), kind(scales), space), references)


@pytest.mark.parametrize(("kind", "exponent"), SPREAD)
def test_spread_marginals_are_projected_on_the_sphere(kind, exponent):
    pole, scale = np.array([1.0, 0.0, 0.0]), 0.5
    points = np.asarray(draw(jax.random.key(0), kind(scale), Sphere(3)))
    concentration = np.full(3, scale**-exponent)
    log_density = projected(pole, concentration, exponent, 0.0, 9.0, nodes=300)
    assert worst_deviation(points, quadrature_on_sphere(log_density, 3, 160)) < SIGMAS


@pytest.mark.parametrize("kappa", [1e-2, 1.0, 100.0])
def test_von_mises_fisher_around_both_poles(kappa):
    for direction, sign in ((None, 1.0), ([-5.0, 0.0, 0.0], -1.0)):
        points = np.asarray(draw(jax.random.key(0), VonMisesFisher(kappa, direction), Sphere(3)))
        reference = quadrature_on_sphere(lambda u, s=sign: kappa * s * u[:, 0], 3, 160)
        assert worst_deviation(points, reference) < SIGMAS


def test_product_of_marginals_and_conditionals():
    space = Product((Sphere(2), Real(2)))
    marginal = ProductMarginal((Uniform(), Laplace(2.0)))
    conditional = ProductConditional(
        (VonMisesFisherConditional(50.0), LaplaceConditional([1e3, 1.0]))
    )
    marginal.check(space)
    conditional.check(space)

    @quick_jit
    def sample(key):
        anchor_key, positive_key = jax.random.split(key)
        anchors = marginal.sample(anchor_key, space, COUNT)
        return anchors, conditional.sample(positive_key, space, anchors)

    anchors, positives = sample(jax.random.key(0))
    chex.assert_shape([anchors, positives], (COUNT, 4))
    np.testing.assert_allclose(np.linalg.norm(positives[:, :2], axis=1), 1.0, rtol=1e-5)
    # A Laplace distribution of scale s has the mean absolute value s and the same deviation.
    for index, scale in ((2, 1e-3), (3, 1.0)):
        distance = np.abs(positives[:, index] - anchors[:, index])
        assert distance.mean() == pytest.approx(scale, rel=5 / np.sqrt(COUNT) + 1e-4)
    cosine = np.sum(anchors[:, :2] * positives[:, :2], axis=1)
    assert cosine.mean() == pytest.approx(1 - 1 / 100, abs=1e-3)
    expected = 50.0 * cosine - np.abs(positives[:, 2:] - anchors[:, 2:]) @ np.array([1e3, 1.0])
    log_density = conditional.log_density(space, anchors, positives)
    np.testing.assert_allclose(log_density, expected, atol=1e-3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Normal(0.0), "scale must be positive and finite, got 0"),
        (lambda: GeneralizedNormal(1.0, -1.0), "exponent must be positive and finite, got -1.0"),
        (lambda: Normal([1.0, 1.0]).check(Real(3)), r"scale must have one value per factor, \[3\]"),
        (lambda: Normal().check(Product((Real(1),))), "needs a ProductMarginal"),
        (lambda: Uniform().check(Product((Real(1),))), "no uniform distribution"),
        (lambda: VonMisesFisher(1.0).check(Box(2)), "marginal is defined on a sphere, got Box"),
        (lambda: VonMisesFisher(1.0, [1.0]).check(Sphere(2)), r"direction must have one value per"),
        (lambda: VonMisesFisher(1.0, [0.0, 0.0]), "direction must be finite and not zero"),
        (lambda: ProductMarginal((Uniform(),)).check(Box(2)), "product of 1 spaces, got Box"),
        (
            lambda: ProductConditional((LaplaceConditional([1.0]),)).check(
                Product((Real(1), Real(1)))
            ),
            "Expected a product of 1 spaces, got Product",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
