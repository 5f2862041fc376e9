"""Each kind of panel in the report of image runs, drawn from plain arrays onto given axes."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from aninfonce_jax.evaluation.figures import (
    COLORS,
    RUN_COLORS,
    Curves,
    finite,
    point_marker,
    say_nothing_recorded,
    step_axis,
)
from aninfonce_jax.evaluation.table import AVERAGED

AUGMENTATIONS = (*AVERAGED, "crop", "blur")
STRENGTHS = ("brightness", "contrast", "hue", "saturation", "crop", "blur")
# Quantities that each evaluation records, for `ImageRun.curves`.
CURVES = ("knn_accuracy", "probe_accuracy", "effective_rank_backbone", "effective_rank_projector")
GUESSED = 0.5  # applied or not: a coin is right half of the time

_DASHED = (0, (4, 3))
_DOTTED = (0, (1, 1.6))


@dataclasses.dataclass(frozen=True)
class Readings:
    """What can be read off one kind of features, and off the same before training.

    Attributes:
      trained: [augmentations].
      intervals: [augmentations, 2], the interval of each of `trained`.
      untrained: [augmentations].
    """

    trained: np.ndarray
    intervals: np.ndarray
    untrained: np.ndarray


@dataclasses.dataclass(frozen=True)
class ImageRun(Curves):
    """What the figures show of an image run.

    Attributes:
      curves: [evals] for each of `CURVES`.
      ends: [2] the interval of the last of each of them.
      chance: the accuracy of guessing the class.
      readouts: by features, accuracies as shares, for each of `AUGMENTATIONS`.
      strengths: by features, R² for each of `STRENGTHS`.
      concentration_first: [outputs] Λ̂ at the first evaluation, large to small; may be empty.
      concentration_last: [outputs] Λ̂ at the last evaluation, large to small; may be empty.
      spread: [outputs] how much each varies at the last evaluation, large to small; may be empty.
    """

    curves: Mapping[str, np.ndarray]
    ends: Mapping[str, np.ndarray]
    chance: float
    readouts: Mapping[str, Readings]
    strengths: Mapping[str, Readings]
    concentration_first: np.ndarray
    concentration_last: np.ndarray
    spread: np.ndarray


def is_repeat(index: int) -> bool:
    """Whether an earlier run has this one's colour: then its lines are dotted, its dots hollow."""
    return index // len(RUN_COLORS) % 2 == 1


def _percent_axis(ax: Axes, axis: str) -> None:
    formatter = FuncFormatter(lambda share, _: f"{100 * share:.0f}%")
    (ax.xaxis if axis == "x" else ax.yaxis).set_major_formatter(formatter)


def draw_curves(ax: Axes, runs: Sequence[ImageRun], quantity: str) -> None:
    """One of `CURVES` along each run, a line per run that ends in its interval."""
    for index, run in enumerate(runs):
        ax.plot(
            run.eval_steps,
            run.curves[quantity],
            color=COLORS[run.color],
            lw=1.8,
            ls=_DOTTED if is_repeat(index) else "-",
            marker=point_marker(run.eval_steps.size),
            ms=4,
        )
        low, high = run.ends[quantity]
        ax.vlines(run.eval_steps[-1:], low, high, color=COLORS[run.color], lw=4.5, alpha=0.45)
    step_axis(ax, *runs)
    ax.yaxis.set_major_locator(MaxNLocator(5))
    if not finite(np.concatenate([run.curves[quantity] for run in runs])).size:
        say_nothing_recorded(ax, "no data yet")


def draw_accuracy(ax: Axes, runs: Sequence[ImageRun], quantity: str) -> None:
    """An accuracy along each run and, dashed, that of guessing; both panels share one scale."""
    draw_curves(ax, runs, quantity)
    for chance in {run.chance for run in runs if np.isfinite(run.chance)}:
        ax.axhline(chance, color=COLORS["muted"], lw=1.2, ls=_DASHED)
    both = [run.curves[name] for run in runs for name in ("knn_accuracy", "probe_accuracy")]
    shown = finite(np.concatenate([*both, [run.chance for run in runs]]))
    ax.set_ylim(0, min(1.02, 1.12 * shown.max(initial=0.1)))
    ax.set_ylabel("images classified correctly")
    _percent_axis(ax, "y")


def draw_rank(ax: Axes, runs: Sequence[ImageRun], quantity: str) -> None:
    """The effective rank along each run."""
    draw_curves(ax, runs, quantity)
    shown = finite(np.concatenate([run.curves[quantity] for run in runs]))
    ax.set_ylim(0, 1.12 * shown.max(initial=1.0))
    ax.set_ylabel("effective rank")


def draw_readouts(ax: Axes, runs: Sequence[ImageRun], features: str) -> None:
    """How often a readout tells whether each augmentation was applied."""
    lowest = [
        finite(np.r_[reading.trained, reading.untrained])
        for run in runs
        for reading in run.readouts.values()
    ]
    left = min(0.45, np.concatenate(lowest).min(initial=1.0) - 0.03)
    readings = [run.readouts[features] for run in runs]
    _draw_dots(ax, runs, readings, AUGMENTATIONS, start=GUESSED, limits=(left, 1.02))
    ax.set_xlabel("augmentations told correctly")
    _percent_axis(ax, "x")


def draw_strengths(ax: Axes, runs: Sequence[ImageRun], features: str) -> None:
    """How well a readout tells how strong each augmentation was."""
    readings = [run.strengths[features] for run in runs]
    _draw_dots(ax, runs, readings, STRENGTHS, start=0.0, limits=(-0.05, 1.02))
    ax.set_xlabel("R² of the strength")


def _draw_dots(
    ax: Axes,
    runs: Sequence[ImageRun],
    readings: Sequence[Readings],
    names: Sequence[str],
    *,
    start: float,
    limits: tuple[float, float],
) -> None:
    """A row per augmentation and in it a dot per run, on a line that begins at `start`.

    Values beyond the limits are drawn on them.
    """
    lane = 0.72 / len(runs)
    for index, (run, reading) in enumerate(zip(runs, readings, strict=True)):
        color = COLORS[run.color]
        heights = np.arange(len(names)) + (index - (len(runs) - 1) / 2) * lane
        values, before = (
            np.clip(shares, max(limits[0], 0.0), 1.0)
            for shares in (reading.trained, reading.untrained)
        )
        known = np.isfinite(values)
        ax.hlines(heights[known], start, values[known], color=color, lw=1.0)
        low, high = np.clip(reading.intervals, max(limits[0], 0.0), 1.0).T
        ax.hlines(heights, low, high, color=color, lw=4.5, alpha=0.45)
        ax.plot(before, heights, ls="", marker="|", ms=9, mew=1.6, color=COLORS["muted"])
        face = "none" if is_repeat(index) else color
        ax.plot(values, heights, ls="", marker="o", ms=5.5, mfc=face, mec=color, mew=1.2)
    ax.axvline(start, color=COLORS["muted"], lw=1.2, ls=_DASHED)
    ax.set(xlim=limits, ylim=(len(names) - 0.4, -0.6))
    ax.set_yticks(np.arange(len(names)), names)
    ax.tick_params(axis="y", length=0)
    ax.yaxis.grid(visible=False)
    if not any(finite(reading.trained).size for reading in readings):
        say_nothing_recorded(ax, "no data yet")


def draw_profile(ax: Axes, runs: Sequence[ImageRun]) -> None:
    """The learned Λ̂ from large to small, at the first evaluation (dashed) and at the last."""
    for run in runs:
        values = run.concentration_first
        ranks = np.arange(1, values.size + 1)
        ax.plot(ranks, values, color=COLORS[run.color], lw=1.2, ls=_DASHED)
    _draw_sorted(ax, runs, [run.concentration_last for run in runs])
    ax.set_xlabel("output of the projector, by its Λ̂")
    ax.set_ylabel("learned Λ̂")
    every = [np.r_[run.concentration_first, run.concentration_last] for run in runs]
    shown = finite(np.concatenate(every))
    shown = shown[shown > 0]
    if not shown.size:
        say_nothing_recorded(ax, "no data yet")
        return
    _log_axis(ax, shown.min(), shown.max())


def draw_spread(ax: Axes, runs: Sequence[ImageRun]) -> None:
    """How much each output varies over test images, from large to small."""
    _draw_sorted(ax, runs, [run.spread for run in runs])
    ax.set_xlabel("output of the projector, by its spread")
    ax.set_ylabel("spread")
    shown = finite(np.concatenate([run.spread for run in runs]))
    ax.set_ylim(0, 1.12 * shown.max(initial=1.0))
    if not shown.size:
        say_nothing_recorded(ax, "no data yet")


def _draw_sorted(ax: Axes, runs: Sequence[ImageRun], values: Sequence[np.ndarray]) -> None:
    """A line per run through values [outputs] that are sorted already."""
    for index, (run, own) in enumerate(zip(runs, values, strict=True)):
        ax.plot(
            np.arange(1, own.size + 1),
            own,
            color=COLORS[run.color],
            lw=2.0,
            ls=_DOTTED if is_repeat(index) else "-",
            marker=point_marker(own.size),
            ms=4,
        )
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _log_axis(ax: Axes, low: float, high: float) -> None:
    """A logarithmic y axis with plain numbers, on which even equal values fill some height."""
    middle = np.sqrt(low * high)
    low, high = min(low / 1.25, middle / 2), max(high * 1.25, middle * 2)
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    steps = (1.0,) if high / low > 1000 else (1.0, 2.0, 5.0)
    ax.yaxis.set_major_locator(LogLocator(subs=steps))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
