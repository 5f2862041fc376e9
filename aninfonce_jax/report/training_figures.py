"""How training went: the panel of the loss, drawn from plain arrays onto given axes."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from aninfonce_jax.report.figures import (
    COLORS,
    DASHED,
    Drawn,
    finite,
    point_marker,
    say_nothing_recorded,
    step_axis,
)


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
