"""A penalty that keeps embeddings spread over the whole sphere."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from aninfonce_jax.losses import checks, similarity
from aninfonce_jax.losses.plan import AxisName
from aninfonce_jax.types import Array

# The t of exp(-t ‖a - b‖²). At two, a point feels all others on the sphere, not only the nearest.
_SHARPNESS = 2.0
# A matrix of more pairs than that, 64 MiB, is not held; then so many keys are taken at a time.
_MOST_AT_ONCE = 2**24
_TILE = 512


def spreading_penalty(
    embeddings: ArrayLike, *, normalize: bool = True, axis_name: AxisName | None = None
) -> Array:
    """Returns log mean exp(-2 ‖a - b‖²) over pairs of embeddings, to be added early in training.

    While Λ̂ is still small and alike for all outputs, a contrastive loss prefers functions of
    the tightly held factors, their squares and products among them, to a factor that is held
    loosely: that one is worth less until the others are known well. So early in training its
    output is given away, and what took its place, often +√(1 - Σ others²), rarely leaves.
    Embeddings in which one output follows from the others do not cover the sphere evenly, and
    this penalty, the uniformity of Wang and Isola (2020), is smallest for those that do. At
    the optimum they do, so it need not move the optimum; let its weight fall to zero all the
    same, since in a finite batch it does:

        weight = 3 * 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(2 * step / steps, 1)))
        loss = out.loss + weight * an.spreading_penalty(view1)

    A device that has more than 2²⁴ pairs takes them in tiles, which are computed again for the
    gradient, so that memory grows with the batch and not with its square. On several devices,
    with `axis_name`, pairs are those of all of them, and gradients are to be treated as those of
    the losses: see `aninfonce_loss`.

    Args:
      embeddings: [batch, dim], at least two; on several devices, this one's own, equally many
        on each.
      normalize: whether embeddings are first scaled to unit length.
      axis_name: the mapped axis, or axes, that the batch is spread over; None: it is all here.

    Returns:
      A scalar: 0 for embeddings that are all alike, and less the better they are spread; of
      a large batch on the unit sphere, between -4 and 0.

    Example:
      >>> spread = jax.random.normal(jax.random.key(0), (256, 3))
      >>> flat = spread * jnp.array([[1.0, 1.0, 0.1]])
      >>> bool(an.spreading_penalty(flat) > an.spreading_penalty(spread))
      True
    """
    points = checks.embeddings("embeddings", embeddings)
    points = points.astype(jnp.promote_types(points.dtype, jnp.float32))
    if normalize:
        points = similarity.unit_norm(points)
    others, devices, first = points, 1, jnp.int32(0)
    if axis_name is not None:
        others = lax.all_gather(points, axis_name, tiled=True)
        devices = len(others) // len(points)
        first = lax.axis_index(axis_name) * len(points)
    if len(others) < 2:
        raise ValueError(f"a penalty on pairs needs at least two embeddings, got {len(others)}")
    total = _summed(points, others, first)
    if axis_name is not None:
        total = devices * lax.pmean(total, axis_name)
    return jnp.log(total) - jnp.log(jnp.float32(len(others)) * (len(others) - 1))


def _summed(points: Array, others: Array, first: Array) -> Array:
    """Returns the sum over pairs of two different points.

    Args:
      points: [rows, dim].
      others: those that each is paired with, [keys, dim].
      first: where the points begin among the others.
    """
    keys = len(others)
    numbers = first + jnp.arange(len(points))

    def add(total: Array, tile: tuple[Array, Array]) -> tuple[Array, None]:
        theirs, columns = tile
        squared = (
            jnp.sum(jnp.square(points), axis=1)[:, None]
            + jnp.sum(jnp.square(theirs), axis=1)[None]
            - 2 * jnp.matmul(points, theirs.T, precision=lax.Precision.HIGHEST)
        )
        left_out = (columns[None] == numbers[:, None]) | (columns >= keys)[None]
        return total + jnp.sum(jnp.where(left_out, 0.0, jnp.exp(-_SHARPNESS * squared))), None

    # A sum of nothing varies over the same devices as the points, which a scan asks for.
    nothing = jnp.sum(points[:0])
    if len(points) * keys <= _MOST_AT_ONCE:
        return add(nothing, (others, jnp.arange(keys)))[0]
    tiles = -(-keys // _TILE)
    padded = jnp.pad(others, ((0, tiles * _TILE - keys), (0, 0)))
    columns = jnp.arange(tiles * _TILE).reshape(tiles, _TILE)
    total, _ = lax.scan(jax.checkpoint(add), nothing, (padded.reshape(tiles, _TILE, -1), columns))
    return total
