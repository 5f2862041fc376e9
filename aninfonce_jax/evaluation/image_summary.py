"""The findings of image runs in plain sentences, made from nothing but their numbers.

Of two objectives one is called better only where their intervals part.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from aninfonce_jax.evaluation.groups import OBJECTIVE_NAMES, Group, Measured, group_runs
from aninfonce_jax.evaluation.intervals import is_above
from aninfonce_jax.evaluation.registry import ONE_DECIMAL, PERCENT
from aninfonce_jax.evaluation.table import FEATURES, UNTRAINED, table_rows
from aninfonce_jax.evaluation.workdir import WorkDir

_ALIKE = 1.0  # percentage points; what is closer than this is called alike
_BASELINE = OBJECTIVE_NAMES["infonce"]

# The mean of a column over the runs of a group, by features: "classes" and "average" in per
# cent, NaN if unknown.
_Scores = dict[str, dict[str, Measured]]


def readout_rows(run: WorkDir, name: str) -> list[dict[str, Any]]:
    """The rows of a run's table of readouts; see `table.table_rows`."""
    return table_rows(name, run.final)


def readout(run: WorkDir, *, features: str, column: str, untrained: bool = False) -> Measured:
    """What a run's table of readouts holds in a column, in per cent; NaN if nothing."""
    for row in readout_rows(run, ""):
        if row["features"] == features and untrained == (row["objective"] == UNTRAINED):
            return Measured(row[column], row["intervals"].get(column))
    return Measured(math.nan)


def summarize_images(runs: Sequence[WorkDir]) -> list[str]:
    """What each objective kept of class and augmentations, then how the objectives differ."""
    groups = group_runs(runs)
    scores = {group.label: _scores(group) for group in groups}
    sentences = [_kept_sentence(group, scores[group.label]) for group in groups]
    before = _untrained_sentence(runs)
    sentences.append(f"{_guessing_sentence(runs)} {before}".strip())
    labels = [group.label for group in groups]
    baseline = _BASELINE if _BASELINE in labels else labels[0]
    for name in labels:
        if name != baseline:
            sentences.append(_contrast_sentences(name, baseline, scores))
    return [sentence for sentence in sentences if sentence]


def _scores(group: Group, *, untrained: bool = False) -> _Scores:
    def measured(features: str, column: str) -> Measured:
        return group.measure(
            lambda run: readout(run, features=features, column=column, untrained=untrained)
        )

    return {
        features: {column: measured(features, column) for column in ("classes", "average")}
        for features in ("projector", "backbone")
    }


def _kept_sentence(group: Group, scores: _Scores) -> str:
    """Says what can be read off an objective's features."""
    name, runs = _in_sentence(group.label), group.runs
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
    neighbours = group.score("knn_accuracy")
    if math.isfinite(neighbours.value):
        return (
            f"{name}: no readouts were recorded yet; the nearest neighbours of an image{average} "
            f"tell its class {PERCENT.both(neighbours.value, neighbours.interval)} of the time."
        )
    return f"{name}: no readouts were recorded yet, so this page cannot say what it kept."


def _in_sentence(name: str) -> str:
    """An objective's name without a comma, which would part the sentence."""
    return name.replace(", no ", " without ")


def _by_features(scores: _Scores, column: str) -> str:
    """Such as "52.3% of the time at the backbone and 48.1% at the projector"; "" if unknown."""
    known: list[str] = []
    for features in FEATURES:
        own = scores[features][column]
        if math.isfinite(own.value):
            margin = ONE_DECIMAL.margin(own.value, own.interval)
            of_time = "" if known else " of the time"
            known.append(
                f"{own.value:.1f}%{f' ({margin})' if margin else ''}{of_time} at the {features}"
            )
    return " and ".join(known)


def _guessing_sentence(runs: Sequence[WorkDir]) -> str:
    chances = {f"{100 * run.number('chance'):.1f}%" for run in runs}
    if len(chances) > 1 or "nan%" in chances:
        return "Guessing is right 50% of the time for an augmentation."
    return (
        f"Guessing is right {chances.pop()} of the time for the class and 50% for an augmentation."
    )


def _untrained_sentence(runs: Sequence[WorkDir]) -> str:
    backbone = _scores(Group(UNTRAINED, tuple(runs)), untrained=True)["backbone"]
    classes, average = backbone["classes"].value, backbone["average"].value
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
            _augmentation_phrase(own["average"], other["average"]),
            _class_phrase(own["classes"], other["classes"]),
        ]
        known = [phrase for phrase in phrases if phrase]
        if len(known) == 2 and not any(_part(own[key], other[key]) for key in own):
            clauses.append(f"cannot be told from it at the {features}")
        elif known:
            known[0] += f" at the {features}"
            clauses.append(" and ".join(known))
    if not clauses:
        return ""
    names = _in_sentence(baseline), _in_sentence(name)
    return f"Compared with {names[0]}, {names[1]} {'; it '.join(clauses)}."


def _augmentation_phrase(own: Measured, other: Measured) -> str:
    gap = own.value - other.value
    if not math.isfinite(gap):
        return ""
    if not _part(own, other):
        return "cannot be told from it in reading the augmentations"
    if abs(gap) < _ALIKE:
        return "reads the augmentations about as well"
    return f"reads the augmentations {'better' if gap > 0 else 'worse'} by {abs(gap):.1f} points"


def _class_phrase(own: Measured, other: Measured) -> str:
    gap = own.value - other.value
    if not math.isfinite(gap):
        return ""
    if not _part(own, other):
        return "cannot be told from it in class accuracy"
    if abs(gap) < _ALIKE:
        return "has about the same class accuracy"
    return f"{'gains' if gap > 0 else 'loses'} {abs(gap):.1f} points of class accuracy"


def _part(one: Measured, other: Measured) -> bool:
    return is_above(one.interval, other.interval) or is_above(other.interval, one.interval)
