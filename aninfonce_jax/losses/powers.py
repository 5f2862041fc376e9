"""Powers of distances, coordinate by coordinate."""

import jax
import jax.numpy as jnp
from jax import lax

from aninfonce_jax.types import Array


def lp_matrix(anchors: Array, keys: Array, p: float, inverse: Array) -> Array:
    """Returns -‖a - b‖_p^p · inverse for every anchor and key, [anchors, keys].

    Sums over one dimension after another, so that neither this nor its gradient holds
    more than a few [anchors, keys] arrays.

    Args:
      anchors: [anchors, dim].
      keys: [keys, dim].
      p: the exponent.
      inverse: 1 / τ of each anchor, [anchors].
    """

    # Without the checkpoint, differences of every dimension would be kept for backward.
    @jax.checkpoint
    def add_dimension(total: Array, coordinates: tuple[Array, Array]) -> tuple[Array, None]:
        a, b = coordinates
        return total + absolute_power(a[:, None] - b[None, :], p), None

    # Zeros to begin with would count as the same on all devices, and the sum is not.
    first = absolute_power(anchors[:, :1] - keys[:, 0][None, :], p)
    distances, _ = lax.scan(add_dimension, first, (anchors[:, 1:].T, keys[:, 1:].T))
    return -distances * inverse[:, None]


def absolute_power(x: Array, p: float) -> Array:
    """Returns |x|^p, with gradient zero at x = 0 for every p."""
    if p == 1:
        return x * lax.stop_gradient(jnp.sign(x))  # unlike that of abs, its gradient is 0 at 0
    if p == int(p):
        return lax.integer_pow(x if p % 2 == 0 else jnp.abs(x), int(p))
    # |x|^(p - 1) is infinite at zero for p < 1: keep zero out of the power altogether.
    nonzero = x != 0
    return jnp.where(nonzero, jnp.power(jnp.abs(jnp.where(nonzero, x, 1)), p), 0)
