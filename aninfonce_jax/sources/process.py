"""A data-generating process as a source of pairs: made on the device, with known latents."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.dgp import conditionals
from aninfonce_jax.dgp.marginals import Marginal, Uniform
from aninfonce_jax.dgp.spaces import Box, Sphere
from aninfonce_jax.dgp.stream import LatentProcess
from aninfonce_jax.sources.source import Known, Latents, PowerScore, Source
from aninfonce_jax.types import Array, Pairs, PyTree


@dataclasses.dataclass(frozen=True, eq=False)
class ProcessSource(Source):
    """Pairs of a data-generating process, with the latents that made them.

    Attributes:
      process: of the pairs.
      shifted: another distribution of anchors, to see what an encoder recovers of those; None:
        only anchors like those of training are looked at.

    Example:
      >>> positives = an.conditionals.Anisotropic([25.0, 25.0, 5.0])
      >>> process = an.LatentProcess(an.Sphere(3), an.marginals.Uniform(), positives, jnp.tanh)
      >>> an.ProcessSource(process).pairs(jax.random.key(0), None, 8).view1.shape
      (8, 3)
    """

    process: LatentProcess
    shifted: Marginal | None = dataclasses.field(default=None, kw_only=True)

    @property
    def known(self) -> Known:
        """The latents."""
        process = self.process
        elsewhere = None
        if self.shifted is not None:
            elsewhere = dataclasses.replace(process, marginal=self.shifted).anchors
        return Known(
            latents=Latents(
                process.anchors,
                true_concentration(process),
                true_score(process),
                draw_shifted=elsewhere,
            )
        )

    def example(self) -> Array:
        """Returns two empty observations."""
        shape = jax.eval_shape(lambda key: self.process.anchors(key, 2)[1], jax.random.key(0))
        return jnp.zeros(shape.shape, shape.dtype)

    def pairs(self, key: Array, fed: PyTree, batch_size: int) -> Pairs:
        """Returns fresh pairs with their latents."""
        del fed
        return self.process.sample(key, batch_size)


@dataclasses.dataclass(frozen=True, eq=False)
class ProcessWithNegatives(ProcessSource):
    """Pairs of a process, with negatives of each anchor's own that are drawn like its positives.

    Attributes:
      process: of the pairs.
      near: draws the negatives of an anchor: the family of the positives with another Λ.
      count: how many an anchor has.
    """

    near: conditionals.Conditional
    count: int

    @property
    def known(self) -> Known:
        """The latents, and the Λ⁻ of the negatives."""
        own = concentration_of(self.near, self.process.space.dim)
        latents = super().known.latents
        assert latents is not None
        return Known(latents=dataclasses.replace(latents, own_concentration=own))

    def pairs(self, key: Array, fed: PyTree, batch_size: int) -> Pairs:
        """Returns the pairs that the process alone would give, and the negatives."""
        pairs = super().pairs(key, fed, batch_size)
        assert pairs.latents1 is not None
        # A key that nothing else in the step uses.
        own_key = jax.random.fold_in(key, 2)
        anchors = jnp.repeat(pairs.latents1, self.count, axis=0)
        own = self.process.mixing(self.near.sample(own_key, self.process.space, anchors))
        return dataclasses.replace(pairs, own=own.reshape(batch_size, self.count, *own.shape[1:]))


def true_concentration(process: LatentProcess) -> np.ndarray | None:
    """Returns the Λ [dim] of a process; None where it has none, or not one for all factors."""
    return concentration_of(process.conditional, process.space.dim)


def concentration_of(conditional: conditionals.Conditional, dim: int) -> np.ndarray | None:
    """Returns the Λ [dim] of a conditional; None where it has none, or not one for all factors."""
    base = conditional.base if isinstance(conditional, conditionals.Bimodal) else conditional
    values = getattr(base, "concentration", None)
    if values is None:
        return None
    return np.broadcast_to(np.asarray(values, np.float64), (dim,))


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
