"""What can be read off features in plain sentences, made from nothing but the numbers.

One of two objectives is called better only if their intervals do not overlap.
"""

import math
from collections.abc import Mapping, Sequence

from aninfonce_jax.report.groups import Comparison, Group
from aninfonce_jax.report.runs import Measured, WorkDir
from aninfonce_jax.report.table import ReadoutRow, table_rows
from aninfonce_jax.report.wording import join_words
from aninfonce_jax.scores.intervals import is_above
from aninfonce_jax.scores.registry import (
    AVERAGE,
    CHANCE,
    CLASSES,
    KNN_ACCURACY,
    ONE_DECIMAL,
    PERCENT,
)

_ALIKE = 1.0  # percentage points; what is closer than this is called alike

# By layer and then by readout, in per cent: means over the runs of a group for the classes, and for
# the average over what was done; NaN if unknown.
_Scores = dict[str, dict[str, Measured]]


def readout_rows(run: WorkDir) -> list[ReadoutRow]:
    """The rows of a run's table of readouts; see `table.table_rows`."""
    return table_rows("", run.final)


def layers_of_runs(runs: Sequence[WorkDir]) -> list[str]:
    """The layers that were read out in some run."""
    return list(dict.fromkeys(row.layer for run in runs for row in readout_rows(run)))


def readout(run: WorkDir, *, layer: str, column: str, untrained: bool = False) -> Measured:
    """What a run's table of readouts holds in a column, in per cent; NaN if nothing."""
    for row in readout_rows(run):
        if row.layer == layer and row.is_trained != untrained:
            return row.share(column)
    return Measured(math.nan)


def summarize_readouts(family: Comparison) -> list[str]:
    """What runs on the same data kept of class and augmentations, then how they differ."""
    groups = family.groups
    scores = {group.label: _scores(group) for group in groups}
    sentences = [_kept_sentence(group, scores[group.label]) for group in groups]
    context = [_guessing_sentence(family.runs, scores), _untrained_sentence(family.runs)]
    sentences.append(" ".join(filter(None, context)))
    usual = [group for group in groups if group.objective.is_usual]
    baseline = usual[0] if len(usual) == 1 else groups[0]
    for group in groups:
        if group is not baseline:
            sentences.append(_contrast_sentences(group, baseline, scores))
    return [sentence for sentence in sentences if sentence]


def _scores(group: Group, *, untrained: bool = False) -> _Scores:
    def measured(layer: str, column: str) -> Measured:
        return group.measure(
            lambda run: readout(run, layer=layer, column=column, untrained=untrained)
        )

    return {
        layer: {column: measured(layer, column) for column in (CLASSES, AVERAGE)}
        for layer in layers_of_runs(group.runs)
    }


def _kept_sentence(group: Group, scores: _Scores) -> str:
    """Says what can be read off an objective's features."""
    name, runs = _in_sentence(group.label), group.runs
    average = f", on average over {len(runs)} runs," if len(runs) > 1 else ""
    parts = [
        f"{what} {_by_layer(scores, column)}"
        for what, column in (
            ("the class correctly", CLASSES),
            ("whether an augmentation was applied", AVERAGE),
        )
        if _by_layer(scores, column)
    ]
    if parts:
        return f"{name}: a linear readout{average} tells {', and '.join(parts)}."
    neighbours = group.score(KNN_ACCURACY)
    if math.isfinite(neighbours.value):
        return (
            f"{name}: no readouts were recorded yet; the nearest neighbours of an "
            f"example{average} tell its class "
            f"{PERCENT.both(neighbours.value, neighbours.interval)} of the time."
        )
    return f"{name}: no readouts were recorded yet, so this page cannot say what it kept."


def _in_sentence(name: str) -> str:
    """An objective's name without a comma, which would part the sentence."""
    return name.replace(", no ", " without ")


def _by_layer(scores: _Scores, column: str) -> str:
    """Such as "52.3% of the time at the backbone and 48.1% at the projector"; "" if unknown."""
    known: list[str] = []
    for layer, by_column in scores.items():
        own = by_column[column]
        if math.isfinite(own.value):
            margin = ONE_DECIMAL.margin(own.value, own.interval)
            of_time = "" if known else " of the time"
            known.append(
                f"{own.value:.1f}%{f' ({margin})' if margin else ''}{of_time} at the {layer}"
            )
    return join_words(known) if known else ""


def _guessing_sentence(runs: Sequence[WorkDir], scores: Mapping[str, _Scores]) -> str:
    """How often guessing would be right about what was read."""
    known = {
        column
        for own in scores.values()
        for by_column in own.values()
        for column, share in by_column.items()
        if math.isfinite(share.value)
    }
    chances = {f"{100 * run.number(CHANCE):.1f}%" for run in runs}
    parts = []
    if len(chances) == 1 and "nan%" not in chances:
        parts.append(f"{chances.pop()} of the time for the class")
    if AVERAGE in known:
        of_time = "" if parts else " of the time"
        parts.append(f"50%{of_time} for an augmentation")
    return f"Guessing is right {' and '.join(parts)}." if parts else ""


def _untrained_sentence(runs: Sequence[WorkDir]) -> str:
    """What the first layer that was read gave before training."""
    before = _scores(Group("", tuple(runs)), untrained=True)
    if not before:
        return ""
    layer, shares = next(iter(before.items()))
    known = [
        f"{shares[column].value:.1f}% for {what}"
        for column, what in ((CLASSES, "the class"), (AVERAGE, "the augmentations"))
        if math.isfinite(shares[column].value)
    ]
    return f"Before training, the {layer} gave {' and '.join(known)}." if known else ""


def _contrast_sentences(group: Group, baseline: Group, scores: Mapping[str, _Scores]) -> str:
    """Says for each layer, the last one first, where two objectives part, if they do."""
    clauses = []
    for layer, own in reversed(scores[group.label].items()):
        other = scores[baseline.label].get(layer)
        if other is None:
            continue
        phrases = [
            _augmentation_phrase(own[AVERAGE], other[AVERAGE]),
            _class_phrase(own[CLASSES], other[CLASSES]),
        ]
        known = [phrase for phrase in phrases if phrase]
        if len(known) == 2 and not any(_part(own[key], other[key]) for key in own):
            clauses.append(f"cannot be told from it at the {layer}")
        elif known:
            known[0] += f" at the {layer}"
            clauses.append(" and ".join(known))
    if not clauses:
        return ""
    names = _in_sentence(baseline.label), _in_sentence(group.label)
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
