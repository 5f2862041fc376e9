"""What a run shows while it trains: what it is at, and one line with pace and scores."""

import collections
import contextlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Self, TextIO

from aninfonce_jax.cli import printable

ProgressMode = Literal["auto", "rich", "plain", "off"]

# Seconds between two drawings of a live line, each of which asks the device for a number.
_LIVE_INTERVAL = 0.5


class Progress:
    """One line that says how far a run is, how fast, and how well it does.

    The loss is that of training; scores are those of the last evaluation, on held-out data.
    On a terminal the line is live; elsewhere lines are printed, at most one in
    `interval` seconds unless forced. The rate is that of recent updates; it starts at the
    first one beyond `start_step`, hence without the time that the first call spends on
    compiling.

    Args:
      total_steps: the step at which the run ends.
      start_step: the step at which it starts, or resumes.
      mode: "auto" is "rich" on a terminal and "plain" elsewhere; "off" prints nothing.
      stream: where to print; stderr by default.
      label: what is shown before the numbers.
      clock: seconds that only grow.
      interval: the least seconds between plain lines.
      is_shown: whether this process prints at all; of several only one does.
    """

    def __init__(
        self,
        total_steps: int,
        start_step: int = 0,
        mode: ProgressMode = "auto",
        stream: TextIO | None = None,
        label: str = "",
        *,
        clock: Callable[[], float] = time.monotonic,
        interval: float = 10.0,
        is_shown: bool = True,
    ) -> None:
        if mode not in ("auto", "rich", "plain", "off"):
            raise ValueError(f"progress must be auto, rich, plain or off, got {mode!r}.")
        self._stream = stream if stream is not None else sys.stderr
        if mode == "auto":
            mode = "rich" if self._stream.isatty() else "plain"
        self._is_shown = is_shown
        self._mode = mode if self._is_shown else "off"
        self._total_steps = total_steps
        self._start_step = start_step
        self._label = label
        self._clock = clock
        self._interval = interval
        self._paused_seconds = 0.0
        self._recent: collections.deque[tuple[float, int]] = collections.deque(maxlen=50)
        self._loss: float | None = None
        self._scores: dict[str, float] = {}
        self._scored_step = 0
        self._last_line = -math.inf
        self._live: Any = None
        if self._mode == "rich":
            self._live = _LiveLine(self._stream, total_steps, start_step)

    def start_from(self, step: int) -> None:
        """Takes note of the step at which the run starts, where it was not known before."""
        self._start_step = step

    def status(self, text: str) -> None:
        """Says what is being done while no steps are taken, such as compiling."""
        if self._live is not None:
            self._live.show(self._start_step, f"{self._prefix()}{text}")
        elif self._mode == "plain":
            self._print(f"{self._prefix()}{text}")

    @property
    def due(self) -> bool:
        """Whether an update would be seen, so that its numbers are worth fetching."""
        interval = _LIVE_INTERVAL if self._mode == "rich" else self._interval
        return self._mode != "off" and self._clock() - self._last_line >= interval

    def update(
        self,
        step: int,
        scores: Mapping[str, float] | None = None,
        *,
        loss: float | None = None,
        force: bool = False,
    ) -> None:
        """Shows a step; loss and scores stay until they are replaced.

        Args:
          step: the number of steps done.
          scores: of an evaluation at this step, by the names to show.
          loss: of the latest training steps that are known.
          force: print a plain line now, as after an evaluation.
        """
        if scores:
            self._scores, self._scored_step = dict(scores), step
        self._loss = loss if loss is not None else self._loss
        if step > (self._recent[-1][1] if self._recent else self._start_step):
            self._recent.append((self._clock() - self._paused_seconds, step))
        if self._live is not None:
            self._last_line = self._clock()
            self._live.show(step, self._describe(step))
        elif self._mode == "plain":
            due = self._clock() - self._last_line >= self._interval
            if due or force or step >= self._total_steps:
                self._last_line = self._clock()
                self._print(self._describe(step))

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Leaves the time spent inside out of the rate: evaluation, compilation."""
        start = self._clock()
        try:
            yield
        finally:
            self._paused_seconds += self._clock() - start

    def message(self, text: str) -> None:
        """Prints a line of its own, without tearing the live one."""
        if self._live is not None:
            self._live.message(printable(text))
        elif self._mode == "plain":
            self._print(printable(text))

    def warn(self, text: str) -> None:
        """Prints a warning, also where progress is off."""
        if self._live is not None:
            self._live.message(f"aninfonce_jax: warning: {printable(text)}")
        elif self._is_shown:
            self._print(f"aninfonce_jax: warning: {printable(text)}")

    def close(self) -> None:
        """Ends the live line; what it showed last stays."""
        if self._live is not None:
            self._live.close()
            self._live = None
        self._mode = "off"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prefix(self) -> str:
        return f"{self._label}: " if self._label else ""

    def _describe(self, step: int) -> str:
        parts = [f"{self._prefix()}step {step:,}/{self._total_steps:,}"]
        if len(self._recent) > 1 and self._recent[-1][0] > self._recent[0][0]:
            (first_time, first_step), (last_time, last_step) = self._recent[0], self._recent[-1]
            rate = (last_step - first_step) / (last_time - first_time)
            parts.append(f"{rate:.3g} steps/s" if rate < 100 else f"{rate:,.0f} steps/s")
            if step < self._total_steps:
                parts.append(f"ETA {_duration((self._total_steps - step) / rate)}")
        if self._loss is not None:
            parts.append(f"loss {self._loss:.4g}")
        if self._scores:
            scores = ", ".join(f"{name} {value:.4g}" for name, value in self._scores.items())
            parts.append(f"held-out: {scores} (step {self._scored_step:,})")
        return " · ".join(parts)

    def _print(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class _LiveLine:
    """A bar and a line of text, redrawn in place by rich."""

    def __init__(self, stream: TextIO, total_steps: int, start_step: int) -> None:
        from rich import console, progress

        self._console = console.Console(file=stream, force_terminal=True)
        self._bar = progress.Progress(
            progress.BarColumn(bar_width=20),
            progress.TextColumn("{task.description}", markup=False),
            console=self._console,
        )
        self._task = self._bar.add_task("", total=total_steps, completed=start_step)
        self._bar.start()

    def show(self, step: int, text: str) -> None:
        self._bar.update(self._task, completed=step, description=text)

    def message(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self._bar.stop()


def _duration(seconds: float) -> str:
    """Returns seconds as m:ss or h:mm:ss."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
