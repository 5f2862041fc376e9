import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from real_images import made_up_images
from scipy.ndimage import gaussian_filter1d

from aninfonce_jax.data.filters import blur_matrix, crop_matrix, filter_image

RESAMPLING = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
# Left, top, right, bottom in pixels, image height and width, view size.
CROPS = {
    "smaller": ((3.0, 5.0, 40.0, 29.0), (48, 64), 10),
    "larger": ((1.0, 2.0, 9.0, 8.0), (12, 16), 24),
    "fractions": ((2.3, 0.7, 11.9, 10.2), (12, 16), 7),
    "borders": ((0.0, 0.0, 16.0, 12.0), (12, 16), 9),
    "within a pixel": ((3.2, 3.4, 3.9, 3.8), (8, 8), 5),
    "one pixel": ((0.0, 0.0, 1.0, 1.0), (1, 1), 4),
    "to one pixel": ((0.5, 0.0, 6.0, 5.0), (5, 7), 1),
    "a line": ((0.0, 0.0, 9.0, 1.0), (1, 9), 6),
}


@functools.partial(jax.jit, static_argnames=("size", "interpolation"))
def crop(image, box, *, size, interpolation, reverse=False):
    height, _, width = image.shape
    rows = crop_matrix(box[1], box[3], False, length=height, size=size, interpolation=interpolation)
    columns = crop_matrix(
        box[0], box[2], reverse, length=width, size=size, interpolation=interpolation
    )
    return filter_image(image, rows, columns)


@pytest.mark.parametrize("interpolation", RESAMPLING)
@pytest.mark.parametrize("case", CROPS)
def test_crops_are_those_of_pillow(case, interpolation):
    box, (height, width), size = CROPS[case]
    image = made_up_images(1, height, width)[0].astype(np.float32) / 255
    # Pillow resizes single float planes without rounding to grey levels.
    expected = np.stack(
        [
            np.asarray(
                Image.fromarray(np.ascontiguousarray(image[:, :, channel])).resize(
                    (size, size), RESAMPLING[interpolation], box=box
                )
            )
            for channel in range(3)
        ],
        axis=1,
    )
    planes = image.swapaxes(1, 2)
    got = crop(planes, jnp.array(box), size=size, interpolation=interpolation)
    np.testing.assert_allclose(got, expected, atol=1e-5)
    mirrored = crop(planes, jnp.array(box), size=size, interpolation=interpolation, reverse=True)
    np.testing.assert_allclose(mirrored, expected[:, :, ::-1], atol=1e-5)


def test_the_whole_image_at_its_own_size_is_itself():
    for interpolation in RESAMPLING:
        matrix = crop_matrix(
            jnp.float32(0), jnp.float32(17), False, length=17, size=17, interpolation=interpolation
        )
        np.testing.assert_array_equal(matrix, np.eye(17, dtype=np.float32))


@pytest.mark.parametrize("sigma", [0.1, 2.0, 30.0])
@pytest.mark.parametrize("size", [1, 2, 40])
def test_the_blur_is_a_gaussian_of_the_pixels_that_exist(sigma, size):
    pixels = np.eye(size)
    # Zeros outside, then divided by what the weights inside add up to. SciPy's kernel is cut
    # off far out, where nothing is left of it.
    blur = functools.partial(
        gaussian_filter1d, sigma=sigma, axis=0, mode="constant", radius=size + int(8 * sigma)
    )
    expected = blur(pixels) / blur(np.ones((size, 1)))
    np.testing.assert_allclose(blur_matrix(jnp.float32(sigma), size), expected, atol=1e-6)


def test_no_blur_is_the_identity():
    np.testing.assert_array_equal(blur_matrix(jnp.float32(0), 12), np.eye(12, dtype=np.float32))


def test_rows_and_columns_have_their_own_matrix():
    rng = np.random.default_rng(0)
    image, rows, columns = (
        rng.normal(size=shape).astype(np.float32) for shape in ((4, 3, 6), (5, 4), (7, 6))
    )
    expected = np.stack([rows @ image[:, c] @ columns.T for c in range(3)], axis=1)
    np.testing.assert_allclose(filter_image(image, rows, columns), expected, atol=1e-5)
