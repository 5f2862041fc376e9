"""What can be read off the features, as a table: a row per objective and layer."""

import csv
import dataclasses
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.files import write_bytes, write_json
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.report.runs import Measured, as_number, interval_of
from aninfonce_jax.scores.intervals import Interval
from aninfonce_jax.scores.objectives import objective
from aninfonce_jax.scores.registry import (
    AVERAGE,
    AVERAGED,
    FEATURES,
    INTERVALS,
    OBJECTIVE,
    READOUTS,
    STRENGTHS,
    UNTRAINED,
    readout_order,
)


@dataclasses.dataclass(frozen=True)
class ReadoutRow:
    """What can be read off one layer's features.

    Attributes:
      objective: what the objective is called; "untrained" before the first step.
      layer: what the encoder calls it.
      shares: by readout, in per cent; NaN stands for what was not recorded.
      intervals: of those shares that have one, in per cent.
      strengths: by operation, the R² of its strength.
      strength_intervals: of those that have one.
    """

    objective: str
    layer: str
    shares: Mapping[str, float]
    intervals: Mapping[str, Interval] = dataclasses.field(default_factory=dict)
    strengths: Mapping[str, float] = dataclasses.field(default_factory=dict)
    strength_intervals: Mapping[str, Interval] = dataclasses.field(default_factory=dict)

    @property
    def is_trained(self) -> bool:
        """Whether it is of the network after training."""
        return self.objective != UNTRAINED

    def share(self, readout: str) -> Measured:
        """A share with its interval; NaN if it is not there."""
        return Measured(self.shares.get(readout, math.nan), self.intervals.get(readout))

    def as_json(self) -> dict[str, Any]:
        """The row as `table1.json` holds it."""
        return {
            OBJECTIVE: self.objective,
            FEATURES: self.layer,
            **self.shares,
            STRENGTHS: dict(self.strengths),
            INTERVALS: dict(self.intervals),
            f"{STRENGTHS}_{INTERVALS}": dict(self.strength_intervals),
        }


def table_rows(name: str, scores: Mapping[str, Any]) -> list[ReadoutRow]:
    """The rows of one run.

    Args:
      name: what the objective is called.
      scores: what `eval.json` holds. These are used: readouts by layer and by what is read, as
        shares; the R² of an operation's strength, by layer and operation; the intervals of both;
        and all of it for the network before its first step.

    Returns:
      A row for each layer, and if the untrained network was read as many more. Each has every
      readout that any of them has.
    """
    before = scores.get(UNTRAINED)
    found = {name: scores}
    if isinstance(before, Mapping):
        found[UNTRAINED] = before
    layers = layers_of(*found.values())
    readouts = readout_order(
        readout for own in found.values() for layer in layers for readout in _shares(own, layer)
    )
    return [
        _row(objective, layer, readouts, own)
        for objective, own in found.items()
        for layer in layers
    ]


def layers_of(*scores: Mapping[str, Any]) -> list[str]:
    """The layers that were read out, in the order of the files."""
    found: dict[str, None] = {}
    for own in scores:
        for key in (READOUTS, STRENGTHS):
            if isinstance(by_layer := own.get(key), Mapping):
                found |= dict.fromkeys(by_layer)
    return list(found)


def readouts_of(rows: Iterable[ReadoutRow]) -> list[str]:
    """All that was read in some row, in the order of the table's columns."""
    return readout_order(readout for row in rows for readout in row.shares)


def write_table(workdir: AnyPath, rows: Sequence[ReadoutRow]) -> list[AnyPath]:
    """Writes `table1.csv`, for people, and `table1.json`, in full precision.

    Args:
      workdir: the folder to write to.
      rows: as `table_rows` makes them.

    Returns:
      The two paths.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    readouts = readouts_of(rows)
    ends = [f"{readout}_{end}" for readout in readouts for end in ("low", "high")]
    writer.writerow([OBJECTIVE, FEATURES, *readouts, *ends])
    for row in rows:
        found = [row.share(readout) for readout in readouts]
        values = [share.value for share in found]
        values += [end for share in found for end in share.interval or (math.nan,) * 2]
        writer.writerow([row.objective, row.layer, *map(_csv_cell, values)])
    return [
        write_bytes(workdir / workdir_lib.TABLE_CSV_FILE, text.getvalue().encode()),
        write_json(workdir / workdir_lib.TABLE_JSON_FILE, [row.as_json() for row in rows]),
    ]


def tabulate(workdir: AnyPath) -> list[ReadoutRow]:
    """Writes the readouts of a run as a table, beside its other files.

    Returns:
      The rows of `table_rows`; none for a run without readouts.
    """
    saved = workdir_lib.read_saved(workdir)
    scores = workdir_lib.read_eval(workdir, saved.hash).scores
    if READOUTS not in scores:
        return []
    section = saved.values.get("objective")
    kind = section.get("kind") if isinstance(section, Mapping) else None
    rows = table_rows(objective(kind).label, scores)
    with workdir_lib.hold(workdir):
        write_table(workdir, rows)
    return rows


def _row(name: str, layer: str, readouts: Sequence[str], scores: Mapping[str, Any]) -> ReadoutRow:
    shares = _shares(scores, layer)
    strengths = _numbers(scores.get(STRENGTHS), layer)
    found = {key: interval_of(scores, READOUTS, layer, key) for key in shares}
    of_strengths = {key: interval_of(scores, STRENGTHS, layer, key) for key in strengths}
    return ReadoutRow(
        name,
        layer,
        {key: 100 * shares.get(key, math.nan) for key in readouts},
        {key: [100 * end for end in own] for key, own in found.items() if own},
        strengths,
        {key: own for key, own in of_strengths.items() if own},
    )


def _shares(scores: Mapping[str, Any], layer: str) -> dict[str, float]:
    """The readouts of one layer, as shares; the paper's average, if it alone is missing."""
    shares = _numbers(scores.get(READOUTS), layer)
    if not math.isfinite(shares.get(AVERAGE, math.nan)) and set(AVERAGED) <= shares.keys():
        shares[AVERAGE] = sum(shares[key] for key in AVERAGED) / len(AVERAGED)
    return shares


def _numbers(by_layer: Any, layer: str) -> dict[str, float]:
    """The entries of one layer; none if they are missing."""
    values = by_layer.get(layer) if isinstance(by_layer, Mapping) else None
    if not isinstance(values, Mapping):
        return {}
    return {key: as_number(value) for key, value in values.items()}


def _csv_cell(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else ""
