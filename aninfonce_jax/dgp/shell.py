"""The anisotropic conditional as the paper's code samples it: rejection to a thin shell.

A normal N(z, Λ⁻¹) is drawn until its norm is within `shell` of the radius, then it is
projected. This is not quite the density exp(-½ (x - z)ᵀΛ(x - z)) on the sphere, which
`fisher_bingham` samples; it is here to compare with published results.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.dgp import draws
from aninfonce_jax.dgp.rejection import sample_by_rejection
from aninfonce_jax.types import Array

_ESTIMATE_DRAWS = 20_000


def sample(key: Array, anchors: Array, concentration: Array, radius: float, shell: float) -> Array:
    """Draws one positive per anchor.

    Args:
      key: a random key.
      anchors: z, [n, dim], on the sphere.
      concentration: Λ, [dim].
      radius: of the sphere.
      shell: how far from the radius a draw's norm may be.

    Returns:
      Positives, [n, dim], on the sphere.
    """
    scale = jax.lax.rsqrt(concentration)[None, :]

    def propose(key: Array, rows: Array) -> tuple[Array, Array]:
        proposals = rows + scale * draws.normal(key, rows.shape, rows.dtype)
        norm = jnp.linalg.norm(proposals, axis=-1)
        return proposals * (radius / norm)[:, None], jnp.abs(norm - radius) < shell

    # A tenth of the proposals are typically accepted.
    return sample_by_rejection(key, propose, anchors, slots=max(64, 2 * anchors.shape[0]))


@functools.lru_cache(maxsize=64)
def estimate_acceptance(concentration: tuple[float, ...], radius: float, shell: float) -> float:
    """Estimates the share of proposals that are kept, for the anchor that fares worst.

    That is an anchor along the most or the least concentrated axis: there the norm of the
    draws varies least or most.
    """
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((_ESTIMATE_DRAWS, len(concentration)), np.float32)
    noise /= np.sqrt(np.asarray(concentration, np.float32))
    squared = np.sum(noise**2, axis=1)
    shares = []
    for axis in (np.argmax(concentration), np.argmin(concentration)):
        norm = np.sqrt(squared + 2.0 * radius * noise[:, axis] + radius**2)
        shares.append(np.mean(np.abs(norm - radius) < shell))
    return float(min(shares))
