"""Tables for the terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aninfonce_jax import config as config_lib
from aninfonce_jax.config_schema import Config
from aninfonce_jax.evaluation.registry import MISSING, ONE_DECIMAL, SCORES
from aninfonce_jax.evaluation.table import COLUMNS
from aninfonce_jax.evaluation.workdir import as_number, interval_of, warnings_of

_READOUTS_WIDTH = 120


def print_config(config: Config) -> None:
    """Prints every field; what differs from the defaults stands out."""
    defaults = config_lib.flatten(Config())
    table = Table(title="config", box=None, title_justify="left")
    table.add_column("key")
    table.add_column("value")
    for name, value in config_lib.flatten(config).items():
        style = None if value == defaults[name] else "bold"
        table.add_row(f"{name}", f"{value}", style=style)
    Console().print(table)


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
        step = as_number(scores.get("step"))
        table.add_row(Text(run), f"{step:.0f}" if math.isfinite(step) else MISSING, *cells)
    console = Console()
    console.print(table)
    if found:
        console.print("±: 95 % interval over test examples; another seed may differ by more.")


def print_warnings(results: Mapping[str, Mapping[str, Any]]) -> None:
    """Prints what each run's evaluation warns of; nothing if there is nothing.

    Args:
      results: as `print_scores` takes them.
    """
    for run, scores in results.items():
        for warning in warnings_of(scores):
            Console().print(Text(f"warning: {run}: {warning}", style="bold yellow"))


def print_readouts(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints what can be read off the features, in per cent, over half the intervals.

    Args:
      rows: as `table.table_rows` makes them.
    """
    table = Table(title="readouts, per cent", box=None, title_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("objective", "features") else "right")
    for row in rows:
        table.add_row(
            *(row[name] if isinstance(row[name], str) else _cell(row, name) for name in COLUMNS)
        )
    # Wider than most logs are taken to be: cut-off headings would be of no use.
    Console(width=max(Console().width, _READOUTS_WIDTH)).print(table)


def _cell(row: Mapping[str, Any], name: str) -> str:
    margin = ONE_DECIMAL.margin(row[name], row["intervals"].get(name))
    return f"{ONE_DECIMAL.value(row[name])}\n{margin}".strip()
