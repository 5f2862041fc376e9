"""Tables for the terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from aninfonce_jax import config as config_lib
from aninfonce_jax.cli import printable
from aninfonce_jax.config_schema import Config
from aninfonce_jax.evaluation.table import COLUMNS

# Score -> heading and format of its column. All of them fit into 80 characters.
_COLUMNS = {
    "step": ("steps", "{:d}"),
    "r2": ("R²", "{:.4f}"),
    "r2_content": ("R²\ncontent", "{:.4f}"),
    "r2_style": ("R²\nstyle", "{:.4f}"),
    "mcc_pearson": ("MCC", "{:.4f}"),
    "concentration_error": ("worst\nΛ̂ error", "{:.1%}"),
    "knn_accuracy": ("k-NN", "{:.1%}"),
    "probe_accuracy": ("linear\nprobe", "{:.1%}"),
    "loss": ("loss", "{:.4f}"),
    "loss_floor": ("floor", "{:.4f}"),
}


_READOUTS_WIDTH = 120


def print_config(config: Config) -> None:
    """Prints the fields that differ from their defaults, section by section."""
    defaults = config_lib.flatten(Config())
    changed = {
        name: value for name, value in config_lib.flatten(config).items() if value != defaults[name]
    }
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
    """Prints a row of scores for each run."""
    shown = [name for name in _COLUMNS if any(s.get(name) is not None for s in results.values())]
    table = Table(box=None, pad_edge=False)
    table.add_column("run", no_wrap=True)
    for name in shown:
        table.add_column(_COLUMNS[name][0], justify="right")
    for run, scores in results.items():
        cells = [
            "–" if scores.get(name) is None else _COLUMNS[name][1].format(scores[name])
            for name in shown
        ]
        table.add_row(printable(run), *cells)
    _print_table(table)


def print_readouts(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints what can be read off the features, in per cent."""
    table = Table(title="readouts, per cent", box=None, title_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("objective", "features") else "right")
    for row in rows:
        table.add_row(*(_readout_cell(row[name]) for name in COLUMNS))
    # Wider than most logs are taken to be: cut-off headings would be of no use.
    _print_table(table, max(Console().width, _READOUTS_WIDTH))


def _readout_cell(value: str | float) -> str:
    if isinstance(value, str):
        return printable(value)
    return f"{value:.1f}" if math.isfinite(value) else "–"
