"""A contact sheet of augmented views: what the network will be shown, before it is trained.

write_preview(images, jax.random.key(0), PRESETS["simclr_cifar"], path, title="simclr_cifar")
"""

import io
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import matplotlib
import numpy as np
from matplotlib.figure import Figure

from aninfonce_jax.data.augment import AugmentParams, AugmentSpec, augment
from aninfonce_jax.evaluation.figures import COLORS
from aninfonce_jax.files import write_bytes
from aninfonce_jax.types import Array

_DPI = 100
# In pixels. A tile is a whole multiple of the usual 32, and 224 as it is.
_TILE = 224
_GAP = 24
_WORDS_HEIGHT = 86
_HEADER = 78
_LINE_CHARACTERS = 35


def write_preview(
    images: np.ndarray,
    key: Array,
    spec: AugmentSpec,
    path: pathlib.Path,
    *,
    title: str,
    pairs: int = 8,
) -> pathlib.Path:
    """Writes a sheet of originals, each with two views and what was done to make them.

    Args:
      images: uint8 [n, height, width, 3].
      key: a random key; the same key gives the same sheet.
      spec: the augmentation.
      path: the PNG to write; its folder is made if need be.
      title: what the augmentation is called, such as the preset and its strength.
      pairs: how many images to show, the first ones; all if there are fewer.

    Returns:
      The path.

    Raises:
      TypeError: the images are not uint8.
      ValueError: there is no image to show, or their shape is not as above.
    """
    if images.dtype != np.uint8:
        raise TypeError(f"images must be uint8, got dtype {images.dtype}.")
    if images.ndim != 4 or images.shape[3] != 3 or 0 in images.shape:
        raise ValueError(f"images must be [n, height, width, 3], n > 0, got {images.shape}.")
    if pairs < 1:
        raise ValueError(f"pairs must be at least 1, got {pairs}.")
    shown = images[:pairs]
    height, width = shown.shape[1:3]
    tiles, words = [list(shown)], [[f"{width} × {height} pixels"] * len(shown)]
    make_views = jax.jit(augment, static_argnums=2)
    for view_key in jax.random.split(key):
        views, params = make_views(view_key, shown, spec)
        tiles.append(list(np.asarray(views)))
        described = describe_params(params, aspect=width / height)
        words.append([_fill_lines(parts) for parts in described])
    sheet = _draw_sheet(tiles, words, title)
    buffer = io.BytesIO()
    sheet.savefig(buffer, format="png", dpi=_DPI, metadata={"Software": None})
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_bytes(path, buffer.getvalue())


def describe_params(params: AugmentParams, *, aspect: float) -> list[list[str]]:
    """What was applied to each sample, in words and in the order of application.

    Args:
      params: of a batch.
      aspect: width over height of the images.

    Returns:
      For each sample a phrase per operation: ["crop 43%, aspect 1.21", "flipped"].
    """
    batch = len(params.flipped)
    applied = jax.tree.map(np.asarray, params.neutralised())
    return [
        _describe(jax.tree.map(lambda values, i=index: values[i], applied), aspect)
        for index in range(batch)
    ]


def _describe(params: AugmentParams, aspect: float) -> list[str]:
    parts = []
    if params.cropped:
        left, top, right, bottom = params.box.tolist()
        width, height = right - left, bottom - top
        parts.append(f"crop {100 * width * height:.0f}%, aspect {aspect * width / height:.2f}")
    if params.flipped:
        parts.append("flipped")
    for name in ("brightness", "contrast", "saturation"):
        factor = float(getattr(params, name))
        if factor != 1:
            parts.append(f"{name} ×{factor:.2f}")
    if params.hue:
        parts.append(f"hue {params.hue:+.2f} turns".replace("-", "−"))
    if params.greyed:
        parts.append("grey")
    if params.blurred:
        parts.append(f"blur σ {params.sigma:.2f} px")
    if params.solarised:
        parts.append("solarised")
    return parts


def _fill_lines(parts: Sequence[str]) -> str:
    """The phrases on as few lines as hold them, without breaking one; "nothing" if none."""
    lines: list[str] = []
    for part in parts or ["nothing"]:
        longer = f"{lines[-1]} · {part}" if lines else part
        if lines and len(longer) <= _LINE_CHARACTERS:
            lines[-1] = longer
        else:
            lines.append(part)
    return "\n".join(lines)


def _draw_sheet(
    tiles: Sequence[Sequence[np.ndarray]], words: Sequence[Sequence[str]], title: str
) -> Figure:
    """Draws a column per entry of `tiles`, with its words beneath each tile."""
    rows, columns = len(tiles[0]), len(tiles)
    width = _GAP + columns * (_TILE + _GAP)
    height = _HEADER + rows * (_TILE + _WORDS_HEIGHT)
    with matplotlib.rc_context({"font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"]}):
        figure = Figure(figsize=(width / _DPI, height / _DPI), facecolor="white")
        kwargs: dict[str, Any] = {"va": "top", "color": COLORS["ink"]}
        figure.text(_GAP / width, 1 - 14 / height, title, fontsize=12, weight="bold", **kwargs)
        for column, heading in enumerate(("original", "view 1", "view 2")):
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
