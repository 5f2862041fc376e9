"""A log-sum-exp over all pairs of one set of points, which may be spread over devices.

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

from aninfonce_jax.losses import scale, tiles
from aninfonce_jax.losses.scale import Plan
from aninfonce_jax.losses.tiles import Keys, Members, Points, Queries
from aninfonce_jax.types import Array


def logsumexp(plan: Plan, points: Points) -> tuple[Array, Array]:
    """Log-sum-exp, and maximum, of each point's scores with all others.

    Args:
      plan: how.
      points: this device's points; each is scored with those of all devices.

    Returns:
      The log-sum-exp, [points], and the maximum, [points], which has no gradient.
    """
    return _logsumexp(plan, tiles.vary_alike(points))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _logsumexp(plan: Plan, points: Points) -> tuple[Array, Array]:
    return _forward(plan, points)[0]


def _forward(plan: Plan, points: Points) -> tuple[tuple[Array, Array], Any]:
    rows = Queries(points.vectors, points.number)
    products = None
    if plan.ring:
        partial = scale.ring_forward(plan, rows, Keys(*points))
    else:
        everyone = scale.gather(plan, points)
        if plan.tile == "dense":
            products = tiles.masked_products(rows, everyone, plan.precision)
            partial, _ = tiles.softmax_parts(products + everyone.bias[None, :])
        else:
            partial, _ = scale.tile_forward(plan, rows, Keys(*everyone))
    total = tiles.logsumexp(partial)
    best = partial.best + lax.stop_gradient(points.bias)
    return (total + points.bias, best), (points, products, total)


def _backward(plan: Plan, residuals: Any, cotangents: tuple[Array, Array]) -> tuple[Points]:
    points, products, total = residuals
    mine = Members(
        vectors=points.vectors,
        bias=points.bias,
        number=points.number,
        logsumexp=tiles.finite_or_zero(total),
        cotangent=cotangents[0],
    )
    if plan.ring:
        gradients = _ring_backward(plan, mine)
    else:
        everyone = scale.gather(plan, mine)
        if plan.tile == "dense":
            gradients = tiles.gradients_of_rows(products, mine, everyone, plan.precision)
        else:
            gradients = _tile_backward(plan, mine, everyone)
    return (Points(*gradients, None),)  # type: ignore[arg-type]


_logsumexp.defvjp(_forward, _backward)


def _ring_backward(plan: Plan, mine: Members) -> tuple[Array, Array]:
    def visit(gradients: tuple[Array, Array], others: Members) -> tuple[Array, Array]:
        return jax.tree.map(jnp.add, gradients, _tile_backward(plan, mine, others))

    start = jnp.zeros_like(mine.vectors), jnp.zeros_like(mine.bias)
    return scale.around(plan, mine, tiles.vary_like(start, mine.vectors), visit)


def _tile_backward(plan: Plan, mine: Members, others: Members) -> tuple[Array, Array]:
    """Returns what `others` add to the gradients of the vectors and biases of `mine`."""
    chunked = functools.partial(
        tiles.mutual_gradients, chunk_size=plan.chunk_size, precision=plan.precision
    )

    def fused(mine: Members, others: Members, *, interpret: bool) -> tuple[Array, Array]:
        return scale.kernels().mutual_backward(
            mine, others, precision=plan.precision, interpret=interpret
        )

    return scale.on_platform(plan, chunked, fused)(mine, others)
