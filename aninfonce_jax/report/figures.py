"""What the figures of all sections share: colours, axes, and the curves of a run."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from aninfonce_jax.report.groups import Entry
from aninfonce_jax.report.runs import as_number
from aninfonce_jax.scores.registry import STEP, Score

# After Okabe & Ito, darkened where white needs it. Each colour is used for one thing only,
# since inline SVGs have it replaced by the CSS variable of the same name.
COLORS = {
    "ink": "#1f2933",
    "muted": "#66717f",
    "grid": "#dde2e8",
    "content": "#0072b2",
    "style": "#d55e00",
    "floor": "#7a4fb0",
    "positive": "#1f88c9",
    "negative": "#e06c10",
    "run-1": "#00785b",
    "run-2": "#c98200",
    "run-3": "#3d9ad6",
    "run-4": "#2d2f6b",
    "run-5": "#c46aa0",
}
RUN_COLORS = tuple(name for name in COLORS if name.startswith("run-"))
DASHED = (0, (4, 3))
DOTTED = (0, (1, 1.6))
_HATCHES = ("", "////", "....", "xxxx")  # for when the runs outnumber the colours


@dataclasses.dataclass(frozen=True)
class Drawn:
    """How the figures tell a run from others.

    Attributes:
      label: what the run is called.
      color: its name in `COLORS`.
      place: among the runs of the page, from 0 on.
    """

    label: str
    color: str
    place: int

    @property
    def hatch(self) -> str:
        """The pattern that tells the run's bars from those of an earlier one of its colour."""
        return _HATCHES[self.place // len(RUN_COLORS) % len(_HATCHES)]

    @property
    def is_repeat(self) -> bool:
        """Whether an earlier run has its colour: then its lines are dotted, its dots hollow."""
        return self.place // len(RUN_COLORS) % 2 == 1

    @property
    def line(self) -> Any:
        """The style of its lines."""
        return DOTTED if self.is_repeat else "-"


def column(rows: Sequence[Mapping[str, Any]], key: str) -> np.ndarray:
    """[rows] the numbers of one entry; NaN where it was not recorded."""
    return np.array([as_number(row.get(key)) for row in rows])


def finite(values: np.ndarray) -> np.ndarray:
    """The values that are known."""
    return values[np.isfinite(values)]


def step_axis(ax: Axes, *steps: np.ndarray) -> None:
    """Makes x the training step, long enough for all `steps`."""
    last = finite(np.concatenate([[1], *steps])).max()
    ax.set_xlim(-0.03 * last, 1.03 * last)
    ax.set_xlabel("training step")
    ax.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))


def percent_axis(ax: Axes, axis: str) -> None:
    """Writes the shares along "x" or "y" in per cent."""
    formatter = FuncFormatter(lambda share, _: f"{100 * share:.0f}%")
    (ax.xaxis if axis == "x" else ax.yaxis).set_major_formatter(formatter)


def say_nothing_recorded(ax: Axes, text: str) -> None:
    """Writes into empty axes why they are."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=COLORS["muted"])


def point_marker(points: int) -> str:
    """A line through one point is invisible, and one through few hides how few they are."""
    return "o" if points <= 8 else ""


@dataclasses.dataclass(frozen=True)
class Curve(Drawn):
    """A score along a run.

    Attributes:
      steps: [evals].
      values: [evals].
      ends: [2], the interval of the last one.
    """

    steps: np.ndarray
    values: np.ndarray
    ends: np.ndarray


def curve_of(entry: Entry, score: Score) -> Curve:
    """A score along a run."""
    run = entry.run
    return Curve(
        entry.label,
        entry.color,
        entry.place,
        column(run.evals, STEP),
        column(run.evals, score.key),
        np.array(run.interval(score.key) or [math.nan, math.nan]),
    )


def draw_curves(ax: Axes, curves: Sequence[Curve]) -> None:
    """A score along each run, a line per run that ends in its interval."""
    for curve in curves:
        color = COLORS[curve.color]
        marker = point_marker(curve.steps.size)
        ax.plot(curve.steps, curve.values, color=color, lw=1.8, ls=curve.line, marker=marker, ms=4)
        ax.vlines(curve.steps[-1:], *curve.ends, color=color, lw=4.5, alpha=0.45)
    step_axis(ax, *(curve.steps for curve in curves))
    ax.yaxis.set_major_locator(MaxNLocator(5))
    if not finite(np.concatenate([curve.values for curve in curves])).size:
        say_nothing_recorded(ax, "no data yet")
