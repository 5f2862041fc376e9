"""Image files, or pixels of any size, to uint8 pixels of one size.

JPEG goes through libjpeg-turbo, which scales while it decodes where the picture is much larger
than wanted; what it cannot do (other formats, CMYK) goes through Pillow. Colours follow
Pillow's `convert`: an alpha channel is dropped, greyscale is repeated.
"""

import dataclasses
import io
from typing import Literal

import cv2
import numpy as np
import simplejpeg  # type: ignore[import-untyped]
from PIL import Image, UnidentifiedImageError

Fit = Literal["crop", "squash"]

# Pillow refuses more than this, as a decompression bomb.
MAX_PIXELS = 178_956_970
# Scaling by less than 2 inside the decoder costs more than it saves: not all factors are
# vectorised. From about here on the smaller picture makes up for it.
_LEAST_SCALING = 1.5
# Up to this ratio two taps of linear interpolation still see almost every pixel.
_LARGEST_LINEAR_RATIO = 1.6
_JPEG_START = b"\xff\xd8"
# Colours that libjpeg-turbo turns into RGB or grey as Pillow would.
_DIRECT_COLOURS = ("YCbCr", "Gray", "RGB")


class CorruptImageError(ValueError):
    """The bytes are not a whole, readable image."""


@dataclasses.dataclass(frozen=True)
class Decoder:
    """Turns an image into uint8 [size, size, channels].

    Attributes:
      size: height and width of the result.
      channels: 3 for RGB, 1 for greyscale.
      fit: "crop" resizes the short side and keeps the centre; "squash" keeps the whole
        picture and gives up its proportions.
    """

    size: int
    channels: int = 3
    fit: Fit = "crop"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size must be at least 1, got {self.size}")
        if self.channels not in (1, 3):
            raise ValueError(f"channels must be 1 or 3, got {self.channels}")
        if self.fit not in ("crop", "squash"):
            raise ValueError(f"fit must be 'crop' or 'squash', got {self.fit!r}")

    def __call__(self, image: np.ndarray | bytes) -> np.ndarray:
        """Returns the pixels.

        Args:
          image: the bytes of a file, or pixels uint8 [height, width, 1 or 3].

        Raises:
          CorruptImageError: the bytes are not a whole, readable image.
        """
        if isinstance(image, bytes):
            pixels = decode(image, channels=self.channels, least_size=self.size)
        else:
            pixels = _with_channels(image, self.channels)
        return _resize(_centre(pixels) if self.fit == "crop" else pixels, self.size)


def decode(data: bytes, channels: int = 3, least_size: int = 0) -> np.ndarray:
    """Returns the pixels of an image file, uint8 [height, width, channels].

    Args:
      data: the file.
      channels: 3 for RGB, 1 for greyscale.
      least_size: the picture may come out smaller than it is, with both sides at least this;
        0 for its own size.

    Raises:
      CorruptImageError: the bytes are not a whole, readable image.
    """
    if data.startswith(_JPEG_START):
        try:
            return _decode_jpeg(data, channels, least_size)
        except ValueError:
            # Also raised for harmless oddities, such as stray bytes between segments; Pillow
            # passes over those but not over missing data.
            pass
    return _decode_with_pillow(data, channels)


def _decode_jpeg(data: bytes, channels: int, least_size: int) -> np.ndarray:
    height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
    _check_size(height, width)
    if colours not in _DIRECT_COLOURS:
        raise ValueError(f"{colours} is left to Pillow")
    # The fast variants of the transform and of upsampling change pixels: not asked for.
    return simplejpeg.decode_jpeg(
        data,
        colorspace="RGB" if channels == 3 else "GRAY",
        min_height=least_size,
        min_width=least_size,
        min_factor=_LEAST_SCALING if least_size else 1,
    )


def _decode_with_pillow(data: bytes, channels: int) -> np.ndarray:
    try:
        with Image.open(io.BytesIO(data)) as image:
            _check_size(image.height, image.width)
            if image.mode.startswith("I"):
                # 16 bits, which `convert` would clip to 255 and not scale.
                return _with_channels(
                    (np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8)[:, :, None],
                    channels,
                )
            pixels = np.asarray(image.convert("RGB" if channels == 3 else "L"))
    except CorruptImageError:
        raise
    except UnidentifiedImageError as error:
        raise CorruptImageError(
            f"not a readable image: {len(data):,} bytes in no known format"
        ) from error
    # Decoders raise what they like: OSError, SyntaxError, struct.error, zlib.error...
    except Exception as error:
        raise CorruptImageError(f"not a readable image: {error}") from error
    return pixels.reshape(*pixels.shape[:2], channels)


def _check_size(height: int, width: int) -> None:
    if height * width > MAX_PIXELS:
        raise CorruptImageError(
            f"an image may have {MAX_PIXELS:,} pixels, got {width} x {height}; resize the file"
        )


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
