import contextlib
import io
import struct
import tarfile
import zlib

import numpy as np
import pytest
from image_files import encode, random_image, real
from PIL import Image

from aninfonce_jax.data.decode import Decoder, decode
from aninfonce_jax.data.headers import CorruptImageError


def with_pillow(data, mode="RGB"):
    return np.asarray(Image.open(io.BytesIO(data)).convert(mode))


def reference(data, size):
    """Short side to `size`, antialiased, and the centre of it."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    return np.asarray(image.resize((size, size), Image.Resampling.BICUBIC, box=box))


def peak_ratio(a, b):
    """Returns the peak signal-to-noise ratio in decibels."""
    error = np.mean((a.astype(float) - b.astype(float)) ** 2)
    return 10 * np.log10(255**2 / error)


@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_jpeg_has_the_pixels_that_pillow_gives(subsampling):
    data = encode(random_image(37, 51), subsampling=subsampling)
    np.testing.assert_array_equal(decode(data), with_pillow(data))
    assert decode(data).dtype == np.uint8


@pytest.mark.parametrize(
    ("data", "mode"),
    [
        (encode(random_image(20, 30, channels=1)), "grey JPEG"),
        (encode(random_image(20, 30), mode="CMYK"), "CMYK JPEG"),
        (encode(random_image(20, 30), progressive=True), "progressive JPEG"),
        (encode(random_image(20, 30), "PNG"), "PNG"),
        (encode(random_image(20, 30), "PNG", mode="RGBA"), "alpha"),
        (encode(random_image(20, 30), "PNG", mode="LA"), "grey with alpha"),
        (encode(random_image(20, 30), "PNG", mode="P"), "palette"),
        (encode(random_image(20, 30), "PNG", mode="1"), "one bit"),
        (encode(random_image(20, 30), "WEBP"), "WebP"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_kind_of_image_becomes_rgb_or_grey(data, mode):
    np.testing.assert_array_equal(decode(data), with_pillow(data))
    assert decode(data, channels=1).shape == (20, 30, 1)
    assert Decoder(16)(data).shape == (16, 16, 3)
    assert Decoder(16, channels=1)(data).shape == (16, 16, 1)


def test_sixteen_bits_are_scaled_not_clipped():
    deep = np.arange(400, dtype=np.uint16).reshape(20, 20) * 160
    buffer = io.BytesIO()
    Image.fromarray(deep).save(buffer, "PNG")
    np.testing.assert_array_equal(decode(buffer.getvalue())[:, :, 1], deep >> 8)


@pytest.mark.parametrize("shape", [(1, 1), (1, 999), (999, 1), (3, 2000), (1500, 3000)])
@pytest.mark.parametrize("fit", ["crop", "squash"])
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_sizes_from_one_pixel_to_millions(shape, fit, kind):
    data = encode(np.broadcast_to(np.uint8([10, 100, 200]), (*shape, 3)).copy(), kind)
    pixels = Decoder(24, fit=fit)(data)
    assert pixels.shape == (24, 24, 3)
    assert np.ptp(pixels, axis=(0, 1)).max() <= 2
    np.testing.assert_allclose(pixels[0, 0], [10, 100, 200], atol=4)


def test_a_huge_jpeg_is_scaled_while_it_is_decoded():
    data = encode(random_image(1600, 2400))
    assert decode(data, least_size=100).shape[0] < 300
    assert decode(data).shape == (1600, 2400, 3)


def png_header(width, height):
    """A file that claims a size and has no pixels."""

    def chunk(kind, content):
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize("width", [40_000, 2_000_000])
def test_a_bomb_is_refused(width):
    with pytest.raises(CorruptImageError):
        Decoder(24)(png_header(width, 40_000))


@pytest.mark.parametrize("data", [b"", b"\xff\xd8", b"\xff\xd8\xff\xe0", b"hello", bytes(1000)])
def test_what_is_no_image_is_refused(data):
    with pytest.raises(CorruptImageError, match="not a readable image"):
        Decoder(24)(data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("size", [8, 64])
def test_a_truncated_file_is_refused_wherever_it_ends(kind, size):
    data = encode(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8), kind)
    decoder = Decoder(size)
    # No pixel depends on the last bytes of a PNG, checksums and a trailer.
    last = len(data) - (24 if kind == "PNG" else 2)
    for end in [*range(0, last, 41), last]:
        with pytest.raises(CorruptImageError):
            decoder(data[:end])


def test_flipped_bytes_either_decode_or_are_refused():
    data = encode(random_image(64, 64))
    rng = np.random.default_rng(0)
    for _ in range(200):
        broken = bytearray(data)
        broken[rng.integers(2, len(data))] = rng.integers(256)
        with contextlib.suppress(CorruptImageError):
            assert Decoder(32)(bytes(broken)).shape == (32, 32, 3)


def test_stray_bytes_do_no_harm():
    data = encode(random_image(32, 32))
    middle = data.index(b"\xff\xdb")
    for odd in (data + b"trailing", data[:middle] + b"\x00\x00" + data[middle:]):
        np.testing.assert_array_equal(decode(odd), decode(data))


@pytest.mark.parametrize(("height", "width"), [(40, 52), (100, 60), (300, 400), (33, 33), (20, 20)])
def test_a_smooth_image_resizes_as_pillow_does(height, width):
    data = encode(random_image(height, width), "PNG")
    assert peak_ratio(Decoder(32)(data), reference(data, 32)) > 35


def test_fine_detail_is_averaged_and_not_skipped():
    stripes = np.zeros((600, 600, 3), np.uint8)
    stripes[:, ::2] = 255
    for data in (encode(stripes), encode(stripes, "PNG")):
        for fit in ("crop", "squash"):
            assert np.abs(Decoder(100, fit=fit)(data).astype(int) - 127).max() < 12


def test_squash_keeps_what_crop_cuts_off():
    wide = np.zeros((40, 120, 3), np.uint8)
    wide[:, :40] = 255
    assert Decoder(40)(wide).max() == 0
    squashed = Decoder(40, fit="squash")(wide)
    assert squashed[:, :12].min() == 255
    assert squashed[:, 15:].max() == 0


def test_pixels_pass_unchanged_at_their_own_size():
    pixels = random_image(28, 28)
    np.testing.assert_array_equal(Decoder(28)(pixels), pixels)
    grey = random_image(28, 28, channels=1)
    np.testing.assert_array_equal(Decoder(28)(grey), np.repeat(grey, 3, axis=2))
    expected = np.asarray(Image.fromarray(pixels).convert("L"))
    np.testing.assert_array_equal(Decoder(28, channels=1)(pixels)[:, :, 0], expected)
    # A view with its axes swapped, as the reader of CIFAR-10 gives.
    view = np.ascontiguousarray(pixels.transpose(2, 0, 1)).transpose(1, 2, 0)
    np.testing.assert_array_equal(Decoder(14)(view), Decoder(14)(pixels))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Decoder(0), "size must be at least 1, got 0"),
        (lambda: Decoder(8, channels=2), "channels must be 1 or 3, got 2"),
        (lambda: Decoder(8, fit="stretch"), "fit must be 'crop' or 'squash', got 'stretch'"),
        (lambda: Decoder(8)(np.zeros((8, 8, 3))), r"must be uint8 .*, got float64 \[8, 8, 3\]"),
        (lambda: Decoder(8)(np.zeros((8, 8), np.uint8)), r"got uint8 \[8, 8\]"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_real_photographs_resize_as_pillow_does():
    with tarfile.open(real("imagenette224_subset.tar")) as archive:
        members = [m for m in archive.getmembers() if m.isfile()][::125]
        files = [archive.extractfile(member).read() for member in members]
    assert len(files) == 20
    # Sizes that take the linear path, scaling in the decoder, and averaging.
    for size, least in ((160, 30), (128, 28), (100, 27), (32, 25)):
        ratios = [peak_ratio(Decoder(size)(data), reference(data, size)) for data in files]
        assert np.mean(ratios) > least + 5, size
        assert min(ratios) > least, size
