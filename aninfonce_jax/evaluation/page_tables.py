"""The rows of the report's tables: what each run scored, with intervals, and what is bold."""

import dataclasses
from collections.abc import Callable, Sequence

from aninfonce_jax.evaluation.groups import Group, Measured, group_runs
from aninfonce_jax.evaluation.registry import Form, Score, outstanding
from aninfonce_jax.evaluation.workdir import WorkDir


@dataclasses.dataclass(frozen=True)
class Cell:
    """A cell of a table: what it says, half its interval, and whether it is bold."""

    text: str
    margin: str = ""
    best: bool = False


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a table; one that is context is not of these runs' results."""

    label: str
    cells: list[Cell]
    is_context: bool = False


@dataclasses.dataclass(frozen=True)
class Part:
    """Rows of a table under a heading of their own."""

    heading: str
    rows: list[Row]


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of numbers that runs may be compared by.

    Attributes:
      of_run: the number of a run.
      form: how it is written.
      better: "higher", "lower", or "" where nothing is bold.
    """

    of_run: Callable[[WorkDir], Measured]
    form: Form
    better: str


def score_column(score: Score) -> Column:
    """The column of a score of the registry."""

    def of_run(run: WorkDir) -> Measured:
        return Measured(run.number(score.key), run.interval(score.key))

    return Column(of_run, score.form, score.better)


def rows_of(
    runs: Sequence[WorkDir],
    labels: Sequence[str],
    columns: Sequence[Column],
    more: Callable[[WorkDir], list[Cell]] = lambda _: [],
) -> list[Row]:
    """A row per run, and one per group of seeds with their mean and its interval.

    What is bold is decided between groups, so that seeds never compete with each other.

    Args:
      runs: the runs.
      labels: what each is called.
      columns: the numbers to show.
      more: further cells of a run, which the rows of means leave empty.
    """
    groups = group_runs(runs)
    bold = [
        outstanding([group.measure(column.of_run).interval for group in groups], column.better)
        for column in columns
    ]

    def row(label: str, place: int, own: Group, rest: list[Cell]) -> Row:
        cells = []
        for column, best in zip(columns, bold, strict=True):
            found = own.measure(column.of_run)
            cells.append(
                Cell(
                    column.form.value(found.value, found.interval),
                    column.form.margin(found.value, found.interval),
                    best[place],
                )
            )
        return Row(label, cells + rest)

    place_of = {id(run): place for place, group in enumerate(groups) for run in group.runs}
    rows = [
        row(label, place_of[id(run)], Group(label, (run,)), more(run))
        for run, label in zip(runs, labels, strict=True)
    ]
    for place, group in enumerate(groups):
        if len(group.runs) > 1:
            empty = [Cell("") for _ in more(group.runs[0])]
            label = f"{group.label}, mean of {len(group.runs)} runs"
            rows.append(row(label, place, group, empty))
    return rows
