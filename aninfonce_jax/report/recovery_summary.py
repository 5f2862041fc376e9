"""What was recovered of known latents in plain sentences, made from nothing but its numbers.

One of two objectives is called better only if their intervals do not overlap.
"""

import math
from collections.abc import Sequence

import numpy as np

from aninfonce_jax.report.groups import Comparison, Group
from aninfonce_jax.report.runs import RECOVERED_R2, Measured, WorkDir
from aninfonce_jax.report.wording import join_words, percent_with_margin
from aninfonce_jax.scores.intervals import Interval, is_above
from aninfonce_jax.scores.registry import (
    LOSS,
    LOSS_ABOVE_FLOOR,
    LOSS_FLOOR,
    PLAIN,
    R2,
    R2_CONTENT,
    R2_STYLE,
    Score,
)

_SAME_R2 = 0.01  # objectives closer than this are called alike


def summarize_recovery(family: Comparison) -> list[str]:
    """What runs on the same data recovered, one objective after the other, then the contrast."""
    groups = family.groups
    sentences = [_recovery_sentence(group) for group in groups]
    if len(groups) > 1:
        sentences.append(_contrast_sentence(groups))
    elif len(family.runs) == 1:
        sentences.append(_loss_sentence(family.runs[0]))
        sentences.append(_concentration_sentence(family.runs[0]))
    return [sentence for sentence in sentences if sentence]


def _recovery_sentence(group: Group) -> str:
    """Says how many factors an objective recovered, and what share of their variation."""
    name = group.label
    content, style, overall = map(group.score, (R2_CONTENT, R2_STYLE, R2))
    if math.isfinite(content.value + style.value):
        explained = (
            f"{percent_with_margin(content)} of the variation in the content factors "
            f"and {percent_with_margin(style)} in the style factors"
        )
    elif math.isfinite(overall.value):
        explained = f"{percent_with_margin(overall)} of the variation in the factors"
    else:
        return f"For {name} no R² was recorded, so this page cannot say what it recovered."
    counted = _recovered_phrase(group.runs)
    average = "on average " if len(group.runs) > 1 else ""
    if counted:
        return f"{name} recovered {counted}: {average}its output explains {explained}."
    return f"{name}’s output {average}explains {explained}."


def _recovered_phrase(runs: Sequence[WorkDir]) -> str:
    """How many of how many factors; "" if that is not known for every run."""
    counts = [run.recovered for run in runs if run.recovered is not None]
    dims = sorted({run.dim for run in runs})
    if len(counts) < len(runs) or len(dims) > 1:
        return ""
    low, high, dim = min(counts), max(counts), dims[0]
    if low == dim:
        amount = f"all {dim} factors"
    elif high == 0:
        amount = f"none of the {dim} factors"
    elif low == high:
        amount = f"{low} of the {dim} factors"
    else:
        amount = f"between {low} and {high} of the {dim} factors"
    if len(runs) > 1:
        return f"{amount} in {'each of' if low == high else 'its'} {len(runs)} runs"
    undecided = _undecided(runs[0])
    return (
        f"{amount} ({undecided} of them within its interval of the limit)" if undecided else amount
    )


def _undecided(run: WorkDir) -> int:
    """How many factors have an interval that holds the R² from which on they count as recovered."""
    found = run.factor_intervals
    return int(np.sum((found[:, 0] < RECOVERED_R2) & (found[:, 1] >= RECOVERED_R2)))


def _contrast_sentence(groups: Sequence[Group]) -> str:
    """Says where the best and the worst objective part, if they do."""
    known = [group for group in groups if math.isfinite(group.score(R2).value)]
    if len(known) > 2:  # an upper bound is no rival
        known = [group for group in known if not group.objective.is_told_latents]
    if len(known) < 2:
        return ""
    best = max(known, key=lambda group: group.score(R2).value)
    worst = min(known, key=lambda group: group.score(R2).value)
    listed = join_words([_r2_of(group) for group in known])
    if not is_above(best.score(R2).interval, worst.score(R2).interval):
        return (
            f"Which of them recovered more, these numbers do not tell: the mean R² is {listed}, "
            f"and {_why_untold(known)}."
        )
    if _gap(best, worst, R2).value < _SAME_R2:
        return f"There is no notable difference: the mean R² is {listed}."
    against = f"the mean R² is {_r2_text(best)} against {_r2_text(worst)}"
    for part, other in ((R2_CONTENT, R2_STYLE), (R2_STYLE, R2_CONTENT)):
        gap = _gap(best, worst, part)
        if is_above(gap.interval, _gap(best, worst, other).interval):
            return (
                f"The gap between {best.label} and {worst.label} is widest in the {part.label} "
                f"factors: {100 * gap.value:.1f} percentage points."
            )
    return f"{best.label} recovered more than {worst.label}: {against}."


def _why_untold(groups: Sequence[Group]) -> str:
    if any(group.score(R2).interval is None for group in groups):
        return "their intervals are not recorded"
    return "their intervals overlap"


def _r2_of(group: Group) -> str:
    text = _r2_text(group)
    return f"{text} for {group.label}" if "(" in group.label else f"{text} ({group.label})"


def _r2_text(group: Group) -> str:
    r2 = group.score(R2)
    return PLAIN.both(r2.value, r2.interval)


def _gap(best: Group, worst: Group, score: Score) -> Measured:
    """The difference of two shares, and the farthest that their intervals let it be."""
    one, other = best.score(score), worst.score(score)
    value = _share(one.value) - _share(other.value)
    if one.interval is None or other.interval is None:
        return Measured(value)
    ends: Interval = [
        _share(one.interval[0]) - _share(other.interval[1]),
        _share(one.interval[1]) - _share(other.interval[0]),
    ]
    return Measured(value, ends)


def _loss_sentence(run: WorkDir) -> str:
    gap = run.number(LOSS.key) - run.number(LOSS_FLOOR.key)
    if not math.isfinite(gap):
        return ""
    interval = run.interval(LOSS_ABOVE_FLOOR)
    if interval is not None and interval[0] <= 0 <= interval[1]:
        return (
            "Its loss cannot be told from that of a perfect encoder: the difference is "
            f"{PLAIN.both(gap, interval)}."
        )
    side = "above" if gap >= 0 else "below"
    outwards = interval if gap >= 0 or interval is None else [-interval[1], -interval[0]]
    return f"Its loss ended {PLAIN.both(abs(gap), outwards)} {side} that of a perfect encoder."


def _concentration_sentence(run: WorkDir) -> str:
    deviation = run.concentration_deviation
    if run.objective.has_one_concentration or not math.isfinite(deviation):
        return ""
    return f"The concentrations that it learned are off by at most {100 * deviation:.1f}%."


def _share(r2: float) -> float:
    """An R² as a share: what is below 0 explains nothing, and no less than that."""
    return max(r2, 0.0) if math.isfinite(r2) else math.nan
