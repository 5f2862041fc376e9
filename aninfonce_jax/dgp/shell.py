"""The anisotropic conditional as the paper's code samples it: rejection to a thin shell.

The paper's code draws a normal y ~ N(z, Λ⁻¹) until its norm is within `shell` of the radius,
and projects it. This is not quite the density exp(-½ (x - z)ᵀΛ(x - z)) on the sphere, which
`fisher_bingham` samples; it is here to compare with published results.

Few of those draws are kept (9.6 % at Λ = 25/5, d = 10, and soon none in more dimensions), so
we sample the same law in another way. In polar coordinates y = r u, on the unit sphere, it is

    p(r, u) ∝ r^(d-1) exp(-½ r² uᵀΛu + r linᵀu),    lin = Λz,  |r - 1| < shell:

for each r a Fisher–Bingham. Take u from that module's proposal with its Q, c and γ; put
ρ = r ρ' into the integral of its density. With the smallest entry λ of Λ shifted to 0 there,

    log p(r, u) - log q(u) = h(a r², b r) - ½ γ a r² + κ r² - log r,   κ = ½ ((1 + γ) c - λ),

and what h contributes is bounded as it is there, for every r. With t = r² the rest has the
density e^(κt) / t on the shell. 1/t lies below the exponential e^(-σt) that meets it at both
ends of the shell; so t is drawn from e^((κ - σ)t), in closed form, and the pair is accepted
with the product of both ratios: nearly as often as a Fisher–Bingham alone.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.dgp import fisher_bingham
from aninfonce_jax.dgp.fisher_bingham import Envelope
from aninfonce_jax.dgp.rejection import sample_by_rejection
from aninfonce_jax.types import Array

# The least share of its draws that the paper's loop must keep for us to stand in for it.
MIN_SHARE = 1e-6
_ESTIMATE_DRAWS = 20_000
# Closer to 0 the law of t is uniform to within 1e-4, and its inverse is not defined.
_MIN_GROWTH = 1e-4


class _Rows(NamedTuple):
    envelope: Envelope
    growth: Array  # κ - σ, [n]


def sample(key: Array, anchors: Array, concentration: Array, shell: float) -> Array:
    """Draws one positive per anchor, on the unit sphere.

    Args:
      key: a random key.
      anchors: z, [n, dim], of norm 1.
      concentration: Λ, [dim].
      shell: how far from 1 the norm of a draw may be, less than 1.

    Returns:
      Positives, [n, dim], of norm 1.
    """
    envelope = fisher_bingham.fit_envelope(concentration[None, :] * anchors, concentration)
    # Q is c where Λ is smallest.
    growth = 0.5 * ((1.0 + envelope.tilt) * jnp.min(envelope.precision, axis=-1))
    low, high = (1.0 - shell) ** 2, (1.0 + shell) ** 2
    decay = math.log(high / low) / (high - low)
    growth = growth - 0.5 * jnp.min(concentration) - decay
    growth = jnp.where(jnp.abs(growth) < _MIN_GROWTH, _MIN_GROWTH, growth)

    def propose(key: Array, rows: _Rows) -> tuple[Array, Array]:
        direction_key, radius_key, accept_key = jax.random.split(key, 3)
        direction, a, b = fisher_bingham.propose_direction(direction_key, rows.envelope)
        level = jax.random.uniform(radius_key, a.shape, a.dtype)
        squared = high + jnp.log1p(level * jnp.expm1(rows.growth * (low - high))) / rows.growth
        squared = jnp.clip(squared, low, high)
        log_ratio = fisher_bingham.log_ratio(a * squared, b * jnp.sqrt(squared), rows.envelope)
        log_ratio = log_ratio + decay * (squared - low)
        threshold = jax.random.uniform(accept_key, a.shape, a.dtype)
        return direction, threshold < jnp.exp(log_ratio) * low / squared

    slots = max(64, anchors.shape[0] // 4)
    return sample_by_rejection(key, propose, _Rows(envelope, growth), slots)


@functools.lru_cache(maxsize=64)
def estimate_share(concentration: tuple[float, ...], shell: float) -> float:
    """Estimates the share of its draws that the paper's loop keeps, for its worst anchor.

    That is an anchor along the most or the least concentrated axis, where the norm of the draws
    varies least or most. The share may be tiny, hence importance sampling: draws with the
    precision Λ + c, which lie near the sphere, weighted.
    """
    values = np.asarray(concentration)
    noise = np.random.default_rng(0).standard_normal((_ESTIMATE_DRAWS, values.size))
    shares = []
    for axis in (np.argmax(values), np.argmin(values)):
        linear = values * (np.arange(values.size) == axis)
        pull = _pull_to_sphere(values, linear)
        precision = values + pull
        draws = linear / precision + noise / np.sqrt(precision)
        squared = np.sum(draws**2, axis=1)
        log_weight = 0.5 * np.sum(np.log(values / precision) + linear**2 / precision)
        log_weight = log_weight - 0.5 * values[axis] + 0.5 * pull * squared
        kept = np.abs(np.sqrt(squared) - 1.0) < shell
        shares.append(np.mean(np.where(kept, np.exp(log_weight), 0.0)))
    return float(min(shares))


def _pull_to_sphere(values: np.ndarray, linear: np.ndarray) -> float:
    """Returns the c ≥ 0 at which E‖y‖² = 1, by bisection."""
    low, high = 0.0, float(values.size + np.linalg.norm(linear))
    for _ in range(60):
        middle = 0.5 * (low + high)
        precision = values + middle
        outside = np.sum(1.0 / precision + (linear / precision) ** 2) > 1.0
        low, high = (middle, high) if outside else (low, middle)
    return low
