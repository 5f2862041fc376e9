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
from typing import Any

import jax
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from aninfonce_jax.losses.kernel_blocks import (
    Options,
    blocks,
    check_points,
    check_vector,
    check_vectors,
    checked_options,
    cost,
    output,
    padded_keys,
    padded_queries,
    padded_scored,
    points_spec,
    row_spec,
    specs,
)
from aninfonce_jax.losses.kernel_tiles import Side, backward_kernel, forward_kernel
from aninfonce_jax.losses.tiles import ScoredPoints
from aninfonce_jax.types import Array


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
    options = checked_options(precision, block_size, interpret)
    check_points(queries, keys)
    check_vectors(queries, keys, key_bias, query_index, key_index)
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
    options = checked_options(precision, block_size, interpret)
    check_points(queries, keys)
    check_vectors(queries, keys, key_bias, query_index, key_index)
    for name, vector in (("logsumexp", logsumexp), ("cotangent", cotangent)):
        check_vector(name, vector, "queries", queries)
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
    options = checked_options(precision, block_size, interpret)
    check_points(rows.vectors, columns.vectors)
    for side in (rows, columns):
        for name, vector in zip(side._fields[1:], side[1:], strict=True):
            check_vector(name, vector, "points", side.vectors)
    return _each_other_backward(options, rows, columns)


# --- From arrays to grids of tiles ---


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
@functools.partial(jax.jit, static_argnums=0)
def _forward(
    options: Options,
    queries: Array,
    keys: Array,
    key_bias: Array | None,
    query_index: Array | None,
    key_index: Array | None,
) -> tuple[Array, Array]:
    count = queries.shape[0]
    query_block, key_block = blocks(options, queries, keys)
    query_side = padded_queries(query_block, queries, query_index)
    key_side = padded_keys(key_block, keys, key_bias, key_index)
    padded = query_side.points.shape[0]
    row = output((1, padded), query_side, key_side)
    best, total = pl.pallas_call(
        functools.partial(forward_kernel, precision=options.precision),
        grid=(padded // query_block, key_side.points.shape[0] // key_block),
        in_specs=(specs(query_side, query_block, 0), specs(key_side, key_block, 1)),
        out_specs=(row_spec(query_block, 0), row_spec(query_block, 0)),
        out_shape=(row, row),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        cost_estimate=cost(query_side, key_side, (row, row), products=1),
        interpret=options.interpret,
        name="logsumexp_forward",
    )(query_side, key_side)
    return best[0, :count], total[0, :count]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
@functools.partial(jax.jit, static_argnums=0)
def _backward(
    options: Options,
    queries: Array,
    keys: Array,
    key_bias: Array | None,
    query_index: Array | None,
    key_index: Array | None,
    logsumexp: Array,
    cotangent: Array,
) -> tuple[Array, Array, Array | None]:
    query_block, key_block = blocks(options, queries, keys)
    query_side = padded_queries(query_block, queries, query_index, logsumexp, cotangent)
    key_side = padded_keys(key_block, keys, key_bias, key_index)
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
    options: Options, rows: ScoredPoints, columns: ScoredPoints
) -> tuple[Array, Array]:
    row_block, column_block = blocks(options, rows.vectors, columns.vectors)
    d_points, d_bias = _gradient(
        options,
        padded_scored(row_block, rows),
        padded_scored(column_block, columns),
        row_block,
        column_block,
        name="logsumexp_backward_each_other",
    )
    assert d_bias is not None
    count, dim = rows.vectors.shape
    return d_points[:count, :dim], d_bias[0, :count]


def _gradient(
    options: Options,
    outer: Side,
    inner: Side,
    outer_block: int,
    inner_block: int,
    name: str,
) -> tuple[Array, Array | None]:
    """Gradients of the outer side's points and, if it has one, of its bias."""
    count, dim = outer.points.shape
    d_points = output((count, dim), outer, inner)
    d_bias = None if outer.bias is None else output((1, count), outer, inner)
    return pl.pallas_call(
        functools.partial(backward_kernel, precision=options.precision),
        grid=(count // outer_block, inner.points.shape[0] // inner_block),
        in_specs=(specs(outer, outer_block, 0), specs(inner, inner_block, 1)),
        out_specs=(
            points_spec(outer_block, dim, 0),
            None if d_bias is None else row_spec(outer_block, 0),
        ),
        out_shape=(d_points, d_bias),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        cost_estimate=cost(outer, inner, (d_points, d_bias), products=2),
        interpret=options.interpret,
        name=name,
    )(outer, inner)


def _no_derivative(options: Options, primals: Any, tangents: Any) -> Any:
    raise NotImplementedError("kernels have no derivative of their own; use those of losses.tiles")


_forward.defjvp(_no_derivative)
_backward.defjvp(_no_derivative)
_each_other_backward.defjvp(_no_derivative)
