"""A data-generating process as a source of pairs: stateless, a pure function of a key.

The same key gives the same batch on any mesh, because every draw is made for the batch as
a whole (JAX's partitionable generator lets each device compute its own part of it).
"""

import dataclasses
from collections.abc import Callable

import jax
import numpy as np

from aninfonce_jax.config_schema import DgpConfig
from aninfonce_jax.dgp import conditionals, marginals
from aninfonce_jax.dgp.conditionals import Conditional, concentration_values
from aninfonce_jax.dgp.marginals import Marginal
from aninfonce_jax.dgp.mixing import draw_mixing
from aninfonce_jax.dgp.spaces import Box, Real, Space, Sphere
from aninfonce_jax.types import Array, Pairs


@jax.tree_util.register_dataclass
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
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}.")
    return dgp.sample(key, n)


def build_process(config: DgpConfig, key: Array) -> LatentProcess:
    """Makes the process that a configuration describes; `key` draws its mixing.

    Raises:
      ValueError: parts do not fit together, or a setting can't be sampled.
    """
    mixing = draw_mixing(key, config.dim, **dataclasses.asdict(config.mixing))
    return LatentProcess(
        _build_space(config), _build_marginal(config), _build_conditional(config), mixing
    )


def true_concentration(config: DgpConfig) -> np.ndarray:
    """Returns the Λ [dim] that a configuration asks for."""
    layout = config.concentration
    return concentration_values(layout.layout, config.dim, layout.high, layout.low, layout.values)


def _build_space(config: DgpConfig) -> Space:
    match config.space:
        case "sphere":
            return Sphere(config.dim, config.radius)
        case "box":
            return Box(config.dim, config.box_low, config.box_high, config.box_boundary)
        case "real":
            return Real(config.dim)
    raise ValueError(f"Unknown space {config.space!r}; choose 'sphere', 'box' or 'real'.")


def _build_marginal(config: DgpConfig) -> Marginal:
    match config.marginal:
        case "uniform":
            return marginals.Uniform()
        case "normal":
            return marginals.Normal(config.marginal_scale)
        case "laplace":
            return marginals.Laplace(config.marginal_scale)
        case "generalized_normal":
            return marginals.GeneralizedNormal(config.marginal_scale, config.marginal_exponent)
        case "vmf":
            return marginals.VonMisesFisher(config.marginal_concentration)
    raise ValueError(f"Unknown marginal {config.marginal!r}.")


def _build_conditional(config: DgpConfig) -> Conditional:
    layout = config.concentration
    values = true_concentration(config)
    match config.conditional:
        case "anisotropic":
            return conditionals.Anisotropic(values, config.sampler, config.shell)
        case "vmf":
            if layout.layout != "constant":
                raise ValueError(
                    "Conditional 'vmf' has a single concentration: set concentration.layout to "
                    f"'constant' and concentration.high to it, got layout {layout.layout!r}."
                )
            return conditionals.VonMisesFisher(layout.high)
        case "normal":
            return conditionals.Normal(values)
        case "laplace":
            return conditionals.Laplace(values)
        case "generalized_normal":
            return conditionals.GeneralizedNormal(values, config.conditional_exponent)
        case "bimodal":
            if config.space == "sphere":
                base = conditionals.Anisotropic(values, config.sampler, config.shell)
                return conditionals.Bimodal(base, config.bimodal_offset)
            return conditionals.Bimodal(conditionals.Normal(values), config.bimodal_offset)
    raise ValueError(f"Unknown conditional {config.conditional!r}.")
