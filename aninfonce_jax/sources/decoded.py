"""Images that a trained decoder makes of known latents, as a source of pairs.

Real images of the same kind come along: an encoder of decoded images can be asked for their
classes, and for what was done to them.
"""

import dataclasses
import math
from collections.abc import Callable

import jax
import numpy as np

from aninfonce_jax.dgp.spaces import Space, Sphere
from aninfonce_jax.dgp.stream import LatentProcess
from aninfonce_jax.sources.images import ImagePairs, augmented_pairs
from aninfonce_jax.sources.process import ProcessSource
from aninfonce_jax.sources.source import Known, Latents, PairSheet, RowForm, Source
from aninfonce_jax.types import Array, Pairs, Params, PyTree, register_dataclass


@register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class DecoderMixing:
    """A decoder as the mixing of a process.

    Attributes:
      params: of the decoder.
      scale: what latents are multiplied by first.
      decode: (params, latents [n, dim]) -> images [n, height, width, channels].
    """

    params: Params
    scale: float
    decode: Callable[[Params, Array], Array] = dataclasses.field(metadata={"static": True})

    def __call__(self, latents: Array) -> Array:
        """Returns the images of latents [n, dim]."""
        return self.decode(self.params, self.scale * latents)


def decoding_scale(space: Space) -> float:
    """Returns the factor that scales latents of a space to those that a VAE decodes.

    Its prior is N(0, 1) in each of d directions, whose draws have a length of about √d.
    """
    return math.sqrt(space.dim) / space.radius if isinstance(space, Sphere) else 1.0


class _Decoded(Source):
    """What all decoded images have in common."""

    images: ImagePairs

    @property
    def name(self) -> str:
        """That of the real images, which it resembles."""
        return f"{self.images.name}, decoded"

    @property
    def row_form(self) -> RowForm:
        """That of the real images."""
        return self.images.row_form

    def fingerprint(self) -> str:
        """Returns a digest of the real images, and how bright some decoded ones are."""
        views = self.samples(jax.random.key(0), 8)
        return f"{self.images.fingerprint()}, decoded {float(views.mean()):.6f}"

    def samples(self, key: Array, count: int) -> np.ndarray:
        """Returns both views of some pairs, [count, 2, height, width, channels]."""
        pairs = jax.jit(self.pairs, static_argnums=(1, 2))(key, None, count)
        return np.stack([pairs.view1, pairs.view2], axis=1)

    def preview(self, key: Array, count: int) -> PairSheet:
        """Returns some pairs, which are drawn."""
        views = np.repeat(self.samples(key, count), 3 // self.images.decoder.channels, axis=-1)
        side = f"{views.shape[3]} × {views.shape[2]} pixels"
        columns = {
            heading: (views[:, place], [side] * count)
            for place, heading in enumerate(("anchor", "positive"))
        }
        return PairSheet(self.name, columns)


@dataclasses.dataclass(frozen=True, eq=False)
class DecodedPairs(_Decoded, ProcessSource):
    """Pairs of a process whose mixing is a decoder.

    Attributes:
      process: with a `DecoderMixing`.
      images: real ones.
    """

    process: LatentProcess
    images: ImagePairs

    @property
    def known(self) -> Known:
        """The latents and, of real images, their classes and every single augmentation."""
        return dataclasses.replace(self.images.known, latents=super().known.latents)


@dataclasses.dataclass(frozen=True, eq=False)
class DecodedViews(_Decoded):
    """Augmented views of decoded images.

    Attributes:
      draw: (key, n) -> latents [n, dim] and the images that are decoded from them.
      images: real ones, and the augmentations.
    """

    draw: Callable[[Array, int], tuple[Array, Array]]
    images: ImagePairs

    @property
    def known(self) -> Known:
        """The latents and, of real images, their classes and every single augmentation."""
        return dataclasses.replace(self.images.known, latents=Latents(self.draw))

    def example(self) -> Array:
        """Returns two empty images."""
        return self.images.example()

    def pairs(self, key: Array, fed: PyTree, batch_size: int) -> Pairs:
        """Returns two views of each image."""
        del fed
        draw_key, view_key = jax.random.split(key)
        latents, images = self.draw(draw_key, batch_size)
        pairs = augmented_pairs(view_key, images, self.images.spec)
        return dataclasses.replace(pairs, latents1=latents, latents2=latents)
