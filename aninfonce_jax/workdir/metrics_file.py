"""`metrics.jsonl`: a row for every logging interval and evaluation."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Literal

from aninfonce_jax.files import FileError, is_there, parse_json, write_bytes
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.workdir.metrics_parts import (
    GapError,
    has_parts,
    read_lines,
    remove_parts,
    write_whole,
)
from aninfonce_jax.workdir.names import METRICS_FILE, Row, reading

# What a row is of: a logging interval of training, or an evaluation.
Split = Literal["train", "eval"]
_STEP, _SPLIT = "step", "split"
ROW_KEYS = frozenset({_STEP, _SPLIT})


def make_row(step: int, split: Split, values: Row) -> dict[str, Any]:
    """Returns a row of what was measured at a step."""
    return {_STEP: step, _SPLIT: split, **values}


def rows_of(rows: Sequence[Row], split: Split) -> list[Row]:
    """Returns the rows of one split, in their order."""
    return [row for row in rows if row.get(_SPLIT) == split]


def encode_row(row: Row) -> str:
    """Returns a row as its line in `metrics.jsonl`."""
    return json.dumps(row, allow_nan=False) + "\n"


def digest_rows(rows: Sequence[Row]) -> str:
    """Returns a digest of rows, whatever the order of the values in each."""
    text = "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows)
    return hashlib.sha256(text.encode()).hexdigest()


def read_metrics(path: AnyPath) -> list[dict[str, Any]]:
    """Returns the rows of a `metrics.jsonl` and of its parts, null where a value was not finite.

    A last line that was cut off by a killed process is left out.

    Raises:
      WorkdirError: if anything else is not a row, with its place, or the file can't be read.
    """
    with reading(path):
        return _parse_rows(read_lines(path), path)


def restore_metrics(folder: AnyPath, step: int, rows: Sequence[Row] | None) -> str:
    """Makes `metrics.jsonl` that of a run which goes on from `step`.

    Rows after that step are removed without a word: they will be written again. A file that
    lacks rows of the checkpoint, or has others, is kept as `metrics.jsonl.damaged` and written
    again.

    Args:
      folder: of the run.
      step: of the checkpoint; 0 without one.
      rows: all rows that the checkpoint holds; None if there is no checkpoint, or one of an
        older version, which holds none.

    Returns:
      What was wrong and has been mended, in one line; "" if nothing was.

    Raises:
      WorkdirError: if the file can't be read, or is damaged and there is nothing to mend it by.
    """
    path = folder / METRICS_FILE
    found, gap = None, ""
    with reading(path):
        if is_there(path):
            try:
                found = read_lines(path)
            except GapError as error:
                if rows is None:
                    raise
                found, gap = error.before, str(error)
    if rows is None:
        return _trim(path, found, step)
    wanted = "".join(map(encode_row, rows)).encode()
    if found == wanted and not has_parts(folder):
        return ""
    problem = gap or _describe_difference(path, found, rows, step)
    if problem and found is not None:
        write_bytes(path.with_name(f"{path.name}.damaged"), found)
    write_whole(path, wanted)
    return f"{problem}; written again from the checkpoint of step {step}" if problem else ""


def _describe_difference(path: AnyPath, found: bytes | None, rows: Sequence[Row], step: int) -> str:
    """Returns what is wrong with a file beyond rows that are still to be undone."""
    if found is None:
        return f"{path} is missing" if rows else ""
    try:
        there = _parse_rows(found, path)
    except FileError as error:
        return str(error)
    if there[: len(rows)] != list(rows):
        return (
            f"{path} is not the one that this run wrote: it should begin with {len(rows)} rows up "
            f"to step {step}, it has {len(there)} rows, or some were changed"
        )
    strange = sum(row["step"] <= step for row in there[len(rows) :])
    return f"{path} has {strange} rows that this run did not write" if strange else ""


def _trim(path: AnyPath, found: bytes | None, step: int) -> str:
    """Keeps the complete rows up to a step, all or nothing."""
    if found is None:
        remove_parts(path.parent)
        return ""
    if step == 0:
        write_whole(path, b"")
        return f"{path} had rows, but there is no checkpoint: the run begins anew" if found else ""
    with reading(path):
        rows = _parse_rows(found, path)
    kept = "".join(encode_row(row) for row in rows if row["step"] <= step).encode()
    if kept != found or has_parts(path.parent):
        write_whole(path, kept)
    return ""


def _parse_rows(content: bytes, path: AnyPath) -> list[dict[str, Any]]:
    rows = []
    # Only a newline ends a row: a cut may leave a part of a character behind.
    lines = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        place = f"{path}, line {number}"
        try:
            row = parse_json(line, place)
            step = row.get("step") if isinstance(row, dict) else None
            if not isinstance(step, int) or isinstance(step, bool):
                raise FileError(f"{place}: expected an object with an integer step")
        except FileError:
            if number == len(lines):
                break  # cut off by a killed process
            raise
        rows.append(row)
    return rows
