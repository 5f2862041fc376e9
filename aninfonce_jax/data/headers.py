"""What an image file claims to be, read from its first bytes and checked before decoding.

A file's content decides its format, never its name. Four formats are accepted; each has one
decoder that is told which it is, so that no other code of an imaging library ever sees the
file, nor a program that such a library would start. A header can claim gigabytes of pixels in a
few bytes, and decoders believe it: the claim is held against the size of the file first.
"""

import dataclasses
import struct
import zlib
from collections.abc import Iterator
from typing import Literal

Format = Literal["JPEG", "PNG", "WEBP", "BMP"]

ACCEPTED = "JPEG, PNG, WebP or BMP"

# A file that is larger is not read.
MAX_FILE_BYTES = 2**28 + 2**16

# The most pixels that a byte can stand for.
# JPEG: a block of 64 samples takes one bit at the very least.
# PNG: deflate makes at most 1032 bytes of one. Packed pixels of one bit could be eight times as
#   many; they are not given that, as it would let 21 kB claim 178 megapixels.
# WebP: nothing bounds an even surface; as for PNG.
# BMP: only pixels that are not packed are read, of one bit at the least.
_PIXELS_PER_BYTE: dict[Format, int] = {"JPEG": 512, "PNG": 1032, "WEBP": 1032, "BMP": 8}
# An even surface packs better than that, and up to here it does no harm: 12 MB of pixels.
_HARMLESS_PIXELS = 2**22

# What Pillow keeps of an image: four bytes even of RGB, fewer of grey ones and palettes.
PILLOW_BYTES_PER_PIXEL = 4
# The canvas of an animation, which every WebP is read as, and the one before it; the bytes that
# are handed to Pillow, and what that keeps.
_WEBP_BYTES_PER_PIXEL = 16

_PNG_START = b"\x89PNG\r\n\x1a\n"
# Other formats that people have: a name helps more than "no known format".
_REFUSED = (
    (0, b"GIF8", "GIF"),
    (0, b"II*\0", "TIFF"),
    (0, b"MM\0*", "TIFF"),
    (0, b"II+\0", "TIFF"),
    (0, b"MM\0+", "TIFF"),
    (0, b"%!PS", "EPS"),
    (0, b"\xc5\xd0\xd3\xc6", "EPS"),
    (0, b"%PDF", "PDF"),
    (0, b"8BPS", "Photoshop"),
    (0, b"\0\0\1\0", "icon"),
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"\0\0\0\x0cJXL ", "JPEG XL"),
    (0, b"\xff\x4f\xff\x51", "JPEG 2000"),
    (0, b"\0\0\0\x0cjP  ", "JPEG 2000"),
    (0, b"v/1\1", "OpenEXR"),
    (0, b"<svg", "SVG"),
    (0, b"<?xml", "SVG or XML"),
    (0, b"<!DOCTYPE", "HTML"),
    (0, b"<html", "HTML"),
    (0, b"PK\3\4", "zip"),
    (0, b"\x1f\x8b", "gzip"),
    (4, b"ftypavif", "AVIF"),
    (4, b"ftyphei", "HEIC"),
    (4, b"ftypmif1", "HEIC"),
)


class CorruptImageError(ValueError):
    """The bytes are not a whole, readable image of an accepted format."""


@dataclasses.dataclass(frozen=True)
class Header:
    """What a file claims.

    Attributes:
      format: as Pillow calls it.
      width: of the image, in pixels.
      height: of the image, in pixels.
      plain: whether every reader makes 8-bit RGB or grey of it, with no alpha, palette or CMYK.
      bytes_per_pixel: what its decoder holds of the whole image before it hands out the first
        pixel, at most.
    """

    format: Format
    width: int
    height: int
    plain: bool
    bytes_per_pixel: int


def read_header(data: bytes) -> Header:
    """Returns what an image file claims, if that can be true.

    Args:
      data: the file.

    Raises:
      CorruptImageError: the format is not accepted, the file is not whole, or it claims more
        pixels than its bytes can stand for.
    """
    if not data:
        raise CorruptImageError("not a readable image: the file is empty")
    if len(data) > MAX_FILE_BYTES:
        raise CorruptImageError(
            f"an image file may have {MAX_FILE_BYTES:,} bytes, got {len(data):,}; "
            "save the image again as JPEG or PNG"
        )
    try:
        header = _parse(data)
    except (struct.error, IndexError) as error:
        raise CorruptImageError(
            f"not a readable image: its header ends after {len(data):,} bytes"
        ) from error
    _check_claim(header, len(data))
    return header


def _parse(data: bytes) -> Header:
    if data.startswith(b"\xff\xd8\xff"):
        return _parse_jpeg(data)
    if data.startswith(_PNG_START):
        return _parse_png(data)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _parse_webp(data)
    if data.startswith(b"BM"):
        return _parse_bmp(data)
    for offset, start, name in _REFUSED:
        if data.startswith(start, offset):
            raise CorruptImageError(
                f"{name} is not read, expected {ACCEPTED}; convert the file, such as to PNG"
            )
    raise CorruptImageError(
        f"not a readable image: {len(data):,} bytes in no known format, expected {ACCEPTED}"
    )


def _check_claim(header: Header, size: int) -> None:
    pixels = header.width * header.height
    claim = f"{header.width} x {header.height}"
    if not pixels:
        raise CorruptImageError(f"not a readable image: it claims {claim} pixels")
    # No JPEG is that small; what there is of one that claims to be has lost its data.
    harmless = 0 if header.format == "JPEG" else _HARMLESS_PIXELS
    if pixels > max(harmless, _PIXELS_PER_BYTE[header.format] * size):
        raise CorruptImageError(
            f"not a readable image: {claim} pixels in {size:,} bytes of {header.format} are more "
            f"than {_PIXELS_PER_BYTE[header.format]} a byte; the file is forged or cut"
        )


# --- JPEG ---

_START_OF_SCAN = 0xDA
# The frame headers: all of 0xC0 to 0xCF but tables (C4, CC) and a reserved one (C8).
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SEQUENTIAL = (0xC0, 0xC1)
# EXIF, colour profiles, further images, comments. JFIF (E0) and Adobe's (EE) say how the
# colours are stored.
_METADATA = frozenset(range(0xE1, 0xF0)) - {0xEE} | {0xFE}
# A progressive image has about ten scans. Each passes over all of it, so that many small ones
# would keep a decoder busy for hours.
_MAX_SCANS = 100
# Before the frame header; the largest colour profile takes 255. Bounds the search in a file
# that is all markers.
_MAX_MARKERS = 10_000


def _parse_jpeg(data: bytes) -> Header:
    frame = scan = None
    for code, start, _ in _jpeg_segments(data):
        if code in _FRAMES and frame is None:
            frame = start
        elif code == _START_OF_SCAN:
            scan = start
    if frame is None or scan is None:
        raise CorruptImageError(
            "not a readable image: a JPEG without a header of its frame or scan"
        )
    height, width, components = struct.unpack_from(">HHB", data, frame + 5)
    # If one scan holds everything, libjpeg stops behind it and gives out row after row.
    # Otherwise it keeps all coefficients, of two bytes each, until the last scan is read.
    is_sequential = data[frame + 1] in _SEQUENTIAL and data[scan + 4] >= components
    if not is_sequential:
        # Inside of compressed data 0xFF is always followed by zero, or by a restart marker.
        scans = data.count(b"\xff\xda")
        if scans > _MAX_SCANS:
            raise CorruptImageError(
                f"a JPEG may have {_MAX_SCANS} scans, got {scans:,}; save the image again"
            )
    held = 0 if is_sequential else 2 * components
    return Header("JPEG", width, height, plain=components in (1, 3), bytes_per_pixel=held)


def bare_jpeg(data: bytes) -> bytes:
    """Returns a JPEG with what its pixels are made of: no metadata, no bytes between segments."""
    kept = [data[s:e] for code, s, e in _jpeg_segments(data) if code not in _METADATA]
    return b"".join([data[:2], *kept])


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yields the code, start and end of each segment; the first scan takes all of the rest."""
    place = 2
    for _ in range(_MAX_MARKERS):
        # Stray bytes before a marker do no harm, and more than one 0xFF may begin it.
        place = data.find(b"\xff", place)
        if place < 0 or place + 4 > len(data):
            return
        code = data[place + 1]
        if code == 0xFF or code == 0 or 0xD0 <= code <= 0xD8 or code == 0x01:
            place += 1 if code == 0xFF else 2
            continue
        if code == _START_OF_SCAN:
            yield code, place, len(data)
            return
        if code == 0xD9:
            return
        end = place + 2 + struct.unpack_from(">H", data, place + 2)[0]
        yield code, place, end
        place = end


# --- PNG ---

# All that pixels are made of, transparency being dropped. The others hold text and colour
# profiles, which may be compressed and unpack to anything, or further images.
_PNG_PIXEL_CHUNKS = (b"IHDR", b"PLTE", b"IDAT", b"IEND")


def _parse_png(data: bytes) -> Header:
    kind, start, _ = next(_png_chunks(data), (b"", 0, 0))
    if kind != b"IHDR":
        raise CorruptImageError("not a readable image: a PNG must begin with IHDR")
    width, height, bits, colours = struct.unpack_from(">IIBB", data, start)
    plain = colours == 2 or (colours == 0 and bits == 8)
    return Header("PNG", width, height, plain, PILLOW_BYTES_PER_PIXEL)


def bare_png(data: bytes) -> bytes:
    """Returns a PNG with what its pixels are made of, and nothing else.

    Raises:
      CorruptImageError: a checksum is wrong, or the file has no end.
    """
    parts = [_PNG_START]
    for kind, start, end in _png_chunks(data):
        if zlib.crc32(memoryview(data)[start - 4 : end]) != int.from_bytes(data[end : end + 4]):
            raise CorruptImageError(
                f"not a readable image: the checksum of {kind.decode('latin-1')} at byte "
                f"{start - 8:,} of a PNG is wrong"
            )
        if kind in _PNG_PIXEL_CHUNKS:
            parts.append(data[start - 8 : end + 4])
        if kind == b"IEND":
            return b"".join(parts)
    raise CorruptImageError(f"not a readable image: a PNG that ends after {len(data):,} bytes")


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yields the kind of each chunk, and where its content starts and ends."""
    place = len(_PNG_START)
    while place + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, place)
        if place + 12 + length > len(data):
            return
        yield kind, place + 8, place + 8 + length
        place += 12 + length


# --- WebP and BMP ---

# Plain pixels, with or without masks that say where the colours are. Pillow unpacks runs in
# Python, a byte at a time; hardly anyone writes them.
_BMP_UNPACKED = (0, 3)


def _parse_webp(data: bytes) -> Header:
    if struct.unpack_from("<I", data, 4)[0] + 8 > len(data):
        raise CorruptImageError(f"not a readable image: a WebP that ends after {len(data):,} bytes")
    kind = data[12:16]
    if kind == b"VP8X":
        width = int.from_bytes(data[24:27], "little") + 1
        height = int.from_bytes(data[27:30], "little") + 1
    elif kind == b"VP8L":
        sizes = struct.unpack_from("<I", data, 21)[0]
        width, height = (sizes & 0x3FFF) + 1, (sizes >> 14 & 0x3FFF) + 1
    elif kind == b"VP8 ":
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    else:
        raise CorruptImageError(f"not a readable image: a WebP that begins with {kind!r}")
    return Header("WEBP", width, height, plain=False, bytes_per_pixel=_WEBP_BYTES_PER_PIXEL)


def _parse_bmp(data: bytes) -> Header:
    (header_size,) = struct.unpack_from("<I", data, 14)
    if header_size == 12:  # as OS/2 wrote it
        width, height, _, bits = struct.unpack_from("<HHHH", data, 18)
        compression = 0
    else:
        width, height, _, bits, compression = struct.unpack_from("<iiHHI", data, 18)
    # An image that is stored from its top has a negative height.
    height = abs(height)
    if width < 0:
        raise CorruptImageError(f"not a readable image: a BMP of width {width}")
    if compression not in _BMP_UNPACKED:
        raise CorruptImageError(
            f"packed BMP (compression {compression}) is not read, expected {ACCEPTED}; convert "
            "the file, such as to PNG"
        )
    needed = (width * bits + 31) // 32 * 4 * height
    if needed > len(data):
        raise CorruptImageError(
            f"not a readable image: a BMP of {width} x {height} pixels takes {needed:,} bytes, "
            f"got {len(data):,}"
        )
    return Header("BMP", width, height, plain=False, bytes_per_pixel=PILLOW_BYTES_PER_PIXEL)
