"""A contact sheet of pairs: what the network will be shown, before it is trained."""

import io
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from aninfonce_jax.files import write_bytes
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.report.figures import COLORS

_DPI = 100
# In pixels. A tile is a whole multiple of the usual 32, and 224 as it is.
_TILE = 224
_GAP = 24
_WORDS_HEIGHT = 86
_HEADER = 78


class PairSheet(Protocol):
    """Pairs to look at, as a source gives them."""

    @property
    def title(self) -> str:
        """What the pairs are."""
        ...

    @property
    def columns(self) -> Mapping[str, tuple[np.ndarray, Sequence[str]]]:
        """Heading -> one image [height, width, 3] for each pair, and a caption each."""
        ...


def write_preview(sheet: PairSheet, path: AnyPath) -> AnyPath:
    """Writes pairs with their captions as a PNG; its folder is made if need be.

    Returns:
      The path.
    """
    headings = list(sheet.columns)
    tiles = [list(images) for images, _ in sheet.columns.values()]
    words = [captions for _, captions in sheet.columns.values()]
    drawn = _draw_sheet(headings, tiles, words, sheet.title)
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi=_DPI, metadata={"Software": None})
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_bytes(path, buffer.getvalue())


def _draw_sheet(
    headings: Sequence[str],
    tiles: Sequence[Sequence[np.ndarray]],
    words: Sequence[Sequence[str]],
    title: str,
) -> Figure:
    """Draws a column per entry of `tiles`, with its words beneath each tile."""
    rows, columns = len(tiles[0]), len(tiles)
    width = _GAP + columns * (_TILE + _GAP)
    height = _HEADER + rows * (_TILE + _WORDS_HEIGHT)
    with matplotlib.rc_context({"font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"]}):
        figure = Figure(figsize=(width / _DPI, height / _DPI), facecolor="white")
        kwargs: dict[str, Any] = {"va": "top", "color": COLORS["ink"]}
        figure.text(_GAP / width, 1 - 14 / height, title, fontsize=12, weight="bold", **kwargs)
        for column, heading in enumerate(headings):
            left = _GAP + column * (_TILE + _GAP)
            figure.text(left / width, 1 - 48 / height, heading, fontsize=10, **kwargs)
            for row in range(rows):
                top = _HEADER + row * (_TILE + _WORDS_HEIGHT)
                box = (left, height - top - _TILE, _TILE, _TILE)
                ax = figure.add_axes(tuple(np.divide(box, (width, height) * 2)))
                ax.imshow(tiles[column][row])
                ax.set_anchor("NW")
                ax.set_axis_off()
                ax.annotate(
                    words[column][row],
                    (0, 0),
                    (0, -5),
                    xycoords="axes fraction",
                    textcoords="offset points",
                    fontsize=8.5,
                    va="top",
                    linespacing=1.3,
                    color=COLORS["muted"],
                )
    return figure
