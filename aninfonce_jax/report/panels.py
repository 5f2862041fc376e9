"""Charts as the page and a paper need them: inline SVG panels, and one image of them all.

Every chart is drawn twice from the same function: as panels, inline SVGs whose colours and
font are the page's (light, dark, phone), and as one image on white, PNG and SVG, for
papers and slides. Panels rather than one wide image: a phone stacks them at full size
instead of shrinking the text.
"""

import dataclasses
import io
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.textpath import TextPath

from aninfonce_jax.files import write_bytes
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.report.figures import COLORS, DASHED, DOTTED, Drawn

Size = tuple[float, float]
Draw = Callable[[Axes], None]

PANEL_SIZE = (3.9, 2.7)
_COLUMNS = 3
# The least width of a legend's entry, what stands beside its words, and the height of every further
# row of entries.
_KEY_INCHES, _MARK_INCHES, _KEY_ROW_INCHES = 2.4, 0.75, 0.3

STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.edgecolor": COLORS["muted"],
    "axes.labelcolor": COLORS["ink"],
    "text.color": COLORS["ink"],
    "xtick.color": COLORS["muted"],
    "ytick.color": COLORS["muted"],
    "xtick.labelcolor": COLORS["ink"],
    "ytick.labelcolor": COLORS["ink"],
    "grid.color": COLORS["grid"],
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "figure.constrained_layout.w_pad": 0.07,
    "figure.constrained_layout.h_pad": 0.07,
    "lines.solid_capstyle": "round",
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "aninfonce_jax",
}


@dataclasses.dataclass(frozen=True)
class Key:
    """One entry of a legend: `mark` is "line", "dash", "box", "dot" or "tick".

    A `hatch` tells it from an earlier entry of the same colour: boxes have that pattern, lines
    are dotted and dots hollow.
    """

    label: str
    color: str
    mark: str
    hatch: str = ""


@dataclasses.dataclass(frozen=True)
class Panel:
    """One inline SVG.

    Attributes:
      title: over it; "" where the chart has only one.
      svg: the drawing.
      note: what it says, in numbers.
      layout: "any", or the screens it is for: "wide" or "narrow".
    """

    title: str
    svg: str
    note: str = ""
    layout: str = "any"


class Drawing(NamedTuple):
    """A panel to be drawn: its title, what it says in numbers, and what draws it."""

    title: str
    note: str
    draw: Draw


@dataclasses.dataclass(frozen=True)
class Chart:
    """A figure of the page: its legend and its panels."""

    name: str
    keys: list[Key]
    panels: list[Panel]


def run_keys(runs: Sequence[Drawn], mark: str) -> list[Key]:
    """A legend's entry for each run."""
    return [
        Key(run.label, run.color, mark, hatch=run.hatch if mark == "box" or run.is_repeat else "")
        for run in runs
    ]


def panel_chart(
    name: str,
    title: str,
    keys: list[Key],
    panels: Sequence[Drawing],
    folder: AnyPath | None,
    size: Size = PANEL_SIZE,
) -> Chart:
    """A chart of panels side by side; without a folder, no image of them all."""
    columns = min(len(panels), _COLUMNS)
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows + 0.8), layout="constrained")
    drawn = []
    for index, panel in enumerate(panels):
        ax = figure.add_subplot(rows, columns, index + 1)
        ax.set_title(panel.title)
        panel.draw(ax)
        svg = _draw_inline(f"{name}-{index}", size, panel.draw)
        drawn.append(Panel(panel.title, svg, panel.note))
    if folder is not None:
        _save(figure, title, keys, folder / name)
    return Chart(name, keys, drawn)


def overview_chart(
    name: str,
    title: str,
    keys: list[Key],
    wide: tuple[Size, Draw],
    narrow: tuple[Size, Draw],
    folder: AnyPath | None,
    note: str = "",
) -> Chart:
    """A chart of one panel for all runs, in a version for wide screens and one for phones."""
    (width, height), draw_wide = wide
    figure = Figure(figsize=(width, height + 0.8), layout="constrained")
    draw_wide(figure.add_subplot())
    if folder is not None:
        _save(figure, title, keys, folder / name)
    panels = [
        Panel("", _draw_inline(f"{name}-{layout}", size, draw), note, layout)
        for layout, (size, draw) in (("wide", wide), ("narrow", narrow))
    ]
    return Chart(name, keys, panels)


def _draw_inline(salt: str, size: Size, draw: Draw) -> str:
    figure = Figure(figsize=size, layout="constrained")
    draw(figure.add_subplot())
    return _inline_svg(figure, salt)


def _inline_svg(figure: Figure, salt: str) -> str:
    """The figure as an SVG element that takes its colours and font from the page.

    The salt goes into the ids that clip paths and markers are referred to by: they
    must differ between the SVGs of one page.
    """
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    svg = buffer.getvalue()
    view_box = re.search(r'viewBox="[^"]*"', svg)
    assert view_box is not None, "matplotlib always writes a viewBox"
    body = svg[svg.index("<defs>") :]
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->", "", body, flags=re.DOTALL)
    body = re.sub(r' id="[A-Za-z0-9.]+_\d+"', "", body)  # group names, not referred to
    body = re.sub(r"(\.\d\d)\d{3,}", r"\1", body)  # a hundredth of a point is plenty
    body = re.sub(r"\n\s*", "\n", body)
    for name, color in COLORS.items():
        body = body.replace(color, f"var(--{name})")
    return f'<svg {view_box[0]} aria-hidden="true">\n{body}'


def _save(figure: Figure, title: str, keys: Sequence[Key], stem: AnyPath) -> None:
    """Writes the image of all runs, on white, as PNG and SVG."""
    figure.suptitle(title, fontsize=12, fontweight="bold")
    if handles := [_legend_handle(key) for key in keys]:
        # As many entries beside each other as a narrow figure has room for.
        widest = max(_inches(key.label) for key in keys) + _MARK_INCHES
        room = int(figure.get_figwidth() / max(_KEY_INCHES, widest))
        columns = min(len(handles), 4, max(1, room))
        rows = -(-len(handles) // columns)
        figure.set_figheight(figure.get_figheight() + _KEY_ROW_INCHES * (rows - 1))
        figure.legend(handles=handles, loc="outside lower center", ncols=columns)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out; savefig would do it again for each format
    formats: dict[str, dict[str, Any]] = {
        "png": {"dpi": 144, "metadata": {"Software": None}},
        "svg": {"metadata": {"Date": None}},
    }
    for name, options in formats.items():
        buffer = io.BytesIO()
        figure.savefig(buffer, format=name, **options)
        write_bytes(stem.with_suffix(f".{name}"), buffer.getvalue())


def _inches(words: str) -> float:
    font = FontProperties(size=matplotlib.rcParams["legend.fontsize"])
    return float(TextPath((0, 0), words, prop=font).get_extents().width) / 72


def _legend_handle(key: Key) -> Line2D | Patch:
    color = COLORS[key.color]
    if key.mark == "box":
        face = "none" if key.hatch else color
        return Patch(facecolor=face, edgecolor=color, hatch=key.hatch or None, label=key.label)
    if key.mark in ("dot", "tick"):
        face = "none" if key.hatch else color
        shape = "o" if key.mark == "dot" else "|"
        return Line2D([], [], color=color, ls="", marker=shape, mfc=face, label=key.label)
    style = DASHED if key.mark == "dash" else DOTTED if key.hatch else "-"
    return Line2D([], [], color=color, ls=style, label=key.label)
