import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from matplotlib.colors import hsv_to_rgb, rgb_to_hsv
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from real_images import cifar_images, imagenet_images, made_up_images

from aninfonce_jax.data.augment import (
    PRESETS,
    AugmentSpec,
    apply,
    augment,
    neutral_params,
    sample_params,
)

LEVEL = 1 / 255
# One shape for most tests, which then share what is compiled.
BATCH = 16, 20, 24
EVERYTHING = AugmentSpec(
    size=20,
    crop_probability=0.8,
    flip_probability=0.5,
    jitter_probability=0.8,
    grey_probability=0.3,
    blur_probability=0.5,
    solarise_probability=0.3,
)
IMAGES = {
    "cifar": cifar_images,
    "imagenet": imagenet_images,
    "made up": lambda: made_up_images(3, 40, 29),
}
jit_augment = jax.jit(augment, static_argnames=("spec", "dtype"))
jit_apply = jax.jit(apply, static_argnames=("spec", "operations", "dtype"))


@pytest.fixture(params=IMAGES)
def images(request):
    return IMAGES[request.param]()


def forced(images, size=None, interpolation="bilinear", **changes):
    """Applies one operation to all images; by default without a change of size."""
    count, height, width, _ = images.shape
    full = jax.tree.map(lambda value: jnp.broadcast_to(value, (count, *np.shape(value))), changes)
    params = dataclasses.replace(neutral_params(count), **full)
    spec = AugmentSpec(size=size or max(height, width), interpolation=interpolation)
    return np.asarray(jit_apply(images, params, spec))


def by_pillow(images, operation):
    """Applies a function of Pillow images; the results are in [0, 1]."""
    return np.stack([np.asarray(operation(Image.fromarray(x)), np.float32) for x in images]) / 255


def square(images):
    return images if images.shape[1] == images.shape[2] else images[:, :29, :29]


# Pillow rounds to grey levels, after every step, and sometimes cuts off instead. What follows
# allows for that and no more; test_filters and test_colour compare without rounding.


@pytest.mark.parametrize(("interpolation", "size"), [("bilinear", 24), ("bicubic", 96)])
def test_crop_and_flip_as_pillow(images, size, interpolation):
    # Less contrast, because Pillow also clips between its two passes, and bicubic weights
    # overshoot.
    images = images // 2 + 64
    height, width = images.shape[1:3]
    shares = np.float32([0.11, 0.23, 0.81, 0.77])
    box = tuple(np.float64(shares) * [width, height, width, height])
    resampling = Image.Resampling[interpolation.upper()]
    expected = by_pillow(images, lambda x: x.resize((size, size), resampling, box=box))
    got = forced(images, size, interpolation, cropped=True, box=shares)
    # Half a level after each of two passes, the first of which the second amplifies.
    assert np.abs(got - expected).max() < 1.25 * LEVEL
    assert np.abs(got - expected).mean() < 0.35 * LEVEL
    flipped = forced(images, size, interpolation, cropped=True, box=shares, flipped=True)
    np.testing.assert_allclose(flipped, got[:, :, ::-1], atol=1e-6)


@pytest.mark.parametrize(
    ("name", "enhance"),
    [
        ("brightness", ImageEnhance.Brightness),
        ("contrast", ImageEnhance.Contrast),
        ("saturation", ImageEnhance.Color),
    ],
)
@pytest.mark.parametrize("factor", [0.35, 1.6])
def test_colour_steps_as_pillow(images, name, enhance, factor):
    images = square(images)
    expected = by_pillow(images, lambda x: enhance(x).enhance(factor))
    got = forced(images, jittered=True, **{name: jnp.float32(factor)})
    # The result is cut off, up to a level; the grey version is rounded, half a level.
    assert np.abs(got - expected).max() < (1.01 + 0.5 * abs(1 - factor)) * LEVEL


def test_grey_and_solarise_as_pillow(images):
    images = square(images)
    expected = by_pillow(images, lambda x: x.convert("L").convert("RGB"))
    assert np.abs(forced(images, greyed=True) - expected).max() < 0.51 * LEVEL
    expected = by_pillow(images, ImageOps.solarize)
    np.testing.assert_allclose(forced(images, solarised=True), expected, atol=1e-6)


def test_blur_as_pillow(images):
    images = square(images)
    expected = by_pillow(images, lambda x: x.filter(ImageFilter.GaussianBlur(1.5)))
    got = forced(images, blurred=True, sigma=jnp.float32(1.5))
    # Pillow approximates the Gaussian by three boxes, and repeats the border's pixels.
    inner = np.s_[:, 6:-6, 6:-6]
    assert np.abs(got - expected)[inner].max() < 6 * LEVEL
    assert np.abs(got - expected)[inner].mean() < 0.8 * LEVEL
    assert np.abs(got - images / 255)[inner].mean() > 2 * LEVEL


@pytest.mark.parametrize("turns", [-0.2, 0.07])
def test_hue_as_matplotlib(images, turns):
    """Pillow's own HSV has 256 hues; Matplotlib's, in NumPy's float64, is not rounded."""
    images = square(images)
    hsv = rgb_to_hsv(images / 255)
    hsv[..., 0] = (hsv[..., 0] + turns) % 1
    got = forced(images, jittered=True, hue=jnp.float32(turns))
    np.testing.assert_allclose(got, hsv_to_rgb(hsv), atol=1e-5)


def test_hue_of_images_turns_back(images):
    images = square(images)
    there = forced(images, jittered=True, hue=jnp.float32(0.13))
    assert np.abs(there - images / 255).mean() > 2 * LEVEL
    back = forced(there, jittered=True, hue=jnp.float32(-0.13))
    np.testing.assert_allclose(back, images / 255, atol=1e-4)
    # Value and chroma of the HSV model stay.
    np.testing.assert_allclose(there.max(-1), images.max(-1) / 255, atol=1e-6)
    np.testing.assert_allclose(there.min(-1), images.min(-1) / 255, atol=1e-6)


def test_augment_applies_the_parameters_it_returns():
    images = made_up_images(*BATCH)
    with jax.numpy_dtype_promotion("strict"):
        views, params = jit_augment(jax.random.key(0), images, EVERYTHING)
        again, _ = jit_augment(jax.random.key(0), images, EVERYTHING)
        other, _ = jit_augment(jax.random.key(1), images, EVERYTHING)
    chex.assert_shape(views, (16, 20, 20, 3))
    assert views.dtype == jnp.float32
    assert float(views.min()) >= 0
    assert float(views.max()) <= 1
    chex.assert_trees_all_equal(views, again)
    assert float(jnp.abs(views - other).mean()) > 0.05
    chex.assert_trees_all_close(jit_apply(images, params, EVERYTHING), views, atol=1e-6)
    # Probabilities play no part in applying.
    chex.assert_trees_all_close(jit_apply(images, params, AugmentSpec(size=20)), views, atol=1e-6)
    draw = jax.jit(sample_params, static_argnames=("spec", "height", "width"))
    drawn = draw(jax.random.key(0), EVERYTHING, jnp.arange(16), height=20, width=24)
    chex.assert_trees_all_close(params, drawn, atol=1e-6)


def test_a_number_without_its_flag_has_no_effect():
    images = made_up_images(4, 20, 20)
    params = dataclasses.replace(
        neutral_params(4),
        box=jnp.full((4, 4), 0.5),
        brightness=jnp.zeros(4),
        hue=jnp.full(4, 0.4),
        sigma=jnp.full(4, 5.0),
    )
    np.testing.assert_allclose(jit_apply(images, params, EVERYTHING), images / 255, atol=1e-5)


def test_uint8_and_float_images_give_the_same_views():
    images = made_up_images(*BATCH)
    key = jax.random.key(2)
    views, params = jit_augment(key, images, EVERYTHING)
    from_float, same = jit_augment(key, np.float32(images / 255), EVERYTHING)
    chex.assert_trees_all_equal(params, same)
    # Solarising is a jump: a pixel at the threshold may fall on either side.
    near = np.abs(np.asarray(views) - 0.5) < 1e-4
    assert near.mean() < 0.01
    np.testing.assert_allclose(np.where(near, 0, views), np.where(near, 0, from_float), atol=1e-5)


def test_bfloat16_views_are_the_float32_views_rounded():
    images = made_up_images(*BATCH)
    key = jax.random.key(3)
    views, params = jit_augment(key, images, EVERYTHING)
    rounded, same = jit_augment(key, images, EVERYTHING, dtype=jnp.bfloat16)
    assert rounded.dtype == jnp.bfloat16
    chex.assert_trees_all_equal(params, same)
    np.testing.assert_allclose(rounded.astype(jnp.float32), views, rtol=2**-8, atol=1e-6)
    # Images in bfloat16 lose up to 2⁻⁹ before the augmentation, and nothing within it. A
    # jitter may triple that, and the jump of solarising would hide it.
    smooth = dataclasses.replace(params, solarised=jnp.zeros(len(images), bool))
    coarse = jit_apply(jnp.asarray(images / 255, jnp.bfloat16), smooth, EVERYTHING)
    error = jnp.abs(coarse - jit_apply(images, smooth, EVERYTHING))
    assert float(error.max()) < 8 * 2**-9
    assert float(error.mean()) < 2**-9


@pytest.mark.parametrize("shape", [(1, 1), (1, 7)], ids=str)
def test_very_small_and_oblong_images(shape):
    images = made_up_images(32, *shape)
    spec = dataclasses.replace(EVERYTHING, size=8)
    views, params = jit_augment(jax.random.key(4), images, spec)
    chex.assert_shape(views, (32, 8, 8, 3))
    chex.assert_tree_all_finite((views, params))
    assert float(jnp.ptp(views)) > 0.5
    if shape == (1, 1):
        assert float(jnp.ptp(views, axis=(1, 2)).max()) < 1e-5


def test_a_view_of_one_pixel():
    images = made_up_images(4, 9, 2)
    views, _ = jit_augment(jax.random.key(5), images, dataclasses.replace(EVERYTHING, size=1))
    chex.assert_shape(views, (4, 1, 1, 3))
    chex.assert_tree_all_finite(views)


def test_presets():
    images = made_up_images(6, 32, 32)
    key = jax.random.key(6)
    for name in ("simclr_cifar", "crop_only", "jitter_only", "none"):
        # All operations or only those that can occur: the same views.
        views, params = jit_augment(key, images, PRESETS[name])
        rebuilt = jit_apply(images, params, AugmentSpec(size=32))
        np.testing.assert_allclose(rebuilt, views, atol=1e-5)
    np.testing.assert_allclose(views, images / np.float32(255), atol=1e-7)


def on_devices(devices, function, images, **options):
    mesh = jax.make_mesh(
        (devices,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:devices]
    )
    rows = NamedSharding(mesh, PartitionSpec("data"))
    compiled = (
        jax.jit(function, out_shardings=rows, **options)
        .lower(jax.device_put(images, rows))
        .compile()
    )
    outputs = compiled(jax.device_put(images, rows))
    assert len(outputs[0].sharding.device_set) == devices
    return jax.tree.map(np.asarray, outputs), compiled.as_text()


def test_same_key_gives_the_same_views_on_any_number_of_devices():
    images = made_up_images(*BATCH)
    function = functools.partial(augment, jax.random.key(7), spec=EVERYTHING)
    one, _ = on_devices(1, function, images)
    eight, program = on_devices(8, function, images)
    chex.assert_trees_all_equal(one[1], eight[1])
    chex.assert_trees_all_close(one[0], eight[0], atol=1e-5)
    # Each device works on its own part: nothing is sent between them.
    for collective in ("all-gather", "all-reduce", "all-to-all", "collective-permute"):
        assert collective not in program


def test_a_mapped_function_that_is_told_the_indices_gives_the_same_views():
    images = made_up_images(*BATCH)
    key = jax.random.key(7)
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    split = PartitionSpec("data")

    def per_device(part, indices):
        return augment(key, part, EVERYTHING, indices=indices)

    mapped = jax.jit(jax.shard_map(per_device, mesh=mesh, in_specs=split, out_specs=split))
    chex.assert_trees_all_close(
        mapped(images, jnp.arange(16)), jit_augment(key, images, EVERYTHING), atol=1e-5
    )


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (
            np.zeros((2, 8, 8), np.uint8),
            ValueError,
            r"\[batch, height, width, 3\], got \(2, 8, 8\)",
        ),
        (np.zeros((2, 8, 8, 1), np.uint8), ValueError, "repeat a single channel three times"),
        (np.zeros((0, 8, 8, 3), np.uint8), ValueError, "must not be empty, got shape"),
        (np.zeros((2, 8, 8, 3), np.int32), TypeError, "uint8, or floating .* got dtype int32"),
    ],
)
def test_images_that_can_not_be_augmented(images, error, message):
    with pytest.raises(error, match=message) as caught:
        augment(jax.random.key(0), images, EVERYTHING)
    assert "\n" not in str(caught.value)


def test_arguments_that_do_not_fit():
    images = made_up_images(2, 8, 8)
    with pytest.raises(ValueError, match=r"one entry per image, \(2,\), got \(3,\)"):
        augment(jax.random.key(0), images, EVERYTHING, indices=jnp.arange(3))
    with pytest.raises(ValueError, match=r"of 2 samples like the images, got \(3,\)"):
        apply(images, neutral_params(3), EVERYTHING)
    with pytest.raises(ValueError, match=r"must be of crop, flip, .* got 'gray'"):
        apply(images, neutral_params(2), EVERYTHING, operations=("gray",))
