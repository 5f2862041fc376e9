"""A log-sum-exp of rows over a bank of keys, which are made ready a slab at a time.

Explicit negatives may be far more than the anchors, and what a score needs of them
(normalised, measured from an origin, with a bias) is as large as they are. So it is made
where it is used, forwards and backwards, and the gradient of a slab goes into its place at
once: memory beyond the negatives and their gradient does not depend on their number.

Slabs are slices of the array as it was given: reshaping or padding it would copy it. Where slabs
do not divide the rows, the last one begins early enough to be full, and the rows in it that were
counted before are left out.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from aninfonce_jax.losses import rows_with_keys, similarity, tiles
from aninfonce_jax.losses.plan import Plan
from aninfonce_jax.losses.tiles import Partial, Points, Rows
from aninfonce_jax.types import Array, PyTree

# Of raw rows and parameters.
Prepare = Callable[[Array, PyTree], Points]

_SLAB = 1024
# A kernel cuts its keys itself, and is worth starting for many of them only.
_KERNEL_SLAB = 2**14


class _Slab(NamedTuple):
    """Some rows [size, dim], where they begin, and which were counted before, if any were."""

    rows: Array
    start: Array
    counted: Array | None


def mean(prepare: Callable[[Array], Array], raw: Array) -> Array:
    """Returns the mean [dim] of the prepared rows of `raw` [rows, dim], without gradient."""
    raw = lax.stop_gradient(raw)
    slabs, size = tiles.tile_shape(raw.shape[0], _SLAB)

    def total(index: Array) -> Array:
        slab = _slab(raw, index, size)
        rows = prepare(slab.rows)
        if slab.counted is not None:
            rows = jnp.where(slab.counted[:, None], 0, rows)
        return jnp.sum(rows, axis=0)

    return jnp.sum(lax.map(total, _indices(slabs)), axis=0) / raw.shape[0]


def logsumexp(
    plan: Plan, prepare: Prepare, queries: Array, raw: Array, parameters: PyTree
) -> tuple[Array, Array, Array]:
    """Log-sum-exp, and maximum, of each query's scores with the keys made of `raw`.

    Args:
      plan: how, on one device and not dense.
      prepare: makes keys of some rows of `raw`, row by row, and of `parameters`.
      queries: [queries, dim].
      raw: [keys, dim], of any floating type.
      parameters: floating-point arrays.

    Returns:
      The log-sum-exp, [queries]; the maximum, [queries]; and the largest length of a
      key, a scalar. Only the first has a gradient.
    """
    return _logsumexp(plan, prepare, *tiles.vary_alike((queries, raw, parameters)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _logsumexp(
    plan: Plan, prepare: Prepare, queries: Array, raw: Array, parameters: PyTree
) -> tuple[Array, Array, Array]:
    return _forward(plan, prepare, queries, raw, parameters)[0]


def _forward(
    plan: Plan, prepare: Prepare, queries: Array, raw: Array, parameters: PyTree
) -> tuple[tuple[Array, Array, Array], Any]:
    rows = Rows(queries)
    slabs, size = _cut(plan, raw)

    def visit(state: tuple[Partial, Array], index: Array) -> tuple[tuple[Partial, Array], None]:
        partial, longest = state
        keys = _keys(prepare, _slab(raw, index, size), parameters)
        partial = tiles.merge(partial, rows_with_keys.tile_forward(plan, rows, keys)[0])
        return (partial, jnp.maximum(longest, jnp.max(similarity.lengths(keys.vectors)))), None

    start = tiles.vary_like((tiles.empty_like(rows), jnp.zeros((), queries.dtype)), queries)
    (partial, longest), _ = lax.scan(visit, start, _indices(slabs))
    total = tiles.logsumexp(partial)
    return (total, partial.best, longest), (queries, raw, parameters, total)


def _backward(
    plan: Plan, prepare: Prepare, residuals: Any, cotangents: tuple[Array, Array, Array]
) -> tuple[Array, Array, PyTree]:
    queries, raw, parameters, total = residuals
    rows = Rows(queries)
    slabs, size = _cut(plan, raw)

    def visit(gradients: Any, index: Array) -> tuple[Any, None]:
        d_queries, d_raw, d_parameters = gradients
        slab = _slab(raw, index, size)

        def keys_of(rows: Array, parameters: PyTree) -> Points:
            return _keys(prepare, slab._replace(rows=rows), parameters)

        keys, pull_back = jax.vjp(keys_of, slab.rows, parameters)
        more_queries, d_keys = rows_with_keys.tile_backward(plan, rows, keys, total, cotangents[0])
        d_rows, more_parameters = pull_back(d_keys)
        # Rows counted before get zero now.
        d_rows = d_rows + lax.dynamic_slice_in_dim(d_raw, slab.start, size)
        d_raw = lax.dynamic_update_slice_in_dim(d_raw, d_rows, slab.start, 0)
        d_parameters = jax.tree.map(jnp.add, d_parameters, more_parameters)
        return (d_queries + more_queries, d_raw, d_parameters), None

    nothing = jax.tree.map(jnp.zeros_like, (queries, raw, parameters))
    gradients, _ = lax.scan(visit, tiles.vary_like(nothing, queries), _indices(slabs))
    return gradients


_logsumexp.defvjp(_forward, _backward)


# --- Slabs ---


def _cut(plan: Plan, raw: Array) -> tuple[int, int]:
    """Returns how many slabs of which size."""
    size = _KERNEL_SLAB if plan.tile == "pallas" else plan.chunk_size
    return tiles.tile_shape(raw.shape[0], size)


def _indices(slabs: int) -> Array:
    return lax.iota(jnp.int32, slabs)


def _slab(raw: Array, index: Array, size: int) -> _Slab:
    count = raw.shape[0]
    start = jnp.minimum(index * size, count - size)
    rows = lax.dynamic_slice_in_dim(raw, start, size)
    if count % size == 0:
        return _Slab(rows, start, None)
    return _Slab(rows, start, start + lax.iota(jnp.int32, size) < index * size)


def _keys(prepare: Prepare, slab: _Slab, parameters: PyTree) -> Points:
    keys = prepare(slab.rows, parameters)
    if slab.counted is None:
        return keys
    return keys._replace(bias=jnp.where(slab.counted, -jnp.inf, keys.bias))
