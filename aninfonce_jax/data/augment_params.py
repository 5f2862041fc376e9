"""What is done to each sample of a batch, drawn or made up.

The parameters are part of an augmentation's result, because readouts ask the representation
for them.
"""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.data.augment_spec import JITTER_STEPS, OPERATIONS, AugmentSpec
from aninfonce_jax.types import Array, register_dataclass

_ORDERS = np.array(list(itertools.permutations(range(len(JITTER_STEPS)))), np.int32)
# What one uniform number each is drawn for; then come the attempts at a crop's shape.
_DRAWS = (*OPERATIONS, "left", "top", *JITTER_STEPS, "order", "sigma")
# A crop whose shape does not fit into the image is drawn again, up to this many times.
_ATTEMPTS = 10
_ROUNDING = 1e-5


@register_dataclass
@dataclasses.dataclass(frozen=True)
class AugmentParams:
    """What is done to each sample of a batch, [batch] each unless stated.

    A flag says whether, a number how strongly: where the flag is False the number is neutral
    when it was drawn, and has no effect when it is applied.

    Attributes:
      cropped: whether a crop was drawn.
      box: left, top, right, bottom of the crop, [batch, 4], as shares of the image's width
        and height; (0, 0, 1, 1) is the whole image.
      flipped: whether left and right change places, after the crop.
      jittered: whether the four colour steps are applied.
      brightness: factor, 1 is neutral.
      contrast: factor, 1 is neutral.
      saturation: factor, 1 is neutral.
      hue: shift in turns, 0 is neutral.
      order: numbers in `JITTER_STEPS`, first step first, [batch, 4]; (0, 1, 2, 3) is neutral.
      greyed: whether all colour is lost.
      blurred: whether the view is blurred.
      sigma: the blur's standard deviation in pixels of the view, 0 is neutral.
      solarised: whether what is bright is inverted.
    """

    cropped: Array
    box: Array
    flipped: Array
    jittered: Array
    brightness: Array
    contrast: Array
    saturation: Array
    hue: Array
    order: Array
    greyed: Array
    blurred: Array
    sigma: Array
    solarised: Array

    def neutralised(self) -> "AugmentParams":
        """Returns the same with neutral numbers where their flag is False."""
        neutral = neutral_params(self.flipped.shape)

        def keep(flag: Array, name: str) -> Array:
            number = getattr(self, name)
            shape = flag.shape + (1,) * (number.ndim - flag.ndim)
            return jnp.where(flag.reshape(shape), number, getattr(neutral, name))

        return dataclasses.replace(
            self,
            box=keep(self.cropped, "box"),
            order=keep(self.jittered, "order"),
            sigma=keep(self.blurred, "sigma"),
            **{name: keep(self.jittered, name) for name in JITTER_STEPS},
        )

    def by_operation(self, spec: AugmentSpec) -> dict[str, Array]:
        """Returns the parameters of each operation that can occur, to be predicted, [batch, k].

        A crop has its centre, width and height; the jitter, where each factor lies in its range;
        the blur, its share of the strongest one. All others have a bool: whether it was done.
        """
        left, top, right, bottom = jnp.moveaxis(self.box, -1, 0)
        factors = [_in_range(getattr(self, name), *spec.reach(name)) for name in JITTER_STEPS]
        found = {
            "crop": [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top],
            "flip": [self.flipped],
            "jitter": factors,
            "grey": [self.greyed],
            "blur": [self.sigma / spec.sigma[1]],
            "solarise": [self.solarised],
        }
        return {name: jnp.stack(found[name], axis=-1) for name in spec.operations}


def neutral_params(shape: int | tuple[int, ...]) -> AugmentParams:
    """Returns parameters that do nothing but resize, to force single operations from.

    Args:
      shape: the batch size, or () for the parameters of a single sample.
    """
    axes = shape if isinstance(shape, tuple) else (shape,)  # which may be symbolic
    no, one = jnp.zeros(axes, bool), jnp.ones(axes, jnp.float32)
    whole, order = np.array([0, 0, 1, 1], np.float32), _ORDERS[0]
    return AugmentParams(
        cropped=no,
        box=jnp.broadcast_to(whole, (*axes, 4)),
        flipped=no,
        jittered=no,
        brightness=one,
        contrast=one,
        saturation=one,
        hue=0 * one,
        order=jnp.broadcast_to(order, (*axes, len(order))),
        greyed=no,
        blurred=no,
        sigma=0 * one,
        solarised=no,
    )


def sample_params(
    key: Array, spec: AugmentSpec, indices: Array, *, height: int, width: int
) -> AugmentParams:
    """Draws the parameters of a batch; a pure function of the key and of each index.

    Args:
      key: a random key.
      spec: probabilities and ranges; static under `jit`.
      indices: number of each sample in the whole batch, [batch]. A sample's parameters depend
        on its own number only, however the batch is split over devices.
      height: of the images, in pixels; the shapes of crops depend on it.
      width: likewise.

    Returns:
      The parameters, [batch] each.
    """

    def sample_one(index: Array) -> AugmentParams:
        own = jax.random.fold_in(key, index)
        return _sample_one(own, spec, aspect=width / height).neutralised()

    return jax.vmap(sample_one)(indices)


def _sample_one(key: Array, spec: AugmentSpec, aspect: float) -> AugmentParams:
    # One draw for everything: a call of the generator per parameter would cost more than
    # cropping a small image.
    uniform = jax.random.uniform(key, (len(_DRAWS) + 2 * _ATTEMPTS,))
    draws = dict(zip(_DRAWS, uniform[: len(_DRAWS)], strict=True))

    def happens(operation: str) -> Array:
        return draws[operation] < spec.probability(operation)

    def factor(name: str) -> Array:
        return _between(*spec.reach(name), draws[name])

    width, height, fits = _draw_shape(uniform[len(_DRAWS) :].reshape(2, _ATTEMPTS), spec, aspect)
    left = (1 - width) * jnp.where(fits, draws["left"], 0.5)
    top = (1 - height) * jnp.where(fits, draws["top"], 0.5)
    return AugmentParams(
        cropped=happens("crop"),
        box=jnp.stack([left, top, left + width, top + height]),
        flipped=happens("flip"),
        jittered=happens("jitter"),
        brightness=factor("brightness"),
        contrast=factor("contrast"),
        saturation=factor("saturation"),
        hue=factor("hue"),
        order=jnp.asarray(_ORDERS)[jnp.int32(len(_ORDERS) * draws["order"])],
        greyed=happens("grey"),
        blurred=happens("blur"),
        sigma=_between(*spec.sigma, draws["sigma"]),
        solarised=happens("solarise"),
    )


def _draw_shape(draws: Array, spec: AugmentSpec, aspect: float) -> tuple[Array, Array, Array]:
    """Returns a crop's width and height as shares of the image's, and whether it was drawn.

    It is the first of the attempts that fits. If none does it is the largest crop of an
    allowed ratio, which belongs in the centre: all as in torchvision, but for its rounding.

    Args:
      draws: uniform in [0, 1), [2, attempts].
      spec: the ranges.
      aspect: width over height of the image.
    """
    low, high = spec.ratio
    area = _between(*spec.scale, draws[0])
    # In shares of the image's sides, so that 1 is a crop of the image's own aspect.
    ratio = jnp.exp(_between(math.log(low), math.log(high), draws[1])) / aspect
    widths, heights = jnp.sqrt(area * ratio), jnp.sqrt(area / ratio)
    # A crop of the whole image must not fail by rounding.
    fits = (widths <= 1 + _ROUNDING) & (heights <= 1 + _ROUNDING)
    first = fits & (jnp.cumsum(fits) == 1)
    any_fits = jnp.any(fits)

    def pick(shares: Array, largest: float) -> Array:
        drawn = jnp.sum(jnp.where(first, jnp.minimum(shares, 1.0), 0.0))
        return jnp.where(any_fits, drawn, largest)

    width, height = pick(widths, min(1.0, high / aspect)), pick(heights, min(1.0, aspect / low))
    return width, height, any_fits


def _between(low: float, high: float, draw: Array) -> Array:
    return low + (high - low) * draw


def _in_range(value: Array, low: float, high: float) -> Array:
    """Returns where a value lies between two others, from 0 to 1; 0 where they are the same."""
    return (value - low) / (high - low) if high > low else jnp.zeros_like(value)
