"""TPU kernels for one masked log-sum-exp over all pairs, and for its gradients.

The scores of all pairs exist one tile at a time, in the core's own memory (VMEM): a tile
is a matrix product of a block of queries and a block of keys, and is used up where it is
made. `forward` runs over the tiles once and carries each query's maximum and sum along.
`backward` makes the tiles anew, once for the gradient of the queries and once for that of
the keys: a block of one of these is summed up before the next one is begun. Points that are
each other's keys have one gradient, which `each_other_backward` makes of both parts of a score.

The kernels lower for TPUs only. Anywhere else `interpret=True` runs the same tiles as plain
JAX operations, which is for tests. A GPU needs kernels of its own: through Triton the steps
of a grid run in parallel, so no sum can be carried from tile to tile, and Mosaic GPU takes
another kind of kernel, which places its operands and the waits for them by hand.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from aninfonce_jax.compat import shape_varying_over, varying_axes
from aninfonce_jax.losses.tiles import ScoredPoints
from aninfonce_jax.types import Array

# A TPU's registers hold 8 × 128 numbers. Queries and keys each lie along the 128 in one of
# the kernels, so blocks are multiples of it.
_LANES = 128

# A step of the grid has a fixed cost, and a block is read from memory once for every block
# of the other side: both ask for large blocks. What limits them is that the backward
# kernels hold six blocks of points (those of two sides and of a gradient, each twice, to
# copy one while computing on the other) and a few tiles, in 16 MiB on v5e and v5p. With
# float32 at HIGHEST, twice either limit fails to compile there, except that dim 128 still
# takes 1024, which compiles five times as long. So 2048 is the largest dim that surely fits.
_LARGEST_BLOCK = 512
_LARGEST_BLOCK_ENTRIES = 512 * 512


class _Options(NamedTuple):
    precision: lax.Precision
    block_size: int | None
    interpret: bool


class _Side(NamedTuple):
    """What is known of the queries, or of the keys: all rows, one block, or references.

    Vectors are rows, [1, n]. As columns, [n, 1], they would take 128 times the memory.

    Attributes:
      points: [n, dim].
      bias: [1, n], for keys, or None.
      index: [1, n], or None where no pair is masked.
      logsumexp: [1, n], for queries in the backward pass, else None; points may be both.
      cotangent: as `logsumexp`.
    """

    points: Any
    bias: Any = None
    index: Any = None
    logsumexp: Any = None
    cotangent: Any = None


def forward(
    queries: Array,
    keys: Array,
    key_bias: Array | None,
    query_index: Array | None,
    key_index: Array | None,
    *,
    precision: lax.Precision = lax.Precision.HIGHEST,
    block_size: int | None = None,
    interpret: bool = False,
) -> tuple[Array, Array]:
    """Maximum, and sum of exponentials, of each query's scores over its unmasked keys.

    The score of query i and key j is <queries[i], keys[j]> + key_bias[j].

    Args:
      queries: [queries, dim], float32 or bfloat16.
      keys: [keys, dim], float32 or bfloat16.
      key_bias: [keys], which may hold -∞, or None.
      query_index: [queries], int32; key j is masked for query i where
        query_index[i] == key_index[j]. None, together with `key_index`: no mask.
      key_index: [keys], int32, or None.
      precision: HIGHEST computes products to the precision of float32, DEFAULT from
        operands rounded to bfloat16, in fewer passes. Sums are float32 either way.
      block_size: at most so many queries, and keys, to a tile; a multiple of 128. None
        chooses by `dim`.
      interpret: whether to run as plain JAX operations, on any device.

    Returns:
      `best`, [queries] float32, the largest score, -∞ without a key; and `total`,
      [queries] float32, the sum of exp(score - best), 0 without a key. A NaN among a
      query's scores makes its `total` NaN.

    Raises:
      TypeError, ValueError: dtypes or shapes that do not fit, or an impossible option.
      NotImplementedError: if it is differentiated.
    """
    options = _checked_options(precision, block_size, interpret)
    _check_points(queries, keys)
    _check_vectors(queries, keys, key_bias, query_index, key_index)
    return _forward(options, queries, keys, key_bias, query_index, key_index)


def backward(
    queries: Array,
    keys: Array,
    key_bias: Array | None,
    query_index: Array | None,
    key_index: Array | None,
    logsumexp: Array,
    cotangent: Array,
    *,
    precision: lax.Precision = lax.Precision.HIGHEST,
    block_size: int | None = None,
    interpret: bool = False,
) -> tuple[Array, Array, Array | None]:
    """Gradients of Σ cotangent · logsumexp, where logsumexp = best + log(total).

    Args:
      queries: as in `forward`, like the other arguments not named here.
      keys: [keys, dim].
      key_bias: [keys] or None.
      query_index: [queries] or None.
      key_index: [keys] or None.
      logsumexp: [queries]. A query with -∞ has no key, and no gradient.
      cotangent: [queries].
      precision: of all products: those for the scores should have the precision that
        they had in `forward`.
      block_size: as in `forward`.
      interpret: as in `forward`.

    Returns:
      The gradients of `queries`, [queries, dim], `keys`, [keys, dim], and `key_bias`,
      [keys] or None, all float32.

    Raises:
      TypeError, ValueError, NotImplementedError: as `forward`.
    """
    options = _checked_options(precision, block_size, interpret)
    _check_points(queries, keys)
    _check_vectors(queries, keys, key_bias, query_index, key_index)
    for name, vector in (("logsumexp", logsumexp), ("cotangent", cotangent)):
        _check_vector(name, vector, "queries", queries)
    return _backward(options, queries, keys, key_bias, query_index, key_index, logsumexp, cotangent)


def each_other_backward(
    rows: ScoredPoints,
    columns: ScoredPoints,
    *,
    precision: lax.Precision = lax.Precision.HIGHEST,
    block_size: int | None = None,
    interpret: bool = False,
) -> tuple[Array, Array]:
    """Gradients of points that are each other's keys; see `each_other.chunked_gradients`.

    Args:
      rows: the points whose gradients are wanted.
      columns: points that they were scored with, whose log-sum-exp the rows are part of.
      precision: as in `backward`, like what follows.
      block_size: as in `forward`.
      interpret: as in `forward`.

    Returns:
      What the columns add to the gradients of the rows' vectors, [rows, dim], and biases,
      [rows], both float32.

    Raises:
      TypeError, ValueError, NotImplementedError: as `forward`.
    """
    options = _checked_options(precision, block_size, interpret)
    _check_points(rows.vectors, columns.vectors)
    for side in (rows, columns):
        for name, vector in zip(side._fields[1:], side[1:], strict=True):
            _check_vector(name, vector, "points", side.vectors)
    return _each_other_backward(options, rows, columns)


# --- From arrays to grids of tiles ---


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
@functools.partial(jax.jit, static_argnums=0)
def _forward(
    options: _Options,
    queries: Array,
    keys: Array,
    key_bias: Array | None,
    query_index: Array | None,
    key_index: Array | None,
) -> tuple[Array, Array]:
    count = queries.shape[0]
    query_block, key_block = _blocks(options, queries, keys)
    query_side = _padded_queries(query_block, queries, query_index)
    key_side = _padded_keys(key_block, keys, key_bias, key_index)
    padded = query_side.points.shape[0]
    row = _output((1, padded), query_side, key_side)
    best, total = pl.pallas_call(
        functools.partial(_forward_kernel, precision=options.precision),
        grid=(padded // query_block, key_side.points.shape[0] // key_block),
        in_specs=(_specs(query_side, query_block, 0), _specs(key_side, key_block, 1)),
        out_specs=(_row_spec(query_block, 0), _row_spec(query_block, 0)),
        out_shape=(row, row),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        cost_estimate=_cost(query_side, key_side, (row, row), products=1),
        interpret=options.interpret,
        name="logsumexp_forward",
    )(query_side, key_side)
    return best[0, :count], total[0, :count]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
@functools.partial(jax.jit, static_argnums=0)
def _backward(
    options: _Options,
    queries: Array,
    keys: Array,
    key_bias: Array | None,
    query_index: Array | None,
    key_index: Array | None,
    logsumexp: Array,
    cotangent: Array,
) -> tuple[Array, Array, Array | None]:
    query_block, key_block = _blocks(options, queries, keys)
    query_side = _padded_queries(query_block, queries, query_index, logsumexp, cotangent)
    key_side = _padded_keys(key_block, keys, key_bias, key_index)
    d_queries, _ = _gradient(
        options, query_side, key_side, query_block, key_block, "logsumexp_backward_queries"
    )
    d_keys, d_bias = _gradient(
        options, key_side, query_side, key_block, query_block, "logsumexp_backward_keys"
    )
    (query_count, dim), key_count = queries.shape, keys.shape[0]
    if key_bias is None:
        # The keys may still have had a bias of their padding.
        d_bias = None
    return (
        d_queries[:query_count, :dim],
        d_keys[:key_count, :dim],
        None if d_bias is None else d_bias[0, :key_count],
    )


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
@functools.partial(jax.jit, static_argnums=0)
def _each_other_backward(
    options: _Options, rows: ScoredPoints, columns: ScoredPoints
) -> tuple[Array, Array]:
    row_block, column_block = _blocks(options, rows.vectors, columns.vectors)
    d_points, d_bias = _gradient(
        options,
        _padded_scored(row_block, rows),
        _padded_scored(column_block, columns),
        row_block,
        column_block,
        name="logsumexp_backward_each_other",
    )
    assert d_bias is not None
    count, dim = rows.vectors.shape
    return d_points[:count, :dim], d_bias[0, :count]


def _gradient(
    options: _Options,
    outer: _Side,
    inner: _Side,
    outer_block: int,
    inner_block: int,
    name: str,
) -> tuple[Array, Array | None]:
    """Gradients of the outer side's points and, if it has one, of its bias."""
    count, dim = outer.points.shape
    d_points = _output((count, dim), outer, inner)
    d_bias = None if outer.bias is None else _output((1, count), outer, inner)
    return pl.pallas_call(
        functools.partial(_backward_kernel, precision=options.precision),
        grid=(count // outer_block, inner.points.shape[0] // inner_block),
        in_specs=(_specs(outer, outer_block, 0), _specs(inner, inner_block, 1)),
        out_specs=(
            _points_spec(outer_block, dim, 0),
            None if d_bias is None else _row_spec(outer_block, 0),
        ),
        out_shape=(d_points, d_bias),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        cost_estimate=_cost(outer, inner, (d_points, d_bias), products=2),
        interpret=options.interpret,
        name=name,
    )(outer, inner)


def _no_derivative(options: _Options, primals: Any, tangents: Any) -> Any:
    raise NotImplementedError("kernels have no derivative of their own; use those of losses.tiles")


_forward.defjvp(_no_derivative)
_backward.defjvp(_no_derivative)
_each_other_backward.defjvp(_no_derivative)


def _blocks(options: _Options, queries: Array, keys: Array) -> tuple[int, int]:
    fitting = _LARGEST_BLOCK_ENTRIES // _round_up(queries.shape[1], _LANES)
    largest = min(_LARGEST_BLOCK, max(_LANES, fitting // _LANES * _LANES))
    limit = largest if options.block_size is None else options.block_size
    return _block(queries.shape[0], limit), _block(keys.shape[0], limit)


def _block(count: int, limit: int) -> int:
    """The block that pads `count` least, among those that need the fewest blocks."""
    blocks = pl.cdiv(count, limit)
    return min(limit, _round_up(pl.cdiv(count, blocks), _LANES))


def _round_up(count: int, multiple: int) -> int:
    return pl.cdiv(count, multiple) * multiple


def _padded_queries(
    block: int,
    queries: Array,
    index: Array | None,
    logsumexp: Array | None = None,
    cotangent: Array | None = None,
) -> _Side:
    return _Side(
        points=_padded_points(queries, block),
        index=_padded_row(index, block, 0),
        # No key, hence no gradient.
        logsumexp=_padded_row(logsumexp, block, -jnp.inf),
        cotangent=_padded_row(cotangent, block, 0),
    )


def _padded_keys(block: int, keys: Array, bias: Array | None, index: Array | None) -> _Side:
    if bias is None and keys.shape[0] % block:
        bias = jnp.zeros(keys.shape[:1], jnp.float32)
    return _Side(
        points=_padded_points(keys, block),
        bias=_padded_row(bias, block, -jnp.inf),
        index=_padded_row(index, block, 0),
    )


def _padded_scored(block: int, points: ScoredPoints) -> _Side:
    queries = _padded_queries(block, points.vectors, None, points.logsumexp, points.cotangent)
    keys = _padded_keys(block, points.vectors, points.bias, points.number)
    return keys._replace(logsumexp=queries.logsumexp, cotangent=queries.cotangent)


def _padded_points(points: Array, block: int) -> Array:
    count, dim = points.shape
    rows, lanes = _round_up(count, block), _round_up(dim, _LANES)
    return jnp.pad(points, ((0, rows - count), (0, lanes - dim)))


def _padded_row(vector: Array | None, block: int, value: float) -> Array | None:
    if vector is None:
        return None
    if vector.dtype != jnp.int32:
        vector = vector.astype(jnp.float32)
    missing = _round_up(vector.shape[0], block) - vector.shape[0]
    return jnp.pad(vector, (0, missing), constant_values=value)[None, :]


def _output(shape: tuple[int, ...], *inputs: _Side) -> jax.ShapeDtypeStruct:
    """A float32 output that varies over every mesh axis that an input varies over."""
    axes = [varying_axes(x) for x in jax.tree.leaves(inputs)]
    return shape_varying_over(shape, jnp.float32, frozenset().union(*axes))


def _specs(side: _Side, block: int, axis: int) -> _Side:
    """How a side is cut into blocks along an axis of the grid."""
    rows = (None if vector is None else _row_spec(block, axis) for vector in side[1:])
    return _Side(_points_spec(block, side.points.shape[1], axis), *rows)


# A plain 0 is 64 bits wide under jax_enable_x64, which the TPU compiler does not take.
_FIRST = np.int32(0)


def _points_spec(block: int, dim: int, axis: int) -> pl.BlockSpec:
    return pl.BlockSpec((block, dim), lambda *step: (step[axis], _FIRST))


def _row_spec(block: int, axis: int) -> pl.BlockSpec:
    return pl.BlockSpec((1, block), lambda *step: (_FIRST, step[axis]))


def _cost(outer: _Side, inner: _Side, outputs: Any, products: int) -> pl.CostEstimate:
    """What XLA can't see inside a kernel, for its schedule and its cost analysis."""
    pairs = outer.points.shape[0] * inner.points.shape[0]
    both = outer.logsumexp is not None and inner.logsumexp is not None
    arrays = jax.tree.leaves((outer, inner, outputs))
    return pl.CostEstimate(
        flops=2 * products * pairs * outer.points.shape[1],
        transcendentals=2 * pairs if both else pairs,
        bytes_accessed=sum(x.size * x.dtype.itemsize for x in arrays),
    )


# --- What happens to a tile ---


def _forward_kernel(
    query_refs: _Side,
    key_refs: _Side,
    best_ref: Any,
    total_ref: Any,
    *,
    precision: lax.Precision,
) -> None:
    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        best_ref[...] = jnp.full(best_ref.shape, -jnp.inf, jnp.float32)
        total_ref[...] = jnp.zeros(total_ref.shape, jnp.float32)

    # Keys go down and queries across: so reductions over keys leave rows, which is how
    # the results are stored.
    queries, keys = _read(query_refs), _read_columns(key_refs)
    scores = _product(keys.points, queries.points, 1, 1, precision)
    if keys.bias is not None:
        scores = scores + keys.bias
    if queries.index is not None:
        scores = jnp.where(keys.index == queries.index, -jnp.inf, scores)
    best = best_ref[...]
    new_best = jnp.maximum(best, jnp.max(scores, axis=0, keepdims=True))
    # With no key so far, score - best would be -∞ - (-∞).
    shift = jnp.where(new_best == -jnp.inf, 0.0, new_best)
    # Every score enters here, so a NaN reaches the total even where a maximum drops it.
    added = jnp.sum(jnp.exp(scores - shift), axis=0, keepdims=True)
    total_ref[...] = total_ref[...] * jnp.exp(best - shift) + added
    best_ref[...] = new_best


def _backward_kernel(
    outer_refs: _Side,
    inner_refs: _Side,
    d_points_ref: Any,
    d_bias_ref: Any,
    *,
    precision: lax.Precision,
) -> None:
    """Adds one tile to the gradients of the outer side; either side may be queries, or both."""

    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        d_points_ref[...] = jnp.zeros(d_points_ref.shape, jnp.float32)
        if d_bias_ref is not None:
            d_bias_ref[...] = jnp.zeros(d_bias_ref.shape, jnp.float32)

    # The outer side goes down, so that the product for its gradient needs no transpose
    # of the tile.
    outer, inner = _read_columns(outer_refs), _read(inner_refs)
    products = _product(outer.points, inner.points, 1, 1, precision)
    roles = ((outer, inner), (inner, outer))
    parts = (_weights(products, *role) for role in roles if role[0].logsumexp is not None)
    weights = functools.reduce(jnp.add, parts)
    if outer.index is not None:
        weights = jnp.where(outer.index == inner.index, 0.0, weights)
    d_points_ref[...] += _product(weights, inner.points, 1, 0, precision)
    if d_bias_ref is not None:
        d_bias_ref[...] += jnp.sum(weights, axis=1, keepdims=True).T


def _weights(products: Array, queries: _Side, keys: _Side) -> Array:
    """Returns the derivative of Σ cotangent · logsumexp by every score of a tile."""
    scores = products if keys.bias is None else products + keys.bias
    # exp(score - ∞) is 0, like the gradient of a query without keys.
    logsumexp = jnp.where(queries.logsumexp == -jnp.inf, jnp.inf, queries.logsumexp)
    return jnp.exp(scores - logsumexp) * queries.cotangent


def _read(refs: _Side) -> _Side:
    return _Side(*(None if ref is None else ref[...] for ref in refs))


def _read_columns(refs: _Side) -> _Side:
    """Reads a block, its vectors as columns."""
    side = _read(refs)
    return _Side(side.points, *(None if vector is None else vector.T for vector in side[1:]))


def _product(a: Array, b: Array, a_axis: int, b_axis: int, precision: lax.Precision) -> Array:
    """The float32 product of two matrices, contracted over an axis of each."""
    # Products of bfloat16 are exact in float32: one pass is all they need.
    exact = a.dtype == b.dtype == jnp.bfloat16
    one_pass = exact or precision == lax.Precision.DEFAULT
    dtype = jnp.bfloat16 if one_pass else jnp.float32
    return lax.dot_general(
        a.astype(dtype),
        b.astype(dtype),
        (((a_axis,), (b_axis,)), ((), ())),
        precision=lax.Precision.DEFAULT if one_pass else lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )


# --- Checks ---


def _checked_options(precision: lax.Precision, block_size: int | None, interpret: bool) -> _Options:
    if precision not in (lax.Precision.HIGHEST, lax.Precision.DEFAULT):
        raise ValueError(f"precision must be HIGHEST or DEFAULT, got {precision!r}")
    # Interpreted tiles may be smaller: the tests need many of them to a small array.
    multiple = 8 if interpret else _LANES
    if block_size is not None and (block_size < 1 or block_size % multiple):
        raise ValueError(f"block_size must be a positive multiple of {multiple}, got {block_size}")
    return _Options(precision, block_size, interpret)


def _check_points(queries: Array, keys: Array) -> None:
    for name, points in (("queries", queries), ("keys", keys)):
        if points.dtype not in (jnp.float32, jnp.bfloat16):
            raise TypeError(f"{name} must be float32 or bfloat16, got dtype {points.dtype}")
        if points.ndim != 2 or 0 in points.shape:
            raise ValueError(
                f"{name} must have shape [{name}, dim] and not be empty, got {points.shape}"
            )
    if queries.shape[1] != keys.shape[1]:
        raise ValueError(
            f"queries and keys must have the same dim, got {queries.shape} and {keys.shape}"
        )


def _check_vectors(
    queries: Array,
    keys: Array,
    key_bias: Array | None,
    query_index: Array | None,
    key_index: Array | None,
) -> None:
    if (query_index is None) != (key_index is None):
        raise ValueError("query_index and key_index must both be given, or both be None")
    _check_vector("key_bias", key_bias, "keys", keys)
    _check_vector("query_index", query_index, "queries", queries)
    _check_vector("key_index", key_index, "keys", keys)
    for name, index in (("query_index", query_index), ("key_index", key_index)):
        if index is not None and index.dtype != jnp.int32:
            raise TypeError(f"{name} must be int32, got dtype {index.dtype}")


def _check_vector(name: str, vector: Array | None, owner: str, points: Array) -> None:
    if vector is not None and vector.shape != points.shape[:1]:
        raise ValueError(
            f"{name} must have one entry for each of the {points.shape[0]} {owner}, got shape "
            f"{vector.shape}"
        )
