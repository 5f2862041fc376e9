"""A penalty that keeps embeddings from gathering on one side of the sphere."""

import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from aninfonce_jax.losses import checks, similarity
from aninfonce_jax.losses.plan import AxisName
from aninfonce_jax.types import Array


def centring_penalty(
    embeddings: ArrayLike, *, normalize: bool = True, axis_name: AxisName | None = None
) -> Array:
    """Returns dim · ‖mean of the embeddings‖², to be added to a loss early in training.

    On the unit sphere the size of a factor follows from those of all others; only its sign is
    new. Early in training an encoder may give up the sign of the weakest factor: its output
    becomes +√(1 - Σ others²), the embeddings cover one hemisphere, and what is lost is rarely
    found again. The mean of such embeddings is far from zero, whereas at the optimum, where
    they are uniform, it is zero. So this penalty hinders the fold, and need not move the
    optimum. Let its weight fall to zero as training goes on: the mean of a finite batch is
    never quite zero, and the last steps should minimise the loss alone.

        weight = 0.5 * (1 + jnp.cos(jnp.pi * step / steps))
        loss = out.loss + weight * an.centring_penalty(view1)

    On several devices, with `axis_name`, the mean is that over all of them, and gradients are
    to be treated as those of the losses: see `aninfonce_loss`.

    Args:
      embeddings: [batch, dim]; on several devices, this one's own, equally many on each.
      normalize: whether embeddings are first scaled to unit length.
      axis_name: the mapped axis, or axes, that the batch is spread over; None: it is all here.

    Returns:
      A scalar: 0 for embeddings that surround the origin evenly, `dim` for embeddings that
      are all alike, and about dim / batch for a batch drawn uniformly.

    Example:
      >>> both_ends = jnp.array([[1.0, 0.0], [-1.0, 0.0]])
      >>> float(an.centring_penalty(both_ends)), float(an.centring_penalty(jnp.abs(both_ends))) > 1
      (0.0, True)
    """
    points = checks.embeddings("embeddings", embeddings)
    points = points.astype(jnp.promote_types(points.dtype, jnp.float32))
    if normalize:
        points = similarity.unit_norm(points)
    mean = jnp.mean(points, axis=0)
    if axis_name is not None:
        mean = lax.pmean(mean, axis_name)
    return points.shape[1] * jnp.sum(jnp.square(mean))
