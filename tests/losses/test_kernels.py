"""The kernels, interpreted, against a plain float64 computation of all pairs."""

import functools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec

from aninfonce_jax.compat import varying_axes
from aninfonce_jax.losses import kernels
from aninfonce_jax.losses.tiles import ScoredPoints
from aninfonce_jax.types import Array

DEVICES = 4
# Small blocks: several to an axis, and none that divides its size.
OPTIONS = {"block_size": 8, "interpret": True}
forward = functools.partial(kernels.forward, **OPTIONS)
backward = functools.partial(kernels.backward, **OPTIONS)


class Problem(NamedTuple):
    """The arguments of `forward`, in their order."""

    queries: Array
    keys: Array
    key_bias: Array | None
    query_index: Array | None
    key_index: Array | None


def make_problem(
    queries=19, keys=13, dim=5, *, bias=True, masked=True, dtype=jnp.float32, seed=0
) -> Problem:
    key = jax.random.split(jax.random.key(seed), 3)
    return Problem(
        jax.random.normal(key[0], (queries, dim), dtype),
        jax.random.normal(key[1], (keys, dim), dtype),
        jax.random.normal(key[2], (keys,)) if bias else None,
        jnp.arange(queries, dtype=jnp.int32) % 7 if masked else None,
        jnp.arange(keys, dtype=jnp.int32) % 7 if masked else None,
    )


def reference_scores(problem: Problem) -> np.ndarray:
    scores = np.asarray(problem.queries, np.float64) @ np.asarray(problem.keys, np.float64).T
    if problem.key_bias is not None:
        scores += np.asarray(problem.key_bias, np.float64)
    if problem.query_index is not None:
        masked = np.asarray(problem.query_index)[:, None] == np.asarray(problem.key_index)
        scores[masked] = -np.inf
    return scores


def reference_forward(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    scores = reference_scores(problem)
    best = scores.max(axis=1)
    shift = np.where(best == -np.inf, 0, best)[:, None]
    return best, np.exp(scores - shift).sum(axis=1)


def reference_logsumexp(problem: Problem) -> np.ndarray:
    best, total = reference_forward(problem)
    return best + np.log(total, where=total > 0, out=np.zeros_like(total))


def reference_backward(problem, logsumexp, cotangent):
    weights = np.zeros((len(problem.queries), len(problem.keys)))
    some = logsumexp != -np.inf
    scores = reference_scores(problem)[some]
    weights[some] = np.exp(scores - logsumexp[some, None]) * np.asarray(cotangent)[some, None]
    return (
        weights @ np.asarray(problem.keys, np.float64),
        weights.T @ np.asarray(problem.queries, np.float64),
        None if problem.key_bias is None else weights.sum(axis=0),
    )


def make_cotangent(problem: Problem) -> Array:
    return jax.random.normal(jax.random.key(99), problem.queries.shape[:1])


def assert_right(problem: Problem, rtol=1e-5, **options) -> None:
    """Compares values and gradients, with errors relative to the largest entry."""
    options = OPTIONS | options
    best, total = kernels.forward(*problem, **options)
    chex.assert_shape((best, total), problem.queries.shape[:1])
    chex.assert_type((best, total), jnp.float32)
    true_best, true_total = reference_forward(problem)
    scale = np.abs(true_best, where=np.isfinite(true_best), out=np.ones_like(true_best)).max()
    np.testing.assert_allclose(best, true_best, rtol=rtol, atol=rtol * scale)
    np.testing.assert_allclose(total, true_total, rtol=rtol * max(scale, 1))

    logsumexp, cotangent = reference_logsumexp(problem), make_cotangent(problem)
    gradients = kernels.backward(
        *problem, jnp.asarray(logsumexp, jnp.float32), cotangent, **options
    )
    expected = reference_backward(problem, logsumexp, cotangent)
    assert (gradients[2] is None) == (problem.key_bias is None)
    for gradient, true_gradient in zip(gradients, expected, strict=True):
        if gradient is not None:
            chex.assert_type(gradient, jnp.float32)
            chex.assert_shape(gradient, true_gradient.shape)
            atol = rtol * max(scale, 1) * max(np.abs(true_gradient).max(), 1e-3)
            np.testing.assert_allclose(gradient, true_gradient, rtol=0, atol=atol)


# --- Values and gradients ---


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_values_and_gradients(bias, masked):
    assert_right(make_problem(bias=bias, masked=masked))


@pytest.mark.parametrize(
    ("queries", "keys", "dim"), [(1, 9, 3), (9, 1, 3), (1, 1, 1), (17, 8, 1), (9, 10, 130)]
)
def test_sizes_that_no_block_divides(queries, keys, dim):
    assert_right(make_problem(queries, keys, dim, masked=False))


def test_sizes_that_blocks_divide():
    """No bias and no padding: the one case in which the kernels see no bias at all."""
    assert_right(make_problem(16, 24, bias=False))


def test_default_blocks():
    assert_right(make_problem(600, 140, bias=False), block_size=None)


@pytest.mark.parametrize("precision", [lax.Precision.HIGHEST, lax.Precision.DEFAULT])
def test_bfloat16_points(precision):
    """At HIGHEST only the inputs are rounded; at DEFAULT the weights in gradients too."""
    rtol = 1e-5 if precision == lax.Precision.HIGHEST else 2**-8
    assert_right(make_problem(dtype=jnp.bfloat16), rtol, precision=precision)


def test_points_of_two_types():
    problem = make_problem()
    assert_right(problem._replace(keys=problem.keys.astype(jnp.bfloat16)))


def test_default_precision_rounds_points_to_bfloat16():
    problem = make_problem()
    rounded = problem._replace(
        queries=problem.queries.astype(jnp.bfloat16), keys=problem.keys.astype(jnp.bfloat16)
    )
    best, total = forward(*problem, precision=lax.Precision.DEFAULT)
    chex.assert_trees_all_close((best, total), forward(*rounded), rtol=1e-6)
    assert np.abs(best - reference_forward(problem)[0]).max() > 1e-3


# --- Points that are each other's keys ---


def make_members(count: int, seed: int, dim: int = 5) -> ScoredPoints:
    key = jax.random.split(jax.random.key(seed), 4)
    vectors = jax.random.normal(key[0], (count, dim))
    bias, shift, cotangent = (jax.random.normal(k, (count,)) for k in key[1:])
    number = jnp.arange(count, dtype=jnp.int32) % 7
    return ScoredPoints(vectors, bias, number, 3 + shift, cotangent)


def reference_each_other_backward(
    rows: ScoredPoints, columns: ScoredPoints
) -> tuple[np.ndarray, np.ndarray]:
    a, b = (
        ScoredPoints(*(np.float64(x) if x.dtype != jnp.int32 else np.asarray(x) for x in side))
        for side in (rows, columns)
    )
    products = a.vectors @ b.vectors.T
    weights = np.exp(products + b.bias - a.logsumexp[:, None]) * a.cotangent[:, None]
    weights += np.exp(products + a.bias[:, None] - b.logsumexp) * b.cotangent
    weights[a.number[:, None] == b.number] = 0
    return weights @ b.vectors, weights.sum(axis=1)


@pytest.mark.parametrize(
    ("rows", "columns", "dim"), [(19, 13, 5), (16, 24, 5), (1, 9, 3), (9, 1, 1), (9, 10, 130)]
)
def test_gradients_through_rows_and_columns(rows, columns, dim):
    a, b = make_members(rows, 0, dim), make_members(columns, 1, dim)
    gradients = kernels.each_other_backward(a, b, **OPTIONS)
    for gradient, expected in zip(gradients, reference_each_other_backward(a, b), strict=True):
        chex.assert_type(gradient, jnp.float32)
        atol = 1e-5 * max(1, np.abs(expected).max())
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=atol)


def test_vectors_of_points_that_do_not_fit():
    members = make_members(19, 0)
    with pytest.raises(ValueError, match=r"bias must have one entry for each of the 19 points"):
        kernels.each_other_backward(members._replace(bias=jnp.ones(3)), members, **OPTIONS)


# --- Infinities, large numbers, ties, NaN ---


def test_a_bias_of_minus_infinity_leaves_its_key_out():
    problem = make_problem()
    gone = jnp.zeros_like(problem.key_bias).at[jnp.array([0, 5, 12])].set(-jnp.inf)
    problem = problem._replace(key_bias=problem.key_bias + gone)
    assert_right(problem)
    logsumexp = jnp.asarray(reference_logsumexp(problem), jnp.float32)
    _, d_keys, d_bias = backward(*problem, logsumexp, make_cotangent(problem))
    assert not np.any(np.asarray(d_keys)[[0, 5, 12]])
    assert not np.any(np.asarray(d_bias)[[0, 5, 12]])


def test_a_query_without_keys_has_no_gradient():
    """Query 3: one half of the keys is masked for it, the other is out for all."""
    first_half = jnp.arange(13) < 6
    problem = make_problem()._replace(
        query_index=jnp.arange(19, dtype=jnp.int32),
        key_index=jnp.where(first_half, 3, 20).astype(jnp.int32),
        key_bias=jnp.where(first_half, 0.5, -jnp.inf),
    )
    best, total = forward(*problem)
    assert best[3] == -jnp.inf
    assert total[3] == 0
    assert_right(problem)
    logsumexp = jnp.asarray(reference_logsumexp(problem), jnp.float32)
    d_queries, d_keys, _ = backward(*problem, logsumexp, make_cotangent(problem))
    assert not np.any(d_queries[3])
    chex.assert_tree_all_finite((d_queries, d_keys))


def test_no_query_has_keys():
    problem = make_problem()._replace(key_bias=jnp.full(13, -jnp.inf))
    best, total = forward(*problem)
    np.testing.assert_array_equal(best, np.full(19, -np.inf))
    np.testing.assert_array_equal(total, np.zeros(19))
    gradients = backward(*problem, best, make_cotangent(problem))
    for gradient in gradients:
        np.testing.assert_array_equal(gradient, np.zeros(gradient.shape))


def test_scores_of_ten_thousand_of_either_sign():
    """Whole numbers, so that scores are exact and only their exponentials are not."""
    key = jax.random.split(jax.random.key(3))
    draw = functools.partial(jax.random.uniform, minval=-100, maxval=100)
    problem = make_problem(bias=False)._replace(
        queries=jnp.round(draw(key[0], (19, 5))), keys=jnp.round(draw(key[1], (13, 5)))
    )
    scores = reference_scores(problem)
    assert np.abs(scores[np.isfinite(scores)]).max() > 1e4
    best, total = forward(*problem)
    np.testing.assert_array_equal(best, reference_forward(problem)[0])
    np.testing.assert_allclose(total, reference_forward(problem)[1], rtol=1e-6)
    assert_right(problem, rtol=1e-7)


@pytest.mark.parametrize("bias", [-1e4, 1e4])
def test_a_large_common_bias(bias):
    problem = make_problem()._replace(key_bias=jnp.full(13, bias))
    assert_right(problem, rtol=1e-6)


def test_identical_embeddings():
    problem = make_problem(bias=False, masked=False)
    problem = problem._replace(queries=jnp.ones((19, 5)), keys=jnp.ones((13, 5)))
    best, total = forward(*problem)
    np.testing.assert_array_equal(best, np.full(19, 5))
    np.testing.assert_array_equal(total, np.full(19, 13))
    assert_right(problem)


@pytest.mark.parametrize("where", ["queries", "keys", "key_bias"])
def test_a_nan_spreads(where):
    """To the queries it concerns, and to no other."""
    problem = make_problem(19, 13, masked=False)
    spoilt = getattr(problem, where).at[11].set(jnp.nan)
    best, total = forward(*problem._replace(**{where: spoilt}))
    expected = np.arange(19) == 11 if where == "queries" else np.ones(19, bool)
    np.testing.assert_array_equal(np.isnan(best), expected)
    np.testing.assert_array_equal(np.isnan(total), expected)
    logsumexp = best + jnp.log(total)
    d_queries, d_keys, d_bias = backward(
        *problem._replace(**{where: spoilt}), logsumexp, make_cotangent(problem)
    )
    np.testing.assert_array_equal(np.isnan(d_queries).any(axis=1), expected)
    assert np.isnan(d_keys).all()
    assert np.isnan(d_bias).all()


def test_a_nan_of_a_masked_key_stays_out_of_the_value():
    problem = make_problem()
    problem = problem._replace(keys=problem.keys.at[8].set(jnp.nan))
    best, total = forward(*problem)
    masked = np.asarray(problem.query_index) == problem.key_index[8]
    np.testing.assert_array_equal(np.isnan(best), ~masked)
    np.testing.assert_array_equal(np.isnan(total), ~masked)


# --- Under transformations ---


@jax.custom_vjp
def logsumexp(queries, keys, key_bias, query_index, key_index):
    best, total = forward(queries, keys, key_bias, query_index, key_index)
    return best + jnp.log(total)


def logsumexp_forward(*problem):
    out = logsumexp(*problem)
    return out, (problem, out)


def logsumexp_backward(residuals, cotangent):
    problem, out = residuals
    return (*backward(*problem, out, cotangent), None, None)


logsumexp.defvjp(logsumexp_forward, logsumexp_backward)


def plain_logsumexp(queries, keys, key_bias, query_index, key_index):
    scores = queries @ keys.T + key_bias[None, :]
    scores = jnp.where(query_index[:, None] == key_index[None, :], -jnp.inf, scores)
    return jax.nn.logsumexp(scores, axis=1)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jax.checkpoint])
def test_as_the_two_halves_of_a_differentiable_function(wrap):
    problem = make_problem()

    def objective(function, *points):
        return jnp.sum(jnp.sin(function(*points, *problem[3:])))

    gradients = jax.grad(wrap(functools.partial(objective, logsumexp)), (0, 1, 2))(*problem[:3])
    expected = jax.grad(functools.partial(objective, plain_logsumexp), (0, 1, 2))(*problem[:3])
    chex.assert_trees_all_close(gradients, expected, rtol=1e-4, atol=1e-5)


def test_vmap():
    problems = [make_problem(seed=seed) for seed in (0, 1)]
    stacked = Problem(*(jnp.stack(arrays) for arrays in zip(*problems, strict=True)))
    best, total = jax.vmap(forward)(*stacked)
    expected = [forward(*problem) for problem in problems]
    chex.assert_trees_all_close((best, total), jax.tree.map(lambda *x: jnp.stack(x), *expected))


def second_derivative(problem):
    def directional(queries):
        gradient = jax.grad(lambda q: logsumexp(q, *problem[1:]).sum())(queries)
        return jnp.sum(gradient**2)

    return jax.grad(directional)(problem.queries)


def derivative_of_forward(problem):
    return jax.jvp(lambda q: forward(q, *problem[1:]), *[(problem.queries,)] * 2)


def derivative_of_backward(problem):
    rest = (jnp.ones(19), jnp.ones(19))
    return jax.grad(lambda q: backward(q, *problem[1:], *rest)[0].sum())(problem.queries)


def derivative_of_each_other_backward(problem):
    members = make_members(19, 0)
    return jax.grad(
        lambda x: kernels.each_other_backward(members._replace(vectors=x), members, **OPTIONS)[
            0
        ].sum()
    )(members.vectors)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(
    "derivative",
    [
        second_derivative,
        derivative_of_forward,
        derivative_of_backward,
        derivative_of_each_other_backward,
    ],
)
def test_second_derivatives_are_refused(derivative, jit):
    function = jax.jit(derivative) if jit else derivative
    message = r"^kernels have no derivative of their own"
    with pytest.raises(NotImplementedError, match=message):
        function(make_problem())


def make_mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((DEVICES,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))


def per_device(problem: Problem) -> tuple[Array, ...]:
    """Local queries against the keys of all devices, whose gradients are summed up."""
    gather = functools.partial(lax.all_gather, axis_name="data", tiled=True)
    keys, bias, key_index = map(gather, (problem.keys, problem.key_bias, problem.key_index))
    problem = Problem(problem.queries, keys, bias, problem.query_index, key_index)
    best, total = forward(*problem)
    d_queries, d_keys, d_bias = backward(*problem, best + jnp.log(total), jnp.ones_like(best))
    scatter = functools.partial(lax.psum_scatter, axis_name="data", tiled=True)
    return best, total, d_queries, scatter(d_keys), scatter(d_bias)


def on_one_device(problem: Problem) -> tuple[Array, ...]:
    best, total = forward(*problem)
    return best, total, *backward(*problem, best + jnp.log(total), jnp.ones_like(best))


def test_inside_shard_map():
    problem = make_problem(5 * DEVICES, 3 * DEVICES)
    spec = PartitionSpec("data")
    # Interpreted kernels do not say which mesh axes their values vary over.
    mapped = jax.shard_map(
        per_device, mesh=make_mesh(), in_specs=spec, out_specs=spec, check_vma=False
    )
    chex.assert_trees_all_close(
        jax.jit(mapped)(problem), on_one_device(problem), rtol=1e-5, atol=1e-6
    )


@pytest.mark.slow
def test_inside_pmap():
    problem = make_problem(5 * DEVICES, 3 * DEVICES)
    split = jax.tree.map(lambda x: x.reshape(DEVICES, -1, *x.shape[1:]), problem)
    out = jax.pmap(per_device, axis_name="data", devices=jax.devices()[:DEVICES])(split)
    out = jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), out)
    chex.assert_trees_all_close(out, on_one_device(problem), rtol=1e-5, atol=1e-6)


# --- Lowering, which needs no TPU ---


@pytest.mark.parametrize("precision", [lax.Precision.HIGHEST, lax.Precision.DEFAULT])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_lowers_for_tpu_inside_shard_map(dtype, precision):
    """An output varies over the mesh where an input does, which shard_map checks."""
    options = {"precision": precision}

    def local(queries, common):
        best, total = kernels.forward(common, queries, None, None, None, **options)
        gradients = kernels.backward(common, queries, None, None, None, best, total, **options)
        common_best, _ = kernels.forward(common, common, None, None, None, **options)
        for array in (best, total, *gradients[:2]):
            assert varying_axes(array) == {"data"}
        return (best, *gradients[:2]), common_best

    common, split = PartitionSpec(), PartitionSpec("data")
    mapped = jax.shard_map(
        local, mesh=make_mesh(), in_specs=(split, common), out_specs=(split, common)
    )
    points = jax.ShapeDtypeStruct((300 * DEVICES, 20), dtype)
    lowered = jax.jit(mapped).trace(points, points).lower(lowering_platforms=("tpu",))
    assert lowered.as_text().count("tpu_custom_call") == 4


# --- What is refused ---


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"queries": jnp.ones((19, 5), jnp.float16)}, TypeError, "queries must be float32 or"),
        ({"keys": jnp.ones(13)}, ValueError, r"keys must have shape \[keys, dim\]"),
        ({"keys": jnp.ones((0, 5))}, ValueError, "not be empty"),
        ({"keys": jnp.ones((13, 4))}, ValueError, "the same dim"),
        ({"key_bias": jnp.ones(12)}, ValueError, "key_bias must have one entry for each of the 13"),
        ({"key_index": None}, ValueError, "both be None"),
        ({"query_index": jnp.ones(19)}, TypeError, "query_index must be int32"),
    ],
)
def test_arrays_that_do_not_fit(changes, error, message):
    with pytest.raises(error, match=message):
        forward(*make_problem()._replace(**changes))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": lax.Precision.HIGH}, "precision must be HIGHEST or DEFAULT"),
        ({"block_size": 0}, "block_size must be a positive multiple of 8, got 0"),
        ({"block_size": 12}, "block_size must be a positive multiple of 8, got 12"),
        ({"block_size": 64, "interpret": False}, "multiple of 128, got 64"),
    ],
)
def test_impossible_options(options, message):
    with pytest.raises(ValueError, match=message):
        kernels.forward(*make_problem(), **(OPTIONS | options))
