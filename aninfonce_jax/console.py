"""Tables for the terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aninfonce_jax import config as config_lib
from aninfonce_jax.cli import printable
from aninfonce_jax.config.schema import Config
from aninfonce_jax.report.runs import as_number, interval_of
from aninfonce_jax.report.table import ReadoutRow, readouts_of
from aninfonce_jax.report.times import shown_phases, time_shares
from aninfonce_jax.report.wording import format_duration
from aninfonce_jax.scores.registry import (
    FEATURES,
    MISSING,
    OBJECTIVE,
    ONE_DECIMAL,
    PHASE_NAMES,
    SCORES,
    STEP,
    WALL_SECONDS,
    Form,
)

_READOUTS_WIDTH = 120
_WHOLE_PERCENT = Form(0, 100.0, "%")


def print_config(runs: Mapping[str, Config]) -> None:
    """Prints the fields that differ from their kind's defaults, section by section.

    Args:
      runs: those of a command, by name; of a comparison they differ in their objective.
    """
    changed: dict[str, Any] = {"compare": tuple(runs)} if len(runs) > 1 else {}
    usual = config_lib.flatten(Config())
    for run in runs.values():
        defaults = config_lib.flatten(config_lib.defaults_like(run))
        for name, value in config_lib.flatten(run).items():
            # A comparison tells its objectives by `compare`.
            is_told = name == "objective.kind" and len(runs) > 1
            other_kind = name.endswith(".kind") and value != usual.get(name) and not is_told
            if value != defaults.get(name) or other_kind:
                changed[name] = value
    table = Table(box=None, show_header=False)
    table.add_column("key", no_wrap=True)
    table.add_column("value", overflow="fold")
    for name in sorted(changed, key=_by_section):
        table.add_row(name, printable(changed[name]))
    print("config:" if changed else "config: the defaults")
    if changed:
        _print_table(table)
    print("All other values are the defaults; config.json holds every one.")


def _by_section(name: str) -> tuple[int, str]:
    """Orders keys by section, those without one first."""
    return name.count(".") > 0, name


def _print_table(table: Table, width: int | None = None) -> None:
    # Values and names come from outside: a "[/]" or ":x:" in them is no markup.
    console = Console(width=width, markup=False, emoji=False, highlight=False)
    with console.capture() as text:
        console.print(table)
    # Rich would end the program itself where nobody reads any more.
    print(text.get(), end="")


def print_scores(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Prints a row of scores for each run, each over half its interval, in 80 characters.

    Args:
      results: what `eval.json` holds of each run, by the run's name.
    """
    shown = [
        score
        for score in SCORES
        if score.console
        and any(math.isfinite(as_number(s.get(score.key))) for s in results.values())
    ]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("run", no_wrap=True)
    table.add_column("steps", justify="right")
    for score in shown:
        table.add_column(score.console, justify="right")
    found = False
    for run, scores in results.items():
        cells = []
        for score in shown:
            value, interval = as_number(scores.get(score.key)), interval_of(scores, score.key)
            margin = score.form.margin(value, interval)
            found = found or bool(margin)
            cells.append(f"{score.form.value(value, interval)}\n{margin}".strip())
        step = as_number(scores.get(STEP))
        table.add_row(
            Text(printable(run)), f"{step:.0f}" if math.isfinite(step) else MISSING, *cells
        )
    _print_table(table)
    if found:
        Console().print("±: 95 % interval over test examples; another seed may differ by more.")


def print_times(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Prints where the wall time of each run went, in 80 characters; nothing if none tells.

    Args:
      results: what `eval.json` holds of each run, by the run's name.
    """
    shares = {run: time_shares(scores) for run, scores in results.items()}
    told = {run: own for run, own in shares.items() if own}
    if not told:
        return
    shown = shown_phases([*told.values()])
    table = Table(
        title="where the time went", box=None, title_justify="left",
        pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    table.add_column("run", no_wrap=True)
    table.add_column("time", justify="right")
    for phase in shown:
        table.add_column(PHASE_NAMES[phase].console, justify="right")
    for run, own in told.items():
        wall = format_duration(as_number(results[run].get(WALL_SECONDS)))
        cells = [_WHOLE_PERCENT.value(own[phase]) for phase in shown]
        table.add_row(Text(printable(run)), wall, *cells)
    _print_table(table)


def print_readouts(rows: Sequence[ReadoutRow]) -> None:
    """Prints what can be read off the features, in per cent, over half the intervals.

    Args:
      rows: as `table.table_rows` makes them.
    """
    table = Table(title="readouts, per cent", box=None, title_justify="left")
    for name in (OBJECTIVE, FEATURES):
        table.add_column(name)
    readouts = readouts_of(rows)
    for name in readouts:
        table.add_column(Text(printable(name)), justify="right")
    for row in rows:
        cells = []
        for name in readouts:
            share = row.share(name)
            margin = ONE_DECIMAL.margin(share.value, share.interval)
            cells.append(f"{ONE_DECIMAL.value(share.value)}\n{margin}".strip())
        table.add_row(printable(row.objective), printable(row.layer), *cells)
    # Wider than most logs are taken to be: cut-off headings would be of no use.
    _print_table(table, max(Console().width, _READOUTS_WIDTH))
