"""Numbers and lists as the report writes them."""

import math
from collections.abc import Callable, Sequence

from aninfonce_jax.report.groups import Comparison
from aninfonce_jax.report.runs import Measured, WorkDir
from aninfonce_jax.scores.registry import MISSING, PERCENT, PLAIN, STEP, Score


def format_score(value: float) -> str:
    """A number with three decimals."""
    return PLAIN.value(value)


def format_of(run: WorkDir, score: Score) -> str:
    """A score of a run with its interval."""
    found = run.score(score)
    return score.form.both(found.value, found.interval)


def percent(share: float) -> str:
    """A share as a percentage that never rounds an imperfect one up to 100."""
    if 0.9995 <= share < 1:
        return "more than 99.9%"
    return f"{100 * max(share, 0.0):.1f}%"


def percent_with_margin(measured: Measured) -> str:
    """Such as "98.1% (±0.3)"."""
    margin = PERCENT.margin(measured.value, measured.interval)
    text = percent(measured.value)
    return f"{text} ({margin})" if margin and measured.value >= 0 and "more" not in text else text


def join_words(parts: Sequence[str]) -> str:
    """The parts as a list in a sentence: "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def list_runs(comparison: Comparison, note: Callable[[WorkDir], str]) -> str:
    """What is known of each run, such as "InfoNCE 45.1%, AnInfoNCE 43.0%"."""
    notes = [(entry.label, note(entry.run)) for entry in comparison.entries]
    known = [(label, text) for label, text in notes if text and text != MISSING]
    if not comparison.needs_names:
        return known[0][1] if known else ""
    return ", ".join(f"{label} {text}" for label, text in known)


def format_duration(seconds: float) -> str:
    """A duration in its two largest units, such as "2 min 31 s"."""
    if not math.isfinite(seconds):
        return MISSING
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def format_steps(run: WorkDir) -> str:
    """The step of the last evaluation, and of how many if the run has not ended."""
    step, planned = run.number(STEP), run.planned_steps
    if not math.isfinite(step):
        return MISSING
    return f"{step:,.0f} of {planned:,.0f}" if step < planned else f"{step:,.0f}"
