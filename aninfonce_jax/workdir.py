"""The work directory: every file of a run, its name, its format, and whether it is to be trusted.

    config.json     the resolved config, its hash, the command that repeats the run
    metrics.jsonl   a row for every logging interval and evaluation
    eval.json       the last evaluation in full
    checkpoints/ tensorboard/ figures/ report.html table1.csv table1.json

`config.json` and `eval.json` carry a digest of all they hold, so that a file which was edited
or damaged is noticed. `eval.json` names the config that it belongs to and the rows of
`metrics.jsonl` that were written when it was made: files of two runs are told apart, and rows
that were lost, doubled or changed are seen without opening a checkpoint.

Nothing here trains, scores or draws, and jax is not imported.
"""

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from aninfonce_jax import config as config_lib
from aninfonce_jax import lock
from aninfonce_jax.cli import warn
from aninfonce_jax.config.schema import Config, ConfigError
from aninfonce_jax.config.values import shown
from aninfonce_jax.files import (
    FileError,
    finite,
    parse_json,
    read_bytes,
    read_json,
    write_bytes,
    write_json,
)

CONFIG_FILE = "config.json"
METRICS_FILE = "metrics.jsonl"
EVAL_FILE = "eval.json"
REPORT_FILE = "report.html"
TABLE_CSV_FILE = "table1.csv"
TABLE_JSON_FILE = "table1.json"
PREVIEW_FILE = "preview.png"
COMPILE_FILE = "compile.json"
COMPILE_PAGE = "compile.html"
COMPILE_LOG = "compile.log"
LOCK_FILE = "lock"
REPORT_LOCK_FILE = "report.lock"
CHECKPOINT_FOLDER = "checkpoints"
TENSORBOARD_FOLDER = "tensorboard"
FIGURES_FOLDER = "figures"
# In the name of a checkpoint that Orbax has not finished.
INTERRUPTED_SAVE = ".orbax-checkpoint-tmp"

# What the config of an experiment says that no config file made.
MADE_IN_CODE = "code"

# Of config.json and eval.json. Files of format 1 had neither this number nor a digest.
FORMAT = 2

_FOLDERS = (CHECKPOINT_FOLDER, TENSORBOARD_FOLDER, FIGURES_FOLDER)
_FILES = (
    CONFIG_FILE,
    METRICS_FILE,
    EVAL_FILE,
    REPORT_FILE,
    TABLE_CSV_FILE,
    TABLE_JSON_FILE,
    LOCK_FILE,
    REPORT_LOCK_FILE,
)
# What only a run leaves behind.
_TRACES = (CHECKPOINT_FOLDER, METRICS_FILE, EVAL_FILE)
# Far above what a run writes; what is larger is something else.
_CONFIG_BYTES = 2**20
_EVAL_BYTES = 2**28
_METRICS_BYTES = 2**30
# Of two configs, how many differences are told.
_MOST_CHANGES = 8
# A report takes seconds; to fail a run that is done because of one would be a pity.
_REPORT_PATIENCE = 60.0

Row = Mapping[str, Any]

# Work directories that this process holds already, and the thread that does.
_held: dict[Path, int] = {}


class WorkdirError(ConfigError):
    """A work directory that can't be used as it is; its message is one line for the user."""


# --- Holding it ---


@contextlib.contextmanager
def hold(*folders: Path) -> Iterator[None]:
    """Keeps other processes from changing these work directories; makes them if need be.

    A folder that the same thread holds already is left to its holder. Folders that were made
    and stayed empty are removed again.

    Raises:
      WorkdirError: another process holds one, or it can't be written.
    """
    with contextlib.ExitStack() as stack:
        for folder in folders:
            with _writing(folder):
                stack.enter_context(
                    _hold(folder / LOCK_FILE, "wait for it, or choose another --workdir")
                )
        yield


@contextlib.contextmanager
def hold_report(folder: Path) -> Iterator[None]:
    """Keeps others from writing a report into `folder`, but not from training there; see `hold`.

    Raises:
      WorkdirError: another process writes one.
      OSError: the folder can't be written.
    """
    advice = "wait for it, or name another folder first in --workdir"
    with _hold(folder / REPORT_LOCK_FILE, advice, patience=_REPORT_PATIENCE):
        yield


@contextlib.contextmanager
def _hold(path: Path, advice: str, patience: float = 0.0) -> Iterator[None]:
    known = path.absolute()
    if _held.get(known) == threading.get_ident():
        yield
        return
    made = [folder for folder in path.parents if not folder.exists()]
    what = f"work directory {path.parent}"
    with contextlib.ExitStack() as stack:
        stack.callback(_remove_if_empty, made)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            stack.enter_context(lock.hold(path, what, advice, patience=patience, say=warn))
        except lock.LockedError as error:
            raise WorkdirError(str(error)) from error
        _held[known] = threading.get_ident()
        stack.callback(_held.pop, known)
        yield


def _remove_if_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):  # it has something in it by now
            folder.rmdir()


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WorkdirError(
            f"work directory {folder} can't be written: {error.strerror or error}; "
            "choose another --workdir"
        ) from error


@contextlib.contextmanager
def _reading(path: Path, advice: str = "") -> Iterator[None]:
    try:
        yield
    except FileError as error:
        raise WorkdirError(f"{error}{advice}") from error
    except OSError as error:
        raise WorkdirError(f"{path} can't be read: {error.strerror or error}") from error


# --- What is in it ---


def find_runs(folders: Iterable[Path]) -> list[Path]:
    """Returns the runs that folders hold: each one itself, and those one level below.

    Raises:
      WorkdirError: if a folder does not exist, or holds no run.
    """
    found: list[Path] = []
    for folder in folders:
        with _reading(folder):
            if not folder.exists():
                raise WorkdirError(f"work directory {folder} does not exist")
            if not folder.is_dir():
                raise WorkdirError(f"work directory {folder} is a file; expected a folder")
            below = sorted(path for path in folder.iterdir() if path.is_dir())
            runs = [path for path in (folder, *below) if _is_run(path)]
        if not runs:
            raise WorkdirError(f"{folder} holds no run: no {CONFIG_FILE} in it or one level below")
        found += runs
    return found


def _is_run(folder: Path) -> bool:
    # By its traces too: a run whose config was lost must not be left out silently.
    return any(os.path.lexists(folder / name) for name in (CONFIG_FILE, *_TRACES))


def check_entries(folder: Path) -> None:
    """Raises WorkdirError if a name that a run uses is taken by something else."""
    if folder.exists() and not folder.is_dir():
        raise WorkdirError(
            f"work directory {folder} can't be written: it is a file; choose another --workdir"
        )
    for name in (*_FILES, *_FOLDERS):
        path = folder / name
        is_folder = name in _FOLDERS
        with _reading(path):
            is_right = path.is_dir() if is_folder else path.is_file()
        if os.path.lexists(path) and not is_right:
            raise WorkdirError(
                f"{path} is {_kind(path)}, expected a {'folder' if is_folder else 'file'}; "
                "move it away, or choose another --workdir"
            )


def _kind(path: Path) -> str:
    if path.is_symlink() and not path.exists():
        return "a link to nothing"
    if path.is_dir():
        return "a folder"
    return "a file" if path.is_file() else "neither file nor folder"


# --- config.json ---


@dataclasses.dataclass(frozen=True)
class SavedConfig:
    """What `config.json` holds.

    Attributes:
      values: the nested values of the config.
      hash: of all that the result depends on; see `config.fingerprint`.
      command: what repeats the run; "" if it isn't known.
    """

    values: Mapping[str, Any]
    hash: str
    command: str


def claim(folder: Path, values: Mapping[str, Any], command: str = "") -> None:
    """Writes the resolved config, or checks that the folder's earlier run had the same.

    Args:
      folder: the run's folder; made if it is missing.
      values: of the run's config, or what else describes it.
      command: what to type to repeat it, for the report.

    Raises:
      WorkdirError: if the folder belongs to another run, holds something else, was changed,
        or can't be written.
    """
    check_entries(folder)
    if (folder / CONFIG_FILE).exists():
        changes = config_lib.difference(read_saved(folder).values, values)
        if changes:
            raise WorkdirError(
                f"{folder} holds a run with another config ({_list_changes(changes)}); "
                "choose another --workdir, or go back to its config"
            )
        if read_saved(folder) == _as_saved(values, command):
            return
    elif left := [name for name in _TRACES if _holds_work(folder / name)]:
        raise WorkdirError(
            f"{folder} has {' and '.join(left)} but no {CONFIG_FILE}; put it back, or choose "
            "another --workdir"
        )
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_config(folder, values, command)


def _list_changes(changes: Mapping[str, tuple[Any, Any]]) -> str:
    """Returns some fields with their old and new values, those that choose a kind first."""
    names = sorted(changes, key=lambda name: not name.endswith(".kind"))
    told = [f"{name}: {shown(changes[name][0])} -> {shown(changes[name][1])}" for name in names]
    more = len(told) - _MOST_CHANGES
    return "; ".join(told[:_MOST_CHANGES] + [f"{more} more"] * (more > 0))


def _holds_work(path: Path) -> bool:
    """Whether a trace of a run is more than a save that was interrupted."""
    if path.name == CHECKPOINT_FOLDER and path.is_dir():
        return any(INTERRUPTED_SAVE not in found.name for found in path.iterdir())
    return path.exists()


@contextlib.contextmanager
def claimed(folder: Path, values: Mapping[str, Any], command: str = "") -> Iterator[None]:
    """Holds a work directory for one run, whose config it checks or writes there.

    Raises:
      WorkdirError: as `hold` and `claim` do.
    """
    with hold(folder):
        claim(folder, values, command)
        yield


def write_config(folder: Path, values: Mapping[str, Any], command: str) -> None:
    """Writes `config.json` with the hash and the digest of what it holds."""
    saved = _as_saved(values, command)
    content = {"config": saved.values, "hash": saved.hash, "command": command}
    write_json(folder / CONFIG_FILE, _seal(content))


def _as_saved(values: Mapping[str, Any], command: str) -> SavedConfig:
    plain = json.loads(json.dumps(values))
    return SavedConfig(plain, config_lib.fingerprint_values(plain), command)


def read_saved(folder: Path) -> SavedConfig:
    """Returns what `config.json` holds.

    Raises:
      WorkdirError: if it is missing, can't be read, or is not as a run wrote it.
    """
    path = folder / CONFIG_FILE
    if not os.path.lexists(path):
        raise WorkdirError(f"{folder} is not the work directory of a run: it has no {CONFIG_FILE}")
    with _reading(path, f"; {_PUT_BACK}"):
        content = read_json(path, _CONFIG_BYTES)
        values = content.get("config")
        if not isinstance(values, dict):
            raise FileError(f"{path} has no entry 'config' with the run's settings")
        is_sealed = _check_seal(path, content)
        saved = SavedConfig(values, str(content.get("hash")), str(content.get("command") or ""))
        if not is_sealed and saved.hash != config_lib.fingerprint_values(values):
            raise FileError(f"{path} was changed: its hash does not fit its config")
    return saved


_PUT_BACK = (
    "put back the file that the run wrote (settings are changed by flags, never in this file), "
    "or train in another --workdir"
)


def read_config(folder: Path) -> Config:
    """Returns the config of the run in `folder`; raises as `read_saved`."""
    saved = read_saved(folder)
    if saved.values.get("made_by") == MADE_IN_CODE:
        raise WorkdirError(
            f"{folder} holds an experiment that was made in code, not by a config; evaluate it "
            "there: an.evaluate(experiment, workdir)"
        )
    try:
        return config_lib.from_dict(saved.values)
    except ConfigError as error:
        raise WorkdirError(f"{folder / CONFIG_FILE} is of another version: {error}") from error


# --- eval.json ---


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What `eval.json` holds.

    Attributes:
      scores: the last evaluation; {} if it is missing, damaged or of another run.
      problem: what is wrong with it, in one line; "" if nothing is.
      is_foreign: whether it belongs to another config than that of this folder.
    """

    scores: Mapping[str, Any]
    problem: str = ""
    is_foreign: bool = False


def write_eval(
    folder: Path, scores: Mapping[str, Any], config_hash: str, rows: Sequence[Row] | None
) -> None:
    """Writes `eval.json`.

    Args:
      folder: of the run.
      scores: `step` among them.
      config_hash: of the run that was evaluated.
      rows: all rows of metrics that were written so far; None if they aren't known.

    Raises:
      OSError: if it can't be written, or the run's folder was removed. A save that is under way
        then makes one of the same name, in which these scores would be of no run.
    """
    if not (folder / CONFIG_FILE).exists():
        raise FileNotFoundError(errno.ENOENT, "the run is gone", str(folder / CONFIG_FILE))
    content = {**scores, "config_hash": config_hash}
    if rows is not None:
        content |= {"metrics_rows": len(rows), "metrics_sha256": digest_rows(rows)}
    write_json(folder / EVAL_FILE, _seal(content))


def read_eval(folder: Path, config_hash: str) -> Evaluation:
    """Returns what `eval.json` holds, or what is wrong with it; raises nothing.

    Args:
      folder: of the run.
      config_hash: of the run that it should belong to.
    """
    path = folder / EVAL_FILE
    if not os.path.lexists(path):
        return Evaluation({}, f"{path} is missing")
    try:
        scores = read_json(path, _EVAL_BYTES)
        is_sealed = _check_seal(path, scores)
        for name, kind in {"step": int, "evaluated_with": dict}.items():
            if not isinstance(scores.get(name), kind | None):
                raise FileError(f"{path} holds {name}={scores[name]!r}")
    except FileError as error:
        return Evaluation({}, str(error))
    except OSError as error:
        return Evaluation({}, f"{path} can't be read: {error.strerror or error}")
    if not is_sealed:
        return Evaluation(
            scores, f"{path} carries no digest, so that nobody can tell if it is whole"
        )
    if scores.get("config_hash") != config_hash:
        problem = (
            f"{path} is of the run with config hash {scores.get('config_hash')}, "
            f"{CONFIG_FILE} of the one with {config_hash}"
        )
        return Evaluation({}, problem, is_foreign=True)
    return Evaluation(scores)


def undo_eval(folder: Path, step: int) -> None:
    """Removes an evaluation of a later step than the one at which the run goes on."""
    evaluation = read_eval(folder, read_saved(folder).hash)
    if (evaluation.scores.get("step") or 0) > step:
        with _writing(folder):
            (folder / EVAL_FILE).unlink()


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _seal(content: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content as JSON will hold it, with its format and digest."""
    plain = json.loads(json.dumps(finite({**content, "format": FORMAT})))
    return {**plain, "digest": _digest(plain)}


def _check_seal(path: Path, content: Mapping[str, Any]) -> bool:
    """Returns whether there is a seal; raises FileError if it does not fit."""
    if not {"format", "digest"} & content.keys():
        return False  # format 1
    unsealed = {name: value for name, value in content.items() if name != "digest"}
    if content.get("digest") != _digest(unsealed):
        raise FileError(f"{path} was changed: its digest does not fit its content")
    if content["format"] != FORMAT:
        raise FileError(f"{path} has format {content['format']}, this version knows {FORMAT}")
    return True


# --- metrics.jsonl ---


def encode_row(row: Row) -> str:
    """Returns a row as its line in `metrics.jsonl`."""
    return json.dumps(row, allow_nan=False) + "\n"


def digest_rows(rows: Sequence[Row]) -> str:
    """Returns a digest of rows, whatever the order of the values in each."""
    text = "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows)
    return hashlib.sha256(text.encode()).hexdigest()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Returns the rows of a `metrics.jsonl`, null where a value was not finite.

    A last line that was cut off by a killed process is left out.

    Raises:
      WorkdirError: if anything else is not a row, with its place, or the file can't be read.
    """
    with _reading(path):
        return _parse_rows(read_bytes(path, _METRICS_BYTES), path)


def restore_metrics(folder: Path, step: int, rows: Sequence[Row] | None) -> str:
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
    found = None
    if os.path.lexists(path):
        with _reading(path):
            found = read_bytes(path, _METRICS_BYTES)
    if rows is None:
        return _trim(path, found, step)
    wanted = "".join(map(encode_row, rows)).encode()
    if found == wanted:
        return ""
    problem = _describe_difference(path, found, rows, step)
    if problem and found is not None:
        write_bytes(path.with_name(f"{path.name}.damaged"), found)
    write_bytes(path, wanted)
    return f"{problem}; written again from the checkpoint of step {step}" if problem else ""


def check_metrics(
    path: Path, rows: Sequence[Row], evaluation: Evaluation, last_step: int | None
) -> str:
    """Returns in one line how rows differ from those that the run wrote; "" if they don't.

    Args:
      path: of the file they were read from.
      rows: as `read_metrics` returns them.
      evaluation: the last one, which says how many rows there were, and their digest.
      last_step: of the whole run, if it is known.
    """
    count, digest = (evaluation.scores.get(f"metrics_{name}") for name in ("rows", "sha256"))
    if not isinstance(count, int):
        return _describe_disorder(path, rows)
    step = evaluation.scores.get("step")
    if digest_rows(rows[:count]) != digest:
        reached = max((row["step"] for row in rows), default="none")
        return (
            f"{path} is not the one that this run wrote: {count} rows up to step {step} were "
            f"written, {len(rows)} up to step {reached} are there, or some were changed"
        )
    more = rows[count:]
    if more and (step == last_step or more[0]["step"] < (step or 0)):
        return f"{path} has {len(more)} rows more than the {count} that this run wrote"
    return _describe_disorder(path, rows)


def _describe_disorder(path: Path, rows: Sequence[Row]) -> str:
    seen = [(row["step"], row.get("split")) for row in rows]
    if len(set(seen)) < len(seen):
        return f"{path} has {len(seen) - len(set(seen))} rows twice"
    if [step for step, _ in seen] != sorted(step for step, _ in seen):
        return f"{path} has rows that are not in the order of their steps"
    return ""


def _describe_difference(path: Path, found: bytes | None, rows: Sequence[Row], step: int) -> str:
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


def _trim(path: Path, found: bytes | None, step: int) -> str:
    """Keeps the complete rows up to a step, all or nothing."""
    if found is None:
        return ""
    if step == 0:
        write_bytes(path, b"")
        return f"{path} had rows, but there is no checkpoint: the run begins anew" if found else ""
    with _reading(path):
        rows = _parse_rows(found, path)
    kept = "".join(encode_row(row) for row in rows if row["step"] <= step).encode()
    if kept != found:
        write_bytes(path, kept)
    return ""


def _parse_rows(content: bytes, path: Path) -> list[dict[str, Any]]:
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
