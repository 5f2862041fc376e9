"""`sweep.json`: what a sweep varies, and what became of each of its runs so far."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from aninfonce_jax.files import FileError, read_json, write_json
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.workdir.names import LOG_ENDING, LOGS_FOLDER, SWEEP_FILE, reading
from aninfonce_jax.workdir.seals import check_seal, seal

# Far above what a sweep of the most runs takes.
_SWEEP_BYTES = 2**26

Status = Literal["finished", "failed", "stopped", "waiting"]
FINISHED: Status = "finished"
FAILED: Status = "failed"
STOPPED: Status = "stopped"
WAITING: Status = "waiting"


@dataclasses.dataclass(frozen=True)
class SweepPoint:
    """One run of a sweep.

    Attributes:
      name: of its folder.
      values: what was varied, by dotted name.
      status: what became of it.
      reason: why it failed; "" where it did not.
    """

    name: str
    values: Mapping[str, Any]
    status: Status
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class SweepRecord:
    """What `sweep.json` holds.

    Attributes:
      fields: what is varied besides the seed.
      x: along which figures are drawn; "" if nobody said.
      scores: names of those to draw; () for all that are known.
      targets: score -> values whose first step is looked for.
      command: what repeats it.
      points: its runs.
    """

    fields: tuple[str, ...]
    x: str
    scores: tuple[str, ...]
    targets: Mapping[str, tuple[float, ...]]
    command: str
    points: tuple[SweepPoint, ...]


def write_sweep(folder: AnyPath, record: SweepRecord) -> None:
    """Writes `sweep.json`; raises OSError if it can't be written."""
    write_json(folder / SWEEP_FILE, seal(dataclasses.asdict(record)))


def read_sweep(folder: AnyPath) -> SweepRecord:
    """Returns what `sweep.json` holds.

    Raises:
      WorkdirError: it is missing, damaged or was edited.
    """
    path = folder / SWEEP_FILE
    with reading(path, "; the command of the sweep writes it again"):
        values = read_json(path, _SWEEP_BYTES)
        check_seal(path, values)
        try:
            return SweepRecord(
                fields=tuple(values["fields"]),
                x=values["x"],
                scores=tuple(values["scores"]),
                targets={name: tuple(own) for name, own in values["targets"].items()},
                command=values["command"],
                points=tuple(
                    SweepPoint(own["name"], own["values"], own["status"], own["reason"])
                    for own in values["points"]
                ),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise FileError(f"{path} is not what a sweep wrote") from error


def sweep_log(folder: Path, name: str) -> Path:
    """Returns the path of what a run of the sweep prints; its folder is made if need be."""
    logs = folder / LOGS_FOLDER
    logs.mkdir(parents=True, exist_ok=True)
    return logs / f"{name}{LOG_ENDING}"
