"""How views of one example are spread: each kind of panel, drawn onto given axes."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from aninfonce_jax.report.figures import COLORS, DASHED, percent_axis

# The level of the tests: so many are refuted where nothing is the matter.
_LEVEL = 0.05


def draw_histogram(ax: Axes, one: Mapping[str, np.ndarray], color: str) -> None:
    """The views of one example in one output, and a normal distribution as wide."""
    edges = one["edges"]
    ax.stairs(one["shares"], edges, fill=True, color=COLORS[color], alpha=0.45)
    width = float(one["deviation"])
    if width > 0:
        x = np.linspace(edges[0], edges[-1], 200)
        density = np.exp(-0.5 * ((x - one["mean"]) / width) ** 2) / (width * np.sqrt(2 * np.pi))
        ax.plot(x, density * (edges[1] - edges[0]), color=COLORS["ink"], lw=1.2, ls=DASHED)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("value of the output")
    ax.set_ylabel("share of the views")
    percent_axis(ax, "y")


def draw_widths(ax: Axes, widths: np.ndarray, color: str) -> None:
    """Quantiles of the width over examples, for each output, [dim, 5]."""
    places = np.arange(len(widths))
    ax.vlines(places, widths[:, 0], widths[:, 4], color=COLORS[color], lw=1.2)
    ax.vlines(places, widths[:, 1], widths[:, 3], color=COLORS[color], lw=4)
    ax.plot(places, widths[:, 2], "o", ms=3, color=COLORS["ink"])
    ax.set_ylim(bottom=0)
    _by_output(ax, "width ÷ that of all views")


def draw_refuted(ax: Axes, refuted: np.ndarray) -> None:
    """Shares of examples whose views are not normal, or have several modes, [2, dim]."""
    for shares, color in zip(refuted, ("content", "style"), strict=True):
        ax.plot(shares, "o", ms=5, color=COLORS[color])
    ax.axhline(_LEVEL, color=COLORS["muted"], lw=1.5, ls=DASHED)
    ax.set_ylim(-0.05, 1.05)
    percent_axis(ax, "y")
    _by_output(ax, "share of the examples")


def _by_output(ax: Axes, label: str) -> None:
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.set_xlabel("output")
    ax.set_ylabel(label)
