import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from aninfonce_jax.data import augment
from aninfonce_jax.report import preview


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).integers(0, 256, (3, 12, 16, 3), np.uint8)


def read_pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def one_sample(**changes):
    values = {name: jnp.asarray([value]) for name, value in changes.items()}
    return dataclasses.replace(augment.neutral_params(1), **values)


def test_each_operation_is_said_in_words_and_in_the_order_of_application():
    params = one_sample(
        cropped=True, box=[0.0, 0.25, 0.5, 1.0], flipped=True, jittered=True, brightness=1.32,
        contrast=0.7, saturation=1.1, hue=-0.071, greyed=True, blurred=True, sigma=0.5,
        solarised=True,
    )  # fmt: skip
    (words,) = preview.describe_params(params, aspect=1.5)
    assert words == [
        "crop 38%, aspect 1.00",
        "flipped",
        "brightness ×1.32",
        "contrast ×0.70",
        "saturation ×1.10",
        "hue −0.07 turns",
        "grey",
        "blur σ 0.50 px",
        "solarised",
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"brightness": 1.5, "sigma": 2.0, "box": [0.0, 0.0, 0.5, 0.5]}, []),
        ({"jittered": True, "hue": 0.07}, ["hue +0.07 turns"]),
        ({"greyed": True}, ["grey"]),
    ],
)
def test_only_what_was_applied_is_said(changes, words):
    assert preview.describe_params(one_sample(**changes), aspect=1.0) == [words]


def test_a_sheet_is_made_of_the_first_images_and_the_same_key_gives_the_same_bytes(
    images, tmp_path
):
    key, spec = jax.random.key(0), augment.preset("simclr_cifar", size=8)
    path = tmp_path / "new" / "preview.png"
    assert preview.write_preview(images, key, spec, path, title="strong", pairs=2) == path
    first = path.read_bytes()
    assert read_pixels(path).shape == (78 + 2 * 310, 768, 3)
    preview.write_preview(images[:2], key, spec, path, title="strong")
    assert path.read_bytes() == first
    preview.write_preview(images[:2], key, spec, path, title="strength 0.5")
    assert path.read_bytes() != first, "the title is on the sheet"
    assert [file.name for file in path.parent.iterdir()] == ["preview.png"]


def test_the_tiles_are_the_image_and_two_views_of_it(images, tmp_path):
    """Without augmentation all three are the picture; with it the views differ."""
    square = images[:1, :8, :8]
    columns = [slice(24 + n * 248, 24 + n * 248 + 224) for n in range(3)]
    sheets = {}
    for name, spec in {
        "none": augment.AugmentSpec(size=8),
        "crop": augment.preset("crop_only", size=8, scale=(0.2, 0.4)),
    }.items():
        path = tmp_path / f"{name}.png"
        preview.write_preview(square, jax.random.key(1), spec, path, title=name)
        sheet = read_pixels(path)
        sheets[name] = [sheet[78 + 14 : 78 + 224 : 28, place][:, 14::28] for place in columns]
    for tile in sheets["none"]:
        np.testing.assert_allclose(tile.astype(int), square[0], atol=1)
    original, view1, view2 = sheets["crop"]
    np.testing.assert_array_equal(original, square[0])
    assert (view1 != original).any()
    assert (view1 != view2).any()


def test_a_failed_write_leaves_the_old_sheet(images, tmp_path, monkeypatch):
    path = tmp_path / "preview.png"
    path.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        preview.write_preview(
            images[:1], jax.random.key(0), augment.AugmentSpec(size=8), path, title="a"
        )
    assert path.read_text() == "old"


def test_what_cannot_be_shown_is_refused(images, tmp_path):
    key, spec, path = jax.random.key(0), augment.AugmentSpec(size=8), tmp_path / "a.png"
    with pytest.raises(TypeError, match=r"must be uint8, got dtype float64\.$"):
        preview.write_preview(images / 255, key, spec, path, title="a")
    for bad in (images[:0], images[0], images[..., :1]):
        with pytest.raises(ValueError, match=r"must be \[n, height, width, 3\], n > 0, got \("):
            preview.write_preview(bad, key, spec, path, title="a")
    with pytest.raises(ValueError, match=r"pairs must be at least 1, got 0\.$"):
        preview.write_preview(images, key, spec, path, title="a", pairs=0)
    assert not path.exists()
