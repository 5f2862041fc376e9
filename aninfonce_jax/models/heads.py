"""What follows an encoder: output normalisations, and positive parameters.

A positive parameter lives unconstrained among the params, so that optimiser, averages and
checkpoints need no special case, and is turned into natural units where it is used.
"""

from collections.abc import Mapping
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from aninfonce_jax.types import Array

# Where a rotation lives among the params.
ROTATION = "rotation"
# Where a network of an objective lives among its params: it is trained at the encoder's rate.
HEAD = "head"

Transform = Literal["softplus", "exp"]
Output = Literal["sphere", "learnable_sphere", "box", "learnable_box", "none"]


def to_positive(free: Array, transform: Transform) -> Array:
    """Maps a free parameter to a positive one."""
    if transform == "exp":
        return jnp.exp(free)
    return jax.nn.softplus(free)


def from_positive(positive: Array, transform: Transform) -> Array:
    """Inverts `to_positive`."""
    if transform == "exp":
        return jnp.log(positive)
    # log(eᵖ - 1), written so that a large p does not overflow.
    return positive + jnp.log(-jnp.expm1(-positive))


class Rotation(nn.Module):
    """Rotates embeddings [batch, dim] by a trained orthogonal matrix; at first, not at all.

    The layers before it could learn the same rotation, and do so slowly: between factors
    whose Λ differ little the loss hardly changes with the angle. A parameter of its own can
    be trained angle by angle (`training/rotation.py`), which also keeps it orthogonal.
    """

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Returns the rotated embeddings [batch, dim]."""
        return x @ self.param("matrix", lambda _: jnp.eye(x.shape[-1], dtype=x.dtype))


class OutputNormalization(nn.Module):
    """Maps raw outputs [batch, dim] onto the space of the latents.

    Attributes:
      kind: `sphere` divides by the norm; `box` squashes each coordinate; the learnable
        kinds train a common scale of that sphere or box, from the given one; `none`
        leaves the output as it is.
      radius: of the sphere.
      low: lower end of the box, each side.
      high: upper end of the box, each side.
    """

    kind: Output
    radius: float = 1.0
    low: float = 0.0
    high: float = 1.0

    @nn.compact
    def __call__(self, raw: Array) -> Array:
        """Returns embeddings [batch, dim]."""
        if self.kind == "none":
            return raw
        scale: Array | float = 1.0
        if self.kind.startswith("learnable"):
            scale = jnp.exp(self.param("log_scale", nn.initializers.zeros, ()))
        if self.kind.endswith("sphere"):
            squared = jnp.sum(jnp.square(raw), axis=-1, keepdims=True)
            # The floor keeps value and gradient finite where a raw output is exactly zero.
            return raw * (self.radius * scale * jax.lax.rsqrt(jnp.maximum(squared, 1e-24)))
        centre, half = (self.high + self.low) / 2, (self.high - self.low) / 2
        return centre + half * scale * jnp.tanh(raw)


class DifferenceHeads(nn.Module):
    """Predicts how two things that were done to an example differ, from features of both.

    Attributes:
      outputs: name -> how many numbers are predicted of it, by a network of its own.
      width: of its two hidden layers.
    """

    outputs: Mapping[str, int]
    width: int

    @nn.compact
    def __call__(self, features1: Array, features2: Array) -> dict[str, Array]:
        """Maps features [batch, features] of both to predictions [batch, outputs] by name."""
        both = jnp.concatenate([features1, features2], axis=-1)
        return {name: self._predict(name, count, both) for name, count in self.outputs.items()}

    def _predict(self, name: str, count: int, x: Array) -> Array:
        for place in (1, 2):
            x = nn.relu(nn.Dense(self.width, name=f"{name}_hidden{place}")(x))
        return nn.Dense(count, name=f"{name}_out")(x)
