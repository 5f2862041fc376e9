"""LeJEPA (Balestriero, LeCun; 2025): alike views, and embeddings that are normally distributed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from aninfonce_jax.objectives.objective import Encode, Metrics, Objective, join_views, split_views
from aninfonce_jax.placement import Placement
from aninfonce_jax.types import Array, Pairs, Params

# Where characteristic functions are compared: as in the paper's algorithm, 17 points from -5 to 5.
_POINTS = np.linspace(-5, 5, 17)


@dataclasses.dataclass(frozen=True)
class SIGReg(Objective):
    """(1 - weight) · prediction + weight · SIGReg, of the whole batch on all devices.

    Prediction is the mean, over pairs, views and outputs, of the squared distance of a view from
    the mean of both. SIGReg compares the embeddings of a view along random directions, new ones
    at every step, with a standard normal distribution, by the statistic of Epps and Pulley:

        n ∫ abs(mean exp(i t u·z) - exp(-t²/2))² exp(-t²/2) dt,

    and is the mean over directions u and over the two views.

    Attributes:
      weight: λ.
      directions: how many.

    Example:
      >>> model = an.AnInfoNCE(dim=2, objective=an.objectives.SIGReg())
    """

    weight: float = 0.05
    directions: int = 256

    def __call__(
        self, params: Params, encode: Encode, pairs: Pairs, key: Array, placement: Placement
    ) -> tuple[Array, Metrics]:
        """Returns the loss and its two parts."""
        del params, placement
        views = split_views(encode(join_views(pairs)))
        view1, view2 = (view.astype(jnp.float32) for view in views)
        # Half of the difference is the distance of either view from their mean.
        prediction = jnp.mean(jnp.square(view1 - view2)) / 4
        directions = jax.random.normal(key, (view1.shape[1], self.directions))
        directions /= jnp.linalg.norm(directions, axis=0, keepdims=True)
        normality = (_epps_pulley(view1, directions) + _epps_pulley(view2, directions)) / 2
        loss = (1 - self.weight) * prediction + self.weight * normality
        return loss, {"prediction": prediction, "normality": normality}


def _epps_pulley(embeddings: Array, directions: Array) -> Array:
    """Returns the mean statistic over directions [dim, m] of embeddings [n, dim]."""
    along = jnp.matmul(embeddings, directions, precision=lax.Precision.HIGHEST)

    def at(point: Array) -> Array:
        real, imaginary = jnp.mean(jnp.cos(point * along), 0), jnp.mean(jnp.sin(point * along), 0)
        normal = jnp.exp(-jnp.square(point) / 2)
        return jnp.mean(jnp.square(real - normal) + jnp.square(imaginary)) * normal

    # One point after the other: all at once would be 17 arrays [n, m], and as many for gradients.
    points = jnp.asarray(_POINTS, jnp.float32)
    distances = lax.map(jax.checkpoint(at), points)
    return embeddings.shape[0] * jnp.trapezoid(distances, points)
