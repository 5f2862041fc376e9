"""The section of what can be read off the features: classes, and what was done to examples."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aninfonce_jax.remote import AnyPath
from aninfonce_jax.report.figures import curve_of
from aninfonce_jax.report.groups import Comparison
from aninfonce_jax.report.page_tables import Cell, Column, Part, Row, rows_of
from aninfonce_jax.report.panels import Chart, Drawing, Key, panel_chart, run_keys
from aninfonce_jax.report.paper_table import PaperTable, paper_table
from aninfonce_jax.report.readout_figures import (
    Readings,
    draw_accuracy,
    draw_readouts,
    draw_strengths,
)
from aninfonce_jax.report.readout_summary import layers_of_runs, readout, readout_rows
from aninfonce_jax.report.runs import WorkDir, as_number, interval_of
from aninfonce_jax.report.section import Section
from aninfonce_jax.report.table import readouts_of
from aninfonce_jax.report.wording import format_of, format_score, join_words, list_runs
from aninfonce_jax.scores import registry
from aninfonce_jax.scores.registry import (
    AVERAGE,
    AVERAGED,
    CHANCE,
    KNN_ACCURACY,
    NEVER_APPLIED,
    ONE_DECIMAL,
    PERCENT,
    PROBE_ACCURACY,
    READOUTS,
    STRENGTHS,
)

_ROW_HEIGHT = 0.19  # inches for each run within an operation's row
_ACCURACIES = {"Nearest neighbours": KNN_ACCURACY, "Linear probe": PROBE_ACCURACY}


def readouts_section(page: Comparison, folder: AnyPath) -> Section | None:
    """The section of those runs whose examples are known; None if there are none."""
    own = page.where(lambda run: run.knows_examples)
    if not own.entries:
        return None
    columns = readouts_of(row for run in own.runs for row in readout_rows(run))
    operations = registry.operations(columns)
    papers = [paper_table(name) for name in dict.fromkeys(run.dataset for run in own.runs)]
    known = list({paper.data: paper for paper in papers if paper}.values()) if operations else []
    return Section(
        "readouts",
        own,
        None,
        {chart.name: chart for chart in _charts(own, operations, folder)},
        {
            "columns": columns,
            "operations": operations,
            "classes": registry.CLASSES in columns,
            "averaged": join_words(AVERAGED) if set(AVERAGED) <= set(columns) else "",
            "parts": readout_parts(own, columns),
            "papers": known,
            "paper_parts": [part for paper in known for part in _paper_parts(paper, columns)],
            "never_applied": _never_applied(own.runs),
        },
    )


# --- Table 1 ---


def readout_parts(own: Comparison, columns: Sequence[str]) -> list[Part]:
    """Table 1: for each layer a row per run, and the network before training."""
    parts = []
    for layer in layers_of_runs(own.runs):
        of_layer = own.where(functools.partial(_has_layer, layer=layer))
        numbers = [
            Column(
                "",
                name,
                functools.partial(readout, layer=layer, column=name),
                ONE_DECIMAL,
                "higher",
            )
            for name in columns
        ]
        rows = rows_of(of_layer, numbers) + _untrained_rows(of_layer, layer, columns)
        parts.append(Part(layer.capitalize(), rows))
    return parts


def _has_layer(run: WorkDir, layer: str) -> bool:
    return any(row.layer == layer for row in readout_rows(run))


def _untrained_rows(own: Comparison, layer: str, columns: Sequence[str]) -> list[Row]:
    """One row if the runs began alike, else one for each; none where that is not known."""

    def cell(run: WorkDir, name: str) -> Cell:
        found = readout(run, layer=layer, column=name, untrained=True)
        return Cell(ONE_DECIMAL.value(found.value), ONE_DECIMAL.margin(found.value, found.interval))

    known = [
        (entry.label, [cell(entry.run, name) for name in columns])
        for entry in own.entries
        if entry.run.untrained
    ]
    if known and all(cells == known[0][1] for _, cells in known):
        return [Row("before training", known[0][1], is_context=True)]
    return [Row(f"{label}, before training", cells, is_context=True) for label, cells in known]


def _paper_parts(paper: PaperTable, columns: Sequence[str]) -> list[Part]:
    return [
        Part(
            f"The paper’s {layer}, {paper.data}",
            [
                Row(
                    row.objective,
                    [Cell(ONE_DECIMAL.value(row.share(name).value)) for name in columns],
                    is_context=True,
                )
                for row in paper.rows
                if row.layer == layer
            ],
        )
        for layer in dict.fromkeys(row.layer for row in paper.rows)
    ]


def _never_applied(runs: Sequence[WorkDir]) -> str:
    """What is read out of some run but was no part of its training."""
    names = [name for run in runs for name in run.final.get(NEVER_APPLIED) or ()]
    return join_words(list(dict.fromkeys(names))) if names else ""


# --- Charts ---


def _charts(own: Comparison, operations: Sequence[str], folder: AnyPath) -> list[Chart]:
    charts = []
    layers = layers_of_runs(own.runs)
    if operations:
        readings = {x: _readings(own, READOUTS, x, operations) for x in layers}
        shown = np.concatenate(
            [np.r_[x.trained, x.untrained] for every in readings.values() for x in every]
        )
        drawings = [
            Drawing(
                layer.capitalize(),
                _average_note(own, layer),
                functools.partial(
                    draw_readouts, readings=readings[layer], names=operations, shown=shown
                ),
            )
            for layer in layers
        ]
        title = "Which augmentations can be told"
        charts.append(_dot_chart("readouts", title, "guessing", drawings, readings, folder))
    rows = [row for run in own.runs for row in readout_rows(run)]
    strengths = registry.operations(name for row in rows for name in row.strengths)
    if strengths:
        readings = {x: _readings(own, STRENGTHS, x, strengths) for x in layers}
        drawings = [
            Drawing(
                layer.capitalize(),
                _strength_note(own, layer, strengths),
                functools.partial(draw_strengths, readings=readings[layer], names=strengths),
            )
            for layer in layers
        ]
        title, start = "How strong each augmentation was", "nothing can be read"
        charts.append(_dot_chart("strengths", title, start, drawings, readings, folder))
    labelled = own.where(lambda run: run.has(*(score.key for score in _ACCURACIES.values())))
    if labelled.entries:
        charts.append(_accuracy_chart(labelled, folder))
    return charts


def _readings(own: Comparison, key: str, layer: str, names: Sequence[str]) -> list[Readings]:
    """What was read off a layer, of each run that has it."""

    def vector(scores: Mapping[str, Any]) -> np.ndarray:
        values = scores.get(key)
        values = values.get(layer) if isinstance(values, Mapping) else None
        values = values if isinstance(values, Mapping) else {}
        return np.array([as_number(values.get(name)) for name in names])

    def ends(scores: Mapping[str, Any]) -> np.ndarray:
        found = [interval_of(scores, key, layer, name) for name in names]
        return np.array([own or [math.nan, math.nan] for own in found])

    return [
        Readings(
            entry.label,
            entry.color,
            entry.place,
            vector(entry.run.final),
            ends(entry.run.final),
            vector(entry.run.untrained),
        )
        for entry in own.entries
        if _has_layer(entry.run, layer)
    ]


def _average_note(own: Comparison, layer: str) -> str:
    def note(run: WorkDir) -> str:
        found = readout(run, layer=layer, column=AVERAGE)
        margin = ONE_DECIMAL.margin(found.value, found.interval)
        return f"{PERCENT.value(found.value / 100)} {margin}".strip()

    text = list_runs(own, note)
    return f"average: {text}" if text else ""


def _strength_note(own: Comparison, layer: str, names: Sequence[str]) -> str:
    def note(run: WorkDir) -> str:
        for row in readout_rows(run):
            if row.layer == layer and row.is_trained:
                values = [row.strengths.get(name, math.nan) for name in names]
                return format_score(float(np.mean(values)))
        return ""

    text = list_runs(own, note)
    return f"mean: {text}" if text else ""


def _dot_chart(
    name: str,
    title: str,
    start: str,
    drawings: Sequence[Drawing],
    readings: Mapping[str, Sequence[Readings]],
    folder: AnyPath,
) -> Chart:
    """A panel for each layer; its height follows the number of dots."""
    every = [reading for own in readings.values() for reading in own]
    by_run = {reading.place: reading for reading in every}
    runs = [by_run[place] for place in sorted(by_run)]
    keys = [*run_keys(runs, "dot"), Key(start, "muted", "dash")]
    if any(np.isfinite(reading.untrained).any() for reading in every):
        keys.append(Key("before training", "muted", "tick"))
    if any(np.isfinite(reading.intervals).any() for reading in every):
        keys.append(Key("broad: 95 % interval", "muted", "line"))
    most = max(len(own) for own in readings.values())
    size = 3.9, 0.9 + every[0].trained.size * max(0.3, _ROW_HEIGHT * most)
    return panel_chart(name, title, keys, drawings, folder, size)


def _accuracy_chart(own: Comparison, folder: AnyPath) -> Chart:
    curves = {
        title: [curve_of(entry, score) for entry in own.entries]
        for title, score in _ACCURACIES.items()
    }
    shown = np.concatenate([one.values for every in curves.values() for one in every])
    chances = [run.number(CHANCE) for run in own.runs]
    drawings = [
        Drawing(
            title,
            list_runs(own, functools.partial(format_of, score=score)),
            functools.partial(draw_accuracy, curves=curves[title], chances=chances, shown=shown),
        )
        for title, score in _ACCURACIES.items()
    ]
    first = next(iter(curves.values()))
    keys = [*run_keys(first, "line"), Key("guessing", "muted", "dash")]
    return panel_chart("accuracy", "Class accuracy", keys, drawings, folder)
