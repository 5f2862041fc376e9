"""The evidence lower bound of a variational autoencoder, whose decoder it trains along."""

import dataclasses

import jax
import jax.numpy as jnp

from aninfonce_jax.models import vae
from aninfonce_jax.objectives.objective import Encode, Metrics, Objective
from aninfonce_jax.placement import Placement
from aninfonce_jax.types import Array, Pairs, Params

_DECODER = "decoder"


@dataclasses.dataclass(frozen=True)
class Elbo(Objective):
    """The negative evidence lower bound of the first view of each pair, in nats per image.

    The encoder's outputs are means and log variances (see `models/vae.py`); the decoder is the
    objective's own. The second view plays no part.

    Attributes:
      shape: of an image.
      widths: hidden widths of the decoder.
    """

    shape: tuple[int, ...]
    widths: tuple[int, ...] = (512, 512)

    def init(self, key: Array, dim: int) -> Params:
        """Returns the decoder's parameters for outputs [batch, dim], two for each latent."""
        if dim % 2:
            raise ValueError(
                f"a variational autoencoder has a mean and a variance for each latent, so an even "
                f"number of outputs; got {dim}"
            )
        return {_DECODER: self._module.init(key, jnp.zeros((1, dim // 2)))}

    def __call__(
        self, params: Params, encode: Encode, pairs: Pairs, key: Array, placement: Placement
    ) -> tuple[Array, Metrics]:
        """Returns the bound and its two parts."""
        del placement
        means, log_variances = vae.split_posterior(encode(pairs.view1))
        latents = vae.draw_latents(key, means, log_variances)
        logits = self._module.apply(params[_DECODER], latents)
        surprise = jnp.mean(vae.pixel_surprise(jnp.asarray(logits), pairs.view1))
        divergence = jnp.mean(vae.divergence_from_prior(means, log_variances))
        return surprise + divergence, {"reconstruction": surprise, "divergence": divergence}

    def compared(self, embeddings: Array) -> Array:
        """Returns the means alone: what an image is taken for."""
        return vae.split_posterior(embeddings)[0]

    @property
    def has_directions(self) -> bool:
        """Whether directions can be held against the theorem, whose latents are on a sphere.

        Decoded images come of latents of length √d, near which most draws of the prior are. What
        an encoder's means miss of it shows in a diagnosis.
        """
        return True

    def decode(self, params: Params, latents: Array) -> Array:
        """Returns images [n, *shape], pixels from 0 to 1, of latents [n, dim]; may be traced."""
        return jax.nn.sigmoid(jnp.asarray(self._module.apply(params[_DECODER], latents)))

    @property
    def _module(self) -> vae.ImageDecoder:
        return vae.ImageDecoder(self.widths, self.shape)
