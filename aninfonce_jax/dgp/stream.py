"""A data-generating process as a source of pairs: stateless, a pure function of a key.

The same key gives the same batch on any mesh, because every draw is made for the batch as
a whole (JAX's partitionable generator lets each device compute its own part of it).
"""

import dataclasses
from collections.abc import Callable

import jax

from aninfonce_jax.dgp.conditionals import Conditional
from aninfonce_jax.dgp.errors import ProcessError
from aninfonce_jax.dgp.marginals import Marginal
from aninfonce_jax.dgp.spaces import Space
from aninfonce_jax.types import Array, Pairs, register_dataclass


@register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class LatentProcess:
    """Anchors from a marginal, positives from a conditional, both seen through a mixing.

    Making one checks that its parts fit together and that sampling will end.

    Attributes:
      space: where the latents live.
      marginal: p(z), of the anchors.
      conditional: p(z⁺|z), of the positives.
      mixing: g, latents [n, dim] -> observations [n, ...]; a pytree, if the process is to be
        an argument of a jitted function.

    Example:
      >>> positives = an.conditionals.Anisotropic([25.0, 25.0, 5.0])
      >>> process = an.LatentProcess(an.Sphere(3), an.marginals.Uniform(), positives, jnp.tanh)
      >>> process.sample(jax.random.key(0), 8).view1.shape
      (8, 3)
    """

    space: Space = dataclasses.field(metadata={"static": True})
    marginal: Marginal
    conditional: Conditional
    mixing: Callable[[Array], Array]

    def __post_init__(self) -> None:
        # JAX also makes processes of placeholders, which have nothing to check.
        if hasattr(self.marginal, "check") and hasattr(self.conditional, "check"):
            self.marginal.check(self.space)
            self.conditional.check(self.space)

    def sample(self, key: Array, batch_size: int) -> Pairs:
        """Returns `batch_size` positive pairs with their latents; may be traced."""
        anchor_key, positive_key = jax.random.split(key)
        anchors = self.marginal.sample(anchor_key, self.space, batch_size)
        positives = self.conditional.sample(positive_key, self.space, anchors)
        return Pairs(self.mixing(anchors), self.mixing(positives), anchors, positives)

    def anchors(self, key: Array, n: int) -> tuple[Array, Array]:
        """Returns n latents [n, dim] and their observations [n, ...], to evaluate with."""
        latents = self.marginal.sample(key, self.space, n)
        return latents, self.mixing(latents)


def sample_pairs(key: Array, dgp: LatentProcess, n: int) -> Pairs:
    """Returns n positive pairs of a data-generating process.

    Args:
      key: a random key.
      dgp: the process.
      n: how many pairs; static under `jit`.

    Raises:
      ValueError: n is less than 1.

    Example:
      >>> positives = an.conditionals.Anisotropic([25.0, 25.0, 5.0])
      >>> process = an.LatentProcess(an.Sphere(3), an.marginals.Uniform(), positives, jnp.tanh)
      >>> pairs = an.sample_pairs(jax.random.key(0), process, 8)
      >>> pairs.view2.shape, pairs.latents2.shape
      ((8, 3), (8, 3))
    """
    if n < 1:
        raise ProcessError(f"n must be at least 1, got {n}.")
    return dgp.sample(key, n)
