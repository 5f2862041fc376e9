import numpy as np
import pytest
from PIL import Image

from aninfonce_jax.report import preview
from aninfonce_jax.sources.source import PairSheet


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3), np.uint8)


def sheet_of(title, **columns):
    captions = ["as it is", "cut out\nand grey"]
    return PairSheet(title, {name: (own, captions[: len(own)]) for name, own in columns.items()})


def read_pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def test_a_sheet_has_a_row_for_each_pair_and_the_same_one_has_the_same_bytes(images, tmp_path):
    path = tmp_path / "new" / "preview.png"
    shown = {"original": images, "view 1": images[::-1], "view 2": images}
    assert preview.write_preview(sheet_of("strong", **shown), path) == path
    first = path.read_bytes()
    assert read_pixels(path).shape == (78 + 2 * 310, 768, 3)
    preview.write_preview(sheet_of("strong", **shown), path)
    assert path.read_bytes() == first
    preview.write_preview(sheet_of("strength 0.5", **shown), path)
    assert path.read_bytes() != first, "the title is on the sheet"
    assert [file.name for file in path.parent.iterdir()] == ["preview.png"]


def test_the_tiles_are_the_images_of_each_column(images, tmp_path):
    one, other = images[:1], images[1:]
    path = tmp_path / "preview.png"
    floats = other / np.float32(255)  # views are floating point
    preview.write_preview(sheet_of("a", **{"original": one, "view 1": floats, "view 2": one}), path)
    page = read_pixels(path)
    columns = [slice(24 + n * 248, 24 + n * 248 + 224) for n in range(3)]
    tiles = [page[78 + 14 : 78 + 224 : 28, place][:, 14::28] for place in columns]
    for tile, expected in zip(tiles, (one, other, one), strict=True):
        np.testing.assert_allclose(tile.astype(int), expected[0], atol=1)


def test_a_failed_write_leaves_the_old_sheet(images, tmp_path, monkeypatch):
    path = tmp_path / "preview.png"
    path.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        preview.write_preview(sheet_of("a", original=images), path)
    assert path.read_text() == "old"
