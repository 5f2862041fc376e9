"""A data-generating process as a source of pairs: made on the device, with known latents."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.dgp import conditionals
from aninfonce_jax.dgp.marginals import Uniform
from aninfonce_jax.dgp.spaces import Box, Sphere
from aninfonce_jax.dgp.stream import LatentProcess
from aninfonce_jax.sources.source import Known, Latents, PowerScore, Source
from aninfonce_jax.types import Array, Pairs, PyTree


@dataclasses.dataclass(frozen=True, eq=False)
class ProcessSource(Source):
    """Pairs of a data-generating process, with the latents that made them."""

    process: LatentProcess

    @property
    def known(self) -> Known:
        """The latents."""
        process = self.process
        return Known(
            latents=Latents(process.anchors, true_concentration(process), true_score(process))
        )

    def example(self) -> Array:
        """Returns two empty observations."""
        shape = jax.eval_shape(lambda key: self.process.anchors(key, 2)[1], jax.random.key(0))
        return jnp.zeros(shape.shape, shape.dtype)

    def pairs(self, key: Array, fed: PyTree, batch_size: int) -> Pairs:
        """Returns fresh pairs with their latents."""
        del fed
        return self.process.sample(key, batch_size)


def true_concentration(process: LatentProcess) -> np.ndarray | None:
    """Returns the Λ [dim] of a process; None where it has none, or not one for all factors."""
    conditional = process.conditional
    base = conditional.base if isinstance(conditional, conditionals.Bimodal) else conditional
    values = getattr(base, "concentration", None)
    if values is None:
        return None
    return np.broadcast_to(np.asarray(values, np.float64), (process.space.dim,))


def true_score(process: LatentProcess) -> PowerScore | None:
    """Returns the true score of a process's pairs; None where it has not this form.

    Anchors must be uniform, for the negatives' density to drop out of it.
    """
    concentration = true_concentration(process)
    if concentration is None or not isinstance(process.marginal, Uniform):
        return None
    match process.space, process.conditional:
        case Sphere(), conditionals.Anisotropic():
            return PowerScore(concentration)
        case Sphere(radius=radius), conditionals.VonMisesFisher():
            # Its κ goes with the angle, whatever the radius.
            return PowerScore(concentration / radius**2)
        case Box(boundary="reject"), (
            conditionals.Normal() | conditionals.Laplace() | conditionals.GeneralizedNormal()
        ) as conditional:
            return PowerScore(concentration, conditional.exponent)
    return None
