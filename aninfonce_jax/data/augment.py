"""Augmentations on the device, with the parameters that were applied to each sample.

    views, params = augment(key, images, PRESETS["simclr"])

Drawing the parameters and applying them are two pure functions, so that a probe can make a
view again, or force one operation and leave the rest:

    params = sample_params(key, spec, jnp.arange(len(images)), height=32, width=32)
    params = dataclasses.replace(params, greyed=jnp.ones(len(images), bool))
    views = apply(images, params, spec)

Everything may be traced, and runs inside a training step without work on the host. The
order is that of SimCLR and BYOL: crop, flip, colour jitter, grey, blur, solarise.
"""

from collections.abc import Collection

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from aninfonce_jax.data import colour, filters
from aninfonce_jax.data.augment_params import AugmentParams, neutral_params, sample_params
from aninfonce_jax.data.augment_spec import OPERATIONS, PRESETS, AugmentSpec, preset
from aninfonce_jax.types import Array

__all__ = [
    "OPERATIONS",
    "PRESETS",
    "AugmentParams",
    "AugmentSpec",
    "apply",
    "augment",
    "neutral_params",
    "preset",
    "sample_params",
]


def augment(
    key: Array,
    images: Array,
    spec: AugmentSpec,
    *,
    indices: Array | None = None,
    dtype: DTypeLike = jnp.float32,
) -> tuple[Array, AugmentParams]:
    """Draws parameters for every image and applies them.

    The same key gives the same views, however the batch is split over devices.

    Args:
      key: a random key.
      images: [batch, height, width, 3], uint8, or floating point in [0, 1].
      spec: what to do; static under `jit`.
      indices: number of each sample in the whole batch, [batch]; by default 0, 1, 2, ...
        To be given where a function sees only its device's part of the batch.
      dtype: of the views; the arithmetic is float32 throughout.

    Returns:
      The views, [batch, size, size, 3] in [0, 1], and what was applied to each.

    Raises:
      TypeError, ValueError: as `apply`.
    """
    batch, height, width = _check_images(images)
    if indices is None:
        indices = jnp.arange(batch)
    elif indices.shape != (batch,):
        raise ValueError(f"indices must have one entry per image, {(batch,)}, got {indices.shape}.")
    params = sample_params(key, spec, indices, height=height, width=width)
    return apply(images, params, spec, operations=spec.operations, dtype=dtype), params


def apply(
    images: Array,
    params: AugmentParams,
    spec: AugmentSpec,
    *,
    operations: Collection[str] = OPERATIONS,
    dtype: DTypeLike = jnp.float32,
) -> Array:
    """Applies given parameters, drawn or made up.

    Args:
      images: [batch, height, width, 3], uint8, or floating point in [0, 1].
      params: what to do to each image, [batch] each; boxes must lie within the image.
      spec: gives size, interpolation and threshold; its probabilities and ranges play no
        part. Static under `jit`.
      operations: which parameters are looked at. Leaving out those that apply to no image
        saves their time.
      dtype: of the views; the arithmetic is float32 throughout.

    Returns:
      The views, [batch, size, size, 3] in [0, 1].

    Raises:
      TypeError: images that are neither uint8 nor floating point.
      ValueError: shapes that do not fit, or an unknown operation.
    """
    batch, _, _ = _check_images(images)
    if unknown := sorted(set(operations) - set(OPERATIONS)):
        raise ValueError(f"operations must be of {', '.join(OPERATIONS)}, got {unknown[0]!r}.")
    if params.flipped.shape != (batch,):
        raise ValueError(
            f"params must be of {batch} samples like the images, got {params.flipped.shape}."
        )

    def apply_one(image: Array, own: AugmentParams) -> Array:
        view = _apply_one(image, own.neutralised(), spec, frozenset(operations))
        return view.astype(dtype)

    return jax.vmap(apply_one)(images, params)


def _apply_one(
    image: Array, params: AugmentParams, spec: AugmentSpec, operations: frozenset[str]
) -> Array:
    view = _resize(image, params, spec, operations)
    if {"jitter", "grey"} & operations:
        # Colours are mixed plane by plane, which moves less through an accelerator's memory.
        planes = _recolour(jnp.swapaxes(view, 0, 1), params, operations)
        view = jnp.swapaxes(planes, 0, 1)
    if "blur" in operations:
        weights = filters.blur_matrix(params.sigma, spec.size)
        view = filters.filter_image(view, weights, weights)
    if "solarise" in operations:
        view = jnp.where(params.solarised, colour.solarise(view, spec.threshold), view)
    return jnp.swapaxes(view, 1, 2)


def _recolour(image: Array, params: AugmentParams, operations: frozenset[str]) -> Array:
    """Jitters and greys an image [3, size, size]."""
    if "jitter" in operations:
        image = colour.jitter(
            image,
            params.brightness,
            params.contrast,
            params.saturation,
            params.hue,
            params.order,
        )
    if "grey" in operations:
        image = jnp.where(params.greyed, colour.grey(image)[None], image)
    return image


def _resize(
    image: Array, params: AugmentParams, spec: AugmentSpec, operations: frozenset[str]
) -> Array:
    """Crops and flips an image [height, width, 3]; returns [size, 3, size]."""
    height, width, _ = image.shape
    brightest = 255.0 if image.dtype == jnp.uint8 else 1.0
    planes = jnp.swapaxes(image, 1, 2).astype(jnp.float32)
    if not {"crop", "flip"} & operations and height == width == spec.size:
        return planes / brightest
    whole = jnp.array([0, 0, 1, 1], jnp.float32)
    left, top, right, bottom = params.box if "crop" in operations else whole
    flipped = params.flipped if "flip" in operations else False
    rows, columns = (
        filters.crop_matrix(
            start * length,
            stop * length,
            reverse,
            length=length,
            size=spec.size,
            interpolation=spec.interpolation,
        )
        for start, stop, reverse, length in (
            (top, bottom, False, height),
            (left, right, flipped, width),
        )
    )
    # Scaling the small matrix spares a pass over the image, and leaves uint8 values as they
    # are: bfloat16 holds them exactly.
    view = filters.filter_image(planes, rows / brightest, columns)
    return jnp.clip(view, 0.0, 1.0)


def _check_images(images: Array) -> tuple[int, int, int]:
    """Returns batch size, height and width."""
    if images.ndim != 4 or images.shape[3] != 3:
        raise ValueError(
            f"images must have shape [batch, height, width, 3], got {images.shape}; repeat a "
            "single channel three times."
        )
    if 0 in images.shape:
        raise ValueError(f"images must not be empty, got shape {images.shape}.")
    if images.dtype != jnp.uint8 and not jnp.issubdtype(images.dtype, jnp.floating):
        raise TypeError(
            f"images must be uint8, or floating point in [0, 1], got dtype {images.dtype}; "
            "convert them with astype."
        )
    return images.shape[0], images.shape[1], images.shape[2]
