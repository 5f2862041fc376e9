"""The findings of a report in plain sentences, made from nothing but its numbers."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from aninfonce_jax.evaluation.workdir import WorkDir

_SAME_R2 = 0.01  # objectives closer than this are called alike

OBJECTIVE_NAMES = {
    "aninfonce": "AnInfoNCE",
    "infonce": "InfoNCE",
    "supervised": "Supervised",
    "lp": "Lp contrast",
    "aninfonce_no_l2": "AnInfoNCE, no ℓ2 norm",
}


def objective_name(kind: str) -> str:
    """What the page calls an objective; one it does not know keeps the config's name."""
    return OBJECTIVE_NAMES.get(kind, kind)


def by_objective(runs: Sequence[WorkDir]) -> dict[str, list[WorkDir]]:
    """The runs of each objective, by what the page calls it."""
    groups: dict[str, list[WorkDir]] = {}
    for run in runs:
        groups.setdefault(objective_name(run.kind), []).append(run)
    return groups


def percent(share: float) -> str:
    """A share as a percentage that never rounds an imperfect one up to 100."""
    if 0.9995 <= share < 1:
        return "more than 99.9%"
    return f"{100 * max(share, 0.0):.1f}%"


def join_words(parts: Sequence[str]) -> str:
    """The parts as a list in a sentence: "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def summarize(runs: Sequence[WorkDir]) -> list[str]:
    """The findings in plain sentences, one objective after the other, then the contrast."""
    groups = by_objective(runs)
    sentences = [_recovery_sentence(name, group) for name, group in groups.items()]
    if len(groups) > 1:
        sentences.append(_contrast_sentence(groups))
    elif len(runs) == 1:
        sentences.append(_loss_sentence(runs[0]))
        sentences.append(_concentration_sentence(runs[0]))
    return [sentence for sentence in sentences if sentence]


def _recovery_sentence(name: str, runs: Sequence[WorkDir]) -> str:
    """Says how many factors an objective recovered, and what share of their variation."""
    content, style, overall = (_mean(runs, key) for key in ("r2_content", "r2_style", "r2"))
    if math.isfinite(content + style):
        explained = (
            f"{percent(content)} of the variation in the content factors "
            f"and {percent(style)} in the style factors"
        )
    elif math.isfinite(overall):
        explained = f"{percent(overall)} of the variation in the factors"
    else:
        return f"For {name} no R² was recorded, so this page cannot say what it recovered."
    counted = _recovered_phrase(runs)
    average = "on average " if len(runs) > 1 else ""
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
    return (
        f"{amount} in {'each of' if low == high else 'its'} {len(runs)} runs"
        if len(runs) > 1
        else amount
    )


def _contrast_sentence(groups: Mapping[str, Sequence[WorkDir]]) -> str:
    """Says where the best and the worst objective part, if they do."""
    known = {name: _share(group, "r2") for name, group in groups.items()}
    known = {name: share for name, share in known.items() if math.isfinite(share)}
    if len(known) > 2:  # an upper bound is no rival
        known.pop(OBJECTIVE_NAMES["supervised"], None)
    if len(known) < 2:
        return ""
    best, worst = max(known, key=lambda name: known[name]), min(known, key=lambda name: known[name])
    means = {name: f"{_mean(groups[name], 'r2'):.3f}" for name in known}
    if known[best] - known[worst] < _SAME_R2:
        listed = join_words([f"{mean} ({name})" for name, mean in means.items()])
        return f"There is no notable difference: the mean R² is {listed}."
    gaps = {
        part: _share(groups[best], f"r2_{part}") - _share(groups[worst], f"r2_{part}")
        for part in ("content", "style")
    }
    if not math.isfinite(sum(gaps.values())):
        against = f"{means[best]} against {means[worst]}"
        return f"{best} recovered more than {worst}: the mean R² is {against}."
    part = max(gaps, key=lambda name: gaps[name])
    if max(gaps.values()) - min(gaps.values()) < _SAME_R2:
        return f"{best} recovered more than {worst}, of content and of style alike."
    return (
        f"The gap between {best} and {worst} is widest in the {part} factors: "
        f"{100 * gaps[part]:.1f} percentage points."
    )


def _loss_sentence(run: WorkDir) -> str:
    gap = run.number("loss") - run.number("loss_floor")
    if not math.isfinite(gap):
        return ""
    side = "above" if gap >= 0 else "below"
    return f"Its loss ended {abs(gap):.3f} {side} that of a perfect encoder."


def _concentration_sentence(run: WorkDir) -> str:
    deviation = run.concentration_deviation
    if run.kind != "aninfonce" or not math.isfinite(deviation):
        return ""
    return f"The concentrations that it learned are off by at most {100 * deviation:.1f}%."


def _share(runs: Sequence[WorkDir], key: str) -> float:
    """The mean R² as a share: what is below 0 explains nothing, and no less than that."""
    return np.maximum(_mean(runs, key), 0.0)


def _mean(runs: Sequence[WorkDir], key: str) -> float:
    """The mean over the runs; NaN if one of them lacks the value."""
    return float(np.mean([run.number(key) for run in runs]))
