"""Numbers as the report writes them."""

import math

from aninfonce_jax.evaluation.registry import MISSING, PLAIN
from aninfonce_jax.evaluation.workdir import WorkDir, as_number


def format_score(value: float) -> str:
    """A number with three decimals."""
    return PLAIN.value(value)


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
    step, planned = run.number("step"), as_number(run.config.get("train.steps"))
    if not math.isfinite(step):
        return MISSING
    return f"{step:,.0f} of {planned:,.0f}" if step < planned else f"{step:,.0f}"
