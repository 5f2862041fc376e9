import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.colors import hsv_to_rgb, rgb_to_hsv
from real_images import made_up_images

from aninfonce_jax.data import colour
from aninfonce_jax.data.augment_spec import JITTER_STEPS

LUMA = np.array([0.299, 0.587, 0.114])
JITTER = jax.jit(colour.jitter)
FACTORS = {"brightness": 1.4, "contrast": 0.6, "saturation": 1.7, "hue": 0.15}


# The references work in float64 on [height, width, 3].
def reference_step(image, name, factor):
    if name == "hue":
        hsv = rgb_to_hsv(image)
        hsv[..., 0] = (hsv[..., 0] + factor) % 1
        return hsv_to_rgb(hsv)
    lightness = (image @ LUMA)[..., None]
    base = {"brightness": 0.0, "contrast": lightness.mean(), "saturation": lightness}[name]
    return np.clip(factor * image + (1 - factor) * base, 0, 1)


def to_planes(image):
    return jnp.asarray(np.moveaxis(image, -1, -3), jnp.float32)


def from_planes(image):
    return np.moveaxis(np.asarray(image), -3, -1)


@pytest.fixture(scope="module")
def image():
    return made_up_images(1, 9, 13)[0] / 255


def test_all_orders_match_one_step_after_the_other(image):
    orders = np.array(list(itertools.permutations(range(4))), np.int32)
    numbers = [jnp.float32(FACTORS[name]) for name in JITTER_STEPS]
    with jax.numpy_dtype_promotion("strict"):
        got = jax.jit(jax.vmap(lambda order: colour.jitter(to_planes(image), *numbers, order)))(
            orders
        )
    for order, views in zip(orders, from_planes(got), strict=True):
        expected = image
        for number in order:
            name = JITTER_STEPS[number]
            expected = reference_step(expected, name, FACTORS[name])
        np.testing.assert_allclose(views, expected, atol=2e-5)
    # The order matters, or the comparison would show nothing.
    assert np.ptp(np.asarray(got), axis=0).max() > 0.1


@pytest.mark.parametrize("name", JITTER_STEPS)
@pytest.mark.parametrize("factor", [0.0, 0.3, 1.0, 1.9])
def test_single_steps(image, name, factor):
    factor = 0.25 * factor if name == "hue" else factor
    neutral = {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0}
    numbers = {key: jnp.float32(value) for key, value in (neutral | {name: factor}).items()}
    got = from_planes(JITTER(to_planes(image), **numbers, order=jnp.arange(4)))
    np.testing.assert_allclose(got, reference_step(image, name, factor), atol=1e-5)


def test_hue_of_every_kind_of_colour():
    levels = np.array([0.0, 1 / 255, 0.5, 254 / 255, 1.0])
    colours = np.array(list(itertools.product(levels, repeat=3)))[None]
    shift = jax.jit(colour.shift_hue)
    for turns in (-0.5, -1 / 6, 0.0, 0.01, 1 / 3, 0.5, 1.0):
        got = from_planes(shift(to_planes(colours), jnp.float32(turns)))
        np.testing.assert_allclose(got, reference_step(colours, "hue", turns), atol=1e-5)


def test_grey_and_solarise(image):
    np.testing.assert_allclose(colour.grey(to_planes(image)), image @ LUMA, atol=1e-6)
    got = from_planes(colour.solarise(to_planes(image), 0.3))
    np.testing.assert_allclose(got, np.where(image < 0.3, image, 1 - image), atol=1e-6)
