"""The rows of the report's tables: what each run scored, with intervals, and what is bold."""

import dataclasses
from collections.abc import Callable, Sequence

from aninfonce_jax.report.groups import Comparison, Group
from aninfonce_jax.report.runs import Measured, WorkDir
from aninfonce_jax.scores import registry
from aninfonce_jax.scores.registry import Form, Score


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
class Table:
    """A table of the page: headings over groups of columns, columns, rows."""

    groups: list[tuple[str, int]]
    columns: list[str]
    rows: list[Row]


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of numbers that runs may be compared by.

    Attributes:
      group: the heading over it and its neighbours.
      label: its own heading.
      of_run: the number of a run.
      form: how it is written.
      better: "higher", "lower", or "" where nothing is bold.
    """

    group: str
    label: str
    of_run: Callable[[WorkDir], Measured]
    form: Form
    better: str


@dataclasses.dataclass(frozen=True)
class Note:
    """A column of words, which rows of means leave empty."""

    group: str
    label: str
    of_run: Callable[[WorkDir], str]


def score_columns(scores: Sequence[Score], runs: Sequence[WorkDir]) -> list[Column]:
    """The columns of those scores that some run has."""
    return [
        Column(score.group, score.label, _reader(score), score.form, score.better)
        for score in scores
        if any(run.has(score.key) for run in runs)
    ]


def _reader(score: Score) -> Callable[[WorkDir], Measured]:
    return lambda run: run.score(score)


def make_table(
    comparison: Comparison, columns: Sequence[Column], notes: Sequence[Note] = ()
) -> Table:
    """The table of some runs; see `rows_of`."""
    every: list[Column | Note] = [*columns, *notes]
    return Table(
        registry.groups([(column.group, column.label) for column in every]),
        [column.label for column in every],
        rows_of(comparison, columns, notes),
    )


def rows_of(
    comparison: Comparison, columns: Sequence[Column], notes: Sequence[Note] = ()
) -> list[Row]:
    """A row per run, and one per group of seeds with their mean and its interval.

    What is bold is decided between groups on the same data, so that seeds never compete with
    each other.

    Args:
      comparison: the runs.
      columns: the numbers to show.
      notes: further columns.
    """
    best: dict[str, list[bool]] = {}
    for family in comparison.families:
        bold = [_outstanding(family.groups, column) for column in columns]
        for place, group in enumerate(family.groups):
            best[group.label] = [own[place] for own in bold]

    def row(label: str, group: Group, own: Group, rest: list[Cell]) -> Row:
        cells = []
        for column, is_best in zip(columns, best[group.label], strict=True):
            found = own.measure(column.of_run)
            cells.append(
                Cell(
                    column.form.value(found.value, found.interval),
                    column.form.margin(found.value, found.interval),
                    is_best,
                )
            )
        return Row(label, cells + rest)

    group_of = {id(run): group for group in comparison.groups for run in group.runs}
    rows = [
        row(
            entry.label,
            group_of[id(entry.run)],
            Group(entry.label, (entry.run,)),
            [Cell(note.of_run(entry.run)) for note in notes],
        )
        for entry in comparison.entries
    ]
    for group in comparison.groups:
        if len(group.runs) > 1:
            label = f"{group.label}, mean of {len(group.runs)} runs"
            rows.append(row(label, group, group, [Cell("") for _ in notes]))
    return rows


def _outstanding(groups: Sequence[Group], column: Column) -> list[bool]:
    intervals = [group.measure(column.of_run).interval for group in groups]
    return registry.outstanding(intervals, column.better)
