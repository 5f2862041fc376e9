"""The section of how training went: loss, pace, and the scores that watch it."""

import functools
import math

import numpy as np

from aninfonce_jax.remote import AnyPath
from aninfonce_jax.report.figures import column, finite
from aninfonce_jax.report.groups import Comparison, Entry
from aninfonce_jax.report.page_tables import Note, make_table, score_columns
from aninfonce_jax.report.panels import Chart, Drawing, Key, panel_chart
from aninfonce_jax.report.runs import WorkDir
from aninfonce_jax.report.section import Section
from aninfonce_jax.report.times import shown_phases, time_shares
from aninfonce_jax.report.training_figures import Losses, draw_loss, draw_time
from aninfonce_jax.report.wording import format_duration, format_of, format_steps
from aninfonce_jax.scores.registry import (
    DATA_WAIT_SHARE,
    EXAMPLES_PER_SECOND,
    LOSS,
    LOSS_FLOOR,
    MISSING,
    PEAK_MEMORY,
    PERCENT,
    PHASE_NAMES,
    SECONDS,
    STEP,
    UNREADABLE,
    WALL_SECONDS,
    scores_of,
)


def training_section(page: Comparison, folder: AnyPath) -> Section:
    """The section of all runs."""
    notes = [
        Note("training", "steps", format_steps),
        Note("training", "time", lambda run: format_duration(run.number(SECONDS))),
    ]
    is_fed = any(EXAMPLES_PER_SECOND in row for run in page.runs for row in run.train)
    if is_fed:
        notes += [
            Note("training", "examples/s", _examples_per_second),
            Note("training", "waiting", _waiting),
        ]
    if any(run.has(PEAK_MEMORY) for run in page.runs):
        notes.append(Note("training", "device memory", _peak_memory))
    charts = [_loss_chart(page, folder)]
    if any(time_shares(run.final) for run in page.runs):
        charts.append(_time_chart(page, folder))
    return Section(
        "training",
        page,
        make_table(page, score_columns(scores_of("training"), page.runs), notes),
        {chart.name: chart for chart in charts},
        {
            "is_fed": is_fed,
            "has_floor": any(run.has(LOSS_FLOOR.key) for run in page.runs),
            "unreadable": _unreadable(page),
        },
    )


def _median(run: WorkDir, key: str) -> float:
    """The median over the rows of training that have it; NaN if none has."""
    known = finite(column(run.train, key))
    return float(np.median(known)) if known.size else math.nan


def _examples_per_second(run: WorkDir) -> str:
    value = _median(run, EXAMPLES_PER_SECOND)
    return f"{value:,.0f}" if math.isfinite(value) else MISSING


def _waiting(run: WorkDir) -> str:
    return PERCENT.value(_median(run, DATA_WAIT_SHARE))


def _peak_memory(run: WorkDir) -> str:
    value = run.number(PEAK_MEMORY)
    return f"{value / 2**30:.1f} GiB" if math.isfinite(value) else MISSING


def _time_chart(page: Comparison, folder: AnyPath) -> Chart:
    shares = [time_shares(entry.run.final) for entry in page.entries]
    shown = shown_phases(shares)  # the same in every panel, so that runs can be compared
    drawings = [
        Drawing(
            entry.label,
            _time_note(entry.run),
            functools.partial(
                draw_time, shares={PHASE_NAMES[phase].label: own[phase] for phase in shown if own}
            ),
        )
        for entry, own in zip(page.entries, shares, strict=True)
    ]
    return panel_chart("time", "Where the time went", [], drawings, folder)


def _time_note(run: WorkDir) -> str:
    shares = time_shares(run.final)
    if not shares:
        return ""
    wall = format_duration(run.number(WALL_SECONDS))
    return f"{PERCENT.value(shares['steps'])} of {wall} in training steps"


def _unreadable(page: Comparison) -> list[str]:
    """The runs that met examples they could not read, and how many."""
    notes = []
    for entry in page.entries:
        counts = finite(column([*entry.run.train, entry.run.final], UNREADABLE))
        if most := counts.max(initial=0):
            notes.append(f"{entry.label} {most:,.0f}")
    return notes


def _loss_chart(page: Comparison, folder: AnyPath) -> Chart:
    losses = [_losses(entry) for entry in page.entries]
    keys = [Key("held-out loss", "ink", "line"), Key("training batches", "muted", "line")]
    if any(math.isfinite(own.floor) for own in losses):
        keys.append(Key("floor", "floor", "dash"))
    drawings = [
        Drawing(
            entry.label,
            _loss_note(entry.run),
            functools.partial(draw_loss, run=own, runs=losses),
        )
        for entry, own in zip(page.entries, losses, strict=True)
    ]
    return panel_chart("loss", "Loss", keys, drawings, folder)


def _losses(entry: Entry) -> Losses:
    run = entry.run
    floors = finite(column([*run.evals, run.final], LOSS_FLOOR.key))
    return Losses(
        entry.label,
        entry.color,
        entry.place,
        family=(*run.data, "" if run.objective.finds_positives else run.objective.kind),
        train_steps=column(run.train, STEP),
        train=column(run.train, LOSS.key),
        eval_steps=column(run.evals, STEP),
        held_out=column(run.evals, LOSS.key),
        floor=float(floors[-1]) if floors.size else math.nan,
    )


def _loss_note(run: WorkDir) -> str:
    floor = f", floor {format_of(run, LOSS_FLOOR)}" if run.has(LOSS_FLOOR.key) else ""
    return f"final {format_of(run, LOSS)}{floor}"
