"""A log-sum-exp of points with each other, which may be spread over devices.

Where anchors are each other's keys, scores are symmetric, and a point has a part in its own
log-sum-exp and in that of every other point. Both parts follow from the same scores:

    gradient of vector i = Σ_j (P_ij + P_ji) vector j
    P_ij = cotangent i · exp(score(i, j) - logsumexp i)

So a device that knows two more numbers of every point, its log-sum-exp and its cotangent, makes
the whole gradient of its own points. No gradient of other devices' points is computed, held or
sent: value and gradient take three matrix products, and two where scores are kept, where keys
that are not the anchors take up to five.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from aninfonce_jax.losses import exchange, reductions, rows_with_keys, tiles
from aninfonce_jax.losses.plan import Plan
from aninfonce_jax.losses.platforms import kernels, on_platform
from aninfonce_jax.losses.tiles import Points, Rows, ScoredPoints
from aninfonce_jax.types import Array


def logsumexp(plan: Plan, points: Points) -> tuple[Array, Array]:
    """Log-sum-exp, and maximum, of each point's scores with all others.

    Args:
      plan: how.
      points: this device's points, with bias and number; each is scored with those of all
        devices.

    Returns:
      The log-sum-exp, [points], and the maximum, [points], which has no gradient.
    """
    return _logsumexp(plan, tiles.vary_alike(points))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _logsumexp(plan: Plan, points: Points) -> tuple[Array, Array]:
    return _forward(plan, points)[0]


def _forward(plan: Plan, points: Points) -> tuple[tuple[Array, Array], Any]:
    rows = Rows(points.vectors, points.number)
    products = None
    if plan.keys == "ring":
        partial = rows_with_keys.ring_forward(plan, rows, points)
    else:
        everyone = exchange.gather(plan, points)
        if plan.tile == "dense":
            products = tiles.masked_products(rows, everyone, plan.precision)
            partial, _ = reductions.softmax_parts(products + everyone.bias[None, :])
        else:
            partial, _ = rows_with_keys.tile_forward(plan, rows, everyone)
    total = reductions.logsumexp(partial)
    best = partial.best + lax.stop_gradient(points.bias)
    return (total + points.bias, best), (points, products, total)


def _backward(plan: Plan, residuals: Any, cotangents: tuple[Array, Array]) -> tuple[Points]:
    points, products, total = residuals
    mine = ScoredPoints(
        vectors=points.vectors,
        bias=points.bias,
        number=points.number,
        logsumexp=reductions.finite_or_zero(total),
        cotangent=cotangents[0],
    )
    if plan.keys == "ring":
        gradients = _ring_backward(plan, mine)
    else:
        everyone = exchange.gather(plan, mine)
        if plan.tile == "dense":
            gradients = _gradients_from_products(products, mine, everyone, plan.precision)
        else:
            gradients = _tile_backward(plan, mine, everyone)
    return (Points(*gradients),)


_logsumexp.defvjp(_forward, _backward)


def _ring_backward(plan: Plan, mine: ScoredPoints) -> tuple[Array, Array]:
    def visit(gradients: tuple[Array, Array], others: ScoredPoints) -> tuple[Array, Array]:
        return jax.tree.map(jnp.add, gradients, _tile_backward(plan, mine, others))

    start = jnp.zeros_like(mine.vectors), jnp.zeros_like(mine.bias)
    return exchange.around(plan, mine, tiles.vary_like(start, mine.vectors), visit)


def _tile_backward(plan: Plan, mine: ScoredPoints, others: ScoredPoints) -> tuple[Array, Array]:
    """Returns what `others` add to the gradients of the vectors and biases of `mine`."""
    chunked = functools.partial(
        chunked_gradients, chunk_size=plan.chunk_size, precision=plan.precision
    )

    def fused(mine: ScoredPoints, others: ScoredPoints, *, interpret: bool) -> tuple[Array, Array]:
        return kernels().each_other_backward(
            mine, others, precision=plan.precision, interpret=interpret
        )

    return on_platform(plan, chunked, fused)(mine, others)


def chunked_gradients(
    rows: ScoredPoints, columns: ScoredPoints, chunk_size: int, precision: lax.Precision
) -> tuple[Array, Array]:
    """Returns what `columns` add to the gradients of the vectors and biases of `rows`.

    That is the part of each row in its own log-sum-exp, and in that of each column.
    """
    column_tiles = tiles.cut_points(columns, chunk_size)

    def row(tile: ScoredPoints) -> tuple[Array, Array]:
        def add(
            gradients: tuple[Array, Array], column: ScoredPoints
        ) -> tuple[tuple[Array, Array], None]:
            products = tiles.masked_products(tile, column, precision)
            more = _gradients_from_products(products, tile, column, precision)
            return jax.tree.map(jnp.add, gradients, more), None

        start = jnp.zeros_like(tile.vectors), jnp.zeros_like(tile.bias)
        return lax.scan(add, tiles.vary_like(start, column_tiles.vectors), column_tiles)[0]

    count = rows.vectors.shape[0]
    gradients = lax.map(row, tiles.cut_points(rows, chunk_size))
    return jax.tree.map(lambda x: tiles.uncut(x, count), gradients)


def _gradients_from_products(
    products: Array, rows: ScoredPoints, columns: ScoredPoints, precision: lax.Precision
) -> tuple[Array, Array]:
    """Returns what `chunked_gradients` does, from masked products [rows, columns]."""
    # Biases are added as they were for the log-sum-exp, so that they round alike.
    scores = products + columns.bias[None, :]
    weights = jnp.exp(scores - rows.logsumexp[:, None]) * rows.cotangent[:, None]
    scores = products + rows.bias[:, None]
    weights += jnp.exp(scores - columns.logsumexp[None, :]) * columns.cotangent[None, :]
    d_vectors = jnp.matmul(weights, columns.vectors, precision=precision)
    return d_vectors, jnp.sum(weights, axis=1)
