"""A reduction of rows over keys that are given, and may be on other devices: a log-sum-exp mostly.

The keys need not be the rows. Each device has the gradient of its own rows, and sends home what
it makes of the gradients of the keys of others.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from aninfonce_jax.losses import exchange, reductions, tiles
from aninfonce_jax.losses.plan import Plan
from aninfonce_jax.losses.platforms import kernels, on_platform
from aninfonce_jax.losses.reductions import Partial
from aninfonce_jax.losses.tiles import Form, Points, Rows
from aninfonce_jax.types import Array


def reduce(plan: Plan, rows: Rows, keys: Points) -> tuple[Array, Array]:
    """Reduces the scores of each row, <row, key> + bias of the key, over unmasked keys.

    Args:
      plan: how.
      rows: this device's rows.
      keys: this device's keys; every row sees the keys of all devices.

    Returns:
      What the plan's reduction makes of them, [rows], and the maximum, [rows], which has no
      gradient; of scores with the same label, their number instead of the maximum.
    """
    return _reduce(plan, *tiles.vary_alike((rows, keys)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _reduce(plan: Plan, rows: Rows, keys: Points) -> tuple[Array, Array]:
    return _forward(plan, rows, keys)[0]


def _forward(plan: Plan, rows: Rows, keys: Points) -> tuple[tuple[Array, Array], Any]:
    if plan.keys == "ring":
        partial, saved = ring_forward(plan, rows, keys), None
    else:
        partial, saved = tile_forward(plan, rows, exchange.gather(plan, keys))
    total = reductions.value(plan.reduction, partial)
    # Only the dense form keeps something for the gradient that is as large as all scores.
    kept = plan.tile == "dense" and plan.keys != "ring"
    return (total, partial.best), (rows, keys, (saved, partial.total) if kept else total)


def _backward(plan: Plan, residuals: Any, cotangents: tuple[Array, Array]) -> tuple[Rows, Points]:
    rows, keys, residual = residuals
    cotangent = cotangents[0]
    if plan.keys == "ring":
        d_rows, d_keys = _ring_backward(plan, rows, keys, residual, cotangent)
    else:
        gathered = exchange.gather(plan, keys)
        if plan.tile == "dense":
            saved, total = residual
            d_rows, d_gathered = tiles.dense_backward(
                rows, gathered, saved, total, cotangent, form_of(plan)
            )
        else:
            d_rows, d_gathered = tile_backward(plan, rows, gathered, residual, cotangent)
        d_keys = exchange.send_home(plan, d_gathered)
    return Rows(d_rows), d_keys


_reduce.defvjp(_forward, _backward)


# --- Scores of one device's rows with the keys at hand ---


def tile_forward(plan: Plan, rows: Rows, keys: Points) -> tuple[Partial, Array | None]:
    """Returns the partial result over `keys`, and what the dense form saves for the gradient."""
    if plan.tile == "dense":
        return tiles.dense_forward(rows, keys, form_of(plan))
    chunked = functools.partial(
        tiles.chunked_forward, chunk_size=plan.chunk_size, form=form_of(plan)
    )

    def fused(rows: Rows, keys: Points, *, interpret: bool) -> Partial:
        options = {"precision": plan.precision, "interpret": interpret}
        return Partial(
            *kernels().forward(
                rows.vectors, keys.vectors, keys.bias, rows.number, keys.number, **options
            )
        )

    return on_platform(plan, chunked, fused)(rows, keys), None


def tile_backward(
    plan: Plan, rows: Rows, keys: Points, result: Array, cotangent: Array
) -> tuple[Array, Points]:
    """Returns gradients of the rows' vectors and of the keys, from scores computed again."""
    chunked = functools.partial(
        tiles.chunked_backward, chunk_size=plan.chunk_size, form=form_of(plan)
    )

    def fused(
        rows: Rows, keys: Points, logsumexp: Array, cotangent: Array, *, interpret: bool
    ) -> tuple[Array, Points]:
        d_rows, d_vectors, d_bias = kernels().backward(
            rows.vectors,
            keys.vectors,
            keys.bias,
            rows.number,
            keys.number,
            logsumexp,
            cotangent,
            precision=plan.precision,
            interpret=interpret,
        )
        return d_rows, Points(d_vectors, d_bias)

    return on_platform(plan, chunked, fused)(rows, keys, result, cotangent)


def form_of(plan: Plan) -> Form:
    """Returns how a plan's tiles come about."""
    return Form(plan.precision, plan.reduction, plan.power)


# --- Keys that travel around the ring ---


def ring_forward(plan: Plan, rows: Rows, keys: Points) -> Partial:
    """Returns the partial result over the keys of all devices."""

    def visit(partial: Partial, keys: Points) -> Partial:
        return reductions.merge(plan.reduction, partial, tile_forward(plan, rows, keys)[0])

    start = tiles.vary_like(tiles.empty_like(rows, form_of(plan)), keys.vectors)
    return exchange.around(plan, keys, start, visit)


def _ring_backward(
    plan: Plan, rows: Rows, keys: Points, result: Array, cotangent: Array
) -> tuple[Array, Points]:
    """Returns the gradients of rows and keys.

    The gradients of keys follow them a hop behind: on arrival they wait only for the sum
    at the end of a visit, so their transfer overlaps with the computation too. After the
    last visit they are one hop from home.
    """
    pass_on = functools.partial(exchange.pass_on, plan)

    def visit(gradients: tuple[Array, Points], keys: Points) -> tuple[Array, Points]:
        d_rows, d_keys = gradients
        arrived = jax.tree.map(pass_on, d_keys)
        more_rows, more_keys = tile_backward(plan, rows, keys, result, cotangent)
        return d_rows + more_rows, jax.tree.map(jnp.add, arrived, more_keys)

    no_keys = Points(jnp.zeros_like(keys.vectors), jnp.zeros_like(keys.bias))
    nothing = jnp.zeros_like(rows.vectors), no_keys
    start = tiles.vary_like(tiles.vary_like(nothing, keys.vectors), rows.vectors)
    d_rows, d_keys = exchange.around(plan, keys, start, visit)
    return d_rows, jax.tree.map(pass_on, d_keys)
