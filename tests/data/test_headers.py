import struct
import threading
import warnings

import numpy as np
import pytest
from hostile_images import (
    forge,
    forge_jpeg,
    png_bomb,
    png_chunk,
    refused_files,
    sound_images,
    text_bomb,
    with_png_chunk,
)
from image_files import encode, random_image
from memory_limit import memory_limit

from aninfonce_jax.data import headers
from aninfonce_jax.data.decode import Allowance, Decoder, bytes_needed, decode
from aninfonce_jax.data.headers import CorruptImageError, bare_jpeg, read_header

SOUND = sound_images()
MEGABYTES = 2**20
PLAIN = {kind for kind in SOUND if kind.startswith("JPEG")} - {"JPEG, CMYK"}
PLAIN |= {"PNG", "PNG, text and profile", "PNG, animated"}


@pytest.mark.parametrize("kind", SOUND)
def test_a_header_says_what_the_file_is(kind):
    header = read_header(SOUND[kind])
    assert (header.height, header.width) == (40, 48)
    assert header.format == kind.partition(",")[0].upper()
    assert header.plain == (kind in PLAIN)


@pytest.mark.parametrize("kind", refused_files())
def test_what_is_not_read_is_named_with_what_is(kind):
    data, message = refused_files()[kind]
    with pytest.raises(CorruptImageError, match=message):
        read_header(data)


# Each claims, or unpacks to, hundreds of megabytes at least.
BOMBS = {
    "one bit a pixel": lambda: png_bomb(13_370, 13_370),
    "16 bits a channel": lambda: forge(png_bomb(8, 8, 16, 6), 8_000, 8_000),
    "of a possible size": lambda: png_bomb(8_000, 8_000),
    "a PNG that is only a header": lambda: forge(png_bomb(8, 8, 8, 2, size=5), 8_000, 8_000),
    "a JPEG": lambda: forge_jpeg(encode(random_image(40, 40)), 13_000, 13_000),
    "a JPEG of a possible size": lambda: forge_jpeg(encode(random_image(40, 40)), 8_000, 8_000),
    "a progressive JPEG": lambda: forge_jpeg(
        encode(random_image(40, 40), progressive=True), 8_000, 8_000
    ),
    "a CMYK JPEG": lambda: forge_jpeg(encode(random_image(40, 40), mode="CMYK"), 8_000, 8_000),
    "a BMP": lambda: struct.pack("<2sIHHIIiiHHI", b"BM", 0, 0, 0, 54, 40, 8_000, 8_000, 1, 1, 0),
    "a BMP of runs": lambda: struct.pack(
        "<2sIHHIIiiHHIIiiII", b"BM", 0, 0, 0, 54, 40, 8_000, -8_000, 1, 8, 1, 0, 0, 0, 0, 0
    ),
    "a WebP": lambda: forge(SOUND["WebP, lossless"], 8_000, 8_000),
    "a WebP with a canvas": lambda: forge(SOUND["WebP, animated"], 8_000, 8_000),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_is_refused_before_memory_is_taken(kind):
    data = BOMBS[kind]()
    assert len(data) < 110_000
    with memory_limit(8 * MEGABYTES), pytest.raises(CorruptImageError):
        Decoder(32)(data)


def test_a_bomb_says_what_it_claims():
    with pytest.raises(CorruptImageError, match=r"13370 x 13370 pixels in [\d,]+ bytes of PNG"):
        decode(png_bomb(13_370, 13_370))
    with pytest.raises(
        CorruptImageError, match=r"8000 x 8000 pixels in [\d,]+ bytes of PNG are more than 1032 a"
    ):
        decode(png_bomb(8_000, 8_000))


@pytest.mark.parametrize("kind", [b"zTXt", b"iTXt", b"iCCP"])
def test_text_that_unpacks_to_megabytes_is_left_packed(kind):
    data = encode(random_image(40, 48), "PNG")
    bomb = with_png_chunk(data, kind, text_bomb(kind))
    assert len(bomb) < 100_000
    with memory_limit(16 * MEGABYTES):
        np.testing.assert_array_equal(decode(bomb), decode(data))


def test_large_even_images_are_no_bombs():
    for data in (
        png_bomb(2_000, 2_000),
        png_bomb(2_100, 2_100, bits=8, colours=2),
        encode(np.zeros((2_100, 2_100, 3), np.uint8)),
        encode(np.zeros((2_100, 2_100, 3), np.uint8), progressive=True),
        encode(np.zeros((2_100, 2_100, 1), np.uint8), progressive=True, quality=1),
        encode(np.zeros((2_000, 2_000, 3), np.uint8), "WEBP", method=0),
    ):
        assert Decoder(24)(data).max() <= 1


# A decoder holds different things of each.
LARGE = {
    "JPEG": lambda pixels: encode(pixels),
    "JPEG, progressive": lambda pixels: encode(pixels, progressive=True, subsampling=0),
    "JPEG, CMYK": lambda pixels: encode(pixels, mode="CMYK"),
    "JPEG, CMYK, progressive": lambda pixels: encode(pixels, mode="CMYK", progressive=True),
    "PNG": lambda pixels: encode(pixels, "PNG", compress_level=1),
    "PNG, alpha": lambda pixels: encode(pixels, "PNG", mode="RGBA", compress_level=1),
    "PNG, palette": lambda pixels: encode(pixels, "PNG", mode="P", compress_level=1),
    "PNG, 16 bits": lambda pixels: png_bomb(pixels.shape[1], pixels.shape[0], 16, 6),
    "WebP": lambda pixels: encode(pixels, "WEBP", method=0),
    "WebP, lossless": lambda pixels: encode(pixels, "WEBP", method=0, quality=0, lossless=True),
    "BMP": lambda pixels: encode(pixels, "BMP"),
}


@pytest.mark.parametrize("kind", LARGE)
def test_decoding_takes_no_more_memory_than_is_foreseen(kind):
    height, width = 1_800, 2_200
    data = LARGE[kind](random_image(height, width))
    for least_size in (0, 32, 500):
        foreseen = len(data) + bytes_needed(read_header(data), least_size)
        with memory_limit(foreseen):
            pixels = decode(data, least_size=least_size)
        assert min(pixels.shape[:2]) >= (least_size or height)


def test_an_image_that_takes_more_than_is_allowed_is_refused():
    data = encode(random_image(1_800, 2_200), "PNG", compress_level=1)
    assert Decoder(32, decode_mib=50)(data).shape == (32, 32, 3)
    with pytest.raises(
        CorruptImageError,
        match=r"decoding 2200 x 1800 pixels of PNG takes up to \d\d MiB, more than 30; resize the "
        r"file, or raise decode_mib",
    ):
        Decoder(32, decode_mib=30)(data)
    with pytest.raises(ValueError, match="decode_mib must be at least 1, got 0"):
        Decoder(8, decode_mib=0)


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "colours"), [(8, 2), (8, 6), (16, 6), (8, 0)])
def test_an_even_image_of_64_megapixels_fits_into_the_allowance(bits, colours):
    data = png_bomb(8_000, 8_000, bits, colours)
    with memory_limit(300 * MEGABYTES):
        assert Decoder(224)(data).shape == (224, 224, 3)


@pytest.mark.slow
def test_a_photograph_of_108_megapixels_is_scaled_as_it_is_read():
    data = encode(np.zeros((9_000, 12_000, 3), np.uint8))
    with memory_limit(64 * MEGABYTES):
        assert Decoder(224)(data).shape == (224, 224, 3)


def test_threads_share_one_allowance():
    allowance, begun, entered = Allowance(), threading.Event(), threading.Event()

    def second():
        begun.set()
        with allowance.take(2, 3):
            entered.set()

    thread = threading.Thread(target=second)
    with allowance.take(2, 3):
        thread.start()
        begun.wait()
        assert not entered.wait(0.1)
        with allowance.take(1, 3):
            pass
    thread.join(60)
    assert entered.is_set()
    with allowance.take(100, 3):  # alone
        pass


def test_a_file_that_is_too_large_is_refused(monkeypatch):
    monkeypatch.setattr(headers, "MAX_FILE_BYTES", 100)
    with pytest.raises(CorruptImageError, match=r"an image file may have 100 bytes, got"):
        read_header(encode(random_image(40, 48)))


def test_a_jpeg_with_endless_scans_or_markers_is_refused():
    data = encode(random_image(40, 48), progressive=True)
    scan = data[data.index(b"\xff\xda") : -2]
    with pytest.raises(CorruptImageError, match="a JPEG may have 100 scans, got"):
        decode(data[:-2] + scan * 100 + data[-2:])
    with pytest.raises(CorruptImageError, match="without a header of its frame"):
        decode(b"\xff\xd8" + b"\xff" * 50_000 + data[2:])


@pytest.mark.parametrize("size", [(41, 48), (40, 64), (80, 96), (640, 640)])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"mode": "CMYK"}])
def test_pixels_are_not_made_up_where_a_jpeg_has_none(size, options):
    noise = np.random.default_rng(0).integers(0, 256, (40, 48, 3), np.uint8)
    forged = forge_jpeg(encode(noise, subsampling=0, **options), size[1], size[0])
    with pytest.raises(CorruptImageError, match="not a readable image"):
        decode(forged)


def test_only_pixels_of_a_jpeg_are_kept():
    data = SOUND["JPEG, colour profile"]
    assert len(bare_jpeg(data)) < len(data) - 70_000
    np.testing.assert_array_equal(decode(bare_jpeg(data)), decode(data))


def test_an_image_is_taken_as_it_is_stored():
    upright, rotated = SOUND["JPEG"], SOUND["JPEG, rotated by EXIF"]
    np.testing.assert_array_equal(decode(rotated), decode(upright))


@pytest.mark.parametrize("kind", ["PNG, animated", "WebP, animated"])
def test_of_an_animation_the_first_image_is_taken(kind):
    first = random_image(40, 48, seed=0).astype(int)
    assert np.abs(decode(SOUND[kind]).astype(int) - first).mean() < 6


def test_a_palette_with_alpha_is_read_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pixels = decode(SOUND["PNG, palette with alpha"])
    assert np.abs(pixels.astype(int) - random_image(40, 48)).mean() < 15


def test_two_headers_in_one_file_do_not_get_past_the_check():
    data = encode(random_image(40, 48), "PNG")
    second = png_chunk(b"IHDR", struct.pack(">IIBBBBB", 8_000, 8_000, 8, 2, 0, 0, 0))
    with memory_limit(8 * MEGABYTES), pytest.raises(CorruptImageError):
        decode(data[:33] + second + data[33:])


@pytest.mark.parametrize("shape", [(1, 1), (1, 100_000), (100_000, 1), (2, 70_000)])
@pytest.mark.parametrize("fit", ["crop", "squash"])
def test_thin_images(shape, fit):
    data = encode(np.full((*shape, 3), 77, np.uint8), "PNG")
    np.testing.assert_array_equal(Decoder(16, fit=fit)(data), 77)
