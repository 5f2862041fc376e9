"""What was recovered of known latents: each kind of panel, drawn from plain arrays."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import matplotlib
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
from aninfonce_jax.scores.concentration import content_mask


@dataclasses.dataclass(frozen=True)
class Recovered(Drawn):
    """What the figures show of a run whose latents are known.

    NaN stands for a value that was not recorded.

    Attributes:
      steps: [evals].
      r2: [evals, dim], a column per true factor.
      r2_final: [dim].
      r2_intervals: [dim, 2], the interval of each of `r2_final`.
      concentration: [evals, dim], the learned Λ̂ in the order of the true factors.
      concentration_true: [dim].
      map: [dim, dim], recovered factors in rows, true factors in columns.
    """

    steps: np.ndarray
    r2: np.ndarray
    r2_final: np.ndarray
    r2_intervals: np.ndarray
    concentration: np.ndarray
    concentration_true: np.ndarray
    map: np.ndarray

    @property
    def is_content(self) -> np.ndarray | None:
        """[dim] True for content; None where the true Λ are unknown or all equal."""
        if not (self.concentration_true > 0).all():  # as NaN is not
            return None
        mask = content_mask(self.concentration_true)
        return None if mask.all() else mask

    @property
    def factor_colors(self) -> list[str]:
        """The colour of each factor: content or style, or one for all."""
        mask = self.is_content
        if mask is None:
            return [COLORS["content"]] * self.r2_final.size
        return [COLORS["content" if content else "style"] for content in mask]


def _draw_factors(ax: Axes, run: Recovered, values: np.ndarray) -> None:
    """One line per factor; many factors get thinner lines."""
    width = 1.4 if values.shape[1] <= 12 else 0.8
    colors = run.factor_colors
    if all_alike(values):
        values, colors, width = values[:, :1], [COLORS["ink"]], 1.8
    marker = point_marker(run.steps.size)
    for line, color in zip(values.T, colors, strict=True):
        ax.plot(run.steps, line, color=color, lw=width, alpha=0.85, marker=marker, ms=4)
    step_axis(ax, run.steps)


def all_alike(values: np.ndarray) -> bool:
    """Whether all factors have the same [evals, dim] values, as the one 1/τ of InfoNCE has."""
    return values.shape[1] > 1 and bool((values == values[:, :1]).all())


def draw_r2(ax: Axes, run: Recovered, runs: Sequence[Recovered]) -> None:
    """The R² of each factor along the run."""
    del runs
    _draw_factors(ax, run, run.r2)
    if not finite(run.r2).size:
        say_nothing_recorded(ax, "no R² by factor was recorded")
    ax.set_ylim(-0.04, 1.04)
    ax.set_ylabel("R² of each factor")


def draw_concentration(ax: Axes, run: Recovered, runs: Sequence[Recovered]) -> None:
    """The learned Λ along the run, and dashed the true ones; all `runs` share one scale."""
    _draw_factors(ax, run, run.concentration)
    if not finite(run.concentration).size:
        say_nothing_recorded(ax, "no learned Λ was recorded")
    else:
        true = dict(zip(run.concentration_true.tolist(), run.factor_colors, strict=True))
        for value, color in true.items():
            ax.axhline(value, color=color, lw=1.2, ls=DASHED, alpha=0.8)
    values = [np.r_[other.concentration.ravel(), other.concentration_true] for other in runs]
    ax.set_ylim(0, 1.08 * finite(np.concatenate(values)).max(initial=1.0))
    ax.set_ylabel("learned Λ")


def _neighbours(concentration: np.ndarray) -> np.ndarray:
    """[dim] an order of the factors in which equal Λ are neighbours; as it is if they are."""
    changes = np.count_nonzero(np.diff(concentration))
    if changes == np.unique(concentration).size - 1:
        return np.arange(concentration.size)
    return np.argsort(-concentration, kind="stable")


def largest_weight(runs: Sequence[Recovered]) -> float:
    """The largest |weight| in the maps of all runs, which share one scale of colours."""
    return max(np.abs(finite(run.map)).max(initial=1e-6) for run in runs)


def draw_map(ax: Axes, run: Recovered, runs: Sequence[Recovered]) -> None:
    """The map from true to recovered factors, with lines around the blocks of equal Λ."""
    dim = run.r2_final.size
    ax.grid(visible=False)
    ax.spines[["top", "right"]].set_visible(True)
    ax.set_xlabel("true factor")
    ax.set_ylabel("recovered factor")
    if not np.isfinite(run.map).all():
        ax.set(xticks=[], yticks=[])
        say_nothing_recorded(ax, "no map was recorded")
        return
    order = _neighbours(run.concentration_true)
    weights = run.map[np.ix_(order, order)]
    # Colour says the sign and opacity the size, so that zero is the page, light or dark.
    image = np.zeros((dim, dim, 4))
    for sign, name in ((1, "positive"), (-1, "negative")):
        image[np.sign(weights) == sign, :3] = matplotlib.colors.to_rgb(COLORS[name])
    image[..., 3] = np.abs(weights) / largest_weight(runs)
    ax.imshow(image, interpolation="none")
    ticks = np.arange(dim) if dim <= 12 else np.arange(4, dim, 5)
    ax.set_xticks(ticks, order[ticks] + 1)
    ax.set_yticks(ticks, order[ticks] + 1)
    ax.tick_params(length=0)
    edges = np.flatnonzero(np.diff(run.concentration_true[order])) + 0.5
    if len(edges) < dim - 1:  # with all Λ distinct every cell is a block
        for edge in edges:
            ax.axhline(edge, color=COLORS["ink"], lw=1)
            ax.axvline(edge, color=COLORS["ink"], lw=1)


def draw_bars(ax: Axes, runs: Sequence[Recovered], *, horizontal: bool) -> None:
    """The final R² of every factor, a bar for each run."""
    dim = max(run.r2_final.size for run in runs)
    thickness = 0.8 / len(runs)
    for index, run in enumerate(runs):
        color = COLORS[run.color]
        centers = np.arange(run.r2_final.size) + (index - (len(runs) - 1) / 2) * thickness
        heights = np.clip(run.r2_final, 0, 1)
        kwargs: dict[str, Any] = {
            # The edge keeps a bar of no height visible as a line at zero.
            "facecolor": color if not run.hatch else "none",
            "edgecolor": color,
            "linewidth": 0.8,
            "hatch": run.hatch or None,
        }
        low, high = np.clip(run.r2_intervals, 0, 1).T
        # In the colour of the text: it must show on the bar and beyond it.
        if horizontal:
            ax.barh(centers, heights, thickness * 0.88, **kwargs)
            ax.hlines(centers, low, high, color=COLORS["ink"], lw=1.0)
        else:
            ax.bar(centers, heights, thickness * 0.88, **kwargs)
            ax.vlines(centers, low, high, color=COLORS["ink"], lw=1.0)
    value, factor = (ax.xaxis, ax.yaxis) if horizontal else (ax.yaxis, ax.xaxis)
    numbers = np.arange(dim) if dim <= 20 else np.arange(4, dim, 5)
    factor.set_ticks(numbers, numbers + 1)
    factor.set_tick_params(length=0)
    factor.grid(visible=False)
    factor.set_label_text("true factor")
    value.set_label_text("final R²")
    if horizontal:
        ax.set(xlim=(0, 1.02), ylim=(dim - 0.4, -0.6))
    else:
        ax.set(xlim=(-0.6, dim - 0.4), ylim=(0, 1.02))
    _mark_content_and_style(ax, runs, horizontal=horizontal)


def _mark_content_and_style(ax: Axes, runs: Sequence[Recovered], *, horizontal: bool) -> None:
    """Names the two groups beside the bars, if they are two and the same in all runs."""
    first = runs[0].is_content
    others = [run.is_content for run in runs]
    if first is None or any(mask is None or not np.array_equal(first, mask) for mask in others):
        return
    edges = np.flatnonzero(np.diff(first)) + 1
    if edges.size != 1:
        return
    for start, stop in ((0, edges[0]), (edges[0], first.size)):
        name = "content" if first[start] else "style"
        middle = (start + stop - 1) / 2
        if horizontal:
            ax.text(1.03, middle, name, rotation=-90, va="center", color=COLORS["muted"])
        else:
            ax.text(middle, 1.03, name, ha="center", va="bottom", color=COLORS["muted"])
    line = ax.axhline if horizontal else ax.axvline
    line(edges[0] - 0.5, color=COLORS["muted"], lw=0.8, ls=(0, (2, 2)))
