"""A variational autoencoder: what turns latents into images, and what its encoder's output means.

The encoder of one is any network whose last layer has twice as many outputs as there are
latents, such as `MLP` without a normalised output: first the means of the latents' posterior,
then the logarithms of its variances. With three fully connected layers on each side this is the
autoencoder of the paper's MNIST experiment.
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from aninfonce_jax.models.mlp import ACTIVATIONS
from aninfonce_jax.types import Array

# Log variances are cut here: beyond, their exponentials tell nothing and overflow.
_LARGEST_LOG_VARIANCE = 10.0


class ImageDecoder(nn.Module):
    """Fully connected layers from latents to images.

    Attributes:
      widths: hidden widths, from the latents on.
      shape: of an image.
    """

    widths: tuple[int, ...]
    shape: tuple[int, ...]

    @nn.compact
    def __call__(self, latents: Array) -> Array:
        """Maps latents [n, dim] to the logits of pixels, [n, *shape]."""
        x = latents
        for width in self.widths:
            x = ACTIVATIONS["leaky_relu"](nn.Dense(width, kernel_init=_HE)(x))
        return nn.Dense(math.prod(self.shape))(x).reshape(-1, *self.shape)


_HE = nn.initializers.he_normal()


def split_posterior(outputs: Array) -> tuple[Array, Array]:
    """Returns means and log variances [n, dim] of an encoder's outputs [n, 2 * dim]."""
    means, log_variances = jnp.split(outputs, 2, axis=-1)
    return means, jnp.minimum(log_variances, _LARGEST_LOG_VARIANCE)


def draw_latents(key: Array, means: Array, log_variances: Array) -> Array:
    """Returns a draw of each posterior, [n, dim], through which gradients pass."""
    noise = jax.random.normal(key, means.shape, means.dtype)
    return means + jnp.exp(log_variances / 2) * noise


def divergence_from_prior(means: Array, log_variances: Array) -> Array:
    """Returns the Kullback–Leibler divergence of each posterior from N(0, 1), [n], in nats."""
    terms = jnp.square(means) + jnp.exp(log_variances) - 1 - log_variances
    return jnp.sum(terms, axis=-1) / 2


def pixel_surprise(logits: Array, images: Array) -> Array:
    """Returns -log p(image) of each image, [n], in nats; pixels lie between 0 and 1.

    Args:
      logits: of the pixels, [n, ...].
      images: [n, ...].
    """
    # -x log σ(l) - (1 - x) log σ(-l)
    terms = jax.nn.softplus(logits) - images * logits
    return jnp.sum(terms.reshape(len(terms), -1), axis=-1)
