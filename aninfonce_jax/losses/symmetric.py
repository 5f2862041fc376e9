"""A log-sum-exp over all pairs of one set of points, at half the scores.

Where the keys are the anchors themselves, the matrix of scores is symmetric:

    score(i, j) = <vector i, vector j> + bias i + bias j

So a tile above the diagonal also stands for the one below it, and value and gradient take
two matrix products of the full size where distinct queries and keys take four.

Each score is exponentiated once, for its row and its column alike, hence from one shift for
all rows instead of each row's own maximum. That is exact as long as no row's sum comes near
the smallest numbers of its type. Where one does, which is found out on the way, the work is
done again by the general method.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from aninfonce_jax.losses import tiles
from aninfonce_jax.losses.tiles import Keys, Partial, Points, Queries
from aninfonce_jax.types import Array

# A row's sum of exponentials must exceed this share of the largest possible term. Terms
# that underflow are then less than 1e-12 of it, however many there are.
_SMALLEST_SUM = 1e-18


class _Settings(NamedTuple):
    chunk_size: int
    precision: lax.Precision


def logsumexp(points: Points, chunk_size: int, precision: lax.Precision) -> tuple[Array, Array]:
    """Log-sum-exp, and maximum, of each point's scores with all others.

    Args:
      points: the points.
      chunk_size: side of a tile of scores.
      precision: of the matrix products.

    Returns:
      The log-sum-exp, [points], and the maximum, [points], which has no gradient.
    """
    return _logsumexp(_Settings(chunk_size, precision), points)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _logsumexp(settings: _Settings, points: Points) -> tuple[Array, Array]:
    return _forward(settings, points)[0]


def _forward(settings: _Settings, points: Points) -> tuple[tuple[Array, Array], Any]:
    # No score exceeds the largest one of a point with itself.
    own = jnp.sum(points.vectors**2, axis=-1) + 2 * points.bias
    ceiling = lax.stop_gradient(jnp.max(own))
    partial = _half_forward(settings, points, ceiling)
    healthy = jnp.all(partial.total > _SMALLEST_SUM)
    shifted = Partial(jnp.full_like(partial.best, ceiling), partial.total)
    total, best = lax.cond(
        healthy,
        lambda: (tiles.logsumexp(shifted), ceiling + jnp.log(lax.stop_gradient(partial.best))),
        lambda: _general_forward(settings, points),
    )
    return (total, best), (points, ceiling, healthy, total)


def _backward(
    settings: _Settings, residuals: Any, cotangents: tuple[Array, Array]
) -> tuple[Points]:
    points, ceiling, healthy, total = residuals
    d_vectors, d_bias = lax.cond(
        healthy,
        lambda: _half_backward(settings, points, ceiling, total, cotangents[0]),
        lambda: _general_backward(settings, points, total, cotangents[0]),
    )
    return (Points(d_vectors, d_bias, None),)  # type: ignore[arg-type]


_logsumexp.defvjp(_forward, _backward)


# --- Half of the tiles ---


def _half_forward(settings: _Settings, points: Points, ceiling: Array) -> Partial:
    """Returns sums and maxima of exp(score - ceiling) per row; here `best` is a maximum."""
    count = points.vectors.shape[0]
    cut = _cut(points, settings.chunk_size)

    def add(partial: Partial, pair: tuple[Array, Array]) -> tuple[Partial, None]:
        exponentials = _exponentials(settings, cut, ceiling, pair)
        sums = _add_both(partial.total, pair, *(jnp.sum(exponentials, axis=a) for a in (1, 0)))
        highest = lax.stop_gradient(exponentials)
        best = partial.best.at[pair[0]].max(jnp.max(highest, axis=1))
        return Partial(best.at[pair[1]].max(jnp.max(highest, axis=0)), sums), None

    zeros = tiles.vary_like(jnp.zeros_like(cut.bias), points.vectors)
    partial, _ = lax.scan(add, Partial(zeros, zeros), _pairs(cut))
    return jax.tree.map(lambda x: x.reshape(-1)[:count], partial)


def _half_backward(
    settings: _Settings, points: Points, ceiling: Array, total: Array, cotangent: Array
) -> tuple[Array, Array]:
    """Returns the gradients of vectors and bias."""
    count = points.vectors.shape[0]
    cut = _cut(points, settings.chunk_size)
    weights = tiles.cut(cotangent * jnp.exp(ceiling - total), settings.chunk_size, 0)
    matmul = functools.partial(jnp.matmul, precision=settings.precision)

    def add(
        gradients: tuple[Array, Array], pair: tuple[Array, Array]
    ) -> tuple[tuple[Array, Array], None]:
        d_vectors, d_bias = gradients
        i, j = pair
        # A score has a part in the loss of its row and in that of its column.
        shares = weights[i][:, None] + weights[j][None, :]
        shares = shares * _exponentials(settings, cut, ceiling, pair)
        above = matmul(shares, cut.vectors[j])
        below = matmul(shares.T, cut.vectors[i])
        d_vectors = _add_both(d_vectors, pair, above, below)
        d_bias = _add_both(d_bias, pair, *(jnp.sum(shares, axis=a) for a in (1, 0)))
        return (d_vectors, d_bias), None

    zeros = jnp.zeros_like(cut.vectors), jnp.zeros_like(cut.bias)
    start = tiles.vary_like(zeros, points.vectors)
    (d_vectors, d_bias), _ = lax.scan(add, start, _pairs(cut))
    return d_vectors.reshape(-1, d_vectors.shape[-1])[:count], d_bias.reshape(-1)[:count]


def _cut(points: Points, chunk_size: int) -> Points:
    """Returns [tiles, size, ...]; -∞ leaves out the points that fill the last tile."""
    fills = (0.0, -math.inf, -1.0)
    return Points(*(tiles.cut(x, chunk_size, fill) for x, fill in zip(points, fills, strict=True)))


def _pairs(cut: Points) -> tuple[Array, Array]:
    rows, columns = np.triu_indices(cut.bias.shape[0])
    return jnp.asarray(rows, jnp.int32), jnp.asarray(columns, jnp.int32)


def _exponentials(
    settings: _Settings, cut: Points, ceiling: Array, pair: tuple[Array, Array]
) -> Array:
    """Returns exp(score - ceiling) [size, size] for one pair of tiles."""
    rows, columns = (Points(*(x[index] for x in cut)) for index in pair)
    scores = jnp.matmul(rows.vectors, columns.vectors.T, precision=settings.precision)
    scores = scores + (rows.bias - ceiling)[:, None] + columns.bias[None, :]
    left_out = rows.number[:, None] == columns.number[None, :]
    return jnp.where(left_out, 0, jnp.exp(scores))


def _add_both(x: Array, pair: tuple[Array, Array], row: Array, column: Array) -> Array:
    """Adds to the tiles of rows and of columns; on the diagonal they are the same scores."""
    i, j = pair
    return x.at[i].add(row).at[j].add(jnp.where(i == j, 0, column))


# --- The general method, for rows far from all others ---


def _rows_and_columns(points: Points) -> tuple[Queries, Keys]:
    return (
        Queries(points.vectors, points.number),
        Keys(points.vectors, points.bias, points.number),
    )


def _general_forward(settings: _Settings, points: Points) -> tuple[Array, Array]:
    partial = tiles.chunked_forward(*_rows_and_columns(points), *settings)
    return tiles.logsumexp(partial) + points.bias, partial.best + lax.stop_gradient(points.bias)


def _general_backward(
    settings: _Settings, points: Points, total: Array, cotangent: Array
) -> tuple[Array, Array]:
    rows, columns = _rows_and_columns(points)
    d_rows, d_columns = tiles.chunked_backward(
        rows, columns, total - points.bias, cotangent, *settings
    )
    assert d_columns.bias is not None
    return d_rows + d_columns.vectors, cotangent + d_columns.bias
