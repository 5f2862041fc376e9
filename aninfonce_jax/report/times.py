"""Where the wall time of a run went, by what its last evaluation says."""

from collections.abc import Mapping, Sequence
from typing import Any

from aninfonce_jax.report.runs import as_number
from aninfonce_jax.scores.registry import PHASES, Phase, phase_key

# Phases that some runs do not have: those that nothing feeds, and those never restarted.
_OCCASIONAL: tuple[Phase, ...] = ("input", "repeated", "away")
# Less would be written as 0.0%.
_LEAST_SHARE = 0.0005

Shares = Mapping[Phase, float]


def time_shares(scores: Mapping[str, Any]) -> Shares:
    """The share of wall time of every phase; nothing where an evaluation does not tell.

    Args:
      scores: what `eval.json` holds.
    """
    seconds = {phase: as_number(scores.get(phase_key(phase))) for phase in PHASES}
    wall = sum(seconds.values())
    if not 0 < wall < float("inf") or min(seconds.values()) < 0:
        return {}
    return {phase: own / wall for phase, own in seconds.items()}


def shown_phases(runs: Sequence[Shares]) -> list[Phase]:
    """The phases to show of some runs: all but what a run need not have, and none of them had."""
    return [
        phase
        for phase in PHASES
        if phase not in _OCCASIONAL or any(own.get(phase, 0.0) >= _LEAST_SHARE for own in runs)
    ]
