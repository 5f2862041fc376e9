"""Noise with density ∝ exp(-(1/p) Σ Λ_i |x_i|^p), free, truncated or put back on a space.

p = 2 is a normal with variance 1/Λ, p = 1 a Laplace with scale 1/Λ.
"""

import math

import jax
import jax.numpy as jnp

from aninfonce_jax.dgp.rejection import sample_by_rejection
from aninfonce_jax.dgp.spaces import Box, Space
from aninfonce_jax.types import Array


def perturb(
    key: Array, space: Space, anchors: Array, concentration: Array, exponent: float
) -> Array:
    """Adds noise to the anchors as the space asks.

    On the sphere the sum is projected back, on a box it is drawn again (exactly: the noise
    is truncated) or wrapped, on the real space it is left alone.

    Args:
      key: a random key.
      space: of the anchors.
      anchors: [n, dim].
      concentration: Λ, [dim].
      exponent: p > 0.

    Returns:
      Points of the space, [n, dim].
    """
    scale = concentration[None, :] ** (-1.0 / exponent)
    # Noise is drawn as one long row; see `draws`.
    if isinstance(space, Box) and space.boundary == "reject":
        low, high = (space.low - anchors) / scale, (space.high - anchors) / scale
        noise = _draw_truncated(key, low.ravel(), high.ravel(), exponent)
    else:
        noise = _draw(key, exponent, anchors.size, anchors.dtype)
    # Truncated noise is inside already, up to rounding.
    return space.project(anchors + scale * noise.reshape(anchors.shape))


def _draw(key: Array, exponent: float, count: int, dtype: jnp.dtype) -> Array:
    """Draws from exp(-|x|^p / p), [count]."""
    if exponent == 2.0:
        return jax.random.normal(key, (count,), dtype)
    if exponent == 1.0:
        return jax.random.laplace(key, (count,), dtype)
    sign_key, size_key = jax.random.split(key)
    # |x|^p / p is a Gamma(1/p); its logarithm does not underflow at large p.
    log_gamma = jax.random.loggamma(size_key, 1.0 / exponent, (count,), dtype)
    size = jnp.exp((log_gamma + math.log(exponent)) / exponent)
    return size * jax.random.rademacher(sign_key, (count,), dtype)


def _draw_truncated(key: Array, low: Array, high: Array, exponent: float) -> Array:
    """Draws from exp(-|x|^p / p) between low ≤ 0 and high ≥ 0, all [count]."""
    if exponent == 2.0:
        return jax.random.truncated_normal(key, low, high, dtype=low.dtype)
    if exponent == 1.0:
        # Inverts sign(x) (1 - e^-|x|), which has full precision for small x.
        ends = [-jnp.sign(x) * jnp.expm1(-jnp.abs(x)) for x in (low, high)]
        level = jax.random.uniform(key, low.shape, low.dtype, ends[0], ends[1])
        return -jnp.sign(level) * jnp.log1p(-jnp.abs(level))

    def propose(key: Array, interval: tuple[Array, Array]) -> tuple[Array, Array]:
        return _propose_truncated(key, *interval, exponent=exponent)

    return sample_by_rejection(key, propose, (low, high), slots=max(64, low.size // 2))


def _propose_truncated(
    key: Array, low: Array, high: Array, *, exponent: float
) -> tuple[Array, Array]:
    """Proposes from the uniform on [low, high], or from the free noise where that is narrower.

    One of the two is always close: the interval holds the mode, so at least about a third
    of the proposals are accepted, whatever the interval.
    """
    free_key, uniform_key, accept_key = jax.random.split(key, 3)
    mass = 2.0 * math.gamma(1.0 + 1.0 / exponent) * exponent ** (1.0 / exponent)
    narrow = high - low < mass
    free = _draw(free_key, exponent, low.size, low.dtype)
    uniform = jax.random.uniform(uniform_key, low.shape, low.dtype, low, high)
    density = jnp.exp(-(jnp.abs(uniform) ** exponent) / exponent)
    kept = jax.random.uniform(accept_key, low.shape, low.dtype) < density
    inside = (low <= free) & (free <= high)
    return jnp.where(narrow, uniform, free), jnp.where(narrow, kept, inside)
