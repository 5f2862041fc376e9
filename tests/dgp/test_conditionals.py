import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_densities import (
    Weighted,
    anisotropic,
    importance_on_sphere,
    mixture,
    projected,
    quadrature_on_line,
    quadrature_on_sphere,
    quick_jit,
    worst_deviation,
)

from aninfonce_jax.dgp.conditionals import (
    Anisotropic,
    Bimodal,
    GeneralizedNormal,
    Laplace,
    Normal,
    VonMisesFisher,
    concentration_values,
)
from aninfonce_jax.dgp.spaces import Box, Product, Real, Sphere

COUNT = 60_000
SIGMAS = 5.0  # of some 2000 comparisons one exceeds this in a thousand runs; seeds are fixed


@functools.partial(quick_jit, static_argnums=2)
def draw(key, conditional, space, anchor):
    """Returns COUNT positives of one anchor; the conditional's numbers are arguments."""
    return conditional.sample(key, space, jnp.broadcast_to(anchor[None, :], (COUNT, anchor.size)))


def draw_at(conditional, space, anchor, seed=0):
    return np.asarray(draw(jax.random.key(seed), conditional, space, jnp.float32(anchor)))


def make(name, concentration, anchor):
    """Returns a conditional on the unit sphere and its log-density, for reference."""
    if name == "exact":
        return Anisotropic(concentration), anisotropic(anchor, concentration)
    if name == "paper":
        return (
            Anisotropic(concentration, "paper", 0.1),
            projected(anchor, concentration, 2, 0.9, 1.1),
        )
    if name == "vmf":
        kappa = float(concentration[0])
        return VonMisesFisher(kappa), lambda points: kappa * points @ anchor
    exponent = {"normal": 2, "laplace": 1, "generalized": 3}[name]
    kinds = {"normal": Normal, "laplace": Laplace, "generalized": GeneralizedNormal}
    extra = (3.0,) if name == "generalized" else ()
    # Sharp peaks need many nodes, most of all in two dimensions; wide noise in ten a long range.
    farthest = 1.0 + {1: 20.0, 2: 7.0, 3: 4.0}[exponent] * concentration.min() ** (-1.0 / exponent)
    sharp = concentration.max() > 100
    nodes = {2: 4000 if exponent == 1 else 600, 3: 300, 10: 400 if sharp else 80}[anchor.size]
    return kinds[name](concentration, *extra), projected(
        anchor, concentration, exponent, 0.0, farthest, nodes
    )


ANCHORS = {2: np.array([0.6, 0.8]), 3: np.array([0.48, 0.6, 0.64])}
SPHERE_CASES = [
    ("exact", 3, [400.0, 20.0, 0.5]),
    ("paper", 3, [400.0, 20.0, 0.5]),
    ("vmf", 2, [0.5]),
    ("exact", 2, [0.5, 0.5]),
    ("laplace", 2, [0.5, 0.5]),
    *(
        (name, dim, values)
        for name in ("exact", "paper", "vmf", "normal", "laplace", "generalized")
        for dim, values in ((2, [400.0, 0.5]), (3, [25.0, 5.0, 5.0]))
    ),
]


@pytest.mark.parametrize(("name", "dim", "concentration"), SPHERE_CASES)
def test_moments_and_marginals_against_quadrature(name, dim, concentration):
    conditional, log_density = make(name, np.array(concentration), ANCHORS[dim])
    reference = quadrature_on_sphere(log_density, dim, nodes=3000 if dim == 2 else 160)
    positives = draw_at(conditional, Sphere(dim), ANCHORS[dim])
    assert worst_deviation(positives, reference) < SIGMAS


TEN_CASES = {"wide": (0.5, 0.5), "paper": (25.0, 5.0), "narrow": (400.0, 15.0)}
TEN_ANCHOR = np.array([0.5, -0.3, 0.2, 0.1, 0.4, 0.3, -0.4, 0.1, 0.3, -0.2])
TEN_ANCHOR /= np.linalg.norm(TEN_ANCHOR)


def variances_of_exact(concentration):
    return 1 / (concentration + concentration.size)


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("exact", "wide"),
        ("exact", "paper"),
        ("exact", "narrow"),
        ("vmf", "wide"),
        ("vmf", "narrow"),
    ],
)
def test_moments_and_marginals_against_importance_sampling(name, case):
    concentration = np.repeat(TEN_CASES[case], 5)
    conditional, log_density = make(name, concentration, TEN_ANCHOR)
    covered = concentration if name == "exact" else np.full(10, concentration[0])
    reference = importance_on_sphere(
        log_density, TEN_ANCHOR, variances_of_exact(covered), draws=30_000
    )
    positives = draw_at(conditional, Sphere(10), TEN_ANCHOR)
    assert worst_deviation(positives, reference) < SIGMAS


@pytest.mark.parametrize("case", TEN_CASES)
@pytest.mark.parametrize("name", ["paper", "normal", "laplace", "generalized"])
def test_projected_samplers_against_importance_sampling(name, case):
    concentration = np.repeat(TEN_CASES[case], 5)
    conditional, log_density = make(name, concentration, TEN_ANCHOR)
    variances = {
        "paper": variances_of_exact(concentration),
        "normal": 1 / concentration,
        "laplace": 2 / concentration**2,
        "generalized": 0.8 / concentration ** (2 / 3),
    }[name]
    reference = importance_on_sphere(log_density, TEN_ANCHOR, variances, draws=20_000)
    positives = draw_at(conditional, Sphere(10), TEN_ANCHOR)
    assert worst_deviation(positives, reference) < SIGMAS


def test_exact_passes_where_the_papers_sampler_deviates():
    concentration = np.repeat([400.0, 15.0], 5)
    reference = importance_on_sphere(
        anisotropic(TEN_ANCHOR, concentration),
        TEN_ANCHOR,
        variances_of_exact(concentration),
        draws=60_000,
    )
    exact = draw_at(Anisotropic(concentration), Sphere(10), TEN_ANCHOR, seed=1)
    paper = draw_at(Anisotropic(concentration, "paper"), Sphere(10), TEN_ANCHOR, seed=1)
    assert worst_deviation(exact, reference) < SIGMAS
    assert worst_deviation(paper, reference) > 3 * SIGMAS


def test_another_radius_is_the_same_density_rescaled():
    concentration, radius = np.array([8.0, 2.0]), 3.0
    anchor = radius * ANCHORS[2]
    positives = draw_at(Anisotropic(concentration), Sphere(2, radius), anchor) / radius
    reference = quadrature_on_sphere(anisotropic(ANCHORS[2], radius**2 * concentration), 2, 2000)
    assert worst_deviation(positives, reference) < SIGMAS
    vmf = draw_at(VonMisesFisher(4.0), Sphere(2, radius), anchor) / radius
    reference = quadrature_on_sphere(lambda points: 4.0 * points @ ANCHORS[2], 2, 2000)
    assert worst_deviation(vmf, reference) < SIGMAS


def test_bimodal_on_the_sphere_is_a_mixture_of_displaced_modes():
    concentration, offset = np.array([50.0, 20.0]), np.array([0.5, -0.6])
    modes = [ANCHORS[2] + sign * offset for sign in (1, -1)]
    reference = mixture(
        *(
            quadrature_on_sphere(anisotropic(m / np.linalg.norm(m), concentration), 2, 2000)
            for m in modes
        )
    )
    conditional = Bimodal(Anisotropic(concentration), offset)
    assert worst_deviation(draw_at(conditional, Sphere(2), ANCHORS[2]), reference) < SIGMAS


@pytest.mark.parametrize("case", TEN_CASES)
def test_bimodal_in_ten_dimensions(case):
    concentration, offset = np.repeat(TEN_CASES[case], 5), 0.1 * np.arange(10) - 0.3
    modes = [TEN_ANCHOR + sign * offset for sign in (1, -1)]
    reference = mixture(
        *(
            importance_on_sphere(
                anisotropic(mode, concentration), mode, variances_of_exact(concentration), 30_000
            )
            for mode in (mode / np.linalg.norm(mode) for mode in modes)
        )
    )
    conditional = Bimodal(Anisotropic(concentration), offset)
    assert worst_deviation(draw_at(conditional, Sphere(10), TEN_ANCHOR), reference) < SIGMAS


@pytest.mark.parametrize("boundary", ["reject", "wrap"])
@pytest.mark.parametrize(
    "kind", [Normal, Laplace, functools.partial(GeneralizedNormal, exponent=3.0)]
)
def test_box_is_truncated_or_wrapped_coordinate_by_coordinate(kind, boundary):
    space = Box(4, -1.0, 2.0, boundary)
    concentration = np.array([0.5, 25.0, 400.0, 5.0])
    anchor = np.array([0.0, -0.99, 1.5, 2.0])
    conditional = kind(concentration)
    positives = draw_at(conditional, space, anchor)
    assert positives.min() >= -1.0
    assert positives.max() <= 2.0
    for index in range(4):
        reference = quadrature_on_line(
            box_log_density(concentration[index], anchor[index], conditional.exponent, boundary),
            -1.0,
            2.0,
        )
        assert worst_deviation(positives[:, index : index + 1], reference) < SIGMAS, index
    correlation = np.corrcoef(positives, rowvar=False) - np.eye(4)
    assert np.abs(correlation).max() < SIGMAS / np.sqrt(COUNT)


def box_log_density(concentration, anchor, exponent, boundary):
    images = 3.0 * np.arange(-10, 11) if boundary == "wrap" else np.zeros(1)

    def log_density(points):
        distance = np.abs(points[:, None] - anchor + images) ** exponent
        return np.log(np.exp(-concentration * distance / exponent).sum(axis=1) + 1e-300)

    return log_density


@pytest.mark.parametrize("concentration", [1e-6, 1e6])
def test_a_box_never_runs_out_of_tries(concentration):
    # A wide normal hardly ever hits the box; truncated draws do not have to.
    for kind in (Normal, Laplace, functools.partial(GeneralizedNormal, exponent=3.0)):
        positives = draw_at(kind(np.full(4, concentration)), Box(4, -1.0, 2.0), np.full(4, 0.5))
        chex.assert_tree_all_finite(positives)
        expected = 3 / np.sqrt(12) if concentration < 1 else None
        if expected:
            np.testing.assert_allclose(positives.std(axis=0), expected, rtol=0.02)


@pytest.mark.parametrize("exponent", [2.0, 3.0, 0.7])
def test_real_space_is_left_alone(exponent):
    concentration, anchor = np.array([0.5, 400.0]), np.array([3.0, -1.0])
    positives = draw_at(GeneralizedNormal(concentration, exponent), Real(2), anchor)
    for index in range(2):
        reach = 60.0 * concentration[index] ** (-1.0 / exponent)
        reference = quadrature_on_line(
            lambda x, i=index: -concentration[i] * np.abs(x - anchor[i]) ** exponent / exponent,
            anchor[index] - reach,
            anchor[index] + reach,
        )
        assert worst_deviation(positives[:, index : index + 1], reference) < SIGMAS


def test_bimodal_offset_of_one_number_is_a_distance_shared_out_by_spread():
    conditional = Bimodal(Normal([100.0, 400.0]), 1.0)
    positives = draw_at(conditional, Real(2), np.zeros(2))
    expected = np.array([2.0, 1.0]) / np.sqrt(5.0)
    upper = positives[positives[:, 0] > 0]
    np.testing.assert_allclose(upper.mean(axis=0), expected, atol=5 * 0.1 / np.sqrt(len(upper)))
    assert abs(len(upper) / COUNT - 0.5) < 5 * 0.5 / np.sqrt(COUNT)


def test_log_densities():
    anchors, positives = jnp.array([[0.6, 0.8]]), jnp.array([[0.8, -0.6]])
    difference = np.array([0.2, -1.4])
    sphere, box, real = Sphere(2), Box(2, -1.0, 1.0), Real(2)
    weights = np.array([2.0, 3.0])

    def value(conditional, space):
        with jax.numpy_dtype_promotion("strict"):
            return float(conditional.log_density(space, anchors, positives)[0])

    squared = -0.5 * (weights * difference**2).sum()
    assert value(Anisotropic(weights), sphere) == pytest.approx(squared)
    assert value(Normal(weights), box) == pytest.approx(squared)
    assert value(Laplace(weights), real) == pytest.approx(-(weights * np.abs(difference)).sum())
    cubed = -(weights * np.abs(difference) ** 3).sum() / 3
    assert value(GeneralizedNormal(weights, 3.0), real) == pytest.approx(cubed)
    assert value(VonMisesFisher(7.0), sphere) == pytest.approx(0.0, abs=1e-6)
    modes = [-0.5 * (weights * (difference - s * np.array([0.1, 0.2])) ** 2).sum() for s in (1, -1)]
    bimodal = Bimodal(Normal(weights), [0.1, 0.2])
    assert value(bimodal, real) == pytest.approx(np.logaddexp(*modes))
    for conditional, space in (
        (Anisotropic(weights, "paper"), sphere),
        (Normal(weights), sphere),
        (Normal(weights), Box(2, boundary="wrap")),
        (Bimodal(Anisotropic(weights), 0.1), sphere),
    ):
        with pytest.raises(ValueError, match=r"closed.form"):
            value(conditional, space)


def test_one_trace_serves_every_concentration():
    chex.clear_trace_counter()

    @quick_jit
    @chex.assert_max_traces(n=1)
    def sample(key, conditional, anchors):
        return conditional.sample(key, Sphere(4), anchors)

    anchors = Sphere(4).uniform(jax.random.key(0), 64)
    with jax.numpy_dtype_promotion("strict"):
        first = sample(jax.random.key(1), Anisotropic([1.0, 2.0, 3.0, 4.0], "paper"), anchors)
        second = sample(jax.random.key(1), Anisotropic([9.0, 2.0, 3.0, 4.0], "paper"), anchors)
    chex.assert_shape([first, second], (64, 4))
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1.0, rtol=1e-5)
    assert np.abs(first - second).max() > 1e-3


@settings(deadline=None, max_examples=20, derandomize=True)
@given(
    layout=st.sampled_from(["bimodal", "linear", "constant"]),
    dim=st.integers(1, 40),
    high=st.floats(1e-3, 1e4),
    low=st.floats(1e-3, 1e4),
)
def test_layouts_have_the_right_length_and_ends(layout, dim, high, low):
    values = concentration_values(layout, dim, high, low)
    chex.assert_shape(values, (dim,))
    assert values[0] == pytest.approx(high)
    if dim > 1:
        assert values[-1] == pytest.approx(high if layout == "constant" else low)
    if layout == "bimodal":
        assert np.count_nonzero(np.arange(dim) < (dim + 1) // 2) == np.count_nonzero(
            values[: (dim + 1) // 2] == high
        )


def test_layouts_by_example():
    assert concentration_values("bimodal", 5, 25.0, 5.0).tolist() == [25, 25, 25, 5, 5]
    assert concentration_values("linear", 3, 25.0, 5.0).tolist() == [25, 15, 5]
    assert concentration_values("constant", 2, 7.0).tolist() == [7, 7]
    assert concentration_values("explicit", 2, values=(3.0, 1.0)).tolist() == [3, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("explicit", 3, 1.0, 1.0, (1.0, 2.0)), "expected 3 values, got 2"),
        (("explicit", 2, 1.0, 1.0, (1.0, -2.0)), r"positive and finite, got -2 at index 1"),
        (("constant", 2, float("inf")), "positive and finite, got inf"),
        (("bimodal", 4, 5.0, 0.0), "got 0 at index 2"),
        (("linear", 4, float("nan"), 1.0), "positive and finite, got nan"),
        (("cubic", 4), "Unknown layout 'cubic'"),
    ],
)
def test_bad_layouts_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        concentration_values(*arguments)


@pytest.mark.parametrize(
    ("make_conditional", "message"),
    [
        (lambda: Anisotropic([1.0, -1.0]), "concentration must be positive and finite, got -1 at"),
        (lambda: Anisotropic(jnp.array([jnp.nan, 1.0])), "positive and finite, got nan"),
        (
            lambda: Anisotropic(np.ones((2, 2))),
            r"one value per factor, \[dim\], got shape \(2, 2\)",
        ),
        (lambda: Anisotropic([1.0], "fast"), "method must be 'exact' or 'paper', got 'fast'"),
        (lambda: Anisotropic([1.0], "paper", 0.0), "shell must be positive, got 0.0"),
        (lambda: VonMisesFisher([1.0, 2.0]), r"must be a number, got shape \(2,\)"),
        (lambda: GeneralizedNormal([1.0], 0.0), "exponent must be positive and finite, got 0.0"),
        (lambda: Bimodal(Normal([1.0]), float("nan")), "offset must be finite"),
    ],
)
def test_bad_parameters_are_refused(make_conditional, message):
    with pytest.raises(ValueError, match=message):
        make_conditional()


@pytest.mark.parametrize(
    ("conditional", "space", "message"),
    [
        (Anisotropic([1.0, 1.0]), Box(2), r"defined on a sphere, got Box\(dim=2"),
        (VonMisesFisher(1.0), Real(2), "defined on a sphere, got Real"),
        (Anisotropic([1.0] * 2, "paper", 2.0), Sphere(2), "less than the radius 1, got 2"),
        (Anisotropic([1.0, 1.0]), Sphere(3), r"one value per factor, \[3\], got shape \(2,\)"),
        (Normal([1.0, 1.0]), Real(3), r"one value per factor, \[3\]"),
        (Normal([1.0]), Product((Real(1),)), "needs a ProductConditional"),
        (Bimodal(Normal([1.0, 1.0]), [0.1]), Real(2), r"offset must have one value per factor"),
    ],
)
def test_parts_that_do_not_fit_are_refused(conditional, space, message):
    with pytest.raises(ValueError, match=message):
        conditional.check(space)


def test_a_setting_that_never_accepts_is_named():
    hopeless = Anisotropic(np.full(10, 1e-6), "paper", 1e-3)
    with pytest.raises(ValueError, match=r"Λ from 1e-06 to 1e-06 with shell = 0\.001") as error:
        hopeless.check(Sphere(10))
    assert "use method='exact' or widen the shell" in str(error.value)
    Anisotropic(np.full(10, 1e-6)).check(Sphere(10))
    Anisotropic(np.repeat([25.0, 5.0], 5), "paper").check(Sphere(10))


def test_an_exact_setting_beyond_reach_is_named():
    Anisotropic(np.repeat([1e5, 1.0], 5)).check(Sphere(10))
    with pytest.raises(ValueError, match=r"Λ from 1 to 1e\+12 .*closer to each other"):
        Anisotropic(np.repeat([1e12, 1.0], 5)).check(Sphere(10))


def test_the_reference_itself_is_normalised():
    reference = quadrature_on_sphere(lambda points: np.zeros(len(points)), 3, 160)
    assert isinstance(reference, Weighted)
    mean, _ = reference.mean(reference.points**2)
    np.testing.assert_allclose(mean, 1 / 3, atol=1e-4)
