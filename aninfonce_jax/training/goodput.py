"""Where a run's wall time goes: a clock of named phases that survives restarts.

The phases share the time of the process that writes the run's files, and at any moment it is in
one of them. Nothing here asks the device for anything: while it works, the host either waits for
a result that it needs anyway, or goes on, and both are time in steps.
"""

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax

from aninfonce_jax.scores import registry
from aninfonce_jax.scores.registry import PHASES, Phase

# What jax reports of its work before a program can run. Tracing happens within tracing, so that
# what is reported overlaps.
_COMPILING = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)


class Clock:
    """Seconds of wall time by phase, over all sessions of a run.

    It starts in "setup". Time that jax spends on tracing and compiling is taken out of whatever
    phase it falls into and counted as "compile".

    Args:
      now: seconds that only grow.
      date: seconds since 1970, which other sessions of the run can compare with theirs.
      compiled: seconds that this process has spent on compiling.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        date: Callable[[], float] = time.time,
        compiled: Callable[[], float] | None = None,
    ) -> None:
        self._now = now
        self._date = date
        self._compiled = compiled or _watch_compiling().total
        self._seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self._entered: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self._phase: Phase = "setup"
        self._since = self._now()
        self._compiled_since = self._compiled()

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by phase, up to now."""
        self._book()
        return dict(self._seconds)

    def entered(self, *phases: Phase) -> float:
        """Seconds of this session in some phases, together with the compiling in them."""
        self._book()
        return sum(self._entered[phase] for phase in phases)

    def _book(self) -> None:
        now, compiled = self._now(), self._compiled()
        elapsed = now - self._since
        compiling = min(compiled - self._compiled_since, elapsed)
        self._entered[self._phase] += elapsed
        self._seconds[self._phase] += elapsed - compiling
        self._seconds["compile"] += compiling
        self._since, self._compiled_since = now, compiled

    def enter(self, phase: Phase) -> Phase:
        """Counts what comes from now on as this phase, and returns the one before."""
        self._book()
        before, self._phase = self._phase, phase
        return before

    @contextlib.contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Counts what is done inside as this phase."""
        before = self.enter(phase)
        try:
            yield
        finally:
            self.enter(before)

    def save(self) -> dict[str, Any]:
        """What a checkpoint keeps: the seconds until now, and when now is."""
        return {"seconds": self.seconds, "date": self._date()}

    def resume(self, saved: Mapping[str, Any] | None, seen: float, *, goes_on: bool = True) -> None:
        """Adds what earlier sessions of the run took.

        What they did after their last checkpoint is done again now, so that its time is lost.
        How long it was is known from the last row that they wrote; what lies between that row
        and this session counts as time away.

        Args:
          saved: what the checkpoint keeps; None: there is none.
          seen: the wall time of the run that its last row tells, in seconds; 0: no row.
          goes_on: whether steps are left: nobody waits for a run that has ended.
        """
        earlier: Mapping[str, float] = saved["seconds"] if saved else {}
        for phase in PHASES:
            self._seconds[phase] += earlier.get(phase, 0.0)
        repeated = max(seen - sum(earlier.values()), 0.0)
        self._seconds["repeated"] += repeated
        if saved and goes_on:
            own = self._now() - self._since  # is in the phase that goes on
            away = self._date() - saved["date"] - repeated - own
            self._seconds["away"] += max(away, 0.0)


def entries(seconds: Mapping[str, float]) -> dict[str, float]:
    """What the run's files say of its seconds by phase."""
    wall = sum(seconds.values())
    idle = seconds["repeated"] + seconds["away"]
    return {
        registry.SECONDS: wall - idle,
        registry.WALL_SECONDS: wall,
        registry.GOODPUT: seconds["steps"] / wall if wall > 0 else 0.0,
        **{registry.phase_key(phase): seconds[phase] for phase in PHASES},
    }


class Pace:
    """How fast steps are taken, from the time that one row of them is done to the next one's.

    Evaluations and checkpoints in between do not count, and neither does what the first call
    compiles before it takes a step.

    Args:
      clock: of the run.
      batch_size: examples in a step that the host feeds; None: it feeds none.
    """

    def __init__(self, clock: Clock, batch_size: int | None) -> None:
        self._clock = clock
        self._batch_size = batch_size
        # At the last row that the device has done; None before its first step.
        self._before: _Reading | None = None

    @contextlib.contextmanager
    def call(self, step: int) -> Iterator[None]:
        """Goes around a call to the device that begins at this step."""
        if self._before is not None:
            yield
            return
        begin, compiled = self._read(step), self._clock.seconds["compile"]
        yield
        compiling = self._clock.seconds["compile"] - compiled
        self._before = begin._replace(seconds=begin.seconds + compiling)

    def row(self, step: int) -> dict[str, float]:
        """What a row tells of the machine; to be asked when its steps, up to this one, are done."""
        assert self._before is not None, "rows come after calls"
        before, now = self._before, self._read(step)
        self._before = now
        seconds = now.seconds - before.seconds
        rate = 1 / seconds if seconds > 0 else math.nan
        steps_per_second = rate * (now.step - before.step)
        found = {registry.STEPS_PER_SECOND: steps_per_second}
        if self._batch_size is not None:
            found[registry.EXAMPLES_PER_SECOND] = steps_per_second * self._batch_size
            found[registry.DATA_WAIT_SHARE] = rate * (now.waited - before.waited)
        times = entries(self._clock.seconds)
        return found | {key: times[key] for key in (registry.WALL_SECONDS, registry.GOODPUT)}

    def _read(self, step: int) -> "_Reading":
        waited = self._clock.entered("input")
        return _Reading(step, self._clock.entered("steps") + waited, waited)


class _Reading(NamedTuple):
    """How long a session has been at steps, and waited for data, when a step is done."""

    step: int
    seconds: float
    waited: float


class _Compiling:
    """Adds up what jax reports, each moment once."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._total = 0.0
        # Spans that are counted and may yet turn out to be part of a longer one.
        self._spans: list[tuple[float, float]] = []

    def total(self) -> float:
        """Seconds of compiling up to now, of what has ended."""
        return self._total

    def add(self, event: str, duration_secs: float, **_: str | int) -> None:
        """Takes a report, which comes when what it tells of has ended."""
        if event not in _COMPILING:
            return
        begin = self._now() - duration_secs
        while self._spans and self._spans[-1][0] >= begin:
            self._total -= self._spans.pop()[1]
        self._spans.append((begin, duration_secs))
        self._total += duration_secs


@functools.cache
def _watch_compiling() -> _Compiling:
    # Once a process: jax's listeners stay.
    watch = _Compiling()
    jax.monitoring.register_event_duration_secs_listener(watch.add)
    return watch
