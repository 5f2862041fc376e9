"""The section of what augmentations do to single examples: how the views of one are spread."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from aninfonce_jax.remote import AnyPath
from aninfonce_jax.report.groups import Comparison, Entry
from aninfonce_jax.report.page_tables import make_table, score_columns
from aninfonce_jax.report.panels import Chart, Drawing, Key, panel_chart
from aninfonce_jax.report.section import Section
from aninfonce_jax.report.view_figures import draw_histogram, draw_refuted, draw_widths
from aninfonce_jax.report.wording import join_words
from aninfonce_jax.scores.registry import VIEWS, scores_of

_HISTOGRAM = ("edges", "shares", "mean", "deviation", "skewness", "one_mode")


class _Spread(NamedTuple):
    """What a run's files tell of its views, checked.

    Attributes:
      widths: [dim, 5], quantiles over examples.
      refuted: [2, dim], shares of examples that are not normal, and that have several modes.
      first: of the first example, for each output what `_HISTOGRAM` names.
      examples: how many.
      views: how many of each.
    """

    widths: np.ndarray
    refuted: np.ndarray
    first: list[dict[str, np.ndarray]]
    examples: int
    views: int


def views_section(page: Comparison, folder: AnyPath) -> Section | None:
    """The section of those runs whose files tell of views; None if there are none."""
    spreads = [(entry, read_spread(entry.run.final.get(VIEWS))) for entry in page.entries]
    found = [(entry, spread) for entry, spread in spreads if spread is not None]
    if not found:
        return None
    told = {id(entry.run) for entry, _ in found}
    own = page.where(lambda run: id(run) in told)
    histograms = [_histograms(entry, spread, folder) for entry, spread in found]
    charts = [*histograms, _widths(found, folder)]
    counts = [f"{x.views} views of each of {x.examples} test examples" for _, x in found]
    return Section(
        "views",
        own,
        make_table(own, score_columns(scores_of("views"), own.runs)),
        {chart.name: chart for chart in charts},
        {
            "counts": join_words(list(dict.fromkeys(counts))),
            "histograms": list(zip(own.labels, [x.name for x in histograms], strict=True)),
        },
    )


def read_spread(values: Any) -> _Spread | None:
    """Returns what an evaluation tells of views; None if it tells nothing, or is damaged."""
    if not isinstance(values, Mapping):
        return None
    try:
        widths = np.array(values["widths"], np.float64)
        refuted = np.array([values["not_normal"], values["many_modes"]], np.float64)
        first = [
            {name: np.array(one[name], np.float64) for name in _HISTOGRAM}
            for one in values["first"]
        ]
        counts = int(values["examples"]), int(values["per_example"])
    except (KeyError, TypeError, ValueError):
        return None
    arrays = [widths, refuted, *(array for one in first for array in one.values())]
    fits = widths.ndim == 2 and widths.shape[1] == 5 and refuted.shape == (2, len(widths))
    fits = fits and bool(first) and all(np.isfinite(array).all() for array in arrays)
    fits = fits and all(one["edges"].shape == (one["shares"].size + 1,) for one in first)
    return _Spread(widths, refuted, first, *counts) if fits else None


def _histograms(entry: Entry, spread: _Spread, folder: AnyPath) -> Chart:
    drawings = [
        Drawing(
            f"output {place}",
            f"skewness {one['skewness']:.2f}, one mode: p = {one['one_mode']:.2g}",
            functools.partial(draw_histogram, one=one, color=entry.color),
        )
        for place, one in enumerate(spread.first)
    ]
    keys = [
        Key(f"{spread.views} views of one example", entry.color, "box"),
        Key("a normal distribution of the same width", "ink", "dash"),
    ]
    name = "views" if entry.place == 0 else f"views_{entry.place + 1}"
    return panel_chart(name, f"Views of one example: {entry.label}", keys, drawings, folder)


def _widths(found: list[tuple[Entry, _Spread]], folder: AnyPath) -> Chart:
    drawings = []
    for entry, spread in found:
        middle = spread.widths[:, 2]
        drawings += [
            Drawing(
                f"Widths: {entry.label}",
                f"medians from {middle.min():.2f} to {middle.max():.2f}",
                functools.partial(draw_widths, widths=spread.widths, color=entry.color),
            ),
            Drawing(
                f"Shapes: {entry.label}",
                f"not normal {spread.refuted[0].mean():.0%}, several modes "
                f"{spread.refuted[1].mean():.0%}",
                functools.partial(draw_refuted, refuted=spread.refuted),
            ),
        ]
    keys = [
        Key("not normal", "content", "dot"),
        Key("several modes", "style", "dot"),
        Key("what chance refutes", "muted", "dash"),
    ]
    return panel_chart("view_shapes", "Views, example by example", keys, drawings, folder)
