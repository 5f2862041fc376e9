"""Encoders f: observations to embeddings."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from aninfonce_jax.config_schema import DgpConfig, EncoderConfig
from aninfonce_jax.models.heads import OutputNormalization
from aninfonce_jax.types import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "leaky_relu": lambda x: jnp.where(x > 0, x, 0.01 * x),
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
}


def _torch_default(key: Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> Array:
    """Uniform within ±1/√fan_in: what PyTorch gives a linear layer's weights."""
    bound = shape[0] ** -0.5
    return jax.random.uniform(key, shape, dtype, -bound, bound)


KERNEL_INITS = {
    "he_normal": nn.initializers.he_normal(),
    "orthogonal": nn.initializers.orthogonal(2.0**0.5),
    "torch": _torch_default,
}


class MLP(nn.Module):
    """A multilayer perceptron with a normalised output.

    Attributes:
      widths: hidden widths.
      dim: dimension of the embeddings.
      activation: a name of `ACTIVATIONS`.
      kernel_init: a name of `KERNEL_INITS`.
      output: the last module, from raw outputs to embeddings.
    """

    widths: tuple[int, ...]
    dim: int
    activation: str
    kernel_init: str
    output: OutputNormalization

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Maps observations [batch, features] to embeddings [batch, dim]."""
        act, kernel_init = ACTIVATIONS[self.activation], KERNEL_INITS[self.kernel_init]
        for width in self.widths:
            x = act(nn.Dense(width, kernel_init=kernel_init)(x))
        return self.output(nn.Dense(self.dim, kernel_init=kernel_init)(x))


def paper_widths(dim: int) -> tuple[int, ...]:
    """The hidden widths that the paper uses for `dim` latent factors."""
    return (10 * dim, 50 * dim, 50 * dim, 50 * dim, 50 * dim, 10 * dim)


def build_encoder(config: EncoderConfig, dgp: DgpConfig) -> MLP:
    """Returns the encoder of a config, for the latents of `dgp`."""
    return MLP(
        widths=config.widths or paper_widths(dgp.dim),
        dim=dgp.dim,
        activation=config.activation,
        kernel_init=config.init,
        output=OutputNormalization(config.output, dgp.radius, dgp.box_low, dgp.box_high),
    )
