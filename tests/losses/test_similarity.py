"""Scores against their definitions, and the checks of their parameters."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aninfonce_jax.losses import similarity

ONE = jnp.float32(1)


def points(seed: int, rows: int, dim: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), (rows, dim))


def all_scores(factors: similarity.Factors, keys: jax.Array) -> jax.Array:
    vectors, bias = factors.of_keys(keys, factors.parameters)
    scores = factors.queries @ vectors.T
    if bias is not None:
        scores = scores + bias[None, :] + factors.query_bias[:, None]
    return scores


def anisotropic_scores(a: jax.Array, b: jax.Array, weights: jax.Array) -> jax.Array:
    return all_scores(similarity.anisotropic_factors(a, jnp.mean(b, axis=0), weights), b)


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
            (
                all_scores(similarity.dot_product_factors(a, tau), b).ravel(),
                similarity.dot_product(a[rows], b[columns], tau),
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
            lambda a, b, tau: (similarity.lp_matrix(a, b, p, tau), similarity.lp(a, b[:4], p, tau))
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
    gradient = jax.jit(jax.grad(lambda x: similarity.lp_matrix(x, a, 3.0, ONE).sum()))
    temporary = gradient.lower(a).compile().memory_analysis().temp_size_in_bytes
    assert temporary < rows * rows * dim * 4 / 2


def test_parameters_are_converted_and_scalars_broadcast() -> None:
    weights = similarity.checked_concentration(25, 3, jnp.float32)
    chex.assert_trees_all_equal(weights, jnp.full(3, 25.0))
    assert weights.dtype == jnp.float32
    tau = similarity.checked_temperature(np.float64(0.5), jnp.float32)
    assert (tau.shape, tau.dtype) == ((), jnp.float32)
    assert similarity.checked_exponent(3) == 3.0


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ([1.0, 2.0], ValueError, r"a scalar or have shape \(3,\).*got shape \(2,\)"),
        ([1.0, 0.0, 1.0], ValueError, "concentration must be positive and finite, got 0.0"),
        ([1.0, -2.0, 1.0], ValueError, "concentration must be positive and finite, got -2.0"),
        ([1.0, np.nan, 1.0], ValueError, "concentration must be positive and finite, got nan"),
        ([1.0, np.inf, 1.0], ValueError, "natural units"),
        ([True, True, True], TypeError, "concentration must be real numbers, got dtype bool"),
        (1j, TypeError, "concentration must be real numbers, got dtype complex128"),
    ],
)
def test_impossible_concentrations_are_refused(value: object, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        similarity.checked_concentration(np.asarray(value), 3, jnp.float32)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0.0, "temperature must be positive and finite, got 0.0"),
        (-1.0, "temperature must be positive and finite, got -1.0"),
        (float("nan"), "temperature must be positive and finite, got nan"),
        (np.ones(2), r"temperature must be a scalar, got shape \(2,\)"),
    ],
)
def test_impossible_temperatures_are_refused(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        similarity.checked_temperature(value, jnp.float32)


@pytest.mark.parametrize(
    ("p", "error", "message"),
    [
        (0, ValueError, "p must be positive and finite, got 0"),
        (-1.0, ValueError, "p must be positive and finite, got -1.0"),
        (float("nan"), ValueError, "p must be positive and finite, got nan"),
        (True, TypeError, "p must be a Python number, got bool"),
        (jnp.float32(2), TypeError, "p must be a Python number, got ArrayImpl"),
    ],
)
def test_impossible_exponents_are_refused(p: object, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        similarity.checked_exponent(p)
