"""What can be read off the features, as a table: a row per objective and kind of features."""

import csv
import io
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.evaluation.workdir import as_number
from aninfonce_jax.files import write_bytes, write_json

FEATURES = ("backbone", "projector")
# The five that the paper reads out and averages.
AVERAGED = ("grey", "brightness", "contrast", "hue", "saturation")
READOUTS = ("classes", *AVERAGED, "average", "crop", "blur")
COLUMNS = ("objective", "features", *READOUTS)
UNTRAINED = "untrained"


def table_rows(
    name: str,
    readouts: Mapping[str, Any] | None,
    strength_r2: Mapping[str, Any] | None,
    untrained: Mapping[str, Any] | None,
) -> list[dict[str, Any]]:
    """The rows of one run, in per cent; NaN stands for what was not recorded.

    Args:
      name: what the objective is called.
      readouts: by features and then by what is read, the accuracy as a share; see `READOUTS`.
      strength_r2: by features and then by augmentation, the R² of its strength.
      untrained: the same two under "readouts" and "strength_r2" for the network before its
        first step; None if unknown.

    Returns:
      A row for the backbone and one for the projector, and if `untrained` is given two rows
      more. Each has the keys `COLUMNS`, and "strength_r2" with a mapping from augmentation
      to R².
    """
    rows = [_row(name, features, readouts, strength_r2) for features in FEATURES]
    if isinstance(untrained, Mapping):
        before = untrained.get("readouts"), untrained.get("strength_r2")
        rows += [_row(UNTRAINED, features, *before) for features in FEATURES]
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
    writer.writerow(COLUMNS)
    writer.writerows([_csv_cell(row[column]) for column in COLUMNS] for row in rows)
    return [
        write_bytes(workdir / workdir_lib.TABLE_CSV_FILE, text.getvalue().encode()),
        write_json(workdir / workdir_lib.TABLE_JSON_FILE, rows),
    ]


def _row(name: str, features: str, readouts: Any, strength_r2: Any) -> dict[str, Any]:
    shares = _numbers(readouts, features)
    if not math.isfinite(shares.get("average", math.nan)):
        shares["average"] = sum(shares.get(key, math.nan) for key in AVERAGED) / len(AVERAGED)
    return {
        "objective": name,
        "features": features,
        **{key: 100 * shares.get(key, math.nan) for key in READOUTS},
        "strength_r2": _numbers(strength_r2, features),
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
