"""Tables for the terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from aninfonce_jax import config as config_lib
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
        table.add_row(run, *cells)
    Console().print(table)


def print_readouts(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints what can be read off the features, in per cent."""
    table = Table(title="readouts, per cent", box=None, title_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("objective", "features") else "right")
    for row in rows:
        table.add_row(*(_readout_cell(row[name]) for name in COLUMNS))
    # Wider than most logs are taken to be: cut-off headings would be of no use.
    Console(width=max(Console().width, _READOUTS_WIDTH)).print(table)


def _readout_cell(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.1f}" if math.isfinite(value) else "–"
