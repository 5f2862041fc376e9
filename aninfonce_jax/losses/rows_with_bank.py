"""A reduction of rows over a bank of keys, which are made ready a slab at a time.

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

from aninfonce_jax.losses import reductions, rows_with_keys, similarity, tiles
from aninfonce_jax.losses.plan import Plan
from aninfonce_jax.losses.reductions import Partial
from aninfonce_jax.losses.tiles import Points, Rows
from aninfonce_jax.types import Array, PyTree

# Makes points of raw rows and parameters.
Prepare = Callable[[Array, PyTree], Points]

_SLAB = 1024
# A kernel cuts its keys itself, and is worth starting for many of them only.
_KERNEL_SLAB = 2**14


class Known(NamedTuple):
    """What is known of the keys of a bank beside their vectors.

    Attributes:
      number: int32 [keys], or None; a key is left out for rows of the same number.
      label: int32 [keys], or None.
      real: whether a key counts, bool [keys], or None where all do.
    """

    number: Array | None = None
    label: Array | None = None
    real: Array | None = None


class _Slab(NamedTuple):
    """Some rows [size, dim], what is known of them, where they begin, and which do not count."""

    rows: Array
    known: Known
    start: Array
    left_out: Array | None


def mean(prepare: Callable[[Array], Array], raw: Array, real: Array | None = None) -> Array:
    """Returns the mean [dim] of the prepared rows of `raw` [rows, dim], without gradient.

    Args:
      prepare: works row by row.
      raw: [rows, dim].
      real: which rows count, bool [rows]; None: all.
    """
    raw = lax.stop_gradient(raw)
    slabs, size = tiles.tile_shape(raw.shape[0], _SLAB)

    def total(index: Array) -> Array:
        slab = _slab(raw, Known(real=real), index, size)
        rows = prepare(slab.rows)
        if slab.left_out is not None:
            rows = jnp.where(slab.left_out[:, None], 0, rows)
        return jnp.sum(rows, axis=0)

    count = raw.shape[0] if real is None else jnp.maximum(jnp.sum(real.astype(jnp.int32)), 1)
    return jnp.sum(lax.map(total, _indices(slabs)), axis=0) / count


def reduce(
    plan: Plan, prepare: Prepare, rows: Rows, raw: Array, known: Known, parameters: PyTree
) -> tuple[Array, Array, Array]:
    """Reduces each row's scores with the keys made of `raw`.

    Args:
      plan: how, on one device and not dense.
      prepare: makes keys of some rows of `raw`, row by row, and of `parameters`.
      rows: what they are scored with.
      raw: [keys, dim], of any floating type.
      known: of the keys.
      parameters: floating-point arrays.

    Returns:
      What `rows_with_keys.reduce` does, and the largest length of a key, a scalar. Only the
      first has a gradient.
    """
    return _reduce(plan, prepare, *tiles.vary_alike((rows, raw, known, parameters)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _reduce(
    plan: Plan, prepare: Prepare, rows: Rows, raw: Array, known: Known, parameters: PyTree
) -> tuple[Array, Array, Array]:
    return _forward(plan, prepare, rows, raw, known, parameters)[0]


def _forward(
    plan: Plan, prepare: Prepare, rows: Rows, raw: Array, known: Known, parameters: PyTree
) -> tuple[tuple[Array, Array, Array], Any]:
    slabs, size = _cut(plan, raw)

    def visit(state: tuple[Partial, Array], index: Array) -> tuple[tuple[Partial, Array], None]:
        partial, longest = state
        slab = _slab(raw, known, index, size)
        keys = _numbered(_keys(prepare, slab, parameters), slab)
        more, _ = rows_with_keys.tile_forward(plan, rows, keys)
        partial = reductions.merge(plan.reduction, partial, more)
        return (partial, jnp.maximum(longest, jnp.max(similarity.lengths(keys.vectors)))), None

    nothing = tiles.empty_like(rows, rows_with_keys.form_of(plan))
    start = tiles.vary_like((nothing, jnp.zeros((), rows.vectors.dtype)), rows.vectors)
    (partial, longest), _ = lax.scan(visit, start, _indices(slabs))
    total = reductions.value(plan.reduction, partial)
    return (total, partial.best, longest), (rows, raw, known, parameters, total)


def _backward(
    plan: Plan, prepare: Prepare, residuals: Any, cotangents: tuple[Array, Array, Array]
) -> tuple[Rows, Array, Known, PyTree]:
    rows, raw, known, parameters, total = residuals
    slabs, size = _cut(plan, raw)

    def visit(gradients: Any, index: Array) -> tuple[Any, None]:
        d_queries, d_raw, d_parameters = gradients
        slab = _slab(raw, known, index, size)

        def keys_of(rows: Array, parameters: PyTree) -> Points:
            return _keys(prepare, slab._replace(rows=rows), parameters)

        keys, pull_back = jax.vjp(keys_of, slab.rows, parameters)
        keys = _numbered(keys, slab)
        more_queries, d_keys = rows_with_keys.tile_backward(plan, rows, keys, total, cotangents[0])
        d_rows, more_parameters = pull_back(d_keys)
        # Rows counted before get zero now.
        d_rows = d_rows + lax.dynamic_slice_in_dim(d_raw, slab.start, size)
        d_raw = lax.dynamic_update_slice_in_dim(d_raw, d_rows, slab.start, 0)
        d_parameters = jax.tree.map(jnp.add, d_parameters, more_parameters)
        return (d_queries + more_queries, d_raw, d_parameters), None

    nothing = jax.tree.map(jnp.zeros_like, (rows.vectors, raw, parameters))
    gradients, _ = lax.scan(visit, tiles.vary_like(nothing, rows.vectors), _indices(slabs))
    d_queries, d_raw, d_parameters = gradients
    return Rows(d_queries), d_raw, Known(), d_parameters


_reduce.defvjp(_forward, _backward)


# --- Slabs ---


def _cut(plan: Plan, raw: Array) -> tuple[int, int]:
    """Returns how many slabs of which size."""
    size = _KERNEL_SLAB if plan.tile == "pallas" else plan.chunk_size
    return tiles.tile_shape(raw.shape[0], size)


def _indices(slabs: int) -> Array:
    return lax.iota(jnp.int32, slabs)


def _slab(raw: Array, known: Known, index: Array, size: int) -> _Slab:
    count = raw.shape[0]
    start = jnp.minimum(index * size, count - size)
    rows, known = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, size), (raw, known))
    left_out = None if known.real is None else ~known.real
    if count % size:
        counted = start + lax.iota(jnp.int32, size) < index * size
        left_out = counted if left_out is None else counted | left_out
    return _Slab(rows, known, start, left_out)


def _keys(prepare: Prepare, slab: _Slab, parameters: PyTree) -> Points:
    rows = slab.rows
    if slab.known.real is not None:
        # Whatever is there, NaN too, must reach nothing.
        rows = jnp.where(slab.known.real[:, None], rows, 0)
    keys = prepare(rows, parameters)
    if slab.left_out is None:
        return keys
    return keys._replace(bias=jnp.where(slab.left_out, -jnp.inf, keys.bias))


def _numbered(keys: Points, slab: _Slab) -> Points:
    return keys._replace(number=slab.known.number, label=slab.known.label)
