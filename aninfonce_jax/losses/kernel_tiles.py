"""What the TPU kernels do with one tile of scores, once its blocks are in the core's own memory."""

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from aninfonce_jax.types import Array


class Side(NamedTuple):
    """What is known of the queries, or of the keys: all rows, one block, or references.

    Vectors are rows, [1, n]. As columns, [n, 1], they would take 128 times the memory.

    Attributes:
      points: [n, dim].
      bias: [1, n], for keys, or None.
      index: [1, n], or None where no pair is masked.
      logsumexp: [1, n], for queries in the backward pass, else None; points may be both.
      cotangent: as `logsumexp`.
    """

    points: Any
    bias: Any = None
    index: Any = None
    logsumexp: Any = None
    cotangent: Any = None


def forward_kernel(
    query_refs: Side,
    key_refs: Side,
    best_ref: Any,
    total_ref: Any,
    *,
    precision: lax.Precision,
) -> None:
    """Adds one tile to the maximum and the sum of its queries."""

    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        best_ref[...] = jnp.full(best_ref.shape, -jnp.inf, jnp.float32)
        total_ref[...] = jnp.zeros(total_ref.shape, jnp.float32)

    # Keys go down and queries across: so reductions over keys leave rows, which is how
    # the results are stored.
    queries, keys = _read(query_refs), _read_columns(key_refs)
    scores = _product(keys.points, queries.points, 1, 1, precision)
    if keys.bias is not None:
        scores = scores + keys.bias
    if queries.index is not None:
        scores = jnp.where(keys.index == queries.index, -jnp.inf, scores)
    best = best_ref[...]
    new_best = jnp.maximum(best, jnp.max(scores, axis=0, keepdims=True))
    # With no key so far, score - best would be -∞ - (-∞).
    shift = jnp.where(new_best == -jnp.inf, 0.0, new_best)
    # Every score enters here, so a NaN reaches the total even where a maximum drops it.
    added = jnp.sum(jnp.exp(scores - shift), axis=0, keepdims=True)
    total_ref[...] = total_ref[...] * jnp.exp(best - shift) + added
    best_ref[...] = new_best


def backward_kernel(
    outer_refs: Side,
    inner_refs: Side,
    d_points_ref: Any,
    d_bias_ref: Any,
    *,
    precision: lax.Precision,
) -> None:
    """Adds one tile to the gradients of the outer side; either side may be queries, or both."""

    @pl.when(pl.program_id(1) == 0)
    def _() -> None:
        d_points_ref[...] = jnp.zeros(d_points_ref.shape, jnp.float32)
        if d_bias_ref is not None:
            d_bias_ref[...] = jnp.zeros(d_bias_ref.shape, jnp.float32)

    # The outer side goes down, so that the product for its gradient needs no transpose
    # of the tile.
    outer, inner = _read_columns(outer_refs), _read(inner_refs)
    products = _product(outer.points, inner.points, 1, 1, precision)
    roles = ((outer, inner), (inner, outer))
    parts = (_weights(products, *role) for role in roles if role[0].logsumexp is not None)
    weights = functools.reduce(jnp.add, parts)
    if outer.index is not None:
        weights = jnp.where(outer.index == inner.index, 0.0, weights)
    d_points_ref[...] += _product(weights, inner.points, 1, 0, precision)
    if d_bias_ref is not None:
        d_bias_ref[...] += jnp.sum(weights, axis=1, keepdims=True).T


def _weights(products: Array, queries: Side, keys: Side) -> Array:
    """Returns the derivative of Σ cotangent · logsumexp by every score of a tile."""
    scores = products if keys.bias is None else products + keys.bias
    # exp(score - ∞) is 0, like the gradient of a query without keys.
    logsumexp = jnp.where(queries.logsumexp == -jnp.inf, jnp.inf, queries.logsumexp)
    return jnp.exp(scores - logsumexp) * queries.cotangent


def _read(refs: Side) -> Side:
    return Side(*(None if ref is None else ref[...] for ref in refs))


def _read_columns(refs: Side) -> Side:
    """Reads a block, its vectors as columns."""
    side = _read(refs)
    return Side(side.points, *(None if vector is None else vector.T for vector in side[1:]))


def _product(a: Array, b: Array, a_axis: int, b_axis: int, precision: lax.Precision) -> Array:
    """The float32 product of two matrices, contracted over an axis of each."""
    # Products of bfloat16 are exact in float32: one pass is all they need.
    exact = a.dtype == b.dtype == jnp.bfloat16
    one_pass = exact or precision == lax.Precision.DEFAULT
    dtype = jnp.bfloat16 if one_pass else jnp.float32
    return lax.dot_general(
        a.astype(dtype),
        b.astype(dtype),
        (((a_axis,), (b_axis,)), ((), ())),
        precision=lax.Precision.DEFAULT if one_pass else lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
