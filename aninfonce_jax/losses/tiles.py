"""A log-sum-exp over scores <query, key> + bias on one device, whole or tile by tile.

Scores are never kept but for the whole form, which trades memory for one matrix product:
it saves the softmax's numerators. The chunked form keeps one tile of scores at a time and
computes it again for the gradient.

A pair is left out where query and key have the same number; without numbers every pair
counts. Masks are made of the numbers tile by tile. A row without any key, or whose keys all
score -∞, has log-sum-exp -∞ and gradient zero. NaN is not hidden.
"""

import functools
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from aninfonce_jax.compat import as_varying, varying_axes
from aninfonce_jax.types import Array, PyTree


class Queries(NamedTuple):
    """Rows of a score matrix.

    Attributes:
      vectors: [queries, dim].
      number: int32 [queries], or None where no key is left out.
    """

    vectors: Array
    number: Array | None


class Keys(NamedTuple):
    """Columns of a score matrix.

    Attributes:
      vectors: [keys, dim].
      bias: what is added to every score of a key, [keys], or None.
      number: int32 [keys], or None where no key is left out.
    """

    vectors: Array
    bias: Array | None
    number: Array | None


class Points(NamedTuple):
    """One set of points, both rows and columns of a symmetric score matrix.

    The score of two is <vector i, vector j> + bias i + bias j.

    Attributes:
      vectors: [points, dim].
      bias: [points].
      number: int32 [points]; a pair with equal numbers is left out.
    """

    vectors: Array
    bias: Array
    number: Array


class Members(NamedTuple):
    """What the gradient of `Points` needs to know of each of them.

    Attributes:
      vectors: [points, dim].
      bias: [points].
      number: int32 [points].
      logsumexp: of the point's scores with all others, less its own bias, [points].
      cotangent: of `logsumexp`, [points].
    """

    vectors: Array
    bias: Array
    number: Array
    logsumexp: Array
    cotangent: Array


_Points = TypeVar("_Points", Points, Members)


class Partial(NamedTuple):
    """A log-sum-exp in two parts, best + log(total), which can still take more keys.

    Attributes:
      best: the largest score so far, [queries], without gradient; -∞ for no score.
      total: Σ exp(score - best), [queries].
    """

    best: Array
    total: Array


class KeyGradients(NamedTuple):
    """Gradients of `Keys`: vectors [keys, dim], and bias [keys] where there is one."""

    vectors: Array
    bias: Array | None


def logsumexp(partial: Partial) -> Array:
    """Returns the log-sum-exp [queries] that `partial` stands for."""
    return partial.best + jnp.log(partial.total)


def merge(a: Partial, b: Partial) -> Partial:
    """Returns the log-sum-exp over the keys of both."""
    best = jnp.maximum(a.best, b.best)
    shift = finite_or_zero(best)
    return Partial(best, a.total * jnp.exp(a.best - shift) + b.total * jnp.exp(b.best - shift))


def empty_like(queries: Queries) -> Partial:
    """Returns the log-sum-exp over no key."""
    row = queries.vectors[:, 0]
    return Partial(jnp.full_like(row, -jnp.inf), jnp.zeros_like(row))


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


def mask(scores: Array, query_numbers: Array | None, key_numbers: Array | None) -> Array:
    """Sets scores [queries, keys] to -∞ where the numbers are equal, if there are any."""
    if query_numbers is None or key_numbers is None:
        return scores
    return jnp.where(query_numbers[:, None] == key_numbers[None, :], -jnp.inf, scores)


def finite_or_zero(x: Array) -> Array:
    """Replaces -∞ by zero, so that -∞ minus it stays -∞; NaN stays NaN."""
    return jnp.where(x == -jnp.inf, 0, x)


# --- Whole ---


def dense_forward(queries: Queries, keys: Keys, precision: lax.Precision) -> tuple[Partial, Array]:
    """Returns the log-sum-exp, and the numerators exp(score - best) [queries, keys]."""
    return softmax_parts(_scores(queries, keys, precision))


def softmax_parts(scores: Array) -> tuple[Partial, Array]:
    """Returns the log-sum-exp of each row of scores [queries, keys], and the numerators."""
    best = lax.stop_gradient(jnp.max(scores, axis=-1))
    numerators = jnp.exp(scores - finite_or_zero(best)[:, None])
    return Partial(best, jnp.sum(numerators, axis=-1)), numerators


def dense_backward(
    queries: Queries,
    keys: Keys,
    numerators: Array,
    total: Array,
    cotangent: Array,
    precision: lax.Precision,
) -> tuple[Array, KeyGradients]:
    """Returns the gradients of the query vectors [queries, dim] and of the keys.

    With the numerators saved it takes two matrix products and no elementwise pass over
    [queries, keys]: the denominators scale rows, which the small factors can carry.
    """
    weights = jnp.where(total == 0, 0, cotangent / jnp.where(total == 0, 1, total))
    matmul = functools.partial(jnp.matmul, precision=precision)
    d_queries = matmul(numerators, keys.vectors) * weights[:, None]
    weighted = queries.vectors * weights[:, None]
    if keys.bias is None:
        return d_queries, KeyGradients(matmul(numerators.T, weighted), None)
    # The bias is the weight of a constant feature: its gradient costs one more column.
    d_keys = matmul(numerators.T, jnp.concatenate([weighted, weights[:, None]], axis=1))
    return d_queries, KeyGradients(d_keys[:, :-1], d_keys[:, -1])


# --- Tile by tile ---


def chunked_forward(
    queries: Queries, keys: Keys, chunk_size: int, precision: lax.Precision
) -> Partial:
    """Returns the log-sum-exp with one tile [chunk_size, chunk_size] of scores at a time."""
    count = queries.vectors.shape[0]
    query_tiles = _query_tiles(queries, chunk_size)
    key_tiles = _key_tiles(keys, chunk_size)

    def row(tile: Queries) -> Partial:
        def add(partial: Partial, keys: Keys) -> tuple[Partial, None]:
            return merge(partial, dense_forward(tile, keys, precision)[0]), None

        start = vary_like(empty_like(tile), key_tiles.vectors)
        return lax.scan(add, start, key_tiles)[0]

    return jax.tree.map(lambda x: _merge_tiles(x, count), lax.map(row, query_tiles))


def chunked_backward(
    queries: Queries,
    keys: Keys,
    logsumexp: Array,
    cotangent: Array,
    chunk_size: int,
    precision: lax.Precision,
) -> tuple[Array, KeyGradients]:
    """Returns the gradients of the query vectors [queries, dim] and of the keys.

    Args:
      queries: the rows.
      keys: the columns.
      logsumexp: of each row over all its keys, which may be more than `keys`, [queries].
      cotangent: of `logsumexp`, [queries].
      chunk_size: side of a tile.
      precision: of the matrix products.
    """
    matmul = functools.partial(jnp.matmul, precision=precision)
    query_tiles = _query_tiles(queries, chunk_size)
    key_tiles = _key_tiles(keys, chunk_size)
    # +∞ gives the rows that fill the last tile weight zero.
    shifts = cut(finite_or_zero(logsumexp), chunk_size, jnp.inf)
    cotangents = cut(cotangent, chunk_size, 0)

    def row(
        d_keys: KeyGradients, tiles: tuple[Queries, Array, Array]
    ) -> tuple[KeyGradients, Array]:
        tile, shift, cotangent = tiles

        def column(d_query: Array, tiles: tuple[Keys, KeyGradients]) -> tuple[Array, KeyGradients]:
            keys, d_key = tiles
            scores = _scores(tile, keys, precision)
            weights = jnp.exp(scores - shift[:, None]) * cotangent[:, None]
            d_query = d_query + matmul(weights, keys.vectors)
            d_vectors = d_key.vectors + matmul(weights.T, tile.vectors)
            d_bias = None if d_key.bias is None else d_key.bias + jnp.sum(weights, axis=0)
            return d_query, KeyGradients(d_vectors, d_bias)

        start = vary_like(jnp.zeros_like(tile.vectors), key_tiles.vectors)
        d_query, d_keys = lax.scan(column, start, (key_tiles, d_keys))
        return d_keys, d_query

    start = KeyGradients(
        jnp.zeros_like(key_tiles.vectors),
        None if keys.bias is None else jnp.zeros_like(key_tiles.vectors[..., 0]),
    )
    start = vary_like(start, query_tiles.vectors)
    d_keys, d_queries = lax.scan(row, start, (query_tiles, shifts, cotangents))
    d_keys = jax.tree.map(lambda x: _merge_tiles(x, keys.vectors.shape[0]), d_keys)
    return _merge_tiles(d_queries, queries.vectors.shape[0]), d_keys


def mutual_gradients(
    rows: Members, columns: Members, chunk_size: int, precision: lax.Precision
) -> tuple[Array, Array]:
    """Returns what `columns` add to the gradients of the vectors and biases of `rows`.

    That is the part of each row in its own log-sum-exp, and in that of each column.
    """
    column_tiles = cut_points(columns, chunk_size)

    def row(tile: Members) -> tuple[Array, Array]:
        def add(
            gradients: tuple[Array, Array], column: Members
        ) -> tuple[tuple[Array, Array], None]:
            products = masked_products(tile, column, precision)
            more = gradients_of_rows(products, tile, column, precision)
            return jax.tree.map(jnp.add, gradients, more), None

        start = jnp.zeros_like(tile.vectors), jnp.zeros_like(tile.bias)
        return lax.scan(add, vary_like(start, column_tiles.vectors), column_tiles)[0]

    count = rows.vectors.shape[0]
    gradients = lax.map(row, cut_points(rows, chunk_size))
    return jax.tree.map(lambda x: _merge_tiles(x, count), gradients)


def gradients_of_rows(
    products: Array, rows: Members, columns: Members, precision: lax.Precision
) -> tuple[Array, Array]:
    """Returns what `mutual_gradients` does, from masked products [rows, columns]."""
    # Biases are added as they were for the log-sum-exp, so that they round alike.
    scores = products + columns.bias[None, :]
    weights = jnp.exp(scores - rows.logsumexp[:, None]) * rows.cotangent[:, None]
    scores = products + rows.bias[:, None]
    weights += jnp.exp(scores - columns.logsumexp[None, :]) * columns.cotangent[None, :]
    d_vectors = jnp.matmul(weights, columns.vectors, precision=precision)
    return d_vectors, jnp.sum(weights, axis=1)


def masked_products(
    rows: Queries | Points | Members, columns: Points | Members, precision: lax.Precision
) -> Array:
    """Returns <row, column> [rows, columns], -∞ where the numbers are equal."""
    products = jnp.matmul(rows.vectors, columns.vectors.T, precision=precision)
    return mask(products, rows.number, columns.number)


def _scores(queries: Queries, keys: Keys, precision: lax.Precision) -> Array:
    scores = jnp.matmul(queries.vectors, keys.vectors.T, precision=precision)
    if keys.bias is not None:
        scores = scores + keys.bias[None, :]
    # Masked before the bias is added, they would take twice the memory: XLA then keeps both.
    return mask(scores, queries.number, keys.number)


def _query_tiles(queries: Queries, chunk_size: int) -> Queries:
    number = None if queries.number is None else cut(queries.number, chunk_size, -1)
    return Queries(cut(queries.vectors, chunk_size, 0), number)


def _key_tiles(keys: Keys, chunk_size: int) -> Keys:
    count = keys.vectors.shape[0]
    bias = keys.bias
    tiles, size = tile_shape(count, chunk_size)
    if bias is None and tiles * size != count:
        bias = jnp.zeros_like(keys.vectors[:, 0])
    return Keys(
        cut(keys.vectors, chunk_size, 0),
        # -∞ leaves out the keys that fill the last tile.
        None if bias is None else cut(bias, chunk_size, -jnp.inf),
        None if keys.number is None else cut(keys.number, chunk_size, -1),
    )


def cut_points(points: _Points, chunk_size: int) -> _Points:
    """Returns [tiles, size, ...]; ∓∞ leaves out the points that fill the last tile."""
    fills = {"vectors": 0, "bias": -jnp.inf, "number": -1, "logsumexp": jnp.inf, "cotangent": 0}
    return type(points)(*(cut(x, chunk_size, fills[name]) for name, x in points._asdict().items()))


def tile_shape(count: int, chunk_size: int) -> tuple[int, int]:
    """Returns how many tiles of which size hold `count` rows, as even as can be."""
    tiles = -(-count // chunk_size)
    return tiles, -(-count // tiles)


def cut(x: Array, chunk_size: int, fill: float) -> Array:
    """Returns `x` [rows, ...] as [tiles, size, ...], the last tile filled up."""
    tiles, size = tile_shape(x.shape[0], chunk_size)
    padding = [(0, tiles * size - x.shape[0])] + [(0, 0)] * (x.ndim - 1)
    return jnp.pad(x, padding, constant_values=fill).reshape(tiles, size, *x.shape[1:])


def _merge_tiles(x: Array, count: int) -> Array:
    """Inverts `cut`."""
    return x.reshape(-1, *x.shape[2:])[:count]
