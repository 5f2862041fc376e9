"""A reduction of scores <row, key> + bias on one device, whole or tile by tile.

Only the whole form keeps scores: it trades memory for one matrix product, and saves what the
gradient is made of. The chunked form keeps one tile of scores at a time and computes it again for
the gradient.

A pair is left out where row and key have the same number; without numbers every pair counts.
Masks are made of the numbers tile by tile. What becomes of a row of scores, its log-sum-exp above
all, is in `reductions.py`.
"""

import functools
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from aninfonce_jax.compat import as_varying, varying_axes
from aninfonce_jax.losses import reductions
from aninfonce_jax.losses.powers import lp_matrix
from aninfonce_jax.losses.reductions import Partial, Reduction
from aninfonce_jax.types import Array, PyTree


class Rows(NamedTuple):
    """Rows of a score matrix.

    Attributes:
      vectors: [rows, dim].
      number: int32 [rows], or None where no pair is left out.
      label: int32 [rows], where scores with keys of the same label are asked for.
    """

    vectors: Array
    number: Array | None = None
    label: Array | None = None


class Points(NamedTuple):
    """Keys, or points that are each other's keys.

    The score of a row and a key is <row, key> + bias of the key. Where points are each other's
    keys, it is <i, j> + bias of i + bias of j. The gradient of points is of this type too.

    Attributes:
      vectors: [points, dim].
      bias: [points]; -∞ where a key does not count.
      number: int32 [points], or None where no pair is left out.
      label: int32 [points], where scores with keys of the same label are asked for.
    """

    vectors: Array
    bias: Array
    number: Array | None = None
    label: Array | None = None


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


class Form(NamedTuple):
    """How scores come about and what becomes of them, known before anything is traced.

    Attributes:
      precision: of the matrix products.
      reduction: of the scores of a row.
      power: p, where the score is -‖row - key‖_p^p times the row's last coordinate, instead of
        a product.
    """

    precision: lax.Precision
    reduction: Reduction = "logsumexp"
    power: float | None = None


def empty_like(rows: Rows, form: Form) -> Partial:
    """Returns the result of `rows` over no key."""
    return reductions.empty(form.reduction, rows.vectors[:, 0])


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

    Then all their gradients may differ too. JAX sums those of arrays that were the same on all
    devices, as the mode asks.
    """
    for like in jax.tree.leaves(tree):
        tree = vary_like(tree, like)
    return tree


def mask(scores: Array, row_numbers: Array | None, key_numbers: Array | None) -> Array:
    """Sets scores [rows, keys] to -∞ where the numbers are equal, if there are any."""
    if row_numbers is None or key_numbers is None:
        return scores
    return jnp.where(row_numbers[:, None] == key_numbers[None, :], -jnp.inf, scores)


# --- Whole ---


def dense_forward(rows: Rows, keys: Points, form: Form) -> tuple[Partial, Array]:
    """Returns the partial result, and what its gradient is made of [rows, keys]."""
    scores = _scores(rows, keys, form)
    return reductions.parts(form.reduction, scores, _same_label(rows, keys))


def dense_backward(
    rows: Rows, keys: Points, saved: Array, total: Array, cotangent: Array, form: Form
) -> tuple[Array, Points]:
    """Returns the gradients of the row vectors [rows, dim] and of the keys.

    With the derivatives saved it takes two matrix products and no elementwise pass over
    [rows, keys]: each of their rows is still to be multiplied by a weight, and the small factors
    are multiplied by it instead.
    """
    weights = reductions.row_weights(form.reduction, total, cotangent)
    if form.power is not None:
        return _pulled_back(rows, keys, saved * weights[:, None], form)
    matmul = functools.partial(jnp.matmul, precision=form.precision)
    d_rows = matmul(saved, keys.vectors) * weights[:, None]
    weighted = rows.vectors * weights[:, None]
    # The bias is the weight of a constant feature: its gradient costs one more column.
    d_keys = matmul(saved.T, jnp.concatenate([weighted, weights[:, None]], axis=1))
    return d_rows, Points(d_keys[:, :-1], d_keys[:, -1])


# --- Tile by tile ---


def chunked_forward(rows: Rows, keys: Points, chunk_size: int, form: Form) -> Partial:
    """Returns the partial result with one tile [chunk_size, chunk_size] of scores at a time."""
    count = rows.vectors.shape[0]
    row_tiles = cut_points(rows, chunk_size)
    key_tiles = cut_points(keys, chunk_size)

    def row(tile: Rows) -> Partial:
        def add(partial: Partial, keys: Points) -> tuple[Partial, None]:
            more, _ = dense_forward(tile, keys, form)
            return reductions.merge(form.reduction, partial, more), None

        start = vary_like(empty_like(tile, form), key_tiles.vectors)
        return lax.scan(add, start, key_tiles)[0]

    return jax.tree.map(lambda x: uncut(x, count), lax.map(row, row_tiles))


def chunked_backward(
    rows: Rows, keys: Points, result: Array, cotangent: Array, chunk_size: int, form: Form
) -> tuple[Array, Points]:
    """Returns the gradients of the row vectors [rows, dim] and of the keys.

    Args:
      rows: [rows, dim].
      keys: [keys, dim].
      result: of each row over all its keys, which may be more than `keys`, [rows].
      cotangent: of `result`, [rows].
      chunk_size: side of a tile.
      form: of the scores.
    """
    row_tiles = cut_points(rows, chunk_size)
    key_tiles = cut_points(keys, chunk_size)
    # +∞ gives the rows that fill the last tile weight zero.
    results = cut(reductions.finite_or_zero(result), chunk_size, jnp.inf)
    cotangents = cut(cotangent, chunk_size, 0)

    def row(d_keys: Points, tiles: tuple[Rows, Array, Array]) -> tuple[Points, Array]:
        tile, result, cotangent = tiles

        def column(d_row: Array, tiles: tuple[Points, Points]) -> tuple[Array, Points]:
            keys, d_key = tiles
            scores, same = _scores(tile, keys, form), _same_label(tile, keys)
            weights = reductions.derivative(form.reduction, scores, same, result, cotangent)
            more_row, more_key = _pulled_back(tile, keys, weights, form)
            return d_row + more_row, jax.tree.map(jnp.add, d_key, more_key)

        start = vary_like(jnp.zeros_like(tile.vectors), key_tiles.vectors)
        d_row, d_keys = lax.scan(column, start, (key_tiles, d_keys))
        return d_keys, d_row

    start = Points(jnp.zeros_like(key_tiles.vectors), jnp.zeros_like(key_tiles.bias))
    start = vary_like(start, row_tiles.vectors)
    d_keys, d_rows = lax.scan(row, start, (row_tiles, results, cotangents))
    d_keys = jax.tree.map(lambda x: uncut(x, keys.vectors.shape[0]), d_keys)
    return uncut(d_rows, rows.vectors.shape[0]), d_keys


def _pulled_back(rows: Rows, keys: Points, weights: Array, form: Form) -> tuple[Array, Points]:
    """Returns the gradients of the row vectors and of the keys, from those of scores."""
    d_bias = jnp.sum(weights, axis=0)
    if form.power is not None:
        # JAX's own rule: a power of a difference has no shorter one.
        _, pull_back = jax.vjp(lambda a, b: _products(a, b, form), rows.vectors, keys.vectors)
        d_rows, d_vectors = pull_back(weights)
        return d_rows, Points(d_vectors, d_bias)
    matmul = functools.partial(jnp.matmul, precision=form.precision)
    return matmul(weights, keys.vectors), Points(matmul(weights.T, rows.vectors), d_bias)


def masked_products(
    rows: Rows | Points | ScoredPoints, columns: Points | ScoredPoints, precision: lax.Precision
) -> Array:
    """Returns <row, column> [rows, columns], -∞ where the numbers are equal."""
    products = jnp.matmul(rows.vectors, columns.vectors.T, precision=precision)
    return mask(products, rows.number, columns.number)


def _scores(rows: Rows, keys: Points, form: Form) -> Array:
    scores = _products(rows.vectors, keys.vectors, form) + keys.bias[None, :]
    # Masked before the bias is added, they would take twice the memory: XLA then keeps both.
    return mask(scores, rows.number, keys.number)


def _products(rows: Array, keys: Array, form: Form) -> Array:
    if form.power is None:
        return jnp.matmul(rows, keys.T, precision=form.precision)
    return lp_matrix(rows[:, :-1], keys, form.power, rows[:, -1])


def _same_label(rows: Rows, keys: Points) -> Array | None:
    if rows.label is None or keys.label is None:
        return None
    return rows.label[:, None] == keys.label[None, :]


def cut_points(points: _Cut, chunk_size: int) -> _Cut:
    """Returns [tiles, size, ...]; ∓∞ leaves out the points that fill the last tile."""
    fills = {"vectors": 0, "bias": -jnp.inf, "number": -1, "label": -1}
    fills |= {"logsumexp": jnp.inf, "cotangent": 0}
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
