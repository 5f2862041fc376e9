"""`eval.json`: the last evaluation in full, and which rows of metrics it belongs to."""

import dataclasses
import errno
from collections.abc import Mapping, Sequence
from typing import Any

from aninfonce_jax.files import FileError, is_there, read_json, write_json
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.workdir.config_file import read_saved
from aninfonce_jax.workdir.holding import check_held
from aninfonce_jax.workdir.metrics_file import digest_rows
from aninfonce_jax.workdir.names import CONFIG_FILE, EVAL_FILE, EVALUATED_WITH, Row, writing
from aninfonce_jax.workdir.seals import check_seal, seal

# Far above what a run writes; what is larger is something else.
_EVAL_BYTES = 2**28


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
    folder: AnyPath, scores: Mapping[str, Any], config_hash: str, rows: Sequence[Row] | None
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
    check_held(folder)
    if not (folder / CONFIG_FILE).exists():
        raise FileNotFoundError(errno.ENOENT, "the run is gone", str(folder / CONFIG_FILE))
    content = {**scores, "config_hash": config_hash}
    if rows is not None:
        content |= {"metrics_rows": len(rows), "metrics_sha256": digest_rows(rows)}
    write_json(folder / EVAL_FILE, seal(content))


def read_eval(folder: AnyPath, config_hash: str) -> Evaluation:
    """Returns what `eval.json` holds, or what is wrong with it; raises nothing.

    Args:
      folder: of the run.
      config_hash: of the run that it should belong to.
    """
    path = folder / EVAL_FILE
    if not is_there(path):
        return Evaluation({}, f"{path} is missing")
    try:
        scores = read_json(path, _EVAL_BYTES)
        is_sealed = check_seal(path, scores)
        for name, kind in {"step": int, EVALUATED_WITH: dict}.items():
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


def undo_eval(folder: AnyPath, step: int) -> None:
    """Removes an evaluation of a later step than the one at which the run goes on."""
    evaluation = read_eval(folder, read_saved(folder).hash)
    if (evaluation.scores.get("step") or 0) > step:
        with writing(folder):
            (folder / EVAL_FILE).unlink()


def check_metrics(
    path: AnyPath, rows: Sequence[Row], evaluation: Evaluation, last_step: int | None
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


def _describe_disorder(path: AnyPath, rows: Sequence[Row]) -> str:
    seen = [(row["step"], row.get("split")) for row in rows]
    if len(set(seen)) < len(seen):
        return f"{path} has {len(seen) - len(set(seen))} rows twice"
    if [step for step, _ in seen] != sorted(step for step, _ in seen):
        return f"{path} has rows that are not in the order of their steps"
    return ""
