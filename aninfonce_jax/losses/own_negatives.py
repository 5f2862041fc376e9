"""Hard negatives: keys that belong to one anchor alone, such as draws near it."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from aninfonce_jax.losses import checks, similarity
from aninfonce_jax.types import Array


def own_negatives_loss(
    view1: ArrayLike,
    view2: ArrayLike,
    own: ArrayLike,
    concentration: ArrayLike,
    *,
    ordinary: ArrayLike | None = None,
    normalize: bool = True,
) -> Array:
    """AnInfoNCE with negatives of each anchor's own, on one device.

    If positives follow p(z⁺|z) ∝ exp(-½ (z⁺ - z)ᵀ Λ⁺ (z⁺ - z)) and an anchor's own negatives the
    same with Λ⁻, the loss is smallest at Λ = Λ⁺ - Λ⁻ (Cor. 3.1 of the paper), which has to be
    positive. Joined to ordinary negatives they sharpen what those leave undecided:

        out = an.aninfonce_loss(view1, view2, concentration, negatives="anchors")
        loss = an.own_negatives_loss(view1, view2, own, concentration, ordinary=out.per_anchor)

    Args:
      view1: embeddings of the anchors, [batch, dim].
      view2: of their positives, [batch, dim].
      own: of the negatives of each anchor, [batch, k, dim].
      concentration: the diagonal of Λ, [dim] or a scalar.
      ordinary: the loss of each anchor with its ordinary negatives, [batch], to which its own are
        joined; None: they are alone.
      normalize: whether embeddings are first scaled to unit length.

    Returns:
      The mean over the anchors, a scalar.

    Raises:
      ValueError: shapes that do not fit.

    Example:
      >>> view1, view2 = jnp.eye(4), jnp.eye(4)
      >>> own = jax.random.normal(jax.random.key(0), (4, 7, 4))  # seven for each anchor
      >>> an.own_negatives_loss(view1, view2, own, concentration=jnp.ones(4)).shape
      ()
    """
    anchors, positives = checks.embeddings("view1", view1), checks.embeddings("view2", view2)
    keys = checks.as_array("own", own)
    if positives.shape != anchors.shape or keys.ndim != 3 or keys.shape[::2] != anchors.shape:
        raise ValueError(
            "expected view1 and view2 [batch, dim] and own [batch, k, dim], got shapes "
            f"{anchors.shape}, {positives.shape} and {keys.shape}"
        )
    dtype = jnp.promote_types(anchors.dtype, jnp.float32)
    weights = checks.concentration(concentration, anchors.shape[1], dtype)
    every = jnp.concatenate([positives[:, None], keys], axis=1).astype(dtype)
    here = anchors.astype(dtype)
    if normalize:
        here = similarity.unit_norm(here)
        every = similarity.unit_norm(every.reshape(-1, every.shape[-1])).reshape(every.shape)
    scores = -0.5 * jnp.sum(weights[None, None] * jnp.square(here[:, None] - every), axis=-1)
    gap = jax.nn.logsumexp(scores[:, 1:], axis=1) - scores[:, 0]
    if ordinary is None:
        return jnp.mean(jax.nn.softplus(gap))
    # log(1 + Σ ordinary + Σ own), each over exp of the positive's score.
    return jnp.mean(jnp.logaddexp(checks.as_array("ordinary", ordinary).astype(dtype), gap))
