"""What the page of image runs says: its tables, and the numbers beside its figures."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from aninfonce_jax.evaluation.image_figures import STRENGTHS
from aninfonce_jax.evaluation.image_summary import readout, readout_rows, summarize_images
from aninfonce_jax.evaluation.page_tables import Cell, Column, Part, Row, rows_of, score_column
from aninfonce_jax.evaluation.paper_table import PaperTable, paper_table
from aninfonce_jax.evaluation.registry import (
    MISSING,
    ONE_DECIMAL,
    PERCENT,
    groups,
    score,
    scores_of,
)
from aninfonce_jax.evaluation.summary import join_words
from aninfonce_jax.evaluation.table import FEATURES, READOUTS
from aninfonce_jax.evaluation.wording import format_duration, format_score, format_steps
from aninfonce_jax.evaluation.workdir import WorkDir, as_number

# What the table of training shows besides scores, and its headings.
_PACE = {
    "step": "steps",
    "seconds": "time",
    "images_per_second": "images/s",
    "data_wait_share": "waiting",
}


def image_context(runs: Sequence[WorkDir], labels: Sequence[str]) -> dict[str, Any]:
    """The variables of the template that only the page of image runs has."""
    papers = [paper_table(name) for name in dict.fromkeys(run.dataset for run in runs)]
    known = list({paper.data: paper for paper in papers if paper}.values())
    scores = scores_of("features")
    columns = [(score.group, score.label) for score in scores]
    columns += [("training", label) for label in _PACE.values()]
    return {
        "datasets": list(dict.fromkeys(run.dataset for run in runs)),
        "learns_concentration": any(run.kind != "infonce" for run in runs),
        "summary": summarize_images(runs),
        "readout_columns": READOUTS,
        "readout_parts": readout_parts(runs, labels),
        "never_applied": _never_applied(runs),
        "papers": known,
        "paper_parts": [part for paper in known for part in _paper_parts(paper)],
        "groups": groups(columns),
        "columns": [label for _, label in columns],
        "table": rows_of(
            runs,
            labels,
            [score_column(score) for score in scores],
            lambda run: [Cell(_pace(run, key)) for key in _PACE],
        ),
        "unreadable": _unreadable(runs, labels),
        "notes": _notes(runs, labels),
        "profile": _listed(runs, labels, functools.partial(_range_note, key="concentration")),
        "spread": _listed(runs, labels, functools.partial(_range_note, key="spread")),
    }


def readout_parts(runs: Sequence[WorkDir], labels: Sequence[str]) -> list[Part]:
    """Table 1: for each kind of features a row per run, and the network before training."""
    parts = []
    for features in FEATURES:
        columns = [
            Column(functools.partial(readout, features=features, column=key), ONE_DECIMAL, "higher")
            for key in READOUTS
        ]
        trained = rows_of(runs, labels, columns)
        parts.append(Part(features.capitalize(), trained + _untrained_rows(runs, labels, features)))
    return parts


def _untrained_rows(runs: Sequence[WorkDir], labels: Sequence[str], features: str) -> list[Row]:
    """One row if the runs began alike, else one for each; none where that is not known."""

    def cell(run: WorkDir, column: str) -> Cell:
        found = readout(run, features=features, column=column, untrained=True)
        return Cell(ONE_DECIMAL.value(found.value), ONE_DECIMAL.margin(found.value, found.interval))

    known = [
        (label, [cell(run, column) for column in READOUTS])
        for run, label in zip(runs, labels, strict=True)
        if isinstance(run.final.get("untrained"), Mapping)
    ]
    if known and all(cells == known[0][1] for _, cells in known):
        return [Row("before training", known[0][1], is_context=True)]
    return [Row(f"{label}, before training", cells, is_context=True) for label, cells in known]


def _paper_parts(paper: PaperTable) -> list[Part]:
    return [
        Part(
            f"The paper’s {features}, {paper.data}",
            [
                Row(
                    row["objective"],
                    [Cell(ONE_DECIMAL.value(row.get(key, math.nan))) for key in READOUTS],
                    is_context=True,
                )
                for row in paper.rows
                if row["features"] == features
            ],
        )
        for features in FEATURES
    ]


def _pace(run: WorkDir, key: str) -> str:
    if key == "step":
        return format_steps(run)
    if key == "seconds":
        return format_duration(run.number(key))
    value = _median(run, key)
    if key == "data_wait_share":
        return PERCENT.value(value)
    return f"{value:,.0f}" if math.isfinite(value) else MISSING


def _score_text(run: WorkDir, key: str) -> str:
    return score(key).form.both(run.number(key), run.interval(key))


def _median(run: WorkDir, key: str) -> float:
    """The median over the rows of training that have it; NaN if none has."""
    values = [as_number(row.get(key)) for row in run.train]
    known = [value for value in values if math.isfinite(value)]
    return float(np.median(known)) if known else math.nan


def _never_applied(runs: Sequence[WorkDir]) -> str:
    """The augmentations that are read out of some run but were no part of its training."""
    names = [name for run in runs for name in run.final.get("never_applied") or ()]
    return join_words(list(dict.fromkeys(names))) if names else ""


def _unreadable(runs: Sequence[WorkDir], labels: Sequence[str]) -> list[str]:
    """The runs that met images they could not read, and how many, in training or evaluation."""
    notes = []
    for run, label in zip(runs, labels, strict=True):
        counts = [as_number(row.get("unreadable_images")) for row in (*run.train, run.final)]
        most = max((count for count in counts if math.isfinite(count)), default=0)
        if most:
            notes.append(f"{label} {most:,.0f}")
    return notes


def _listed(runs: Sequence[WorkDir], labels: Sequence[str], note: Callable[[WorkDir], str]) -> str:
    """What is known of each run, such as "InfoNCE 45.1%, AnInfoNCE 43.0%"."""
    notes = [(label, note(run)) for run, label in zip(runs, labels, strict=True)]
    known = [(label, text) for label, text in notes if text and text != MISSING]
    if len(runs) == 1:
        return known[0][1] if known else ""
    return ", ".join(f"{label} {text}" for label, text in known)


def _notes(runs: Sequence[WorkDir], labels: Sequence[str]) -> dict[str, list[str]]:
    """For each chart, what each of its panels says in numbers."""

    def average(features: str) -> Callable[[WorkDir], str]:
        def note(run: WorkDir) -> str:
            found = readout(run, features=features, column="average")
            margin = ONE_DECIMAL.margin(found.value, found.interval)
            return f"{PERCENT.value(found.value / 100)} {margin}".strip()

        return note

    def mean_r2(features: str) -> Callable[[WorkDir], str]:
        index = FEATURES.index(features)

        def note(run: WorkDir) -> str:
            values = readout_rows(run, "")[index]["strength_r2"]
            return format_score(float(np.mean([values.get(key, math.nan) for key in STRENGTHS])))

        return note

    def listed(prefix: str, note: Callable[[WorkDir], str]) -> str:
        text = _listed(runs, labels, note)
        return f"{prefix}{text}" if text else ""

    return {
        "readouts": [listed("average of the first five: ", average(name)) for name in FEATURES],
        "strengths": [listed("mean: ", mean_r2(name)) for name in FEATURES],
        "accuracy": [
            listed("", functools.partial(_score_text, key=key))
            for key in ("knn_accuracy", "probe_accuracy")
        ],
        "loss": [f"final {_score_text(run, 'loss')}" for run in runs],
        "rank": [
            listed("", functools.partial(_score_text, key=f"effective_rank_{name}"))
            for name in FEATURES
        ],
    }


def _range_note(run: WorkDir, key: str) -> str:
    values = run.final.get(key)
    known = [as_number(value) for value in values] if isinstance(values, list) else []
    known = [value for value in known if math.isfinite(value)]
    return f"from {max(known):.3g} down to {min(known):.3g}" if known else ""
