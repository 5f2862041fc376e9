"""A log-sum-exp over scores <row, key> + bias on one device, whole or tile by tile.

Only the whole form keeps scores: it trades memory for one matrix product, and saves the softmax's
numerators. The chunked form keeps one tile of scores at a time and computes it again for the
gradient.

A pair is left out where row and key have the same number; without numbers every pair counts.
Masks are made of the numbers tile by tile. A row without any key, or whose keys all score -∞, has
log-sum-exp -∞ and gradient zero. NaN is not hidden.
"""

import functools
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from aninfonce_jax.compat import as_varying, varying_axes
from aninfonce_jax.types import Array, PyTree


class Rows(NamedTuple):
    """Rows of a score matrix.

    Attributes:
      vectors: [rows, dim].
      number: int32 [rows], or None where no pair is left out.
    """

    vectors: Array
    number: Array | None = None


class Points(NamedTuple):
    """Keys, or points that are each other's keys.

    The score of a row and a key is <row, key> + bias of the key. Where points are each other's
    keys, it is <i, j> + bias of i + bias of j. The gradient of points is of this type too.

    Attributes:
      vectors: [points, dim].
      bias: [points].
      number: int32 [points], or None where no pair is left out.
    """

    vectors: Array
    bias: Array
    number: Array | None = None


class ScoredPoints(NamedTuple):
    """Points that are each other's keys, with what their gradients need to know of each.

    Attributes:
      vectors: [points, dim].
      bias: [points].
      number: int32 [points], or None where no pair is left out.
      logsumexp: of the point's scores with all others, less its own bias, [points].
      cotangent: of `logsumexp`, [points].
    """

    vectors: Array
    bias: Array
    number: Array | None
    logsumexp: Array
    cotangent: Array


_Cut = TypeVar("_Cut", Rows, Points, ScoredPoints)


class Partial(NamedTuple):
    """A log-sum-exp in two parts, best + log(total), which can still take more keys.

    Attributes:
      best: the largest score so far, [rows], without gradient; -∞ for no score.
      total: Σ exp(score - best), [rows].
    """

    best: Array
    total: Array


def logsumexp(partial: Partial) -> Array:
    """Returns the log-sum-exp [rows] that `partial` stands for."""
    return partial.best + jnp.log(partial.total)


def merge(a: Partial, b: Partial) -> Partial:
    """Returns the log-sum-exp over the keys of both."""
    best = jnp.maximum(a.best, b.best)
    shift = finite_or_zero(best)
    return Partial(best, a.total * jnp.exp(a.best - shift) + b.total * jnp.exp(b.best - shift))


def empty_like(rows: Rows) -> Partial:
    """Returns the log-sum-exp of `rows` over no key."""
    column = rows.vectors[:, 0]
    return Partial(jnp.full_like(column, -jnp.inf), jnp.zeros_like(column))


def vary_like(tree: PyTree, like: Array) -> PyTree:
    """Marks constants as differing between devices wherever `like` does.

    `shard_map` asks that of what a loop carries; elsewhere nothing changes.
    """

    def vary(x: Array) -> Array:
        missing = tuple(sorted(varying_axes(like) - varying_axes(x)))
        return as_varying(x, missing) if missing else x

    return jax.tree.map(vary, tree)


def vary_alike(tree: PyTree) -> PyTree:
    """Marks arrays as differing between devices wherever one of them does.

    Then so may all their gradients, and JAX sums those of arrays that did not as the mode asks.
    """
    for like in jax.tree.leaves(tree):
        tree = vary_like(tree, like)
    return tree


def mask(scores: Array, row_numbers: Array | None, key_numbers: Array | None) -> Array:
    """Sets scores [rows, keys] to -∞ where the numbers are equal, if there are any."""
    if row_numbers is None or key_numbers is None:
        return scores
    return jnp.where(row_numbers[:, None] == key_numbers[None, :], -jnp.inf, scores)


def finite_or_zero(x: Array) -> Array:
    """Replaces -∞ by zero, so that -∞ minus it stays -∞; NaN stays NaN."""
    return jnp.where(x == -jnp.inf, 0, x)


# --- Whole ---


def dense_forward(rows: Rows, keys: Points, precision: lax.Precision) -> tuple[Partial, Array]:
    """Returns the log-sum-exp, and the numerators exp(score - best) [rows, keys]."""
    return softmax_parts(_scores(rows, keys, precision))


def softmax_parts(scores: Array) -> tuple[Partial, Array]:
    """Returns the log-sum-exp of each row of scores [rows, keys], and the numerators."""
    best = lax.stop_gradient(jnp.max(scores, axis=-1))
    numerators = jnp.exp(scores - finite_or_zero(best)[:, None])
    return Partial(best, jnp.sum(numerators, axis=-1)), numerators


def dense_backward(
    rows: Rows,
    keys: Points,
    numerators: Array,
    total: Array,
    cotangent: Array,
    precision: lax.Precision,
) -> tuple[Array, Points]:
    """Returns the gradients of the row vectors [rows, dim] and of the keys.

    With the numerators saved it takes two matrix products and no elementwise pass over
    [rows, keys]: the denominators scale rows, which the small factors can carry.
    """
    weights = jnp.where(total == 0, 0, cotangent / jnp.where(total == 0, 1, total))
    matmul = functools.partial(jnp.matmul, precision=precision)
    d_rows = matmul(numerators, keys.vectors) * weights[:, None]
    weighted = rows.vectors * weights[:, None]
    # The bias is the weight of a constant feature: its gradient costs one more column.
    d_keys = matmul(numerators.T, jnp.concatenate([weighted, weights[:, None]], axis=1))
    return d_rows, Points(d_keys[:, :-1], d_keys[:, -1])


# --- Tile by tile ---


def chunked_forward(rows: Rows, keys: Points, chunk_size: int, precision: lax.Precision) -> Partial:
    """Returns the log-sum-exp with one tile [chunk_size, chunk_size] of scores at a time."""
    count = rows.vectors.shape[0]
    row_tiles = cut_points(rows, chunk_size)
    key_tiles = cut_points(keys, chunk_size)

    def row(tile: Rows) -> Partial:
        def add(partial: Partial, keys: Points) -> tuple[Partial, None]:
            return merge(partial, dense_forward(tile, keys, precision)[0]), None

        start = vary_like(empty_like(tile), key_tiles.vectors)
        return lax.scan(add, start, key_tiles)[0]

    return jax.tree.map(lambda x: uncut(x, count), lax.map(row, row_tiles))


def chunked_backward(
    rows: Rows,
    keys: Points,
    logsumexp: Array,
    cotangent: Array,
    chunk_size: int,
    precision: lax.Precision,
) -> tuple[Array, Points]:
    """Returns the gradients of the row vectors [rows, dim] and of the keys.

    Args:
      rows: [rows, dim].
      keys: [keys, dim].
      logsumexp: of each row over all its keys, which may be more than `keys`, [rows].
      cotangent: of `logsumexp`, [rows].
      chunk_size: side of a tile.
      precision: of the matrix products.
    """
    matmul = functools.partial(jnp.matmul, precision=precision)
    row_tiles = cut_points(rows, chunk_size)
    key_tiles = cut_points(keys, chunk_size)
    # +∞ gives the rows that fill the last tile weight zero.
    shifts = cut(finite_or_zero(logsumexp), chunk_size, jnp.inf)
    cotangents = cut(cotangent, chunk_size, 0)

    def row(d_keys: Points, tiles: tuple[Rows, Array, Array]) -> tuple[Points, Array]:
        tile, shift, cotangent = tiles

        def column(d_row: Array, tiles: tuple[Points, Points]) -> tuple[Array, Points]:
            keys, d_key = tiles
            scores = _scores(tile, keys, precision)
            weights = jnp.exp(scores - shift[:, None]) * cotangent[:, None]
            d_row = d_row + matmul(weights, keys.vectors)
            d_vectors = d_key.vectors + matmul(weights.T, tile.vectors)
            return d_row, Points(d_vectors, d_key.bias + jnp.sum(weights, axis=0))

        start = vary_like(jnp.zeros_like(tile.vectors), key_tiles.vectors)
        d_row, d_keys = lax.scan(column, start, (key_tiles, d_keys))
        return d_keys, d_row

    start = Points(jnp.zeros_like(key_tiles.vectors), jnp.zeros_like(key_tiles.bias))
    start = vary_like(start, row_tiles.vectors)
    d_keys, d_rows = lax.scan(row, start, (row_tiles, shifts, cotangents))
    d_keys = jax.tree.map(lambda x: uncut(x, keys.vectors.shape[0]), d_keys)
    return uncut(d_rows, rows.vectors.shape[0]), d_keys


def masked_products(
    rows: Rows | Points | ScoredPoints, columns: Points | ScoredPoints, precision: lax.Precision
) -> Array:
    """Returns <row, column> [rows, columns], -∞ where the numbers are equal."""
    products = jnp.matmul(rows.vectors, columns.vectors.T, precision=precision)
    return mask(products, rows.number, columns.number)


def _scores(rows: Rows, keys: Points, precision: lax.Precision) -> Array:
    scores = jnp.matmul(rows.vectors, keys.vectors.T, precision=precision) + keys.bias[None, :]
    # Masked before the bias is added, they would take twice the memory: XLA then keeps both.
    return mask(scores, rows.number, keys.number)


def cut_points(points: _Cut, chunk_size: int) -> _Cut:
    """Returns [tiles, size, ...]; ∓∞ leaves out the points that fill the last tile."""
    fills = {"vectors": 0, "bias": -jnp.inf, "number": -1, "logsumexp": jnp.inf, "cotangent": 0}
    cuts: dict[str, Any] = {
        name: None if x is None else cut(x, chunk_size, fills[name])
        for name, x in points._asdict().items()
    }
    return type(points)(**cuts)


def tile_shape(count: int, chunk_size: int) -> tuple[int, int]:
    """Returns how many tiles of which size hold `count` rows, as even as can be."""
    tiles = -(-count // chunk_size)
    return tiles, -(-count // tiles)


def cut(x: Array, chunk_size: int, fill: float) -> Array:
    """Returns `x` [rows, ...] as [tiles, size, ...], the last tile filled up."""
    tiles, size = tile_shape(x.shape[0], chunk_size)
    padding = [(0, tiles * size - x.shape[0])] + [(0, 0)] * (x.ndim - 1)
    return jnp.pad(x, padding, constant_values=fill).reshape(tiles, size, *x.shape[1:])


def uncut(x: Array, count: int) -> Array:
    """Inverts `cut`."""
    return x.reshape(-1, *x.shape[2:])[:count]
