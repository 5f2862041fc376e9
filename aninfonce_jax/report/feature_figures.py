"""How the outputs are used: each kind of panel, drawn from plain arrays onto given axes."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from aninfonce_jax.report.figures import (
    COLORS,
    DASHED,
    Curve,
    Drawn,
    draw_curves,
    finite,
    percent_axis,
    point_marker,
    say_nothing_recorded,
)


@dataclasses.dataclass(frozen=True)
class Profile(Drawn):
    """A number of every output of a run, from large to small; may be empty.

    Attributes:
      first: [outputs] at the first evaluation.
      last: [outputs] at the last one.
    """

    first: np.ndarray
    last: np.ndarray


def draw_rank(ax: Axes, curves: Sequence[Curve]) -> None:
    """The effective rank along each run."""
    draw_curves(ax, curves)
    shown = finite(np.concatenate([curve.values for curve in curves]))
    ax.set_ylim(0, 1.12 * shown.max(initial=1.0))
    ax.set_ylabel("effective rank")


def draw_concentrations(ax: Axes, profiles: Sequence[Profile]) -> None:
    """The learned Λ̂ from large to small, at the first evaluation (dashed) and at the last."""
    for profile in profiles:
        ranks = np.arange(1, profile.first.size + 1)
        ax.plot(ranks, profile.first, color=COLORS[profile.color], lw=1.2, ls=DASHED)
    _draw_sorted(ax, profiles)
    ax.set_xlabel("output, by its Λ̂")
    ax.set_ylabel("learned Λ̂")
    shown = finite(np.concatenate([np.r_[x.first, x.last] for x in profiles]))
    shown = shown[shown > 0]
    if not shown.size:
        say_nothing_recorded(ax, "no data yet")
        return
    _log_axis(ax, shown.min(), shown.max())


def draw_spread(ax: Axes, profiles: Sequence[Profile]) -> None:
    """How much each output varies over test examples, from large to small."""
    _draw_sorted(ax, profiles)
    ax.set_xlabel("output, by its spread")
    ax.set_ylabel("spread")
    shown = finite(np.concatenate([profile.last for profile in profiles]))
    ax.set_ylim(0, 1.12 * shown.max(initial=1.0))
    if not shown.size:
        say_nothing_recorded(ax, "no data yet")


def draw_similarities(ax: Axes, learned: np.ndarray, true: np.ndarray) -> None:
    """Histograms of the cosines of positives and negatives, those of true latents dashed.

    Args:
      ax: what to draw on.
      learned: [2, bins], shares of positives and of negatives; no bins where none are known.
      true: [2, bins], likewise of the true latents.
    """
    for own, is_true in ((learned, False), (true, True)):
        if not own.size:
            continue
        edges = np.linspace(-1, 1, own.shape[1] + 1)
        for shares, color in zip(own, ("positive", "negative"), strict=True):
            if is_true:
                ax.stairs(shares, edges, color=COLORS[color], lw=1.2, ls=DASHED)
            else:
                ax.stairs(shares, edges, fill=True, color=COLORS[color], alpha=0.35)
    ax.set_xlim(-1, 1)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("cosine similarity")
    ax.set_ylabel("share")
    percent_axis(ax, "y")


def _draw_sorted(ax: Axes, profiles: Sequence[Profile]) -> None:
    """A line per run through its values, which are sorted already."""
    for profile in profiles:
        ax.plot(
            np.arange(1, profile.last.size + 1),
            profile.last,
            color=COLORS[profile.color],
            lw=2.0,
            ls=profile.line,
            marker=point_marker(profile.last.size),
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
