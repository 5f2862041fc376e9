"""How arrays are cut into the blocks that TPU kernels work on, and what kernels refuse."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

from aninfonce_jax.compat import shape_varying_over, varying_axes
from aninfonce_jax.losses.kernel_tiles import Side
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


class Options(NamedTuple):
    """How kernels run; see `kernels.forward`."""

    precision: lax.Precision
    block_size: int | None
    interpret: bool


def blocks(options: Options, queries: Array, keys: Array) -> tuple[int, int]:
    """Returns how many queries, and how many keys, make a block."""
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


def padded_queries(
    block: int,
    queries: Array,
    index: Array | None,
    logsumexp: Array | None = None,
    cotangent: Array | None = None,
) -> Side:
    """Returns queries filled up to whole blocks; the rows that fill them have no gradient."""
    return Side(
        points=_padded_points(queries, block),
        index=_padded_row(index, block, 0),
        # No key, hence no gradient.
        logsumexp=_padded_row(logsumexp, block, -jnp.inf),
        cotangent=_padded_row(cotangent, block, 0),
    )


def padded_keys(block: int, keys: Array, bias: Array | None, index: Array | None) -> Side:
    """Returns keys filled up to whole blocks; the keys that fill them score -∞."""
    if bias is None and keys.shape[0] % block:
        bias = jnp.zeros(keys.shape[:1], jnp.float32)
    return Side(
        points=_padded_points(keys, block),
        bias=_padded_row(bias, block, -jnp.inf),
        index=_padded_row(index, block, 0),
    )


def padded_scored(block: int, points: ScoredPoints) -> Side:
    """Returns points that are queries and keys at once, filled up to whole blocks."""
    queries = padded_queries(block, points.vectors, None, points.logsumexp, points.cotangent)
    keys = padded_keys(block, points.vectors, points.bias, points.number)
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


def output(shape: tuple[int, ...], *inputs: Side) -> jax.ShapeDtypeStruct:
    """A float32 output that varies over every mesh axis that an input varies over."""
    axes = [varying_axes(x) for x in jax.tree.leaves(inputs)]
    return shape_varying_over(shape, jnp.float32, frozenset().union(*axes))


def specs(side: Side, block: int, axis: int) -> Side:
    """How a side is cut into blocks along an axis of the grid."""
    rows = (None if vector is None else row_spec(block, axis) for vector in side[1:])
    return Side(points_spec(block, side.points.shape[1], axis), *rows)


# A plain 0 is 64 bits wide under jax_enable_x64, which the TPU compiler does not take.
_FIRST = np.int32(0)


def points_spec(block: int, dim: int, axis: int) -> pl.BlockSpec:
    """Returns how points [n, dim] are cut along an axis of the grid."""
    return pl.BlockSpec((block, dim), lambda *step: (step[axis], _FIRST))


def row_spec(block: int, axis: int) -> pl.BlockSpec:
    """Returns how a vector [1, n] is cut along an axis of the grid."""
    return pl.BlockSpec((1, block), lambda *step: (_FIRST, step[axis]))


def cost(outer: Side, inner: Side, outputs: Any, products: int) -> pl.CostEstimate:
    """What XLA can't see inside a kernel, for its schedule and its cost analysis."""
    pairs = outer.points.shape[0] * inner.points.shape[0]
    both = outer.logsumexp is not None and inner.logsumexp is not None
    arrays = jax.tree.leaves((outer, inner, outputs))
    return pl.CostEstimate(
        flops=2 * products * pairs * outer.points.shape[1],
        transcendentals=2 * pairs if both else pairs,
        bytes_accessed=sum(x.size * x.dtype.itemsize for x in arrays),
    )


# --- Checks ---


def checked_options(precision: lax.Precision, block_size: int | None, interpret: bool) -> Options:
    """Returns how kernels run, or raises where they can't."""
    if precision not in (lax.Precision.HIGHEST, lax.Precision.DEFAULT):
        raise ValueError(f"precision must be HIGHEST or DEFAULT, got {precision!r}")
    # Interpreted tiles may be smaller: the tests need many of them to a small array.
    multiple = 8 if interpret else _LANES
    if block_size is not None and (block_size < 1 or block_size % multiple):
        raise ValueError(f"block_size must be a positive multiple of {multiple}, got {block_size}")
    return Options(precision, block_size, interpret)


def check_points(queries: Array, keys: Array) -> None:
    """Refuses queries and keys of another type or shape than kernels take."""
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


def check_vectors(
    queries: Array,
    keys: Array,
    key_bias: Array | None,
    query_index: Array | None,
    key_index: Array | None,
) -> None:
    """Refuses a bias, or numbers, that do not belong to these queries and keys."""
    if (query_index is None) != (key_index is None):
        raise ValueError("query_index and key_index must both be given, or both be None")
    check_vector("key_bias", key_bias, "keys", keys)
    check_vector("query_index", query_index, "queries", queries)
    check_vector("key_index", key_index, "keys", keys)
    for name, index in (("query_index", query_index), ("key_index", key_index)):
        if index is not None and index.dtype != jnp.int32:
            raise TypeError(f"{name} must be int32, got dtype {index.dtype}")


def check_vector(name: str, vector: Array | None, owner: str, points: Array) -> None:
    """Refuses a vector that does not have one entry for each point."""
    if vector is not None and vector.shape != points.shape[:1]:
        raise ValueError(
            f"{name} must have one entry for each of the {points.shape[0]} {owner}, got shape "
            f"{vector.shape}"
        )
