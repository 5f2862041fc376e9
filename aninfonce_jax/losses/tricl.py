"""Parts of tri-factor contrastive learning (Zhang, Wang & Wang, NeurIPS 2023).

It scores pairs by zᵀ S z', with a diagonal S of importances that is trained, and keeps the features
z uncorrelated, without which S would have no meaning.
"""

import jax.numpy as jnp
from jax import lax

from aninfonce_jax.types import Array


def decorrelation_penalty(features: Array) -> Array:
    """Returns ‖mean of z zᵀ - I‖² (Frobenius) over features z, [n, dim]."""
    return jnp.sum(jnp.square(_second_moment(features) - jnp.eye(features.shape[1])))


def spectral_tri_loss(view1: Array, view2: Array, importance: Array) -> Array:
    """Returns -2 E z₁ᵀ S z₂ + E (zᵀ S z')², the spectral form of the contrast.

    The first expectation is over the pairs, the second over every two different anchors.

    Args:
      view1: features of the anchors, [batch, dim].
      view2: of their positives, [batch, dim].
      importance: the diagonal of S, [dim], positive.
    """
    batch = view1.shape[0]
    root = jnp.sqrt(importance)[None]
    anchors, positives = root * view1, root * view2
    together = jnp.mean(jnp.sum(anchors * positives, axis=1))
    # Σᵢⱼ (zᵢᵀ S zⱼ)² is the squared norm of a matrix [dim, dim], without a pair being scored.
    all_pairs = batch**2 * jnp.sum(jnp.square(_second_moment(anchors)))
    with_itself = jnp.sum(jnp.square(jnp.sum(jnp.square(anchors), axis=1)))
    return -2 * together + (all_pairs - with_itself) / (batch * (batch - 1))


def _second_moment(features: Array) -> Array:
    product = jnp.matmul(features.T, features, precision=lax.Precision.HIGHEST)
    return product / features.shape[0]
