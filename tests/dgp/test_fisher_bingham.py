import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_densities import quick_jit
from scipy.integrate import quad

from aninfonce_jax.dgp import fisher_bingham
from aninfonce_jax.dgp.spaces import Sphere

DIMS = (2, 3, 10, 512)
# One shape for all tests that only need some samples: compiling takes longer than sampling.
COUNT, DIM = 40_000, 5
sample = quick_jit(fisher_bingham.sample)
fit_envelope = quick_jit(fisher_bingham.fit_envelope)
propose = quick_jit(fisher_bingham.propose)

log_radial_ratio = quick_jit(fisher_bingham.log_radial_ratio, static_argnums=2)


@functools.partial(quick_jit, static_argnums=3)
def worst_ratio(a, b, envelope, dim):
    """Returns by how much the log-ratio at any (a, b) exceeds its bound."""
    ratio = fisher_bingham.log_radial_ratio(a, b, dim) - 0.5 * envelope.tilt * a
    return jnp.max(ratio - envelope.log_bound)


def radial_ratio_by_quad(a: float, b: float, dim: int) -> float:
    def exponent(r: float) -> float:
        return (dim - 1) * np.log(r) - 0.5 * a * (r**2 - 1) + b * (r - 1)

    mode = (b + np.sqrt(b**2 + 4 * a * (dim - 1))) / (2 * a)
    width = 1 / np.sqrt(a + (dim - 1) / mode**2)
    low, high = max(0.0, mode - 40 * width), mode + 40 * width
    peak = exponent(mode)
    integral, _ = quad(lambda r: np.exp(exponent(r) - peak), low, high, points=[mode], limit=200)
    return -(peak + np.log(integral))


@pytest.mark.parametrize("dim", DIMS)
def test_radial_integral_agrees_with_adaptive_quadrature(dim):
    rng = np.random.default_rng(dim)
    a = 10 ** rng.uniform(0, 4.2, 40)
    b = np.concatenate([a[:20] - dim + 1 + 2 * np.sqrt(a[:20] + dim) * rng.normal(size=20),
                        a[20:] * rng.uniform(-1, 1, 20)])  # fmt: skip
    expected = [radial_ratio_by_quad(x, y, dim) for x, y in zip(a, b, strict=True)]
    with jax.enable_x64(True):
        precise = log_radial_ratio(jnp.asarray(a), jnp.asarray(b), dim)
        chex.assert_trees_all_close(np.asarray(precise), np.array(expected), atol=5e-6, rtol=1e-9)
    typical = slice(0, 20)
    single = log_radial_ratio(jnp.float32(a[typical]), jnp.float32(b[typical]), dim)
    chex.assert_trees_all_close(np.asarray(single), np.float32(expected[typical]), atol=2e-4)


@pytest.mark.parametrize("dim", DIMS)
def test_bound_is_never_exceeded(dim):
    rng = np.random.default_rng(dim)
    count = 4000
    quadratic = jnp.float32(10 ** rng.uniform(-4, 4, dim))
    anchors = Sphere(dim).uniform(jax.random.key(1), count)
    envelope = fit_envelope(quadratic[None, :] * anchors, quadratic)
    points = {
        "near": propose(jax.random.key(2), envelope)[0],
        "far": Sphere(dim).uniform(jax.random.key(3), count),
        "middle": Sphere(dim).project(envelope.mean),
    }
    for name, point in points.items():
        a = jnp.sum(envelope.precision * point**2, axis=-1)
        b = jnp.sum(envelope.precision * envelope.mean * point, axis=-1)
        assert worst_ratio(a, b, envelope, dim) <= 0.0, name


@settings(deadline=None, max_examples=20, derandomize=True)
@given(
    low=st.floats(-4, 4),
    high=st.floats(-4, 4),
    a_factor=st.lists(st.floats(-2, 2), min_size=64, max_size=64),
    b_shift=st.lists(st.floats(-6, 6), min_size=64, max_size=64),
)
def test_bound_holds_for_any_a_and_b(low, high, a_factor, b_shift):
    # The envelope's claim is about all (a, b), not only those that occur on the sphere.
    dim = 10
    quadratic = jnp.float32(np.repeat([10.0**low, 10.0**high], 5))
    anchor = jnp.full((1, dim), dim**-0.5)
    envelope = fit_envelope(quadratic[None, :] * anchor, quadratic)
    center = jnp.sum(envelope.precision * envelope.mean**2) + dim
    a = jnp.clip(center * 10 ** jnp.array(a_factor), 1.0, 2e4)
    b = a - dim + jnp.array(b_shift) * jnp.sqrt(a + dim)
    assert worst_ratio(a, b, envelope, dim) <= 0.0


@pytest.mark.parametrize(
    ("high", "low", "dim", "expected"), [(25.0, 5.0, 10, 0.91), (400.0, 15.0, 20, 0.59)]
)
def test_acceptance_is_what_the_documentation_says(high, low, dim, expected):
    quadratic = jnp.repeat(jnp.array([high, low]), dim // 2)
    anchors = Sphere(dim).uniform(jax.random.key(0), 20_000)
    envelope = fit_envelope(quadratic[None, :] * anchors, quadratic)
    _, accepted = propose(jax.random.key(1), envelope)
    assert float(accepted.mean()) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("quadratic", [0.0, 1e-8, -3.0])
def test_without_anisotropy_and_linear_term_is_uniform(quadratic):
    draws = sample(jax.random.key(0), jnp.zeros((COUNT, DIM)), jnp.full(DIM, quadratic))
    second = np.asarray(draws.T @ draws) / COUNT
    # A product of two coordinates has a standard deviation below 0.25.
    np.testing.assert_allclose(second, np.eye(DIM) / DIM, atol=5 * 0.25 / np.sqrt(COUNT))
    np.testing.assert_allclose(draws.mean(axis=0), 0.0, atol=5 / np.sqrt(DIM * COUNT))


def test_a_common_shift_of_the_quadratic_changes_nothing():
    linear = 3.0 * Sphere(DIM).uniform(jax.random.key(0), COUNT)
    quadratic = jnp.array([1.0, 4.0, 9.0, 2.0, 2.0])
    plain = sample(jax.random.key(1), linear, quadratic)
    shifted = sample(jax.random.key(1), linear, quadratic + 8.0)
    # Rounding may flip a decision; then the rest of that round may differ.
    assert np.mean(np.abs(plain - shifted).max(axis=1) < 1e-4) > 0.95


def test_a_row_that_is_not_a_number_stays_alone():
    linear = jnp.ones((COUNT, DIM)).at[2, 1].set(jnp.nan)
    draws = sample(jax.random.key(0), linear, jnp.arange(float(DIM)))
    assert np.flatnonzero(np.isnan(draws).any(axis=1)).tolist() == [2]


def test_float64_stays_float64_under_strict_promotion():
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        linear = jnp.ones((8, 3), jnp.float64)
        draws = sample(jax.random.key(0), linear, jnp.arange(3, dtype=jnp.float64))
        chex.assert_type(draws, jnp.float64)
        np.testing.assert_allclose(jnp.linalg.norm(draws, axis=1), 1.0, atol=1e-12)
