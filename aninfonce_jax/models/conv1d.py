"""An encoder of signals: convolutions along time."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from aninfonce_jax.types import Array


class Conv1D(nn.Module):
    """Convolutions along time, each of which halves it, and the mean over what is left.

    Attributes:
      dim: dimension of the embeddings.
      channels: of each convolution.
      kernel: moments that a convolution sees.
    """

    dim: int
    channels: tuple[int, ...] = (32, 64, 128)
    kernel: int = 5

    @nn.compact
    def __call__(self, signals: Array) -> Array:
        """Maps signals [batch, time, channels] to embeddings [batch, dim]."""
        if signals.ndim != 3:
            raise ValueError(f"signals must be [batch, time, channels], got {signals.shape}")
        x = signals
        for channels in self.channels:
            x = nn.Conv(channels, (self.kernel,), strides=(2,))(x)
            x = jax.nn.gelu(nn.LayerNorm()(x))
        return nn.Dense(self.dim)(jnp.mean(x, axis=1))
