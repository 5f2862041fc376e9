"""VICReg (Bardes, Ponce, LeCun; ICLR 2022): alike views, outputs of some spread, uncorrelated."""

import dataclasses

import jax.numpy as jnp
from jax import lax

from aninfonce_jax.objectives.objective import Encode, Metrics, Objective, join_views, split_views
from aninfonce_jax.placement import Placement
from aninfonce_jax.types import Array, Pairs, Params

_SMALL = 1e-4  # of the paper: keeps the gradient of a standard deviation finite


@dataclasses.dataclass(frozen=True)
class VICReg(Objective):
    """λ · invariance + μ · variance + ν · covariance, of the whole batch on all devices.

    With n pairs of embeddings z, z' [n, d]: invariance is the mean of (z - z')² over pairs and
    outputs; variance the mean over outputs of max(0, 1 - √(Var + 10⁻⁴)); covariance the sum of
    squared covariances of two different outputs, over d. Variance is averaged over the views and
    covariance summed, as in the authors' code, for which the published weights hold. (The paper's
    formula sums the squares of the invariance over outputs, and variance over views.)

    Attributes:
      invariance: λ.
      variance: μ.
      covariance: ν.

    Example:
      >>> model = an.AnInfoNCE(dim=2, objective=an.objectives.VICReg())
    """

    invariance: float = 25.0
    variance: float = 25.0
    covariance: float = 1.0

    def __call__(
        self, params: Params, encode: Encode, pairs: Pairs, key: Array, placement: Placement
    ) -> tuple[Array, Metrics]:
        """Returns the loss and its three parts."""
        del params, key, placement
        views = split_views(encode(join_views(pairs)))
        view1, view2 = (view.astype(jnp.float32) for view in views)
        invariance = jnp.mean(jnp.square(view1 - view2))
        (variance1, covariance1), (variance2, covariance2) = map(_spread, (view1, view2))
        variance, covariance = (variance1 + variance2) / 2, covariance1 + covariance2
        loss = (
            self.invariance * invariance + self.variance * variance + self.covariance * covariance
        )
        metrics = {"invariance": invariance, "variance": variance, "covariance": covariance}
        return loss, metrics


def _spread(embeddings: Array) -> tuple[Array, Array]:
    """Returns how far outputs are from a spread of one, and from uncorrelated."""
    count, dim = embeddings.shape
    centred = embeddings - jnp.mean(embeddings, axis=0, keepdims=True)
    products = jnp.matmul(centred.T, centred, precision=lax.Precision.HIGHEST) / (count - 1)
    deviations = jnp.sqrt(jnp.diagonal(products) + _SMALL)
    apart = jnp.where(jnp.eye(dim, dtype=bool), 0.0, products)
    return jnp.mean(jnp.maximum(0.0, 1 - deviations)), jnp.sum(jnp.square(apart)) / dim
