"""What can be read off features: each kind of panel, drawn from plain arrays onto given axes."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from aninfonce_jax.report.figures import (
    COLORS,
    DASHED,
    Curve,
    Drawn,
    draw_curves,
    finite,
    percent_axis,
    say_nothing_recorded,
)

GUESSED = 0.5  # applied or not: a coin is right half of the time


@dataclasses.dataclass(frozen=True)
class Readings(Drawn):
    """What can be read off one layer of a run, and off the same before training.

    Attributes:
      trained: [operations].
      intervals: [operations, 2], the interval of each of `trained`.
      untrained: [operations].
    """

    trained: np.ndarray
    intervals: np.ndarray
    untrained: np.ndarray


def draw_accuracy(
    ax: Axes, curves: Sequence[Curve], chances: Sequence[float], shown: np.ndarray
) -> None:
    """An accuracy along each run and, dashed, that of guessing.

    Args:
      ax: what to draw on.
      curves: one for each run.
      chances: the accuracy of guessing, of each run.
      shown: all values of panels that share one scale.
    """
    draw_curves(ax, curves)
    for chance in {chance for chance in chances if np.isfinite(chance)}:
        ax.axhline(chance, color=COLORS["muted"], lw=1.2, ls=DASHED)
    highest = finite(np.concatenate([shown, chances])).max(initial=0.1)
    ax.set_ylim(0, min(1.02, 1.12 * highest))
    ax.set_ylabel("examples classified correctly")
    percent_axis(ax, "y")


def draw_readouts(
    ax: Axes, readings: Sequence[Readings], names: Sequence[str], shown: np.ndarray
) -> None:
    """How often a readout tells whether each operation was applied.

    Args:
      ax: what to draw on.
      readings: one for each run.
      names: the operations.
      shown: all values of panels that share one scale.
    """
    left = min(0.45, finite(shown).min(initial=1.0) - 0.03)
    _draw_dots(ax, readings, names, start=GUESSED, limits=(left, 1.02))
    ax.set_xlabel("augmentations told correctly")
    percent_axis(ax, "x")


def draw_strengths(ax: Axes, readings: Sequence[Readings], names: Sequence[str]) -> None:
    """How well a readout tells how strong each operation was."""
    _draw_dots(ax, readings, names, start=0.0, limits=(-0.05, 1.02))
    ax.set_xlabel("R² of the strength")


def _draw_dots(
    ax: Axes,
    readings: Sequence[Readings],
    names: Sequence[str],
    *,
    start: float,
    limits: tuple[float, float],
) -> None:
    """A row per operation and in it a dot per run, on a line that begins at `start`.

    Values beyond the limits are drawn on them.
    """
    lane = 0.72 / len(readings)
    for index, reading in enumerate(readings):
        color = COLORS[reading.color]
        heights = np.arange(len(names)) + (index - (len(readings) - 1) / 2) * lane
        values, before = (
            np.clip(shares, max(limits[0], 0.0), 1.0)
            for shares in (reading.trained, reading.untrained)
        )
        known = np.isfinite(values)
        ax.hlines(heights[known], start, values[known], color=color, lw=1.0)
        low, high = np.clip(reading.intervals, max(limits[0], 0.0), 1.0).T
        ax.hlines(heights, low, high, color=color, lw=4.5, alpha=0.45)
        ax.plot(before, heights, ls="", marker="|", ms=9, mew=1.6, color=COLORS["muted"])
        face = "none" if reading.is_repeat else color
        ax.plot(values, heights, ls="", marker="o", ms=5.5, mfc=face, mec=color, mew=1.2)
    ax.axvline(start, color=COLORS["muted"], lw=1.2, ls=DASHED)
    ax.set(xlim=limits, ylim=(len(names) - 0.4, -0.6))
    ax.set_yticks(np.arange(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.yaxis.grid(visible=False)
    if not any(finite(reading.trained).size for reading in readings):
        say_nothing_recorded(ax, "no data yet")
