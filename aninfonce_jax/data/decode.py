"""Image files, or pixels of any size, to uint8 pixels of one size.

JPEG goes through libjpeg-turbo, which scales while it decodes where the image is much larger
than wanted; PNG, WebP and BMP go through Pillow, which is told which of them it is. An
animation gives its first image. Colours follow Pillow's `convert`: an alpha channel is
dropped, greyscale is repeated, colour profiles are not applied. Neither is the rotation that
cameras note in EXIF: ImageNet's images, and what TFDS makes of them, come without.

How much memory that takes follows from the header and the size that is wanted. It is known before
any is taken, and all threads of a process share one allowance.
"""

import contextlib
import dataclasses
import io
import threading
from collections.abc import Callable, Iterator
from typing import Literal

import cv2
import numpy as np
import simplejpeg  # type: ignore[import-untyped]
from PIL import BmpImagePlugin, Image, ImageFile, JpegImagePlugin, PngImagePlugin, WebPImagePlugin

from aninfonce_jax.data.headers import (
    PILLOW_BYTES_PER_PIXEL,
    CorruptImageError,
    Header,
    bare_jpeg,
    bare_png,
    read_header,
)

Fit = Literal["crop", "squash"]

# A sequential JPEG of any size, a PNG of 134 megapixels, a WebP of 29.
DECODE_MIB = 512
MIB = 2**20
# Bytes of a decoded pixel: in RGB, and in a JPEG's four colours of ink, of which RGB is made.
_RGB_BYTES = 3
_INK_BYTES = 4
# Bytes that any claimed pixel counts for: one that takes no memory still takes time.
_LEAST_BYTES = 1
# What Pillow converts at once, and what a pixel of it takes.
_BAND_PIXELS = 2**20
_BAND_BYTES = 16

# Scaling by less than 2 inside the decoder costs more than it saves: not all factors are
# vectorised. From about here on the smaller image makes up for it.
_LEAST_SCALING = 1.5
# Up to this ratio two taps of linear interpolation still see almost every pixel.
_LARGEST_LINEAR_RATIO = 1.6
# A warning of libjpeg about bytes that belong to nothing: all pixels are there.
_HARMLESS_WARNING = "extraneous bytes before marker"
# An error of simplejpeg about sampling factors that it has no name for; Pillow needs none.
_UNKNOWN_SAMPLING = "subsampling"


@dataclasses.dataclass(frozen=True)
class Decoder:
    """Turns an image into uint8 [size, size, channels].

    Attributes:
      size: height and width of the result.
      channels: 3 for RGB, 1 for greyscale.
      fit: "crop" resizes the short side and keeps the centre; "squash" keeps the whole
        image and gives up its proportions.
      decode_mib: memory, in MiB, that the images may take which a process decodes at once, in
        however many threads. One that would take more by itself is refused.
    """

    size: int
    channels: int = 3
    fit: Fit = "crop"
    decode_mib: int = DECODE_MIB

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1, got {self.size}")
        if self.channels not in (1, 3):
            raise ValueError(f"channels must be 1 or 3, got {self.channels}")
        if self.fit not in ("crop", "squash"):
            raise ValueError(f"fit must be 'crop' or 'squash', got {self.fit!r}")
        if self.decode_mib < 1:
            raise ValueError(f"decode_mib must be at least 1, got {self.decode_mib}")

    def __call__(self, image: np.ndarray | bytes) -> np.ndarray:
        """Returns the pixels.

        Args:
          image: the bytes of a file, or pixels uint8 [height, width, 1 or 3].

        Raises:
          CorruptImageError: the bytes are not a whole, readable image.
        """
        if isinstance(image, bytes):
            pixels = decode(image, self.channels, self.size, self.decode_mib)
        else:
            pixels = _with_channels(image, self.channels)
        return _resize(_centre(pixels) if self.fit == "crop" else pixels, self.size)


def decode(
    data: bytes, channels: int = 3, least_size: int = 0, decode_mib: int = DECODE_MIB
) -> np.ndarray:
    """Returns the pixels of an image file, uint8 [height, width, channels].

    Args:
      data: the file.
      channels: 3 for RGB, 1 for greyscale.
      least_size: the image may come out smaller than it is, with both sides at least this;
        0 for its own size.
      decode_mib: memory that decoding may take in this process, in MiB; waits for other threads
        until there is enough of it.

    Raises:
      CorruptImageError: the bytes are not a whole, readable image of an accepted format, or
        decoding them would take more memory than is allowed.
    """
    header = read_header(data)
    if header.format == "JPEG":
        with _memory_for(data, header, least_size, decode_mib):
            pixels = _decode_jpeg(data, header, channels, least_size)
        if pixels is not None:
            return pixels
        data = bare_jpeg(data)
        held = header.bytes_per_pixel + PILLOW_BYTES_PER_PIXEL
        header = dataclasses.replace(header, bytes_per_pixel=held)
    with _memory_for(data, header, least_size, decode_mib):
        data = bare_png(data) if header.format == "PNG" else data
        return _decode_with_pillow(data, header, channels, least_size)


# --- Memory ---


class Allowance:
    """Bytes that the threads of a process take and give back."""

    def __init__(self) -> None:
        self._taken = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def take(self, needed: int, limit: int) -> Iterator[None]:
        """Waits until others leave enough of the limit; for more than that, until all are done."""
        needed = min(needed, limit)
        with self._changed:
            self._changed.wait_for(lambda: self._taken + needed <= limit)
            self._taken += needed
        try:
            yield
        finally:
            with self._changed:
                self._taken -= needed
                self._changed.notify_all()


# The memory of all images that this process works on.
allowance = Allowance()


def _memory_for(
    data: bytes, header: Header, least_size: int, decode_mib: int
) -> contextlib.AbstractContextManager[None]:
    """Returns the time in which an image may be decoded, or refuses it."""
    needed = len(data) + bytes_needed(header, least_size)
    if needed > decode_mib * MIB:
        raise CorruptImageError(
            f"decoding {header.width} x {header.height} pixels of {header.format} takes up to "
            f"{-(-needed // MIB):,} MiB, more than {decode_mib:,}; resize the file, or raise "
            "decode_mib"
        )
    return allowance.take(needed, decode_mib * MIB)


def bytes_needed(header: Header, least_size: int) -> int:
    """Returns what decoding takes at most, besides the file itself."""
    pixels = header.width * header.height
    short = min(header.width, header.height)
    if header.format == "JPEG":
        # Scaled by eighths, down to one, but not by a little.
        scale = least_size / short + 1 / 8 if least_size else 1.0
        scale = 1.0 if scale * _LEAST_SCALING > 1 else scale
        given = pixels * scale**2 * (_INK_BYTES + _RGB_BYTES)
    else:
        given = pixels / _shrinking(short, least_size) ** 2 * _RGB_BYTES
    given += min(pixels, _BAND_PIXELS) * _BAND_BYTES
    return int(max(pixels * header.bytes_per_pixel + given, pixels * _LEAST_BYTES))


def _shrinking(short_side: int, least_size: int) -> int:
    """Returns by how much Pillow shrinks an image; OpenCV does the rest, from twice the size on."""
    return max(1, short_side // (2 * least_size)) if least_size else 1


# --- JPEG ---


def _decode_jpeg(data: bytes, header: Header, channels: int, least_size: int) -> np.ndarray | None:
    """Decodes strictly: where data is missing, libjpeg would make up grey and go on.

    Returns None for sampling factors that simplejpeg has no name for.
    """
    try:
        try:
            pixels = _call_libjpeg(data, header, channels, least_size, strict=True)
        except ValueError as error:
            if _HARMLESS_WARNING not in str(error):
                raise
            pixels = _decode_with_stray_bytes(data, header, channels, least_size)
    except CorruptImageError:
        raise
    except ValueError as error:
        if _UNKNOWN_SAMPLING in str(error):
            return None
        raise CorruptImageError(f"not a readable image: {error}") from error
    if pixels.shape[2] < 4:
        return pixels
    height, width = pixels.shape[:2]

    def read_band(top: int, bottom: int) -> Image.Image:
        # Stored as ink that is missing.
        ink = np.bitwise_not(pixels[top:bottom])
        return Image.frombytes("CMYK", (width, bottom - top), ink.tobytes())

    return _convert(read_band, height, width, channels)


def _decode_with_stray_bytes(
    data: bytes, header: Header, channels: int, least_size: int
) -> np.ndarray:
    # Those between segments can be left out. What remains is behind the pixels.
    data = bare_jpeg(data)
    try:
        return _call_libjpeg(data, header, channels, least_size, strict=True)
    except ValueError as error:
        if _HARMLESS_WARNING not in str(error):
            raise
    return _call_libjpeg(data, header, channels, least_size, strict=False)


def _call_libjpeg(
    data: bytes, header: Header, channels: int, least_size: int, *, strict: bool
) -> np.ndarray:
    """Returns pixels of as many channels, or of four where these are CMYK."""
    height, width, stored, _ = simplejpeg.decode_jpeg_header(data)
    _check_same_size(header, width, height)
    colours = "RGB" if channels == 3 else "GRAY"
    if stored in ("CMYK", "YCCK"):
        colours = "CMYK"
    # The fast variants of the transform and of upsampling change pixels: not asked for.
    return simplejpeg.decode_jpeg(
        data,
        colorspace=colours,
        min_height=least_size,
        min_width=least_size,
        min_factor=_LEAST_SCALING if least_size else 1,
        strict=strict,
    )


# --- What Pillow decodes ---

# Called by themselves: `Image.open` has a limit of its own, for all of a process.
_READERS: dict[str, type[ImageFile.ImageFile]] = {
    "JPEG": JpegImagePlugin.JpegImageFile,
    "PNG": PngImagePlugin.PngImageFile,
    "WEBP": WebPImagePlugin.WebPImageFile,
    "BMP": BmpImagePlugin.BmpImageFile,
}


def _decode_with_pillow(data: bytes, header: Header, channels: int, least_size: int) -> np.ndarray:
    try:
        with _READERS[header.format](io.BytesIO(data)) as image:
            _check_same_size(header, *image.size)
            image.load()
            width, height = image.size

            def read_band(top: int, bottom: int) -> Image.Image:
                band = image.crop((0, top, width, bottom))
                if not band.mode.startswith("I"):
                    return band
                # 16 bits, which `convert` would clip to 255 and not scale.
                return Image.fromarray((np.asarray(band) >> 8).astype(np.uint8))

            factor = _shrinking(min(height, width), least_size)
            return _convert(read_band, height, width, channels, factor)
    except (CorruptImageError, MemoryError):
        raise
    # Decoders raise what they like: OSError, SyntaxError, struct.error, zlib.error...
    except Exception as error:
        raise CorruptImageError(f"not a readable image: {error}") from error


def _convert(
    read_band: Callable[[int, int], Image.Image],
    height: int,
    width: int,
    channels: int,
    factor: int = 1,
) -> np.ndarray:
    """Returns RGB or grey, shrunk by a whole factor; a band at a time, for the memory's sake.

    Args:
      read_band: returns the rows from one to before another.
      height: of the image.
      width: of the image.
      channels: 3 for RGB, 1 for greyscale.
      factor: how many pixels along each side become one, their mean.
    """
    shape = (-(-height // factor), -(-width // factor), channels)
    pixels = np.empty(shape, np.uint8)
    rows = factor * max(1, _BAND_PIXELS // (width * factor))
    for top in range(0, height, rows):
        band = read_band(top, min(top + rows, height)).convert("RGB" if channels == 3 else "L")
        band = band.reduce(factor) if factor > 1 else band
        first = top // factor
        pixels[first : first + band.height] = np.asarray(band).reshape(-1, *shape[1:])
    return pixels


def _check_same_size(header: Header, width: int, height: int) -> None:
    """Refuses a file that shows its decoder another size than the one that was checked."""
    if (width, height) != (header.width, header.height):
        raise CorruptImageError(
            f"not a readable image: it claims {header.width} x {header.height} pixels and also "
            f"{width} x {height}"
        )


# --- Pixels ---


def _with_channels(pixels: np.ndarray, channels: int) -> np.ndarray:
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in (1, 3):
        raise ValueError(
            f"pixels must be uint8 [height, width, 1 or 3], got {pixels.dtype} {list(pixels.shape)}"
        )
    if pixels.shape[2] == channels:
        return pixels
    if channels == 3:
        return np.repeat(pixels, 3, axis=2)
    return np.asarray(Image.fromarray(np.ascontiguousarray(pixels)).convert("L"))[:, :, None]


def _centre(pixels: np.ndarray) -> np.ndarray:
    height, width = pixels.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return pixels[top : top + side, left : left + side]


def _resize(pixels: np.ndarray, size: int) -> np.ndarray:
    """Resizes to a square; never skips pixels, as bare interpolation does when it shrinks much."""
    height, width, channels = pixels.shape
    # OpenCV averages areas only if neither side grows, hence first what shrinks.
    for new_height, new_width in ((min(height, size), min(width, size)), (size, size)):
        if pixels.shape[:2] == (new_height, new_width):
            continue
        ratio = max(height / new_height, width / new_width)
        how = cv2.INTER_LINEAR if ratio <= _LARGEST_LINEAR_RATIO else cv2.INTER_AREA
        # The reader of an MNIST image gives a view, which OpenCV refuses.
        pixels = cv2.resize(
            np.ascontiguousarray(pixels), (new_width, new_height), interpolation=how
        )
        height, width = new_height, new_width
    return pixels.reshape(size, size, channels)
