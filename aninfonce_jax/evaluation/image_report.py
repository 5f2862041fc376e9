"""What the page of image runs says: its tables, and the numbers beside its figures."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from aninfonce_jax.evaluation.image_figures import STRENGTHS
from aninfonce_jax.evaluation.image_summary import readout_rows, summarize_images
from aninfonce_jax.evaluation.paper_table import PaperTable, paper_table
from aninfonce_jax.evaluation.summary import join_words
from aninfonce_jax.evaluation.table import FEATURES, READOUTS, UNTRAINED
from aninfonce_jax.evaluation.wording import MISSING, format_duration, format_score, format_steps
from aninfonce_jax.evaluation.workdir import WorkDir, as_number

_COLUMNS = {
    "knn_accuracy": "k-NN",
    "probe_accuracy": "probe",
    "effective_rank_backbone": "backbone",
    "effective_rank_projector": "projector",
    "loss": "loss",
    "step": "steps",
    "seconds": "time",
    "images_per_second": "images/s",
    "data_wait_share": "waiting",
}


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table: cells with whether each is the best of its column."""

    label: str
    cells: list[tuple[str, bool]]
    is_context: bool = False


@dataclasses.dataclass(frozen=True)
class Part:
    """Rows of a table under a heading of their own."""

    heading: str
    rows: list[Row]


def image_context(runs: Sequence[WorkDir], labels: Sequence[str]) -> dict[str, Any]:
    """The variables of the template that only the page of image runs has."""
    papers = [paper_table(name) for name in dict.fromkeys(run.dataset for run in runs)]
    known = list({paper.data: paper for paper in papers if paper}.values())
    return {
        "datasets": list(dict.fromkeys(run.dataset for run in runs)),
        "learns_concentration": any(run.kind != "infonce" for run in runs),
        "summary": summarize_images(runs),
        "readout_columns": READOUTS,
        "readout_parts": readout_parts(runs, labels),
        "never_applied": _never_applied(runs),
        "papers": known,
        "paper_parts": [part for paper in known for part in _paper_parts(paper)],
        "columns": list(_COLUMNS.values()),
        "table": [
            Row(label, [(_cell(run, key), False) for key in _COLUMNS])
            for run, label in zip(runs, labels, strict=True)
        ],
        "unreadable": _unreadable(runs, labels),
        "notes": _notes(runs, labels),
        "profile": _listed(runs, labels, functools.partial(_range_note, key="concentration")),
        "spread": _listed(runs, labels, functools.partial(_range_note, key="spread")),
    }


def readout_parts(runs: Sequence[WorkDir], labels: Sequence[str]) -> list[Part]:
    """Table 1: for each kind of features a row per run, and the network before training."""
    rows = [
        {"label": label, **row}
        for run, label in zip(runs, labels, strict=True)
        for row in readout_rows(run, label)
    ]
    parts = []
    for features in FEATURES:
        own = [row for row in rows if row["features"] == features]
        trained = [row for row in own if row["objective"] != UNTRAINED]
        best = {key: _best(trained, key) for key in READOUTS}
        filled = [
            Row(
                row["label"],
                [(_one_decimal(row[key]), _one_decimal(row[key]) == best[key]) for key in READOUTS],
            )
            for row in trained
        ]
        before = [row for row in own if row["objective"] == UNTRAINED]
        parts.append(Part(features.capitalize(), filled + _untrained_rows(before)))
    return parts


def _untrained_rows(rows: Sequence[Mapping[str, Any]]) -> list[Row]:
    """One row if the runs began alike, else one for each."""
    cells = [tuple((_one_decimal(row[key]), False) for key in READOUTS) for row in rows]
    if len(set(cells)) == 1:
        return [Row("before training", list(cells[0]), is_context=True)]
    return [
        Row(f"{row['label']}, before training", list(own), is_context=True)
        for row, own in zip(rows, cells, strict=True)
    ]


def _best(rows: Sequence[Mapping[str, Any]], key: str) -> str | None:
    """The largest as it is written; None if there is no difference to see."""
    known = {_one_decimal(row[key]): row[key] for row in rows if math.isfinite(row[key])}
    return max(known, key=lambda text: known[text]) if len(known) > 1 else None


def _paper_parts(paper: PaperTable) -> list[Part]:
    return [
        Part(
            f"The paper’s {features}, {paper.data}",
            [
                Row(
                    row["objective"],
                    [(_one_decimal(row.get(key, math.nan)), False) for key in READOUTS],
                    is_context=True,
                )
                for row in paper.rows
                if row["features"] == features
            ],
        )
        for features in FEATURES
    ]


def _one_decimal(value: float) -> str:
    """A rank, or a number in per cent without the sign, which the table's heading has."""
    return f"{value:.1f}" if math.isfinite(value) else MISSING


def _share(value: float) -> str:
    return f"{100 * value:.1f}%" if math.isfinite(value) else MISSING


def _cell(run: WorkDir, key: str) -> str:
    if key == "step":
        return format_steps(run)
    if key == "seconds":
        return format_duration(run.number(key))
    if key == "images_per_second":
        speed = _median(run, key)
        return f"{speed:,.0f}" if math.isfinite(speed) else MISSING
    if key == "data_wait_share":
        return _share(_median(run, key))
    if key == "loss":
        return format_score(run.number(key))
    return _one_decimal(run.number(key)) if key.startswith("effective") else _share(run.number(key))


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
        index = FEATURES.index(features)
        return lambda run: _share(readout_rows(run, "")[index]["average"] / 100)

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
            listed("", lambda run, key=key: _share(run.number(key)))  # type: ignore[misc]
            for key in ("knn_accuracy", "probe_accuracy")
        ],
        "loss": [f"final {format_score(run.number('loss'))}" for run in runs],
        "rank": [
            listed("", lambda run, name=name: _one_decimal(run.number(f"effective_rank_{name}")))  # type: ignore[misc]
            for name in FEATURES
        ],
    }


def _range_note(run: WorkDir, key: str) -> str:
    values = run.final.get(key)
    known = [as_number(value) for value in values] if isinstance(values, list) else []
    known = [value for value in known if math.isfinite(value)]
    return f"from {max(known):.3g} down to {min(known):.3g}" if known else ""
