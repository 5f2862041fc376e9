"""Colour jitter and its like, on images laid out [3, height, width] with values in [0, 1].

Brightness, contrast and saturation are one operation with different weights: a mixture of
the image, its grey version and the mean of that, clipped to [0, 1]. Only the hue differs.
"""

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.types import Array

# ITU-R 601, as in Pillow and torchvision.
_LUMA = (0.299, 0.587, 0.114)
# The hue's number among the steps; `mix` does the others.
_HUE = 3


def grey(image: Array) -> Array:
    """Returns the lightness of every pixel, [height, width]."""
    red, green, blue = (weight * plane for weight, plane in zip(_LUMA, image, strict=True))
    return red + green + blue


def mix(image: Array, own: Array, lightness: Array, mean: Array) -> Array:
    """Adds up multiples of an image, of its grey version and of that one's mean; clips.

    Args:
      image: [3, height, width].
      own: weight of the image, scalar.
      lightness: weight of its grey version, scalar.
      mean: weight of the grey version's mean, scalar.
    """
    plane = grey(image)
    added = lightness * plane + mean * jnp.mean(plane)
    return jnp.clip(own * image + added[None], 0.0, 1.0)


def shift_hue(image: Array, turns: Array) -> Array:
    """Turns the hue of an image, keeping saturation and value (of HSV).

    Args:
      image: [3, height, width], in [0, 1].
      turns: scalar; 1 changes nothing.
    """
    red, green, blue = image
    value = jnp.maximum(jnp.maximum(red, green), blue)
    chroma = value - jnp.minimum(jnp.minimum(red, green), blue)
    unit = 1 / jnp.where(chroma > 0, chroma, 1.0)
    sixths = jnp.where(
        value == red,
        (green - blue) * unit,
        jnp.where(value == green, 2 + (blue - red) * unit, 4 + (red - green) * unit),
    )
    # A channel falls from `value` to `value - chroma` and back, over the six sixths of the
    # circle: two at the top, one down, two at the bottom, one up. Channels differ in phase.
    phase = np.array([5, 3, 1], np.float32)[:, None, None]
    angle = (sixths + 6 * turns)[None] + phase
    angle = angle - 6 * jnp.floor(angle / 6)
    drop = jnp.clip(jnp.minimum(angle, 4 - angle), 0.0, 1.0)
    return value[None] - chroma[None] * drop


def jitter(
    image: Array,
    brightness: Array,
    contrast: Array,
    saturation: Array,
    hue: Array,
    order: Array,
) -> Array:
    """Applies the four steps in the given order.

    Args:
      image: [3, height, width], in [0, 1].
      brightness: factor, scalar.
      contrast: factor, scalar; towards the mean lightness.
      saturation: factor, scalar; towards each pixel's lightness.
      hue: shift in turns, scalar.
      order: the steps' numbers (brightness 0, contrast 1, saturation 2, hue 3), [4].
    """
    # Samples of a batch differ in order, so that every place must be ready for every step.
    zero = jnp.zeros_like(brightness)
    weights = jnp.stack(
        [
            jnp.stack([brightness, zero, zero]),
            jnp.stack([contrast, zero, 1 - contrast]),
            jnp.stack([saturation, 1 - saturation, zero]),
            jnp.stack([zero, zero, zero]),  # the hue's, which are not looked at
        ]
    )

    # A place computes both kinds of step, which costs arithmetic and spares passes over the image:
    # the hue in a place of its own needs three places for the others before and three after it.
    # A loop, because without one XLA's CPU compiler would fuse the steps with each other and
    # compute the first ones again and again.
    def step(image: Array, number: Array) -> tuple[Array, None]:
        mixed = mix(image, *weights[number])
        return jnp.where(number == _HUE, shift_hue(image, hue), mixed), None

    return jax.lax.scan(step, image, order)[0]


def solarise(image: Array, threshold: float) -> Array:
    """Inverts the values from `threshold` on."""
    return jnp.where(image < threshold, image, 1 - image)
