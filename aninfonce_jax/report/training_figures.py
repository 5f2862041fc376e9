"""How training went: loss and time, drawn from plain arrays onto given axes."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from aninfonce_jax.report.figures import (
    COLORS,
    DASHED,
    Drawn,
    finite,
    percent_axis,
    point_marker,
    say_nothing_recorded,
    step_axis,
)
from aninfonce_jax.scores.registry import PERCENT


@dataclasses.dataclass(frozen=True)
class Losses(Drawn):
    """The losses of a run; NaN stands for a value that was not recorded.

    Attributes:
      family: runs of one family share the axis of their losses.
      train_steps: [train_rows].
      train: [train_rows].
      eval_steps: [evals].
      held_out: [evals].
      floor: the best loss that is possible.
    """

    family: tuple[str, ...]
    train_steps: np.ndarray
    train: np.ndarray
    eval_steps: np.ndarray
    held_out: np.ndarray
    floor: float


def draw_loss(ax: Axes, run: Losses, runs: Sequence[Losses]) -> None:
    """The loss in training and on held-out data, above its floor; one scale per family."""
    ax.plot(run.train_steps, run.train, color=COLORS["muted"], lw=0.9, alpha=0.6)
    ax.plot(
        run.eval_steps,
        run.held_out,
        color=COLORS["ink"],
        lw=1.8,
        marker=point_marker(run.eval_steps.size),
        ms=4,
    )
    if np.isfinite(run.floor):
        ax.axhline(run.floor, color=COLORS["floor"], lw=1.4, ls=DASHED)
    family = [other for other in runs if other.family == run.family]
    values = finite(np.concatenate([np.r_[r.train, r.held_out, r.floor] for r in family]))
    if values.size:
        margin = 0.06 * (np.ptp(values) or 1.0)
        ax.set_ylim(values.min() - margin, values.max() + margin)
    else:
        say_nothing_recorded(ax, "no loss was recorded")
    ax.set_ylabel("loss")
    step_axis(ax, run.train_steps, run.eval_steps)


def draw_time(ax: Axes, shares: Mapping[str, float]) -> None:
    """A bar for each thing that wall time went to.

    Args:
      ax: where to draw.
      shares: of all wall time, by name, top to bottom; the first one is what a run is for.
    """
    if not shares:
        say_nothing_recorded(ax, "no times were recorded")
        return
    names = list(shares)
    values = [*shares.values()]
    colors = [COLORS["content"], *[COLORS["muted"]] * (len(names) - 1)]
    bars = ax.barh(range(len(names)), values, color=colors, height=0.65)
    ax.bar_label(bars, [PERCENT.value(value) for value in values], padding=3)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set_xlim(0, 1.2)  # room for the label of a full bar
    percent_axis(ax, "x")
    ax.set_xticks([0, 0.25, 0.5, 0.75, 1.0])
    ax.set_xlabel("share of wall time")
