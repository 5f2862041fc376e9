"""Views with and without one operation, to ask features for what augmentations did.

    pair = intervene(key, images, spec, "hue", strength="extreme", context="clean")
    pair.without, pair.applied, pair.strengths

Every image is shown twice, once without and once with the operation. So both classes are
equally frequent and the image itself tells nothing. For a probe split the images, not the
views, into training, validation and test: both views of an image belong in the same set.

The publication does not say how its examples were made. Here are two choices to make.
  strength: "drawn", uniformly from the range of the training, which includes changes too
    small to see; "upper", the upper end of that range (for a crop the smallest), a change in
    one direction, as a linear probe can see it; or "extreme", either end at random, which
    asks for a feature of "changed at all".
  context: "clean", nothing else is done but a resize; or "augmented", everything else is
    drawn as in training, the same for both views of a pair.
"""

import dataclasses
from typing import Literal, get_args

import jax
import jax.numpy as jnp

from aninfonce_jax.data.augment import (
    AugmentParams,
    AugmentSpec,
    apply,
    neutral_params,
    sample_params,
)
from aninfonce_jax.data.augment_spec import JITTER_STEPS
from aninfonce_jax.types import Array, Intervention

Strength = Literal["upper", "extreme", "drawn"]
Context = Literal["clean", "augmented"]

# The five that the paper reads out and averages.
AVERAGED = ("grey", "brightness", "contrast", "hue", "saturation")
READOUTS = (*AVERAGED, "crop", "blur")
# Those that images without colour can show.
GREY_READOUTS = ("brightness", "contrast", "crop", "blur")
# For each readout the operation it belongs to, that one's flag, and the field that differs.
_FIELDS = {
    "grey": ("grey", "greyed", "greyed"),
    "crop": ("crop", "cropped", "box"),
    "blur": ("blur", "blurred", "sigma"),
    **{step: ("jitter", "jittered", step) for step in JITTER_STEPS},
}
# What a grey view cannot show.
_COLOURS = ("hue", "saturation")
_DEFAULT = AugmentSpec()


def has_strength(readout: str) -> bool:
    """Returns whether the operation has a strength that could be predicted."""
    _check_name("readout", readout, READOUTS)
    return readout != "grey"


def occurs(spec: AugmentSpec, readout: str) -> bool:
    """Returns whether training with `spec` ever does this.

    Where it does not, the readout is of something that the encoder was never taught to
    ignore. If the range is empty, too, that of the default `AugmentSpec` is used.
    """
    _check_name("readout", readout, READOUTS)
    return spec.probability(_FIELDS[readout][0]) > 0 and _has_range(spec, readout)


def intervene(
    key: Array,
    images: Array,
    spec: AugmentSpec,
    readout: str,
    *,
    strength: Strength,
    context: Context,
    indices: Array | None = None,
) -> Intervention:
    """Returns every image without and with one operation.

    Strengths are the factor for brightness, contrast and saturation, turns for hue, the share
    of the image's area for crop, sigma in pixels for blur, and zeros for grey.

    With the same key all readouts have the same context. May be traced, with `spec`,
    `readout`, `strength` and `context` static.

    Args:
      key: a random key.
      images: [batch, height, width, 3], uint8, or floating point in [0, 1].
      spec: the training's augmentation; gives size and ranges (see `occurs`).
      readout: one of `READOUTS`.
      strength: see above. Crop and blur have one end: the smallest area, the largest sigma.
      context: see above. For hue and saturation "augmented" leaves out grey, which would
        hide them.
      indices: number of each image in the whole set, [batch]; by default 0, 1, 2, ...
        An image's draw depends on key and number only.

    Raises:
      TypeError: images that are neither uint8 nor floating point.
      ValueError: an unknown name, or shapes that do not fit.
    """
    if images.ndim != 4:
        raise ValueError(f"images must have shape [batch, height, width, 3], got {images.shape}")
    batch, height, width, _ = images.shape
    indices = jnp.arange(batch) if indices is None else indices
    if indices.shape != (batch,):
        raise ValueError(f"indices must have one entry per image, {(batch,)}, got {indices.shape}")
    without, applied = intervention_params(
        key,
        spec,
        readout,
        indices,
        height=height,
        width=width,
        strength=strength,
        context=context,
    )
    own = _FIELDS[readout][0]
    operations = {own} if context == "clean" else {own, *spec.operations}
    # Both views take the same steps, so that not even rounding tells them apart.
    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), without, applied)
    views = jax.vmap(lambda params: apply(images, params, spec, operations=operations))(both)
    return Intervention(views[0], views[1], _strengths(applied, readout))


def intervention_params(
    key: Array,
    spec: AugmentSpec,
    readout: str,
    indices: Array,
    *,
    height: int,
    width: int,
    strength: Strength,
    context: Context,
) -> tuple[AugmentParams, AugmentParams]:
    """Returns the parameters of the views without and with the operation.

    They differ in one field: the operation's flag is up in both, and its number neutral in
    the first. Grey has no number, there the flag itself differs.

    Args and Raises: as `intervene`; height and width are the images', in pixels.
    """
    _check_name("readout", readout, READOUTS)
    _check_name("strength", strength, get_args(Strength))
    _check_name("context", context, get_args(Context))
    context_key, own_key = jax.random.split(key)
    neutral = neutral_params(len(indices))
    rest = neutral
    if context == "augmented":
        rest = sample_params(context_key, spec, indices, height=height, width=width)
        if readout in _COLOURS:
            rest = dataclasses.replace(rest, greyed=neutral.greyed)
    _, flag, field = _FIELDS[readout]
    only = _only(spec, readout, strength)
    drawn = getattr(sample_params(own_key, only, indices, height=height, width=width), field)
    if strength != "drawn" and readout in JITTER_STEPS:
        low, high = _ends(only, readout)
        upper = strength == "upper" or drawn > (low + high) / 2
        drawn = jnp.where(upper, jnp.full_like(drawn, high), low)
    rest = dataclasses.replace(rest, **{flag: jnp.ones_like(neutral.flipped)})
    return (
        dataclasses.replace(rest, **{field: getattr(neutral, field)}),
        dataclasses.replace(rest, **{field: drawn}),
    )


def _only(spec: AugmentSpec, readout: str, strength: Strength) -> AugmentSpec:
    """Returns the augmentation that always does this operation and no other."""
    ranges = spec if _has_range(spec, readout) else _DEFAULT
    if readout == "grey":
        return AugmentSpec(grey_probability=1.0)
    if readout == "blur":
        sigma = ranges.sigma if strength == "drawn" else (ranges.sigma[1], ranges.sigma[1])
        return AugmentSpec(blur_probability=1.0, sigma=sigma)
    if readout == "crop":
        scale = ranges.scale if strength == "drawn" else (ranges.scale[0], ranges.scale[0])
        return AugmentSpec(crop_probability=1.0, scale=scale, ratio=ranges.ratio)
    reaches = dict.fromkeys(JITTER_STEPS, 0.0) | {readout: _reach(ranges, readout)}
    return AugmentSpec(
        jitter_probability=1.0,
        brightness=reaches["brightness"],
        contrast=reaches["contrast"],
        saturation=reaches["saturation"],
        hue=reaches["hue"],
    )


def _has_range(spec: AugmentSpec, readout: str) -> bool:
    if readout in JITTER_STEPS:
        return _reach(spec, readout) > 0
    # The largest square crop of a square image is the image.
    return readout != "crop" or spec.scale[0] < 1


def _reach(spec: AugmentSpec, step: str) -> float:
    return spec.strength * getattr(spec, step)


def _ends(spec: AugmentSpec, step: str) -> tuple[float, float]:
    """Returns the range of a step of the jitter."""
    reach = _reach(spec, step)
    return (-reach, reach) if step == "hue" else (max(0.0, 1 - reach), 1 + reach)


def _strengths(params: AugmentParams, readout: str) -> Array:
    if readout == "crop":
        left, top, right, bottom = jnp.moveaxis(params.box, -1, 0)
        return (right - left) * (bottom - top)
    if not has_strength(readout):
        return jnp.zeros(params.flipped.shape)
    return getattr(params, _FIELDS[readout][2])


def _check_name(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
