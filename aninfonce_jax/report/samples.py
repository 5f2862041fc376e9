"""The section with sample pairs, of sources that make their images themselves."""

import base64
import binascii
import functools
import io
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from PIL import Image

from aninfonce_jax.remote import AnyPath
from aninfonce_jax.report.groups import Comparison
from aninfonce_jax.report.panels import Drawing, panel_chart
from aninfonce_jax.report.section import Section
from aninfonce_jax.report.wording import join_words
from aninfonce_jax.scores.registry import SAMPLES

_PANEL_SIZE = (6.2, 3.2)
# Larger than any sheet of samples.
_MOST_PIXELS = 2**24


def samples_section(page: Comparison, folder: AnyPath) -> Section | None:
    """The section of those runs whose files hold samples; None if there are none."""
    own = page.where(lambda run: read_sheet(run.final.get(SAMPLES)) is not None)
    if not own.entries:
        return None
    # Runs on the same source have the same sheet.
    labels: dict[str, list[str]] = {}
    for entry in own.entries:
        labels.setdefault(entry.run.final[SAMPLES], []).append(entry.label)
    drawings = [
        Drawing(join_words(names), "", functools.partial(_draw_sheet, sheet=sheet))
        for text, names in labels.items()
        if (sheet := read_sheet(text)) is not None
    ]
    chart = panel_chart("samples", "Samples of the source", [], drawings, folder, _PANEL_SIZE)
    return Section("samples", own, None, {chart.name: chart})


def read_sheet(text: Any) -> np.ndarray | None:
    """Returns the pixels of a PNG in base64, [height, width] or [height, width, 3]; or None."""
    if not isinstance(text, str):
        return None
    try:
        with Image.open(io.BytesIO(base64.b64decode(text, validate=True)), formats=("PNG",)) as png:
            is_plain = png.mode in ("L", "RGB") and png.width * png.height <= _MOST_PIXELS
            return np.asarray(png) if is_plain else None
    except (binascii.Error, OSError, ValueError, SyntaxError):  # damaged: shown as missing
        return None


def _draw_sheet(ax: Axes, sheet: np.ndarray) -> None:
    ax.imshow(sheet, cmap="gray", vmin=0, vmax=255, interpolation="none")
    ax.set_axis_off()
