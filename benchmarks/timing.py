"""Fair timing on a noisy machine: contestants take turns, and only ratios are reported."""

import time
from collections.abc import Callable, Mapping

import numpy as np


def interleave(
    contestants: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list]:
    """Times every contestant once per round, after one round that is thrown away.

    Args:
      contestants: functions that return only when their work is done.
      rounds: how many times to go round. A single round is for work so long that how it
        begins does not matter, and none is thrown away before it.
      clock: what tells the seconds.

    Returns:
      Seconds per round for each contestant.
    """
    seconds: dict[str, list] = {name: [] for name in contestants}
    thrown_away = 0 if rounds == 1 else 1
    for turn in range(thrown_away + rounds):
        for name, run in contestants.items():
            start = clock()
            run()
            if turn >= thrown_away:
                seconds[name].append(clock() - start)
    return seconds


def ratio(seconds: Mapping[str, list], slow: str, fast: str) -> str:
    """Formats how many times longer `slow` takes: the median over rounds, and quartiles."""
    quotients = np.asarray(seconds[slow]) / np.asarray(seconds[fast])
    low, median, high = np.percentile(quotients, [25, 50, 75])
    return f"{median:.2f}x (quartiles {low:.2f}–{high:.2f})"
