"""The section of what was recovered of known latents."""

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from aninfonce_jax.remote import AnyPath
from aninfonce_jax.report.figures import column
from aninfonce_jax.report.groups import Comparison, Entry
from aninfonce_jax.report.page_tables import make_table, score_columns
from aninfonce_jax.report.panels import (
    Chart,
    Drawing,
    Key,
    overview_chart,
    panel_chart,
    run_keys,
)
from aninfonce_jax.report.recovery_figures import (
    Recovered,
    all_alike,
    draw_bars,
    draw_concentration,
    draw_map,
    draw_r2,
    largest_weight,
)
from aninfonce_jax.report.runs import RECOVERED_R2, WorkDir, as_vector
from aninfonce_jax.report.section import Section
from aninfonce_jax.report.wording import format_of, format_score, percent
from aninfonce_jax.scores.registry import (
    BLOCK_ENERGY,
    CONCENTRATION,
    CONCENTRATION_TRUE,
    MAP,
    R2,
    R2_CONTENT,
    R2_PER_FACTOR,
    R2_SHIFTED,
    R2_STYLE,
    RETRIEVAL,
    STEP,
    scores_of,
)

_SQUARE_SIZE = (3.9, 3.8)


def recovery_section(page: Comparison, folder: AnyPath) -> Section | None:
    """The section of those runs whose latents are known; None if there are none."""
    own = page.where(lambda run: run.knows_latents)
    if not own.entries:
        return None
    return Section(
        "recovery",
        own,
        make_table(own, score_columns(scores_of("recovery"), own.runs)),
        {chart.name: chart for chart in _charts(own, folder)},
        {
            "dims": " or ".join(str(dim) for dim in sorted({run.dim for run in own.runs})),
            "recovered_r2": RECOVERED_R2,
            "retrieves": any(run.has(RETRIEVAL.key) for run in own.runs),
            "is_shifted": any(run.has(R2_SHIFTED.key) for run in own.runs),
        },
    )


def recovered(entry: Entry) -> Recovered:
    """What the figures need of a run."""
    run, dim = entry.run, entry.run.dim
    rows = run.final.get(MAP)
    square = rows if isinstance(rows, list) and len(rows) == dim else [None] * dim
    return Recovered(
        entry.label,
        entry.color,
        entry.place,
        steps=column(run.evals, STEP),
        r2=np.stack([as_vector(row.get(R2_PER_FACTOR), dim) for row in run.evals]),
        r2_final=run.r2_final,
        r2_intervals=run.factor_intervals,
        concentration=np.stack([as_vector(row.get(CONCENTRATION), dim) for row in run.evals]),
        concentration_true=as_vector(run.final.get(CONCENTRATION_TRUE), dim),
        map=np.stack([as_vector(row, dim) for row in square]),
    )


def _charts(own: Comparison, folder: AnyPath) -> list[Chart]:
    runs = [recovered(entry) for entry in own.entries]
    factors = _factor_keys(runs)
    charts = [
        _bar_chart("Final R² of every factor", runs, folder),
        panel_chart("r2", "R² of every factor", factors, _by_run(own, _r2_note, draw_r2), folder),
    ]
    # A Λ̂ of outputs that are more or fewer than the factors is in the profile.
    set_against = own.where(lambda run: not run.has_profile)
    if any(run.has(CONCENTRATION_TRUE) for run in set_against.runs):
        learned = [*factors, Key("true values", "muted", "dash")]
        if any(all_alike(run.concentration) for run in runs):
            learned.append(Key("one value for all factors", "ink", "line"))
        drawings = _by_run(set_against, _error_note, draw_concentration)
        title = "Learned concentration Λ"
        charts.append(panel_chart("concentration", title, learned, drawings, folder))
    if any(run.has(MAP) for run in own.runs):
        largest = largest_weight(runs)
        signs = [
            Key(f"positive weight, up to {largest:.2f}", "positive", "box"),
            Key(f"negative weight, down to −{largest:.2f}", "negative", "box"),
        ]
        title, drawings = "From true to recovered factors", _by_run(own, _map_note, draw_map)
        charts.append(panel_chart("map", title, signs, drawings, folder, _SQUARE_SIZE))
    return charts


def _by_run(
    own: Comparison, note: Callable[[WorkDir], str], draw: Callable[..., None]
) -> list[Drawing]:
    """A panel for each run, on scales that they share."""
    runs = [recovered(entry) for entry in own.entries]
    return [
        Drawing(entry.label, note(entry.run), functools.partial(draw, run=run, runs=runs))
        for entry, run in zip(own.entries, runs, strict=True)
    ]


def _factor_keys(runs: Sequence[Recovered]) -> list[Key]:
    if all(run.is_content is None for run in runs):
        return [Key("factors", "content", "line")]
    return [Key("content factors", "content", "line"), Key("style factors", "style", "line")]


def _bar_chart(title: str, runs: Sequence[Recovered], folder: AnyPath) -> Chart:
    """One panel for all runs: upright bars on wide screens, lying ones on phones."""
    keys = run_keys(runs, "box")
    if any(np.isfinite(run.r2_intervals).any() for run in runs):
        keys.append(Key("95 % interval", "ink", "tick"))
    dim = max(run.r2_final.size for run in runs)
    upright, lying = (
        functools.partial(draw_bars, runs=runs, horizontal=horizontal)
        for horizontal in (False, True)
    )
    narrow = (3.6, 1.0 + dim * max(0.24, 0.09 * len(runs)))
    note = "; ".join(
        f"{run.label}: {', '.join(format_score(value) for value in run.r2_final)}" for run in runs
    )
    wide = ((8.8, 2.9), upright)
    return overview_chart("factors", title, keys, wide, (narrow, lying), folder, note)


def _r2_note(run: WorkDir) -> str:
    if math.isfinite(run.number(R2_CONTENT.key) + run.number(R2_STYLE.key)):
        return f"content {format_of(run, R2_CONTENT)}, style {format_of(run, R2_STYLE)}"
    return f"mean {format_of(run, R2)}"


def _error_note(run: WorkDir) -> str:
    deviation = run.concentration_deviation
    return f"largest error {100 * deviation:.1f}%" if math.isfinite(deviation) else ""


def _map_note(run: WorkDir) -> str:
    energy = run.number(BLOCK_ENERGY)
    return f"{percent(energy)} inside the squares" if math.isfinite(energy) else ""
