"""The losses against published values, a naive enumeration of pairs, and their contract."""

import functools
import pathlib
from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_losses import (
    anisotropic_score,
    dot_score,
    enumerate_pairs,
    lp_score,
    naive_per_anchor,
    published_pairs,
)

from aninfonce_jax.losses import similarity
from aninfonce_jax.losses.contrast import aninfonce_loss, infonce_loss, lp_loss
from aninfonce_jax.types import Array, LossOutput

REFERENCE = np.load(pathlib.Path(__file__).with_name("reference_values.npz"))
CASES = ("case0", "case1", "case2")


# --- Published values ---


@functools.cache
def compiled_aninfonce() -> Callable:
    return jax.jit(aninfonce_loss)


@pytest.mark.parametrize("case", CASES)
def test_aninfonce_matches_published_values(case: str) -> None:
    """Every number of the file that the clean definition determines.

    `an_per_anchor` holds, in both halves, the log-sum-exp of anchor 0 minus the
    positive score of anchor i (its mean is not `an_loss`), so only entry 0 is a
    per-anchor loss. The test below covers the other anchors through `an_loss` and its
    gradients, which are means over all of them.
    """
    with jax.enable_x64(True):
        view1, view2 = jnp.array(REFERENCE[f"{case}/z1"]), jnp.array(REFERENCE[f"{case}/z2"])
        concentration = jnp.array(REFERENCE[f"{case}/lambda_eff"])
        output = compiled_aninfonce()(view1, view2, concentration)
        published = REFERENCE[f"{case}/an_per_anchor"]
        assert output.per_anchor.dtype == jnp.float64
        np.testing.assert_allclose(output.per_anchor[0], published[0], rtol=0, atol=1e-9)
        np.testing.assert_allclose(output.alignment, REFERENCE[f"{case}/an_pos_mean"], atol=1e-9)
        positive = similarity.anisotropic(view1, view2, concentration)
        per_anchor = output.per_anchor[0] + positive[0] - positive
        np.testing.assert_allclose(jnp.tile(per_anchor, 2), published, rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_aninfonce_matches_the_published_mean_by_way_of_the_naive_reference(case: str) -> None:
    """The naive reference gives `an_loss` and its gradients; its clean rows are ours."""
    with jax.enable_x64(True):
        view1, view2 = jnp.array(REFERENCE[f"{case}/z1"]), jnp.array(REFERENCE[f"{case}/z2"])
        n = len(view1)

        def naive_mean(view1: Array, view2: Array, raw: Array) -> tuple[Array, Array]:
            per_anchor = naive_per_anchor(
                view1,
                view2,
                jax.nn.softplus(raw),
                score=anisotropic_score,
                rows=published_pairs(n),
            )
            return per_anchor.mean(), per_anchor

        (loss, per_anchor), gradients = jax.jit(
            jax.value_and_grad(naive_mean, argnums=(0, 1, 2), has_aux=True)
        )(view1, view2, jnp.array(REFERENCE[f"{case}/lambda_raw"]))
        np.testing.assert_allclose(loss, REFERENCE[f"{case}/an_loss"], rtol=1e-12)
        for gradient, name in zip(gradients, ("z1", "z2", "lambda_raw"), strict=True):
            key = f"{case}/an_grad_{name}"
            if key in REFERENCE:  # the largest case's arrays are left out of the file
                np.testing.assert_allclose(gradient, REFERENCE[key], atol=1e-12)

        concentration = jnp.array(REFERENCE[f"{case}/lambda_eff"])
        ours = compiled_aninfonce()(view1, view2, concentration).per_anchor
        np.testing.assert_allclose(ours[:n], per_anchor[:n], rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_infonce_and_lp_match_published_values(case: str) -> None:
    reductions = (("logsumexp", "lse"), ("logmeanexp", "lme"))

    @jax.jit
    def losses(view1: Array, view2: Array) -> dict[str, Array]:
        # The published keys are all of view1, the anchor itself included.
        found = {}
        for tau in (1.0, 0.5, 0.1):
            output = infonce_loss(view1, view2, temperature=tau, negatives=view1)
            found[f"simclr_tau{tau}"] = output.loss
            found[f"simclr_per_anchor_tau{tau}"] = output.per_anchor
        for p in (1, 2, 3):
            for reduction, name in reductions:
                output = lp_loss(view1, view2, p=p, negatives=view1, reduction=reduction)
                found[f"lp{p}_{name}"] = output.loss
        output = lp_loss(view1, view2, p=2, temperature=0.5, negatives=view1)
        found["lp2_lse_tau0.5"] = output.loss
        return found

    with jax.enable_x64(True):
        found = losses(REFERENCE[f"{case}/z1"], REFERENCE[f"{case}/z2"])
        expected = {name: REFERENCE[f"{case}/{name}"] for name in found}
        chex.assert_trees_all_close(found, expected, rtol=0, atol=1e-9)


# --- Values and gradients at extremes, against the naive reference ---

GEOMETRIC = (1e-4, 1.0, 1e2, 1e4)


def views_of(kind: str, n: int, dim: int) -> tuple[Array, Array]:
    key1, key2 = jax.random.split(jax.random.key(7))
    view1 = jax.random.normal(key1, (n, dim))
    if kind == "identical":
        return view1, view1
    if kind == "orthogonal":
        axes = jnp.eye(dim)
        return axes[:n] + 0.0 * view1, axes[n : 2 * n] + 0.0 * view1
    if kind == "near":
        return view1, view1 + 1e-3 * jax.random.normal(key2, (n, dim))
    return view1, jax.random.normal(key2, (n, dim))


@functools.cache
def compare(objective: str, n: int, negatives: str, normalize: bool) -> Callable:
    """Returns a compiled (view1, view2, parameter) -> (ours, naive), with gradients.

    Gradients are of a weighted sum of the per-anchor losses, so that an error that a
    mean would cancel shows.
    """
    losses = {
        "aninfonce": (aninfonce_loss, anisotropic_score),
        "infonce": (lambda a, b, t, **kw: infonce_loss(a, b, temperature=t, **kw), dot_score),
        "lp3": (
            lambda a, b, t, **kw: lp_loss(a, b, p=3, temperature=t, **kw),
            functools.partial(lp_score, p=3),
        ),
        "lp2": (
            lambda a, b, t, **kw: lp_loss(a, b, p=2, temperature=t, **kw),
            functools.partial(lp_score, p=2),
        ),
    }
    loss, score = losses[objective]
    rows = enumerate_pairs(n, negatives)
    weights = jnp.linspace(0.5, 1.5, len(rows))

    def ours(*args: Array) -> tuple[Array, Array]:
        per_anchor = loss(*args, negatives=negatives, normalize=normalize).per_anchor
        return jnp.sum(weights * per_anchor), per_anchor

    def naive(*args: Array) -> tuple[Array, Array]:
        per_anchor = naive_per_anchor(*args, score=score, rows=rows, normalize=normalize)
        return jnp.sum(weights * per_anchor), per_anchor

    def both(*args: Array) -> tuple:
        def value_and_grad(f: Callable) -> tuple:
            (_, per_anchor), gradients = jax.value_and_grad(f, (0, 1, 2), has_aux=True)(*args)
            return per_anchor, gradients

        return value_and_grad(ours), value_and_grad(naive)

    return jax.jit(both)


def assert_same(objective: str, views: tuple, parameter: Array, negatives: str, normalize: bool):
    compared = compare(objective, len(views[0]), negatives, normalize)
    (value, gradients), (naive_value, naive_gradients) = compared(*views, parameter)
    chex.assert_tree_all_finite((value, gradients))
    np.testing.assert_allclose(value, naive_value, rtol=1e-8, atol=1e-10)
    for ours, naive in zip(gradients, naive_gradients, strict=True):
        scale = 1 + np.abs(naive).max()
        np.testing.assert_allclose(ours, naive, rtol=1e-7, atol=1e-9 * scale)


@pytest.mark.parametrize(("negatives", "normalize"), [("both", True), ("anchors", False)])
@pytest.mark.parametrize("kind", ["random", "identical", "orthogonal", "near"])
def test_aninfonce_at_extremes(kind: str, negatives: str, normalize: bool) -> None:
    with jax.enable_x64(True):
        views = views_of(kind, 2, 4)
        for concentration in (GEOMETRIC, (1e-4,) * 4, (1e4,) * 4, (1.0,) * 4):
            assert_same("aninfonce", views, jnp.array(concentration), negatives, normalize)


@pytest.mark.parametrize("objective", ["infonce", "lp2", "lp3"])
@pytest.mark.parametrize("kind", ["random", "identical", "orthogonal"])
def test_temperature_at_extremes(kind: str, objective: str) -> None:
    with jax.enable_x64(True):
        views = views_of(kind, 2, 4)
        for temperature in (0.01, 1.0, 100.0):
            assert_same(objective, views, jnp.float64(temperature), "both", True)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    shape=st.sampled_from([(2, 1), (5, 3)]),
    log10=st.lists(st.floats(-4, 4), min_size=3, max_size=3),
    negatives=st.sampled_from(["both", "anchors"]),
)
def test_aninfonce_for_other_shapes_and_any_concentration(
    shape: tuple[int, int], log10: list[float], negatives: str
) -> None:
    with jax.enable_x64(True):
        concentration = jnp.asarray(10.0 ** np.array(log10[: shape[1]]))
        assert_same("aninfonce", views_of("random", *shape), concentration, negatives, False)


# --- Precision ---


@pytest.mark.parametrize("concentration", [1e-4, 1.0, 25.0, 1e4])
@pytest.mark.parametrize("noise", [0.0, 0.01, 1.0])
def test_float32_error_is_as_documented(concentration: float, noise: float) -> None:
    rng = np.random.default_rng(0)
    view1 = rng.normal(size=(100, 10)).astype(np.float32)
    view2 = view1 + noise * rng.normal(size=(100, 10)).astype(np.float32)
    single = compiled_aninfonce()(view1, view2, concentration)
    with jax.enable_x64(True):
        double = compiled_aninfonce()(view1.astype(float), view2.astype(float), concentration)
    assert (single.loss.dtype, double.loss.dtype) == (jnp.float32, jnp.float64)
    # aᵀΛa is at most Λ on the sphere.
    np.testing.assert_allclose(
        single.per_anchor, double.per_anchor, rtol=0, atol=1e-6 * (1 + concentration)
    )


def test_a_loss_near_zero_keeps_relative_precision() -> None:
    views = jnp.eye(4)
    output = compiled_aninfonce()(views, views, 60.0)
    # The six negatives of an anchor score -60 each, its positive 0.
    np.testing.assert_allclose(output.per_anchor, 6 * np.exp(-60.0), rtol=1e-4)


# --- The output's contract ---

ALL_LOSSES = {
    "aninfonce": functools.partial(aninfonce_loss, concentration=np.array([3.0, 1.0, 0.5])),
    "infonce": functools.partial(infonce_loss, temperature=0.2),
    "lp1": functools.partial(lp_loss, p=1, negatives="both"),
    "lp2": functools.partial(lp_loss, p=2, negatives="both"),
    "lp2_mean": functools.partial(lp_loss, p=2, negatives="both", reduction="logmeanexp"),
}
every_loss = pytest.mark.parametrize("name", ALL_LOSSES)
BATCH = 6


@functools.cache
def compiled(name: str) -> Callable:
    """The loss under jit; every test calls it with [BATCH, 3], so it compiles once."""
    return jax.jit(ALL_LOSSES[name])


@every_loss
def test_parts_fit_together(name: str) -> None:
    @jax.jit
    def every_kind_of_negatives(view1: Array, view2: Array) -> list[LossOutput]:
        kinds = ("both", "anchors", view1[:2])
        return [ALL_LOSSES[name](view1, view2, negatives=kind) for kind in kinds]

    with jax.numpy_dtype_promotion("strict"):
        outputs = every_kind_of_negatives(*views_of("random", BATCH, 3))
    for output, anchors, keys in zip(outputs, (12, 6, 6), (11, 6, 3), strict=True):
        chex.assert_shape(output.per_anchor, (anchors,))
        chex.assert_shape(jax.tree.leaves((output.loss, output.metrics)), ())
        np.testing.assert_allclose(output.loss, np.mean(output.per_anchor), rtol=1e-6)
        parts = np.float32(output.alignment) + np.float32(output.uniformity)
        np.testing.assert_allclose(parts, output.loss, rtol=1e-5)
        k = 1 if name == "lp2_mean" else keys
        np.testing.assert_allclose(output.metrics["score"], np.log(k) - output.loss, atol=1e-5)
        assert output.metrics["nonfinite"] == output.metrics["nonpositive"] == 0.0


def test_alignment_and_uniformity_are_in_units_of_the_score() -> None:
    view1, view2 = views_of("random", BATCH, 3)
    concentration = np.array([3.0, 1.0, 0.5])
    output = jax.jit(functools.partial(aninfonce_loss, normalize=False))(
        view1, view2, concentration
    )
    points = np.concatenate([view1, view2])
    positive, everything = [], []
    for row in enumerate_pairs(BATCH, "both"):
        scores = [-0.5 * np.sum(concentration * (points[i] - points[j]) ** 2) for i, j in row]
        positive.append(scores[0])
        everything.append(np.log(np.sum(np.exp(scores))))
    np.testing.assert_allclose(output.alignment, -np.mean(positive), rtol=1e-5)
    np.testing.assert_allclose(output.uniformity, np.mean(everything), rtol=1e-4)


def test_accuracy_counts_anchors_that_pick_their_positive() -> None:
    view1 = np.array([[0.0, 0.0], [10.0, 0.0], [20.0, 0.0], [30.0, 0.0]], np.float32)
    # The first three positives are the nearest of all points. The fourth lies between
    # the first pair, so both of its anchors fail, and both of the first pair's.
    view2 = view1 + np.array([0.0, 1.0], np.float32)
    view2[3] = (0.0, 0.5)

    @jax.jit
    def accuracies(view1: Array, view2: Array) -> list[Array]:
        loss = functools.partial(aninfonce_loss, view1, view2, 1.0, normalize=False)
        return [loss(negatives=kind).metrics["accuracy"] for kind in ("both", "anchors")]

    both, anchors = accuracies(view1, view2)
    assert both == 4 / 8
    assert anchors == 3 / 4


@every_loss
def test_collapsed_embeddings_are_at_chance(name: str) -> None:
    expected = 0.0 if name == "lp2_mean" else np.log(2 * BATCH - 1)
    # Several points: whether rounding favours the positive over its equals depends on it.
    for point in np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32):
        views = np.tile(point, (BATCH, 1))
        output = compiled(name)(views, views)
        np.testing.assert_allclose(output.per_anchor, expected, atol=1e-5)
        np.testing.assert_allclose(output.metrics["score"], 0.0, atol=1e-5)
        assert output.metrics["accuracy"] == 0.0


@every_loss
def test_views_may_be_swapped_and_rows_permuted(name: str) -> None:
    view1, view2 = (np.asarray(view) for view in views_of("random", BATCH, 3))
    order = np.array([3, 1, 5, 0, 2, 4])
    per_anchor = compiled(name)(view1, view2).per_anchor
    swapped = compiled(name)(view2, view1).per_anchor
    permuted = compiled(name)(view1[order], view2[order]).per_anchor
    np.testing.assert_allclose(swapped, np.roll(per_anchor, BATCH), rtol=1e-5, atol=1e-6)
    both_orders = np.concatenate([order, order + BATCH])
    np.testing.assert_allclose(permuted, np.asarray(per_anchor)[both_orders], rtol=1e-5, atol=1e-6)


def test_explicit_negatives_equal_the_same_negatives_from_the_batch() -> None:
    view1, view2 = (np.asarray(view) for view in views_of("random", BATCH, 3))
    loss = jax.jit(ALL_LOSSES["aninfonce"], static_argnames="negatives")
    batch = loss(view1, view2, negatives="anchors").per_anchor
    one_row = jax.jit(lambda a, b, others: ALL_LOSSES["aninfonce"](a, b, negatives=others).loss)
    for i in range(BATCH):
        row = one_row(view1[i : i + 1], view2[i : i + 1], np.delete(view1, i, axis=0))
        np.testing.assert_allclose(row, batch[i], rtol=1e-5)


def test_normalize_divides_every_input_by_its_norm() -> None:
    arrays = [np.asarray(view) for view in views_of("random", 4, 3)]
    arrays.append(5 * arrays[0] + 1)
    units = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in arrays]

    @functools.partial(jax.jit, static_argnames="normalize")
    def loss(view1: Array, view2: Array, bank: Array, normalize: bool) -> LossOutput:
        return infonce_loss(view1, view2, negatives=bank, normalize=normalize)

    inside, outside = loss(*arrays, normalize=True), loss(*units, normalize=False)
    chex.assert_trees_all_close(inside, outside, rtol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_input_is_computed_in_float32(dtype: type) -> None:
    view1, view2 = (view.astype(dtype) for view in views_of("random", BATCH, 3))
    for name in ("aninfonce", "lp1"):
        half = jax.jit(ALL_LOSSES[name])(view1, view2)
        single = compiled(name)(view1.astype(jnp.float32), view2.astype(jnp.float32))
        assert {leaf.dtype for leaf in jax.tree.leaves(half)} == {jnp.dtype(jnp.float32)}
        chex.assert_trees_all_close(half, single, rtol=1e-6)


def test_gradients_are_finite_at_zero_and_in_the_dtype_of_the_input() -> None:
    view1, view2 = (view.astype(jnp.bfloat16) for view in views_of("random", 4, 3))
    gradient = jax.jit(jax.grad(lambda a: aninfonce_loss(a, view2, 2.0).loss))
    found = gradient(view1.at[0].set(0))
    assert found.dtype == jnp.bfloat16
    chex.assert_tree_all_finite(found)


# --- Transformations ---


@pytest.mark.parametrize("name", ["aninfonce", "lp1"])
def test_jit_agrees_with_eager(name: str) -> None:
    views = views_of("random", BATCH, 3)
    chex.assert_trees_all_close(compiled(name)(*views), ALL_LOSSES[name](*views), rtol=1e-5)


def test_new_values_do_not_trace_again() -> None:
    chex.clear_trace_counter()
    loss = jax.jit(chex.assert_max_traces(aninfonce_loss, n=1))
    view1, view2 = views_of("random", BATCH, 3)
    for view, concentration in ((view1, 1.0), (view2, 2.0)):
        loss(view, view2, jnp.full(3, concentration))


@pytest.mark.parametrize("name", ["aninfonce", "infonce", "lp1"])
def test_vmap_agrees_with_a_loop_in_value_and_gradient(name: str) -> None:
    views = jax.random.normal(jax.random.key(0), (2, 3, 4, 3))

    def value_and_grad(view1: Array, view2: Array) -> tuple:
        return jax.value_and_grad(lambda a: ALL_LOSSES[name](a, view2).loss)(view1)

    mapped = jax.jit(jax.vmap(value_and_grad))(*views)
    single = jax.jit(value_and_grad)
    looped = [single(a, b) for a, b in zip(*views, strict=True)]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *looped)
    chex.assert_trees_all_close(mapped, stacked, rtol=1e-4, atol=1e-6)


def test_second_derivatives_are_right() -> None:
    with jax.enable_x64(True):
        view1, view2 = views_of("random", 3, 2)
        rows = enumerate_pairs(3, "both")

        def ours(concentration: Array) -> Array:
            return aninfonce_loss(view1, view2, concentration).loss

        def naive(concentration: Array) -> Array:
            return naive_per_anchor(
                view1, view2, concentration, score=anisotropic_score, rows=rows
            ).mean()

        @jax.jit
        def hessians(at: Array) -> tuple[Array, Array, Array]:
            return jax.hessian(naive)(at), jax.hessian(ours)(at), jax.jacrev(jax.grad(ours))(at)

        expected, forward_over_reverse, reverse_twice = hessians(jnp.array([3.0, 0.5]))
        assert np.abs(expected).max() > 1e-3
        np.testing.assert_allclose(forward_over_reverse, expected, atol=1e-9)
        np.testing.assert_allclose(reverse_twice, expected, atol=1e-9)


# --- Bad input ---

VIEW = np.ones((4, 3), np.float32)


@pytest.mark.parametrize(
    ("view1", "view2", "error", "message"),
    [
        (VIEW, VIEW[:3], ValueError, r"same shape \[batch, dim\], got \(4, 3\) and \(3, 3\)"),
        (VIEW, VIEW[:, :2], ValueError, r"same shape \[batch, dim\], got \(4, 3\) and \(4, 2\)"),
        (VIEW[0], VIEW[0], ValueError, r"view1 must have shape \[batch, dim\], got \(3,\)"),
        (VIEW, VIEW[None], ValueError, r"view2 must have shape \[batch, dim\], got \(1, 4, 3\)"),
        (VIEW[:1], VIEW[:1], ValueError, "at least 2 rows, got a batch of 1: it has no negatives"),
        (VIEW[:0], VIEW[:0], ValueError, r"view1 must not be empty, got shape \(0, 3\)"),
        (VIEW[:, :0], VIEW[:, :0], ValueError, r"view1 must not be empty, got shape \(4, 0\)"),
        (VIEW.astype(int), VIEW, TypeError, "view1 must be floating point, got dtype int32"),
        (VIEW, VIEW.astype(bool), TypeError, "view2 must be floating point, got dtype bool"),
        (VIEW.astype("c8"), VIEW, TypeError, "view1 must be floating point, got dtype complex64"),
    ],
)  # fmt: skip
@every_loss
def test_views_that_do_not_fit_are_refused(
    name: str, view1: np.ndarray, view2: np.ndarray, error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        ALL_LOSSES[name](view1, view2)


@pytest.mark.parametrize(
    ("negatives", "error", "message"),
    [
        (
            "all",
            ValueError,
            r"one of 'both', 'anchors', 'cross', an array .* got 'all'",
        ),
        (
            None,
            ValueError,
            r"one of 'both', 'anchors', 'cross', an array .* got None",
        ),
        (VIEW[:, :2], ValueError, r"shape \[keys, 3\] like the views, got \(4, 2\)"),
        (VIEW[:0], ValueError, r"negatives must not be empty, got shape \(0, 3\)"),
        (VIEW[0], ValueError, r"negatives must have shape \[batch, dim\], got \(3,\)"),
        (VIEW.astype(int), TypeError, "negatives must be floating point, got dtype int32"),
    ],
)
@every_loss
def test_negatives_that_do_not_fit_are_refused(
    name: str, negatives: object, error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        ALL_LOSSES[name](VIEW, VIEW, negatives=negatives)


def test_impossible_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match=r"concentration must be positive and finite, got 0\.0"):
        aninfonce_loss(VIEW, VIEW, np.array([1.0, 0.0, 1.0]))
    with pytest.raises(ValueError, match=r"shape \(3,\), one Λ per embedding dimension.*\(4,\)"):
        aninfonce_loss(VIEW, VIEW, np.ones(4))
    with pytest.raises(ValueError, match=r"temperature must be positive and finite, got -1\.0"):
        infonce_loss(VIEW, VIEW, temperature=-1.0)
    with pytest.raises(ValueError, match="temperature must be positive and finite, got 0"):
        lp_loss(VIEW, VIEW, p=2, temperature=0)
    with pytest.raises(ValueError, match="p must be positive and finite, got -2"):
        lp_loss(VIEW, VIEW, p=-2)
    with pytest.raises(ValueError, match="one of 'logsumexp', 'logmeanexp', got 'sum'"):
        lp_loss(VIEW, VIEW, p=2, reduction="sum")


@every_loss
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nonfinite_embeddings_are_flagged(name: str, bad: float) -> None:
    view1, view2 = views_of("random", BATCH, 3)
    assert compiled(name)(view1, view2.at[1, 2].set(bad)).metrics["nonfinite"] == 1.0


def test_traced_parameters_are_flagged_instead_of_refused() -> None:
    views = views_of("random", BATCH, 3)

    @jax.jit
    def metrics(concentration: Array, temperature: Array) -> list:
        outputs = (aninfonce_loss(*views, concentration),
                   infonce_loss(*views, temperature=temperature))  # fmt: skip
        return [output.metrics for output in outputs]

    healthy, one = np.array([1.0, 2.0, 1.0]), np.float64(1)
    for flag, concentration, temperature, flagged in (
        ("nonfinite", healthy, one, [0.0, 0.0]),
        ("nonpositive", healthy, one, [0.0, 0.0]),
        ("nonfinite", healthy * np.nan, one * np.inf, [1.0, 1.0]),
        ("nonpositive", healthy - 1, one - 1, [1.0, 1.0]),
    ):
        assert [found[flag] for found in metrics(concentration, temperature)] == flagged
