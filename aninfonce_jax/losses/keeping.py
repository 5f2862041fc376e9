"""A penalty that keeps in the embeddings what the observations tell."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from aninfonce_jax.losses import checks, similarity
from aninfonce_jax.losses.plan import AxisName
from aninfonce_jax.types import Array

# Added to variances, as a share of their mean: directions that hardly vary are not divided by.
_RIDGE = 1e-4


def keeping_penalty(
    embeddings: ArrayLike,
    observations: ArrayLike,
    *,
    normalize: bool = True,
    axis_name: AxisName | None = None,
) -> Array:
    """Returns how many directions of the observations no linear map of the embeddings tells.

    Where some factors are held far more tightly than others, functions of the tight ones, their
    squares and products, vary less between two views than a loose factor does. Early in
    training a contrastive loss prefers them, and they fill the outputs that the loose factors
    need, spread over the whole sphere: neither `centring_penalty` nor `spreading_penalty` sees
    that. But such embeddings no longer tell the observations, and this penalty is what a
    linear readout of them leaves: Σ (1 - R²) over the directions of whitened observations.
    It needs no decoder to be trained, only covariances of the batch.

    It is not zero at the optimum unless observations are linear in the factors, so it must be
    gone long before the end; the first quarter of a run is enough:

        early = 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(4 * step / steps, 1)))
        loss = out.loss + 0.3 * early * an.keeping_penalty(view1, x1)

    It is meant for observations with about as many dimensions as there are factors. With images
    it would keep the noise of pixels as willingly as anything else.

    On several devices, with `axis_name`, covariances are those over all of them, and gradients
    are to be treated as those of the losses: see `aninfonce_loss`.

    Args:
      embeddings: [batch, dim]; on several devices, this one's own, equally many on each.
      observations: what was embedded, [batch, ...]; other axes are flattened.
      normalize: whether embeddings are first scaled to unit length.
      axis_name: the mapped axis, or axes, that the batch is spread over; None: it is all here.

    Returns:
      A scalar: 0 if a linear map of the embeddings tells the observations, and their number
      of dimensions if it tells nothing of them.

    Example:
      >>> x = jax.random.normal(jax.random.key(0), (256, 3))
      >>> lost = an.keeping_penalty(jnp.abs(x), x, normalize=False)  # the signs are not told
      >>> bool(lost > an.keeping_penalty(2 * x, x, normalize=False) + 1)
      True
    """
    points = checks.embeddings("embeddings", embeddings)
    points = points.astype(jnp.promote_types(points.dtype, jnp.float32))
    seen = checks.as_array("observations", observations)
    if seen.ndim < 2 or len(seen) != len(points):
        raise ValueError(
            f"observations must have shape [batch, ...] with the {len(points)} rows of the "
            f"embeddings, got {seen.shape}"
        )
    seen = seen.reshape(len(seen), -1).astype(points.dtype)
    if normalize:
        points = similarity.unit_norm(points)

    def mean(x: Array) -> Array:
        own = jnp.mean(x, axis=0)
        return own if axis_name is None else lax.pmean(own, axis_name)

    def covariance(x: Array, y: Array) -> Array:
        own = jnp.matmul(x.T, y, precision=lax.Precision.HIGHEST) / len(x)
        return own if axis_name is None else lax.pmean(own, axis_name)

    points, seen = points - mean(points)[None], seen - mean(seen)[None]
    between = covariance(points, seen)
    explained = between.T @ _solve(covariance(points, points), between)
    return seen.shape[1] - jnp.trace(_solve(covariance(seen, seen), explained))


def _solve(covariance: Array, right: Array) -> Array:
    """Returns what a covariance, made safe to invert, has to be multiplied by to give `right`."""
    size = len(covariance)
    ridge = _RIDGE * jnp.trace(covariance) / size + jnp.finfo(covariance.dtype).tiny
    return jax.scipy.linalg.solve(covariance + ridge * jnp.eye(size), right, assume_a="pos")
