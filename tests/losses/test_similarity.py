"""Scores against their definitions."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aninfonce_jax.losses import similarity
from aninfonce_jax.losses.powers import lp_matrix

ONE, ONES = jnp.float32(1), jnp.ones(4, jnp.float32)


def points(seed: int, rows: int, dim: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), (rows, dim))


def all_scores(factors: similarity.Factors, keys: jax.Array) -> jax.Array:
    vectors, bias, *_ = factors.of_keys(keys, factors.parameters)
    scores = factors.queries @ vectors.T + bias[None, :] + factors.query_bias[:, None]
    return scores + factors.offset


def anisotropic_scores(a: jax.Array, b: jax.Array, weights: jax.Array) -> jax.Array:
    origin = similarity.common_origin(jnp.mean(a, axis=0), jnp.mean(b, axis=0))
    return all_scores(similarity.anisotropic_factors(a, a, origin, weights), b)


def dot_products(a: jax.Array, b: jax.Array, tau: jax.Array, normalized: bool) -> jax.Array:
    if normalized:
        a, b = similarity.unit_norm(a), similarity.unit_norm(b)
    origin = similarity.common_origin(jnp.mean(a, axis=0), jnp.mean(b, axis=0))
    return all_scores(similarity.dot_product_factors(a, a, origin, tau, normalized=normalized), b)


def test_unit_norm_scales_rows_of_any_magnitude_and_leaves_zero() -> None:
    x = jnp.array([[3e-30, 4e-30], [3e30, 4e30], [3.0, 4.0], [0.0, 0.0]])
    expected = jnp.array([[0.6, 0.8], [0.6, 0.8], [0.6, 0.8], [0.0, 0.0]])
    chex.assert_trees_all_close(similarity.unit_norm(x), expected, rtol=1e-6)


def test_unit_norm_gradient_is_tangential_and_finite_at_zero() -> None:
    x = jnp.array([[3.0, 4.0], [0.0, 0.0]])
    cotangent = jnp.array([[1.0, 2.0], [1.0, 2.0]])
    _, pullback = jax.vjp(similarity.unit_norm, x)
    (gradient,) = pullback(cotangent)
    # (I - uuᵀ) g / |x| with u = (.6, .8), g = (1, 2), |x| = 5.
    np.testing.assert_allclose(gradient[0], np.array([-0.32, 0.24]) / 5, atol=1e-6)
    chex.assert_tree_all_finite(gradient)


def test_anisotropic_is_the_quadratic_form() -> None:
    a, b = jnp.array([[1.0, 2.0]]), jnp.array([[0.0, 4.0]])
    score = similarity.anisotropic(a, b, jnp.array([2.0, 3.0]))
    chex.assert_trees_all_close(score, jnp.array([-0.5 * (2 * 1 + 3 * 4)]))


@pytest.mark.parametrize(("anchors", "keys", "dim"), [(1, 1, 1), (3, 4, 2)])
def test_factors_reproduce_paired_scores(anchors: int, keys: int, dim: int) -> None:
    rows, columns = np.divmod(np.arange(anchors * keys), keys)

    @jax.jit
    def both_forms(a: jax.Array, b: jax.Array, weights: jax.Array, tau: jax.Array) -> list:
        return [
            (
                anisotropic_scores(a, b, weights).ravel(),
                similarity.anisotropic(a[rows], b[columns], weights),
            ),
            (dot_products(a, b, tau, False), a @ b.T / tau),
            (
                dot_products(a, b, tau, True),
                similarity.unit_norm(a) @ similarity.unit_norm(b).T / tau,
            ),
        ]

    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        a, b = points(0, anchors, dim), points(1, keys, dim)
        for concentration in (1e-4, 1.0, 1e4):
            weights = jnp.linspace(concentration, 2 * concentration, dim)
            for factored, paired in both_forms(a, b, weights, jnp.float64(0.1)):
                chex.assert_trees_all_close(factored, paired, rtol=1e-9)


def test_anisotropic_factors_are_precise_far_from_the_origin() -> None:
    a, b = points(0, 5, 3) + 1000, points(1, 4, 3) + 1000
    weights = jnp.array([1.0, 2.0, 3.0])
    scores = anisotropic_scores(a, b, weights)
    paired = similarity.anisotropic(jnp.repeat(a, 4, 0), jnp.tile(b, (5, 1)), weights)
    # Without the common origin, aᵀΛa of about 6e6 would leave an error of about 0.5.
    chex.assert_trees_all_close(scores.ravel(), paired, atol=1e-5)


@pytest.mark.parametrize("p", [0.5, 1, 1.5, 2, 3, 4])
def test_lp_matrix_agrees_with_its_definition(p: float) -> None:
    a, b = points(0, 4, 3), points(1, 5, 3)
    expected = -(np.abs(np.asarray(a)[:, None] - np.asarray(b)[None]) ** p).sum(-1) / 0.5
    tau = jnp.float32(0.5)
    with jax.numpy_dtype_promotion("strict"):
        matrix, paired = jax.jit(
            lambda a, b, tau: (lp_matrix(a, b, p, 1 / tau * ONES), similarity.lp(a, b[:4], p, tau))
        )(a, b, tau)
    chex.assert_trees_all_close(matrix, expected.astype(np.float32), rtol=2e-5)
    chex.assert_trees_all_close(paired, np.diagonal(expected).astype(np.float32), rtol=2e-5)


@pytest.mark.parametrize("p", [0.5, 1, 1.5, 3])
def test_lp_gradient_vanishes_where_points_coincide(p: float) -> None:
    a = points(0, 2, 3)
    gradient = jax.jit(jax.grad(lambda x: similarity.lp(x, a, p, ONE).sum()))(a)
    chex.assert_trees_all_equal(gradient, jnp.zeros_like(a))


def test_lp_gradient_keeps_no_array_of_all_differences() -> None:
    rows, dim = 64, 32
    a = points(0, rows, dim)
    gradient = jax.jit(jax.grad(lambda x: lp_matrix(x, a, 3.0, x[:, 0]).sum()))
    temporary = gradient.lower(a).compile().memory_analysis().temp_size_in_bytes
    assert temporary < rows * rows * dim * 4 / 2
