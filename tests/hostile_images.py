"""Image files of every kind, and what may have happened to them: made up, and always the same."""

import io
import itertools
import struct
import zlib

import numpy as np
from image_files import encode, random_image
from PIL import Image, PngImagePlugin

SIZE = (40, 48)  # height and width of the images
PNG_START = b"\x89PNG\r\n\x1a\n"


def png_chunk(kind, content):
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def png_bomb(width, height, bits=1, colours=0, size=None):
    """A PNG of even pixels, packed as tightly as deflate can; `size` cuts the packed pixels."""
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colours]
    packer = zlib.compressobj(9)
    row = bytes(1 + (width * bits * channels + 7) // 8)
    many = max(1, min(height, 2**20 // len(row)))
    parts = [packer.compress(row * many) for _ in range(height // many)]
    parts += [packer.compress(row * (height % many)), packer.flush()]
    header = struct.pack(">IIBBBBB", width, height, bits, colours, 0, 0, 0)
    return b"".join(
        [
            PNG_START,
            png_chunk(b"IHDR", header),
            png_chunk(b"IDAT", b"".join(parts)[:size]),
            png_chunk(b"IEND", b""),
        ]
    )


def with_png_chunk(data, kind, content):
    """Puts a chunk behind the header of a PNG."""
    return data[:33] + png_chunk(kind, content) + data[33:]


def text_bomb(kind, megabytes=32):
    """The content of a chunk whose text or profile unpacks to many megabytes."""
    packed = zlib.compress(bytes(megabytes * 2**20), 9)
    return {
        b"zTXt": b"Comment\0\0" + packed,
        b"iTXt": b"Comment\0\1\0\0\0" + packed,
        b"iCCP": b"profile\0\0" + packed,
    }[kind]


def forge_jpeg(data, width, height):
    """Makes a JPEG claim another size."""
    place = next(data.index(start) for start in (b"\xff\xc0", b"\xff\xc2") if start in data)
    return data[: place + 5] + struct.pack(">HH", height, width) + data[place + 9 :]


def forge(data, width, height):
    """Makes a file claim another size, its checksum included."""
    if data.startswith(b"\xff\xd8"):
        return forge_jpeg(data, width & 0xFFFF, height & 0xFFFF)
    if data.startswith(PNG_START):
        header = struct.pack(">II", width & 0x7FFFFFFF, height & 0x7FFFFFFF) + data[24:29]
        return PNG_START + png_chunk(b"IHDR", header) + data[33:]
    if data.startswith(b"BM"):
        sizes = struct.pack("<ii", width & 0x7FFFFFFF, height & 0x7FFFFFFF)
        return data[:18] + sizes + data[26:]
    if data[12:16] == b"VP8X":
        sides = [((side - 1) & 0xFFFFFF).to_bytes(3, "little") for side in (width, height)]
        return data[:24] + b"".join(sides) + data[30:]
    if data[12:16] == b"VP8L":
        sizes = struct.unpack("<I", data[21:25])[0] >> 28 << 28
        sizes |= (width - 1 & 0x3FFF) | (height - 1 & 0x3FFF) << 14
        return data[:21] + struct.pack("<I", sizes) + data[25:]
    return data[:26] + struct.pack("<HH", width & 0x3FFF, height & 0x3FFF) + data[30:]


def _animated(kind, **options):
    frames = [Image.fromarray(random_image(*SIZE, seed=seed)) for seed in range(3)]
    buffer = io.BytesIO()
    frames[0].save(buffer, kind, save_all=True, append_images=frames[1:], **options)
    return buffer.getvalue()


def _deep_png():
    deep = random_image(*SIZE, channels=1)[:, :, 0].astype(np.uint16) * 257
    buffer = io.BytesIO()
    Image.fromarray(deep).save(buffer, "PNG")
    return buffer.getvalue()


def _transparent_palette():
    image = Image.fromarray(random_image(*SIZE)).quantize(64)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", transparency=bytes(range(64)))
    return buffer.getvalue()


def _rotated():
    exif = Image.Exif()
    exif[0x0112] = 6
    return encode(random_image(*SIZE), exif=exif)


def _with_text():
    info = PngImagePlugin.PngInfo()
    info.add_text("Comment", "a comment " * 100, zip=True)
    return encode(random_image(*SIZE), "PNG", pnginfo=info, icc_profile=bytes(500))


def _run_length_bmp():
    """Eight bits a pixel, each row one run."""
    height, width = SIZE
    palette = bytes(range(256)) * 4
    runs = b"".join(bytes([width, row, 0, 0]) for row in range(height)) + b"\0\1"
    start = 54 + len(palette)
    header = struct.pack("<2sIHHI", b"BM", start + len(runs), 0, 0, start)
    header += struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8, 1, len(runs), 0, 0, 256, 0)
    return header + palette + runs


def sound_images():
    """Returns {what it is: an image that is to be read}."""
    pixels = random_image(*SIZE)
    return {
        "JPEG": encode(pixels),
        "JPEG, progressive": encode(pixels, progressive=True),
        "JPEG, grey": encode(random_image(*SIZE, channels=1)),
        "JPEG, CMYK": encode(pixels, mode="CMYK"),
        "JPEG, restart markers": encode(pixels, restart_marker_blocks=2),
        "JPEG, rotated by EXIF": _rotated(),
        "JPEG, colour profile": encode(pixels, icc_profile=bytes(70_000)),
        "PNG": encode(pixels, "PNG"),
        "PNG, alpha": encode(pixels, "PNG", mode="RGBA"),
        "PNG, grey with alpha": encode(pixels, "PNG", mode="LA"),
        "PNG, palette": encode(pixels, "PNG", mode="P"),
        "PNG, palette with alpha": _transparent_palette(),
        "PNG, 16 bits": _deep_png(),
        "PNG, one bit": encode(pixels, "PNG", mode="1"),
        "PNG, text and profile": _with_text(),
        "PNG, animated": _animated("PNG"),
        "WebP": encode(pixels, "WEBP"),
        "WebP, lossless": encode(pixels, "WEBP", lossless=True),
        "WebP, alpha": encode(pixels, "WEBP", mode="RGBA", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0"),
        "WebP, animated": _animated("WEBP"),
        "BMP": encode(pixels, "BMP"),
        "BMP, palette": encode(pixels, "BMP", mode="P"),
        "BMP, one bit": encode(pixels, "BMP", mode="1"),
    }


def refused_files():
    """Returns {what it is: (a file that is not to be read, what is to be said of it)}."""
    pixels = random_image(*SIZE)
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 48 40\n%%EndComments\nshowpage\n"
    return {
        "GIF": (encode(pixels, "GIF"), "GIF is not read"),
        "GIF, animated": (_animated("GIF"), "GIF is not read"),
        "TIFF": (encode(pixels, "TIFF"), "TIFF is not read"),
        "TIFF, other end first": (b"MM\0*\0\0\0\x08\0\0", "TIFF is not read"),
        "EPS": (postscript, "EPS is not read"),
        "EPS, with a preview": (b"\xc5\xd0\xd3\xc6" + bytes(26) + postscript, "EPS is not read"),
        "PDF": (encode(pixels, "PDF"), "PDF is not read"),
        "PPM": (encode(pixels, "PPM"), "no known format"),
        "BMP, run lengths": (_run_length_bmp(), r"packed BMP \(compression 1\) is not read"),
        "ICO": (encode(pixels, "ICO"), "icon is not read"),
        "JPEG 2000": (encode(pixels, "JPEG2000"), "JPEG 2000 is not read"),
        "AVIF": (b"\0\0\0\x1cftypavif" + bytes(50), "AVIF is not read"),
        "HEIC": (b"\0\0\0\x1cftypheic" + bytes(50), "HEIC is not read"),
        "SVG": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG is not read"),
        "a web page": (b"<!DOCTYPE html><title>404</title>", "HTML is not read"),
        "an archive": (b"PK\3\4" + bytes(50), "zip is not read"),
        "text": (b"no image\n", "no known format"),
        "zeros": (bytes(5_000), "no known format"),
        "nothing": (b"", "the file is empty"),
    }


FORGED_SIZES = [
    *itertools.product((0, 1, 47, 49, 65_500), (0, 41, 65_535)),
    *((16_000, 16_000), (2**20, 2**10), (2**31 - 1, 2**31 - 1), (8_000, 8_000), (2_048, 2_048)),
]


def damaged_versions(data, rng, cuts, flips):
    """Yields what was done to an image, and what came of it."""
    for end in np.unique(np.linspace(0, len(data) - 1, cuts).astype(int)):
        yield f"cut to {end} bytes", data[:end]
        yield f"zeros from {end}", data[:end] + bytes(len(data) - end)
    for place in rng.integers(0, len(data), flips).tolist():
        bit = int(rng.integers(8))
        flipped = bytearray(data)
        flipped[place] ^= 1 << bit
        yield f"bit {bit} of byte {place} flipped", bytes(flipped)
    # Where formats keep what they claim.
    for place in rng.integers(0, min(len(data), 64), flips).tolist():
        value = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF]))
        yield f"byte {place} is {value}", data[:place] + bytes([value]) + data[place + 1 :]
    for width, height in FORGED_SIZES:
        yield f"claims {width} x {height}", forge(data, width, height)
    noise = rng.bytes(200)
    half = len(data) // 2
    yield "noise behind it", data + noise
    yield "noise before it", noise + data
    yield "noise within it", data[:half] + noise + data[half:]
    yield "a part left out", data[: half - 20] + data[half + 20 :]
    yield "twice", data + data
    yield "backwards", data[::-1]
