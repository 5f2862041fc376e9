"""A sheet of sample pairs, of sources that make their images themselves."""

import base64
import io

import numpy as np
from PIL import Image

from aninfonce_jax import rng
from aninfonce_jax.evaluation.findings import Findings
from aninfonce_jax.scores import registry
from aninfonce_jax.sources.source import Source
from aninfonce_jax.types import Weights

# Pairs in a row of the sheet, and rows.
_PAIRS, _ROWS = 12, 3
# Pixels between images.
_GAP = 2


class Samples:
    """A sheet of pairs, each anchor over its positive; the same for every run of a source.

    Args:
      source: what the pairs are drawn from.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._sheet: str | None = None

    def __call__(self, weights: Weights, *, full: bool) -> Findings:
        """Returns the sheet as an entry of the scores, if `full` and if there are any images."""
        del weights
        if not full:
            return Findings()
        if self._sheet is None:
            views = self._source.samples(rng.stream(0, "samples"), _PAIRS * _ROWS)
            self._sheet = "" if views is None else base64.b64encode(as_png(views)).decode()
        return Findings({registry.SAMPLES: self._sheet} if self._sheet else {})


def as_png(views: np.ndarray) -> bytes:
    """Returns a sheet of pairs as a PNG.

    Args:
      views: [n, 2, height, width, 1 or 3], from 0 to 1; n is a multiple of what fits in a row.
    """
    count, _, height, width, channels = views.shape
    rows = count // _PAIRS
    pixels = np.round(255 * np.clip(views, 0, 1)).astype(np.uint8)
    sheet = np.full(
        (rows * (2 * height + 2 * _GAP) - _GAP, _PAIRS * (width + _GAP) - _GAP, channels),
        255,
        np.uint8,
    )
    for number, pair in enumerate(pixels):
        row, column = divmod(number, _PAIRS)
        top, left = row * (2 * height + 2 * _GAP), column * (width + _GAP)
        # The two of a pair touch each other.
        sheet[top : top + 2 * height, left : left + width] = pair.reshape(-1, width, channels)
    buffer = io.BytesIO()
    Image.fromarray(sheet[..., 0] if channels == 1 else sheet).save(buffer, "PNG")
    return buffer.getvalue()
