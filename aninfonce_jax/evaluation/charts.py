"""The charts of runs on synthetic data: panels for the page, and pictures for papers."""

import functools
import pathlib
from collections.abc import Callable, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from aninfonce_jax.evaluation.figures import (
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
from aninfonce_jax.evaluation.panels import (
    PANEL_SIZE,
    STYLE,
    Chart,
    Draw,
    Key,
    Size,
    overview_chart,
    panel_chart,
)

_SQUARE_SIZE = (3.9, 3.8)

_DrawRun = Callable[[Axes, Run, Sequence[Run]], None]


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
    with matplotlib.rc_context(STYLE):
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
    """One panel for all runs: upright bars on wide screens, lying ones on phones."""
    keys = [
        Key(run.label, run.color, "box", hatch=hatch_of_run(index))
        for index, run in enumerate(runs)
    ]
    if any(np.isfinite(run.r2_intervals).any() for run in runs):
        keys.append(Key("95 % interval", "ink", "tick"))
    dim = max(run.r2_final.size for run in runs)
    upright, lying = (
        functools.partial(draw_bars, runs=runs, horizontal=horizontal)
        for horizontal in (False, True)
    )
    narrow = (3.6, 1.0 + dim * max(0.24, 0.09 * len(runs)))
    return overview_chart("factors", title, keys, ((8.8, 2.9), upright), (narrow, lying), folder)


def _chart_by_run(
    name: str,
    title: str,
    keys: list[Key],
    runs: Sequence[Run],
    draw: _DrawRun,
    folder: pathlib.Path,
    size: Size = PANEL_SIZE,
) -> Chart:
    def draw_run(run: Run) -> Draw:
        return lambda ax: draw(ax, run, runs)

    panels = [(run.label, draw_run(run)) for run in runs]
    return panel_chart(name, title, keys, panels, folder, size)
