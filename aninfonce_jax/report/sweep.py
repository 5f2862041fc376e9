"""The page of a sweep: scores along what was varied, with bands over seeds.

Made from `sweep.json` and the files of its runs, so that it can be made again at any time.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.files import write_bytes
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.report.figures import COLORS, RUN_COLORS, Drawn, say_nothing_recorded
from aninfonce_jax.report.panels import STYLE, Chart, Drawing, panel_chart, run_keys
from aninfonce_jax.report.runs import Measured
from aninfonce_jax.report.sweep_rows import SweepResults, SweepRow, read_results, shown, write_csv
from aninfonce_jax.report.templates import templates
from aninfonce_jax.scores.intervals import over_seeds
from aninfonce_jax.scores.objectives import objective
from aninfonce_jax.scores.registry import MISSING, Score

_KIND = "objective.kind"
# From this ratio of largest to smallest on, a field is drawn on a logarithmic scale.
_LOGARITHMIC = 15


@dataclasses.dataclass(frozen=True)
class XAxis:
    """What figures are drawn along.

    Attributes:
      field: its dotted name.
      places: where each of its values stands, by what is written there: at itself, or in its
        turn where it is no number.
      is_numeric: whether all of them are numbers.
    """

    field: str
    places: Mapping[str, float]
    is_numeric: bool

    def at(self, row: SweepRow) -> float:
        """Where a run stands."""
        return self.places[shown(row.values.get(self.field))]


@dataclasses.dataclass(frozen=True)
class Setting:
    """Runs that differ in nothing but their seed.

    Attributes:
      x: where they are drawn; a place among names where x is no number.
      rows: the runs, of which at least one has scores.
    """

    x: float
    rows: tuple[SweepRow, ...]

    def measure(self, of_row: Callable[[SweepRow], Measured]) -> Measured:
        """The mean over the seeds that have a value, and its interval over them."""
        found = [own for own in map(of_row, self.rows) if math.isfinite(own.value)]
        if not found:
            return Measured(math.nan)
        values = [own.value for own in found]
        return Measured(float(np.mean(values)), over_seeds(values, [own.interval for own in found]))


@dataclasses.dataclass(frozen=True)
class Line(Drawn):
    """Settings that differ in x alone, by increasing x."""

    settings: tuple[Setting, ...]


def write_sweep(folder: AnyPath) -> AnyPath:
    """Writes `sweep.csv`, `sweep.html` and its figures from what a sweep's folder holds.

    Returns:
      The path of the page, which needs no other file.

    Raises:
      WorkdirError: the folder holds no sweep.
      OSError: they can't be written.
    """
    sweep = read_results(folder)
    with workdir_lib.hold_report(folder):
        write_csv(sweep, folder)
        figures = folder / workdir_lib.FIGURES_FOLDER
        figures.mkdir(parents=True, exist_ok=True)
        x = _x_axis(sweep)
        lines = _lines(sweep, x)
        with matplotlib.rc_context(STYLE):
            charts = _charts(sweep, x, lines, figures)
        page = (
            templates()
            .get_template("sweep.html")
            .render(
                title=folder.resolve().name,
                x=x.field,
                charts=charts,
                numbers={chart.name: place for place, chart in enumerate(charts, start=1)},
                headings=_headings(sweep),
                table=_table(sweep),
                unfinished=[row for row in sweep.rows if row.status != workdir_lib.FINISHED],
                runs=len(sweep.rows),
                command=sweep.command,
                colors=COLORS,
                labels=[line.label for line in lines],
            )
        )
        return write_bytes(folder / workdir_lib.SWEEP_PAGE, page.encode())


def _x_axis(sweep: SweepResults) -> XAxis:
    """The field that was named, or else the first one of numbers, or else the first."""
    numeric = [field for field in sweep.fields if all(map(_is_number, _values(sweep, field)))]
    field = sweep.x or next(iter([*numeric, *sweep.fields, "seed"]))
    values = _values(sweep, field)
    if all(map(_is_number, values)):
        return XAxis(field, {shown(value): float(value) for value in values}, is_numeric=True)
    names = dict.fromkeys(map(shown, values))
    places = {name: float(place) for place, name in enumerate(names)}
    return XAxis(field, places, is_numeric=False)


def _values(sweep: SweepResults, field: str) -> list[Any]:
    return [row.values.get(field) for row in sweep.rows]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _lines(sweep: SweepResults, x: XAxis) -> list[Line]:
    others = [field for field in sweep.fields if field != x.field]
    found: dict[str, dict[float, list[SweepRow]]] = {}
    for row in sweep.rows:
        # What a point leaves alone says nothing of it.
        own = (field for field in others if field in row.values)
        label = ", ".join(_named(field, row.values[field]) for field in own)
        found.setdefault(label, {}).setdefault(x.at(row), []).append(row)
    return [
        Line(
            label or ("all runs" if len(found) == 1 else "as the config has it"),
            RUN_COLORS[place % len(RUN_COLORS)],
            place,
            tuple(Setting(at, tuple(own[at])) for at in sorted(own)),
        )
        for place, (label, own) in enumerate(found.items())
    ]


def _named(field: str, value: object) -> str:
    if field == _KIND:
        return objective(value).label
    return f"{field.rpartition('.')[2]} {shown(value)}"


def _charts(sweep: SweepResults, x: XAxis, lines: Sequence[Line], folder: AnyPath) -> list[Chart]:
    keys = run_keys(lines, "line" if x.is_numeric else "dot")
    scores = [
        Drawing(_title(score), "", functools.partial(_draw, x=x, lines=lines, read=_reader(score)))
        for score in sweep.scores
    ]
    firsts = [
        Drawing(
            _target_title(score, value),
            "",
            functools.partial(_draw, x=x, lines=lines, read=_first(score, value)),
        )
        for score, value in sweep.targets
    ]
    title = f"Along {x.field}"
    charts = [panel_chart("sweep-scores", title, keys, scores, folder)] if scores else []
    if firsts:
        charts.append(panel_chart("sweep-steps", f"{title}: steps", keys, firsts, folder))
    return charts


def _title(score: Score) -> str:
    return f"{score.group}, {score.label}"


def _target_title(score: Score, value: float) -> str:
    return f"steps to {score.group} {value:g}"


def _reader(score: Score) -> Callable[[SweepRow], Measured]:
    return lambda row: row.score(score)


def _first(score: Score, value: float) -> Callable[[SweepRow], Measured]:
    return lambda row: Measured(row.step_at(score, value))


def _draw(ax: Axes, x: XAxis, lines: Sequence[Line], read: Callable[[SweepRow], Measured]) -> None:
    seen = False
    for line in lines:
        measured = [setting.measure(read) for setting in line.settings]
        at = np.array([setting.x for setting in line.settings])
        y = np.array([own.value for own in measured])
        ends = np.array([own.interval or (math.nan, math.nan) for own in measured])
        color = COLORS[line.color]
        # Between two names there is nothing that a line could go through.
        ax.plot(at, y, color=color, ls=line.line if x.is_numeric else "", lw=1.8, marker="o", ms=4)
        if x.is_numeric:
            ax.fill_between(at, ends[:, 0], ends[:, 1], color=color, alpha=0.18, lw=0)
        # A band over a single place has no width.
        ax.vlines(at, ends[:, 0], ends[:, 1], color=color, lw=2, alpha=0.35)
        seen = seen or bool(np.isfinite(y).any())
    if not seen:
        say_nothing_recorded(ax, "never, or no data yet")
    _name_places(ax, x)


def _name_places(ax: Axes, x: XAxis) -> None:
    ax.set_xlabel(x.field)
    places = list(x.places.values())
    if not x.is_numeric:
        ax.set_xticks(places, list(x.places))
        ax.set_xlim(-0.5, len(places) - 0.5)
    elif min(places) > 0 and max(places) / min(places) >= _LOGARITHMIC:
        ax.set_xscale("log")
        ax.set_xticks(places, list(x.places))
        ax.xaxis.set_minor_formatter(NullFormatter())


def _headings(sweep: SweepResults) -> list[str]:
    firsts = [_target_title(score, value) for score, value in sweep.targets]
    return [*sweep.fields, "runs", *map(_title, sweep.scores), *firsts]


def _table(sweep: SweepResults) -> list[list[str]]:
    """A row for each setting: what was varied, how many seeds, and the mean of every score."""
    found: dict[tuple[tuple[str, str], ...], list[SweepRow]] = {}
    for row in sweep.rows:
        found.setdefault(row.setting, []).append(row)
    table = []
    for rows in found.values():
        setting = Setting(0.0, tuple(rows))
        scored = sum(row.run is not None for row in rows)
        cells = [_score_cell(setting, score) for score in sweep.scores]
        cells += [_step_cell(setting, score, value) for score, value in sweep.targets]
        own = [shown(rows[0].values.get(field, MISSING)) for field in sweep.fields]
        table.append([*own, str(scored), *cells])
    return table


def _score_cell(setting: Setting, score: Score) -> str:
    measured = setting.measure(_reader(score))
    if not math.isfinite(measured.value):
        return MISSING
    text = score.form.value(measured.value, measured.interval)
    if measured.interval is None:
        return text
    low, high = (score.form.value(end, measured.interval) for end in measured.interval)
    return f"{text} [{low}, {high}]"


def _step_cell(setting: Setting, score: Score, value: float) -> str:
    steps = [row.step_at(score, value) for row in setting.rows if row.run is not None]
    reached = [step for step in steps if math.isfinite(step)]
    if not reached:
        return f"none of {len(steps)}"
    mean = f"{np.mean(reached):,.0f}"
    return mean if len(reached) == len(steps) else f"{mean} ({len(reached)} of {len(steps)})"
