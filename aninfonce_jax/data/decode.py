"""Image files, or pixels of any size, to uint8 pixels of one size.

JPEG goes through libjpeg-turbo, which scales while it decodes where the image is much larger
than wanted; PNG, WebP and BMP go through Pillow, which is told which of them it is. Of an
animation the first image is taken. Colours follow Pillow's `convert`: an alpha channel is
dropped, greyscale is repeated, colour profiles are not applied. Neither is the rotation that
cameras note in EXIF: ImageNet's images, and what TFDS makes of them, come without.
"""

import dataclasses
import io
from typing import Literal

import cv2
import numpy as np
import simplejpeg  # type: ignore[import-untyped]
from PIL import Image

from aninfonce_jax.data.headers import (
    MAX_PIXELS,
    CorruptImageError,
    Header,
    bare_jpeg,
    bare_png,
    read_header,
)

Fit = Literal["crop", "squash"]

# Scaling by less than 2 inside the decoder costs more than it saves: not all factors are
# vectorised. From about here on the smaller image makes up for it.
_LEAST_SCALING = 1.5
# Up to this ratio two taps of linear interpolation still see almost every pixel.
_LARGEST_LINEAR_RATIO = 1.6
# Of libjpeg, about bytes that belong to nothing: all pixels are there.
_HARMLESS_WARNING = "extraneous bytes before marker"
# Of simplejpeg, about sampling factors that it has no name for; Pillow needs none.
_UNKNOWN_SAMPLING = "subsampling"


@dataclasses.dataclass(frozen=True)
class Decoder:
    """Turns an image into uint8 [size, size, channels].

    Attributes:
      size: height and width of the result.
      channels: 3 for RGB, 1 for greyscale.
      fit: "crop" resizes the short side and keeps the centre; "squash" keeps the whole
        image and gives up its proportions.
      max_pixels: how many pixels a file may claim to have.
    """

    size: int
    channels: int = 3
    fit: Fit = "crop"
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1, got {self.size}")
        if self.channels not in (1, 3):
            raise ValueError(f"channels must be 1 or 3, got {self.channels}")
        if self.fit not in ("crop", "squash"):
            raise ValueError(f"fit must be 'crop' or 'squash', got {self.fit!r}")
        if self.max_pixels < 1:
            raise ValueError(f"max_pixels must be at least 1, got {self.max_pixels}")

    def __call__(self, image: np.ndarray | bytes) -> np.ndarray:
        """Returns the pixels.

        Args:
          image: the bytes of a file, or pixels uint8 [height, width, 1 or 3].

        Raises:
          CorruptImageError: the bytes are not a whole, readable image.
        """
        if isinstance(image, bytes):
            pixels = decode(image, self.channels, self.size, self.max_pixels)
        else:
            pixels = _with_channels(image, self.channels)
        return _resize(_centre(pixels) if self.fit == "crop" else pixels, self.size)


def decode(
    data: bytes, channels: int = 3, least_size: int = 0, max_pixels: int = MAX_PIXELS
) -> np.ndarray:
    """Returns the pixels of an image file, uint8 [height, width, channels].

    Args:
      data: the file.
      channels: 3 for RGB, 1 for greyscale.
      least_size: the image may come out smaller than it is, with both sides at least this;
        0 for its own size.
      max_pixels: how many pixels the file may claim.

    Raises:
      CorruptImageError: the bytes are not a whole, readable image of an accepted format, or
        claim more than is allowed.
    """
    header = read_header(data, max_pixels)
    if header.format == "JPEG":
        return _decode_jpeg(data, header, channels, least_size)
    return _decode_with_pillow(bare_png(data) if header.format == "PNG" else data, header, channels)


def _decode_jpeg(data: bytes, header: Header, channels: int, least_size: int) -> np.ndarray:
    """Decodes strictly: where data is missing, libjpeg would make up grey and go on."""
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
            return _decode_with_pillow(bare_jpeg(data), header, channels)
        raise CorruptImageError(f"not a readable image: {error}") from error
    if pixels.shape[2] == 4:
        height, width = pixels.shape[:2]
        # Stored as ink that is missing.
        ink = Image.frombytes("CMYK", (width, height), np.bitwise_not(pixels).tobytes())
        return _as_array(ink, channels)
    return pixels


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


def _decode_with_pillow(data: bytes, header: Header, channels: int) -> np.ndarray:
    try:
        with Image.open(io.BytesIO(data), formats=(header.format,)) as image:
            _check_same_size(header, *image.size)
            if image.mode.startswith("I"):
                # 16 bits, which `convert` would clip to 255 and not scale.
                return _with_channels(
                    (np.asarray(image) >> 8).astype(np.uint8)[:, :, None], channels
                )
            return _as_array(image, channels)
    except (CorruptImageError, MemoryError):
        raise
    # Decoders raise what they like: OSError, SyntaxError, struct.error, zlib.error...
    except Exception as error:
        raise CorruptImageError(f"not a readable image: {error}") from error


def _check_same_size(header: Header, width: int, height: int) -> None:
    """Refuses a file that shows its decoder another size than the one that was checked."""
    if (width, height) != (header.width, header.height):
        raise CorruptImageError(
            f"not a readable image: it claims {header.width} x {header.height} pixels and also "
            f"{width} x {height}"
        )


def _as_array(image: Image.Image, channels: int) -> np.ndarray:
    mode = "RGB" if channels == 3 else "L"
    # To the mode that it has already, `convert` would make a copy.
    pixels = np.asarray(image if image.mode == mode else image.convert(mode))
    return pixels.reshape(*pixels.shape[:2], channels)


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
