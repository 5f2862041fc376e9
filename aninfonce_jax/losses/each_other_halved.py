"""A log-sum-exp of points with each other on one device, from half of the scores.

Where the keys are the anchors themselves, the matrix of scores is symmetric. So a tile above the
diagonal also stands for the one below it, and value and gradient take two matrix products of the
full size where distinct queries and keys take four.

A score counts in its row and in its column. A bound tells beforehand whether two scores can differ
by too much for float32. If not, a score is exponentiated once for both, from one shift for all
rows. Else rows and columns have shifts of their own, as in any log-sum-exp, and a score is
exponentiated twice.
"""

import functools
import math
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from aninfonce_jax.losses import reductions, tiles
from aninfonce_jax.losses.plan import Plan
from aninfonce_jax.losses.reductions import Partial
from aninfonce_jax.losses.tiles import Points
from aninfonce_jax.types import Array

# Scores may lie so far below the largest possible one, and still be summed from a common
# shift: their exponentials are then 1e-18 at least, and 1e-38 is the smallest of float32.
_WIDEST_RANGE = -math.log(1e-18)


def logsumexp(plan: Plan, points: Points) -> tuple[Array, Array]:
    """Log-sum-exp, and maximum, of each point's scores with all others.

    Args:
      plan: how; its `chunk_size` is the side of a tile.
      points: the points, with bias and number.

    Returns:
      The log-sum-exp, [points], and the maximum, [points], which has no gradient.
    """
    return _logsumexp(plan, tiles.vary_alike(points))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _logsumexp(plan: Plan, points: Points) -> tuple[Array, Array]:
    return _forward(plan, points)[0]


def _forward(plan: Plan, points: Points) -> tuple[tuple[Array, Array], Any]:
    ceiling, floor = _bounds(points)
    narrow = ceiling - floor < _WIDEST_RANGE
    partial = lax.cond(
        narrow,
        lambda: _forward_from_one_shift(plan, points, ceiling),
        lambda: _forward_from_own_shifts(plan, points),
    )
    total = reductions.logsumexp(partial)
    return (total, partial.best), (points, ceiling, narrow, total)


def _backward(plan: Plan, residuals: Any, cotangents: tuple[Array, Array]) -> tuple[Points]:
    points, ceiling, narrow, total = residuals
    cut = tiles.cut_points(points, plan.chunk_size)
    cotangent = tiles.cut(cotangents[0], plan.chunk_size, 0)

    def from_one_shift() -> tuple[Array, Array]:
        # A point without keys has no gradient, however large exp(ceiling) is.
        above = jnp.where(total == -jnp.inf, 0, ceiling - total)
        weights = cotangent * tiles.cut(jnp.exp(above), plan.chunk_size, 0)

        def parts(pair: _Pair) -> Array:
            exponentials = jnp.exp(_scores(plan, cut, pair) - ceiling)
            return exponentials * (weights[pair.row][:, None] + weights[pair.column][None, :])

        return _sum_gradients(plan, cut, parts)

    def from_own_shifts() -> tuple[Array, Array]:
        shift = tiles.cut(reductions.finite_or_zero(total), plan.chunk_size, jnp.inf)

        def parts(pair: _Pair) -> Array:
            scores = _scores(plan, cut, pair)
            of_row = jnp.exp(scores - shift[pair.row][:, None])
            of_column = jnp.exp(scores - shift[pair.column][None, :])
            of_row *= cotangent[pair.row][:, None]
            return of_row + of_column * cotangent[pair.column][None, :]

        return _sum_gradients(plan, cut, parts)

    d_vectors, d_bias = lax.cond(narrow, from_one_shift, from_own_shifts)
    count, dim = points.vectors.shape
    d_points = d_vectors.reshape(-1, dim)[:count], d_bias.reshape(-1)[:count]
    return (Points(*d_points),)


_logsumexp.defvjp(_forward, _backward)


def _bounds(points: Points) -> tuple[Array, Array]:
    """Returns what no score exceeds, and what none falls below."""
    vectors, bias = lax.stop_gradient((points.vectors, points.bias))
    squared = jnp.sum(vectors**2, axis=-1)
    # Points that do not count as keys have the bias -∞.
    least = jnp.min(jnp.where(bias == -jnp.inf, jnp.inf, bias))
    # By Cauchy and Schwarz. A score is at most the mean of those of its points with themselves.
    ceiling = reductions.finite_or_zero(jnp.max(squared + 2 * bias))
    return ceiling, -jnp.max(squared) + 2 * least


# --- Tiles on and above the diagonal ---


class _Pair(NamedTuple):
    """Numbers of the tiles of points that are the rows and the columns of a tile of scores."""

    row: Array
    column: Array


def _pairs(cut: Points) -> _Pair:
    rows, columns = np.triu_indices(cut.bias.shape[0])
    return _Pair(jnp.asarray(rows, jnp.int32), jnp.asarray(columns, jnp.int32))


def _scores(plan: Plan, cut: Points, pair: _Pair) -> Array:
    """Returns the scores [size, size] of one pair of tiles, -∞ where numbers are equal."""
    rows, columns = (jax.tree.map(operator.itemgetter(index), cut) for index in pair)
    products = tiles.masked_products(rows, columns, plan.precision)
    return products + rows.bias[:, None] + columns.bias[None, :]


def _forward_from_one_shift(plan: Plan, points: Points, ceiling: Array) -> Partial:
    cut = tiles.cut_points(points, plan.chunk_size)

    def add(partial: Partial, pair: _Pair) -> tuple[Partial, None]:
        scores = _scores(plan, cut, pair)
        exponentials = jnp.exp(scores - ceiling)
        total = _add_both(partial.total, pair, *(jnp.sum(exponentials, axis=a) for a in (1, 0)))
        # The best is sought among the scores: exponentials of scores near zero are all alike.
        scores = lax.stop_gradient(scores)
        best = partial.best.at[pair.row].max(jnp.max(scores, axis=1))
        return Partial(best.at[pair.column].max(jnp.max(scores, axis=0)), total), None

    start = Partial(jnp.full_like(cut.bias, -jnp.inf), jnp.zeros_like(cut.bias))
    partial, _ = lax.scan(add, tiles.vary_like(start, points.vectors), _pairs(cut))
    best, total = (x.reshape(-1)[: points.bias.shape[0]] for x in partial)
    # From the shift of all to that of each row, which is what a `Partial` has.
    return Partial(best, total * jnp.exp(ceiling - jnp.where(best == -jnp.inf, ceiling, best)))


def _forward_from_own_shifts(plan: Plan, points: Points) -> Partial:
    cut = tiles.cut_points(points, plan.chunk_size)

    def add(partial: Partial, pair: _Pair) -> tuple[Partial, None]:
        scores = _scores(plan, cut, pair)
        of_rows, _ = reductions.softmax_parts(scores)
        of_columns, _ = reductions.softmax_parts(scores.T)
        # On the diagonal rows and columns are the same points.
        own = pair.row == pair.column
        of_columns = Partial(
            jnp.where(own, -jnp.inf, of_columns.best), jnp.where(own, 0, of_columns.total)
        )
        for index, part in ((pair.row, of_rows), (pair.column, of_columns)):
            merged = reductions.merge_logsumexp(Partial(*(x[index] for x in partial)), part)
            partial = Partial(*(x.at[index].set(y) for x, y in zip(partial, merged, strict=True)))
        return partial, None

    start = Partial(jnp.full_like(cut.bias, -jnp.inf), jnp.zeros_like(cut.bias))
    start = tiles.vary_like(start, points.vectors)
    partial, _ = lax.scan(add, start, _pairs(cut))
    return Partial(*(x.reshape(-1)[: points.bias.shape[0]] for x in partial))


def _sum_gradients(plan: Plan, cut: Points, parts: Any) -> tuple[Array, Array]:
    """Returns the gradients of vectors and biases, in tiles.

    Args:
      plan: how.
      cut: the points, in tiles.
      parts: gives the derivative by every score of a tile, through its row and its column.
    """
    matmul = functools.partial(jnp.matmul, precision=plan.precision)

    def add(gradients: tuple[Array, Array], pair: _Pair) -> tuple[tuple[Array, Array], None]:
        d_vectors, d_bias = gradients
        weights = parts(pair)
        rows, columns = cut.vectors[pair.row], cut.vectors[pair.column]
        d_vectors = _add_both(d_vectors, pair, matmul(weights, columns), matmul(weights.T, rows))
        d_bias = _add_both(d_bias, pair, *(jnp.sum(weights, axis=a) for a in (1, 0)))
        return (d_vectors, d_bias), None

    zeros = jnp.zeros_like(cut.vectors), jnp.zeros_like(cut.bias)
    return lax.scan(add, tiles.vary_like(zeros, cut.vectors), _pairs(cut))[0]


def _add_both(x: Array, pair: _Pair, row: Array, column: Array) -> Array:
    """Adds to the tiles of rows and of columns; on the diagonal they are the same scores."""
    own = pair.row == pair.column
    return x.at[pair.row].add(row).at[pair.column].add(jnp.where(own, 0, column))
