"""The report's charts: panels for the page, and one picture of all runs for papers.

Every chart is drawn twice from the same function: as one panel per run, an inline SVG
whose colours and font are the page's (light, dark, phone), and as one picture of all
runs on white, PNG and SVG, for papers and slides. Panels rather than one wide picture:
a phone stacks them at full size instead of shrinking the text.
"""

import dataclasses
import io
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from aninfonce_jax.evaluation.figures import (
    COLORS,
    Run,
    all_alike,
    draw_bars,
    draw_concentration,
    draw_loss,
    draw_map,
    draw_r2,
    hatch_of_run,
    largest_weight,
)

_PANEL_SIZE = (3.9, 2.7)
_SQUARE_SIZE = (3.9, 3.8)
_COLUMNS = 3

_STYLE = {
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
    """One entry of a legend: `mark` is "line", "dash" or "box"."""

    label: str
    color: str
    mark: str
    hatch: str = ""


@dataclasses.dataclass(frozen=True)
class Panel:
    """One inline SVG; `layout` is "any", or the screens it is for: "wide" or "narrow"."""

    title: str
    svg: str
    layout: str = "any"


@dataclasses.dataclass(frozen=True)
class Chart:
    """A figure of the page: its legend and its panels."""

    name: str
    keys: list[Key]
    panels: list[Panel]


_Draw = Callable[[Axes, Run, Sequence[Run]], None]


def draw_charts(runs: Sequence[Run], folder: pathlib.Path) -> dict[str, Chart]:
    """Draws every chart, and writes each as PNG and SVG into `folder`.

    Args:
      runs: at least one run.
      folder: an existing folder.

    Returns:
      The charts by name: factors, loss, r2, concentration, map.
    """
    factors = _factor_keys(runs)
    loss = [
        Key("held-out loss", "ink", "line"),
        Key("training batches", "muted", "line"),
        Key("floor", "floor", "dash"),
    ]
    learned = [*factors, Key("true values", "muted", "dash")]
    if any(all_alike(run.concentration) for run in runs):
        learned.append(Key("one value for all factors", "ink", "line"))
    largest = largest_weight(runs)
    signs = [
        Key(f"positive weight, up to {largest:.2f}", "positive", "box"),
        Key(f"negative weight, down to −{largest:.2f}", "negative", "box"),
    ]
    with matplotlib.rc_context(_STYLE):
        charts = [
            _bar_chart("Final R² of every factor", runs, folder),
            _chart_by_run("loss", "Loss against its floor", loss, runs, draw_loss, folder),
            _chart_by_run("r2", "R² of every factor", factors, runs, draw_r2, folder),
            _chart_by_run(
                "concentration",
                "Learned concentration Λ",
                learned,
                runs,
                draw_concentration,
                folder,
            ),
            _chart_by_run(
                "map",
                "From true to recovered factors",
                signs,
                runs,
                draw_map,
                folder,
                _SQUARE_SIZE,
            ),
        ]
    return {chart.name: chart for chart in charts}


def _factor_keys(runs: Sequence[Run]) -> list[Key]:
    if all(run.is_content is None for run in runs):
        return [Key("factors", "content", "line")]
    return [Key("content factors", "content", "line"), Key("style factors", "style", "line")]


def _bar_chart(title: str, runs: Sequence[Run], folder: pathlib.Path) -> Chart:
    """One panel for all runs, in an upright and a lying version: wide screens and phones."""
    keys = [
        Key(run.label, run.color, "box", hatch=hatch_of_run(index))
        for index, run in enumerate(runs)
    ]
    dim = max(run.r2_final.size for run in runs)
    wide = (8.8, 2.9)
    narrow = (3.6, 1.0 + dim * max(0.24, 0.09 * len(runs)))
    figure = Figure(figsize=(wide[0], wide[1] + 0.8), layout="constrained")
    draw_bars(figure.add_subplot(), runs, horizontal=False)
    _save(figure, title, keys, folder / "factors")
    panels = []
    for layout, size, horizontal in (("wide", wide, False), ("narrow", narrow, True)):
        panel = _panel("", f"factors-{layout}", size, draw_bars, runs, horizontal=horizontal)
        panels.append(dataclasses.replace(panel, layout=layout))
    return Chart("factors", keys, panels)


def _chart_by_run(
    name: str,
    title: str,
    keys: list[Key],
    runs: Sequence[Run],
    draw: _Draw,
    folder: pathlib.Path,
    size: tuple[float, float] = _PANEL_SIZE,
) -> Chart:
    columns = min(len(runs), _COLUMNS)
    rows = -(-len(runs) // columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows + 0.8), layout="constrained")
    panels = []
    for index, run in enumerate(runs):
        ax = figure.add_subplot(rows, columns, index + 1)
        ax.set_title(run.label)
        draw(ax, run, runs)
        panels.append(_panel(run.label, f"{name}-{index}", size, draw, run, runs))
    _save(figure, title, keys, folder / name)
    return Chart(name, keys, panels)


def _panel(
    title: str,
    salt: str,
    size: tuple[float, float],
    draw: Callable[..., None],
    *args: Any,
    **kwargs: Any,
) -> Panel:
    figure = Figure(figsize=size, layout="constrained")
    draw(figure.add_subplot(), *args, **kwargs)
    return Panel(title, _inline_svg(figure, salt))


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


def _save(figure: Figure, title: str, keys: Sequence[Key], stem: pathlib.Path) -> None:
    """Writes the picture of all runs, on white, as PNG and SVG."""
    figure.suptitle(title, fontsize=12, fontweight="bold")
    handles = [_legend_handle(key) for key in keys]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 4))
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out; savefig would do it again for each format
    figure.savefig(stem.with_suffix(".png"), dpi=144, metadata={"Software": None})
    figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})


def _legend_handle(key: Key) -> Line2D | Patch:
    color = COLORS[key.color]
    if key.mark == "box":
        face = "none" if key.hatch else color
        return Patch(facecolor=face, edgecolor=color, hatch=key.hatch or None, label=key.label)
    return Line2D(
        [], [], color=color, ls=(0, (4, 3)) if key.mark == "dash" else "-", label=key.label
    )
