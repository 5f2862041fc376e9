"""What the runs of a sweep reached, as a tidy table: a row for each run, from its files alone."""

import csv
import dataclasses
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.files import write_bytes
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.report.figures import column
from aninfonce_jax.report.runs import Measured, ReportError, WorkDir, read_workdir
from aninfonce_jax.scores.registry import CONCENTRATION, SCORES, STEP, Score
from aninfonce_jax.scores.registry import score as score_named

_SEED = "seed"
# Columns that say which run a row is of, besides what was varied.
_POINT, _STATUS = "run", "status"


@dataclasses.dataclass(frozen=True)
class SweepRow:
    """One run of a sweep.

    Attributes:
      name: its folder's.
      status: what became of it.
      reason: why it failed; "" where it did not.
      values: what was varied, by dotted name.
      run: its files; None if it left none that can be read.
    """

    name: str
    status: workdir_lib.Status
    reason: str
    values: Mapping[str, Any]
    run: WorkDir | None

    @property
    def setting(self) -> tuple[tuple[str, str], ...]:
        """What runs must have in common to differ in nothing but their seed."""
        return tuple((name, shown(self.values[name])) for name in self.values if name != _SEED)

    def score(self, score: Score) -> Measured:
        """A score of its last evaluation; NaN if there is none."""
        return Measured(math.nan) if self.run is None else self.run.score(score)

    def step_at(self, score: Score, target: float) -> float:
        """The first evaluated step at which a score reached a target; NaN if it never did."""
        if self.run is None:
            return math.nan
        values, steps = column(self.run.evals, score.key), column(self.run.evals, STEP)
        with np.errstate(invalid="ignore"):
            reached = values <= target if score.better == "lower" else values >= target
        return float(steps[reached][0]) if reached.any() else math.nan


@dataclasses.dataclass(frozen=True)
class SweepResults:
    """What `sweep.json` and the files of its runs hold.

    Attributes:
      fields: what was varied besides the seed.
      x: along which figures are drawn; "" if nobody said.
      scores: those to draw, of which at least one run has a value.
      targets: score and value whose first step is looked for.
      command: what repeats it.
      rows: the runs.
    """

    fields: tuple[str, ...]
    x: str
    scores: tuple[Score, ...]
    targets: tuple[tuple[Score, float], ...]
    command: str
    rows: tuple[SweepRow, ...]


def read_results(folder: AnyPath) -> SweepResults:
    """Reads a sweep and the runs that it has so far.

    Raises:
      WorkdirError: there is no sweep in the folder, or it is damaged.
    """
    record = workdir_lib.read_sweep(folder)
    rows = tuple(_row(folder, point) for point in record.points)
    try:
        chosen = tuple(map(score_named, record.scores))
        targets = tuple(
            (score_named(name), float(value))
            for name, own in record.targets.items()
            for value in own
        )
    except ValueError as error:  # a score of another version
        raise ReportError(f"the sweep in {folder} can't be shown: {error}") from error
    known = [
        score for score in SCORES if any(math.isfinite(row.score(score).value) for row in rows)
    ]
    return SweepResults(
        record.fields, record.x, chosen or tuple(known), targets, record.command, rows
    )


def shown(value: Any) -> str:
    """A varied value as figures and tables write it."""
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def write_csv(sweep: SweepResults, folder: AnyPath) -> AnyPath:
    """Writes `sweep.csv`: what was varied, every score with its interval, Λ̂ and first steps."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [*sweep.fields, *([_SEED] if any(_SEED in row.values for row in sweep.rows) else [])]
    scores = [x for x in SCORES if any(math.isfinite(row.score(x).value) for row in sweep.rows)]
    headings = [f"{x.key}{end}" for x in scores for end in ("", "_low", "_high")]
    firsts = [f"{STEP}_at_{score.key}_{value:g}" for score, value in sweep.targets]
    writer.writerow([_POINT, *names, _STATUS, STEP, *headings, *firsts, CONCENTRATION])
    for row in sweep.rows:
        writer.writerow(_cells(row, names, scores, sweep.targets))
    return write_bytes(folder / workdir_lib.SWEEP_CSV_FILE, text.getvalue().encode())


def _cells(
    row: SweepRow,
    names: Sequence[str],
    scores: Sequence[Score],
    targets: Sequence[tuple[Score, float]],
) -> list[str]:
    measured = [row.score(score) for score in scores]
    numbers = [x for own in measured for x in (own.value, *(own.interval or (math.nan,) * 2))]
    numbers += [row.step_at(score, value) for score, value in targets]
    step = math.nan if row.run is None else row.run.number(STEP)
    learned = None if row.run is None else row.run.final.get(CONCENTRATION)
    return [
        row.name,
        *(shown(row.values.get(name, "")) for name in names),
        row.status,
        *map(_cell, [step, *numbers]),
        " ".join(f"{x:.6g}" for x in learned) if isinstance(learned, list) else "",
    ]


def _cell(number: float) -> str:
    return f"{number:.7g}" if math.isfinite(number) else ""


def _row(folder: AnyPath, point: workdir_lib.SweepPoint) -> SweepRow:
    try:
        run = read_workdir(folder / point.name)
    except workdir_lib.WorkdirError:  # it has not begun, or has not been scored yet
        run = None
    return SweepRow(point.name, point.status, point.reason, point.values, run)
