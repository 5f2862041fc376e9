"""Colour jitter and its like, on images laid out [height, 3, width] with values in [0, 1].

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
    red, green, blue = (weight * image[:, i] for i, weight in enumerate(_LUMA))
    return red + green + blue


def mix(image: Array, own: Array, lightness: Array, mean: Array) -> Array:
    """Adds up multiples of an image, of its grey version and of that one's mean; clips.

    Args:
      image: [height, 3, width].
      own: weight of the image, scalar.
      lightness: weight of its grey version, scalar.
      mean: weight of the grey version's mean, scalar.
    """
    plane = grey(image)
    added = lightness * plane + mean * jnp.mean(plane)
    return jnp.clip(own * image + added[:, None, :], 0.0, 1.0)


def shift_hue(image: Array, turns: Array) -> Array:
    """Turns the hue of an image, keeping saturation and value (of HSV).

    Args:
      image: [height, 3, width], in [0, 1].
      turns: scalar; 1 changes nothing.
    """
    red, green, blue = image[:, 0], image[:, 1], image[:, 2]
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
    phase = np.array([5, 3, 1], np.float32)[None, :, None]
    angle = (sixths + 6 * turns)[:, None, :] + phase
    angle = angle - 6 * jnp.floor(angle / 6)
    drop = jnp.clip(jnp.minimum(angle, 4 - angle), 0.0, 1.0)
    return value[:, None, :] - chroma[:, None, :] * drop


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
      image: [height, 3, width], in [0, 1].
      brightness: factor, scalar.
      contrast: factor, scalar; towards the mean lightness.
      saturation: factor, scalar; towards each pixel's lightness.
      hue: shift in turns, scalar.
      order: the steps' numbers (brightness 0, contrast 1, saturation 2, hue 3), [4].
    """
    # Samples of a batch differ in order, so that every place must be ready for every step.
    # The hue costs most: it gets one place, with all three places for the others both before
    # and after it. A place on the wrong side leaves the image as it is.
    zero = jnp.zeros_like(brightness)
    weights = jnp.stack(
        [
            jnp.stack([brightness, zero, zero]),
            jnp.stack([contrast, zero, 1 - contrast]),
            jnp.stack([saturation, 1 - saturation, zero]),
            jnp.stack([zero + 1, zero, zero]),
        ]
    )
    turned = jnp.cumsum(order == _HUE) > 0
    before = jnp.where(turned, _HUE, order)[:3]
    after = jnp.where(turned, order, _HUE)[1:]

    # Loops, because without them XLA's CPU compiler would fuse the steps with each other and
    # compute the first ones again and again.
    def step(carried: Array, number: Array) -> tuple[Array, None]:
        return mix(carried, *weights[number]), None

    image, _ = jax.lax.scan(step, image, before)
    image = shift_hue(image, hue)
    image, _ = jax.lax.scan(step, image, after)
    return image


def solarise(image: Array, threshold: float) -> Array:
    """Inverts the values from `threshold` on."""
    return jnp.where(image < threshold, image, 1 - image)
