"""The findings of image runs in plain sentences, made from nothing but their numbers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aninfonce_jax.evaluation.summary import OBJECTIVE_NAMES, by_objective, objective_name
from aninfonce_jax.evaluation.table import UNTRAINED, table_rows
from aninfonce_jax.evaluation.workdir import WorkDir

_ALIKE = 1.0  # percentage points; what is closer than this is called alike
_BASELINE = OBJECTIVE_NAMES["infonce"]

# The mean of a column over the rows of an objective's runs, by features: "classes" and
# "average" in per cent, NaN if unknown.
_Scores = dict[str, dict[str, float]]


def readout_rows(run: WorkDir, name: str) -> list[dict[str, Any]]:
    """The rows of a run's table of readouts; see `table.table_rows`."""
    final = run.final
    return table_rows(name, final.get("readouts"), final.get("strength_r2"), final.get("untrained"))


def summarize_images(runs: Sequence[WorkDir]) -> list[str]:
    """What each objective kept of class and augmentations, then how the objectives differ."""
    groups = by_objective(runs)
    rows = [row for run in runs for row in readout_rows(run, objective_name(run.kind))]
    scores = {name: _scores(rows, name) for name in (*groups, UNTRAINED)}
    sentences = [_kept_sentence(name, group, scores[name]) for name, group in groups.items()]
    before = _untrained_sentence(scores[UNTRAINED])
    sentences.append(f"{_guessing_sentence(runs)} {before}".strip())
    baseline = _BASELINE if _BASELINE in groups else next(iter(groups))
    for name in groups:
        if name != baseline:
            sentences.append(_contrast_sentences(name, baseline, scores))
    return [sentence for sentence in sentences if sentence]


def _scores(rows: Sequence[Mapping[str, Any]], objective: str) -> _Scores:
    def mean(features: str, column: str) -> float:
        values = [
            row[column]
            for row in rows
            if (row["objective"], row["features"]) == (objective, features)
        ]
        return float(np.mean(values)) if values else math.nan

    return {
        features: {column: mean(features, column) for column in ("classes", "average")}
        for features in ("projector", "backbone")
    }


def _kept_sentence(name: str, runs: Sequence[WorkDir], scores: _Scores) -> str:
    """Says what can be read off an objective's features."""
    name = _in_sentence(name)
    average = f", on average over {len(runs)} runs," if len(runs) > 1 else ""
    parts = [
        f"{what} {_by_features(scores, column)}"
        for what, column in (
            ("the class correctly", "classes"),
            ("whether an augmentation was applied", "average"),
        )
        if _by_features(scores, column)
    ]
    if parts:
        return f"{name}: a linear readout{average} tells {', and '.join(parts)}."
    neighbours = 100 * float(np.mean([run.number("knn_accuracy") for run in runs]))
    if math.isfinite(neighbours):
        return (
            f"{name}: no readouts were recorded yet; the nearest neighbours of an image{average} "
            f"tell its class {neighbours:.1f}% of the time."
        )
    return f"{name}: no readouts were recorded yet, so this page cannot say what it kept."


def _in_sentence(name: str) -> str:
    """An objective's name without a comma, which would part the sentence."""
    return name.replace(", no ", " without ")


def _by_features(scores: _Scores, column: str) -> str:
    """Such as "52.3% of the time at the backbone and 48.1% at the projector"; "" if unknown."""
    known = [
        f"{scores[features][column]:.1f}% at the {features}"
        for features in ("backbone", "projector")
        if math.isfinite(scores[features][column])
    ]
    return " and ".join(known).replace("%", "% of the time", 1)


def _guessing_sentence(runs: Sequence[WorkDir]) -> str:
    chances = {f"{100 * run.number('chance'):.1f}%" for run in runs}
    if len(chances) > 1 or "nan%" in chances:
        return "Guessing is right 50% of the time for an augmentation."
    return (
        f"Guessing is right {chances.pop()} of the time for the class and 50% for an augmentation."
    )


def _untrained_sentence(scores: _Scores) -> str:
    classes, average = scores["backbone"]["classes"], scores["backbone"]["average"]
    if not math.isfinite(classes + average):
        return ""
    return (
        f"Before training, the backbone gave {classes:.1f}% for the class and {average:.1f}% for "
        "the augmentations."
    )


def _contrast_sentences(name: str, baseline: str, scores: Mapping[str, _Scores]) -> str:
    """Says for each kind of features where two objectives part, if they do."""
    clauses = []
    for features, own in scores[name].items():
        other = scores[baseline][features]
        phrases = [
            _augmentation_phrase(own["average"] - other["average"]),
            _class_phrase(own["classes"] - other["classes"]),
        ]
        known = [phrase for phrase in phrases if phrase]
        if known:
            known[0] += f" at the {features}"
            clauses.append(" and ".join(known))
    if not clauses:
        return ""
    names = _in_sentence(baseline), _in_sentence(name)
    return f"Compared with {names[0]}, {names[1]} {'; it '.join(clauses)}."


def _augmentation_phrase(gap: float) -> str:
    if not math.isfinite(gap):
        return ""
    if abs(gap) < _ALIKE:
        return "reads the augmentations about as well"
    return f"reads the augmentations {'better' if gap > 0 else 'worse'} by {abs(gap):.1f} points"


def _class_phrase(gap: float) -> str:
    if not math.isfinite(gap):
        return ""
    if abs(gap) < _ALIKE:
        return "has about the same class accuracy"
    return f"{'gains' if gap > 0 else 'loses'} {abs(gap):.1f} points of class accuracy"
