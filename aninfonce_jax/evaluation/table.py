"""What can be read off the features, as a table: a row per objective and kind of features."""

import csv
import io
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.evaluation.workdir import as_number, interval_of
from aninfonce_jax.files import write_bytes, write_json

FEATURES = ("backbone", "projector")
# The five that the paper reads out and averages.
AVERAGED = ("grey", "brightness", "contrast", "hue", "saturation")
READOUTS = ("classes", *AVERAGED, "average", "crop", "blur")
COLUMNS = ("objective", "features", *READOUTS)
UNTRAINED = "untrained"


def table_rows(name: str, scores: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of one run, in per cent; NaN stands for what was not recorded.

    Args:
      name: what the objective is called.
      scores: what `eval.json` holds. Of it are used "readouts": by features and then by
        what is read (see `READOUTS`), the accuracy as a share; "strength_r2": by features
        and then by augmentation, the R² of its strength; "intervals" of both; and under
        "untrained" the same three of the network before its first step.

    Returns:
      A row for the backbone and one for the projector, and if "untrained" is there two rows
      more. Each has the keys `COLUMNS`; "strength_r2", from augmentation to R²; and
      "intervals" and "strength_r2_intervals" of those that have one.
    """
    rows = [_row(name, features, scores) for features in FEATURES]
    untrained = scores.get("untrained")
    if isinstance(untrained, Mapping):
        rows += [_row(UNTRAINED, features, untrained) for features in FEATURES]
    return rows


def write_table(workdir: pathlib.Path, rows: Sequence[Mapping[str, Any]]) -> list[pathlib.Path]:
    """Writes `table1.csv`, for people, and `table1.json`, in full precision.

    Args:
      workdir: the folder to write to.
      rows: as `table_rows` makes them.

    Returns:
      The two paths.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, *(f"{name}_{end}" for name in READOUTS for end in ("low", "high"))])
    for row in rows:
        ends = [end for name in READOUTS for end in row["intervals"].get(name, (math.nan,) * 2)]
        writer.writerow(map(_csv_cell, [*(row[column] for column in COLUMNS), *ends]))
    return [
        write_bytes(workdir / workdir_lib.TABLE_CSV_FILE, text.getvalue().encode()),
        write_json(workdir / workdir_lib.TABLE_JSON_FILE, rows),
    ]


def _row(name: str, features: str, scores: Mapping[str, Any]) -> dict[str, Any]:
    shares = _numbers(scores.get("readouts"), features)
    strengths = _numbers(scores.get("strength_r2"), features)
    found = {key: interval_of(scores, "readouts", features, key) for key in READOUTS}
    of_strengths = {key: interval_of(scores, "strength_r2", features, key) for key in strengths}
    if not math.isfinite(shares.get("average", math.nan)):
        shares["average"] = sum(shares.get(key, math.nan) for key in AVERAGED) / len(AVERAGED)
    return {
        "objective": name,
        "features": features,
        **{key: 100 * shares.get(key, math.nan) for key in READOUTS},
        "strength_r2": strengths,
        "intervals": {key: [100 * end for end in own] for key, own in found.items() if own},
        "strength_r2_intervals": {key: own for key, own in of_strengths.items() if own},
    }


def _numbers(by_features: Any, features: str) -> dict[str, float]:
    """The entries of one kind of features; none if they are missing."""
    values = by_features.get(features) if isinstance(by_features, Mapping) else None
    if not isinstance(values, Mapping):
        return {}
    return {key: as_number(value) for key, value in values.items()}


def _csv_cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.1f}" if math.isfinite(value) else ""
