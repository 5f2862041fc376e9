"""`config.json`: the resolved config, its hash, and the command that repeats the run."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aninfonce_jax import config as config_lib
from aninfonce_jax.config.schema import Config, ConfigError
from aninfonce_jax.config.values import shown
from aninfonce_jax.files import FileError, is_there, read_json, write_json
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.workdir.entries import check_entries
from aninfonce_jax.workdir.holding import hold
from aninfonce_jax.workdir.names import (
    CHECKPOINT_FOLDER,
    CONFIG_FILE,
    INTERRUPTED_SAVE,
    MADE_IN_CODE,
    TRACES,
    WorkdirError,
    reading,
    writing,
)
from aninfonce_jax.workdir.seals import check_seal, seal

# Far above what a run writes; what is larger is something else.
_CONFIG_BYTES = 2**20
# How many differences between two configs are told.
_MOST_CHANGES = 8


@dataclasses.dataclass(frozen=True)
class SavedConfig:
    """What `config.json` holds.

    Attributes:
      values: the nested values of the config.
      hash: of all that the result depends on, as the version that began the run knew it; see
        `config.fingerprint_values`. It tells this run from others, and never changes.
      command: what repeats the run; "" if it isn't known.
    """

    values: Mapping[str, Any]
    hash: str
    command: str


# From what an earlier version recorded of a run to what this one would.
Complete = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def claim(
    folder: AnyPath,
    values: Mapping[str, Any],
    command: str = "",
    complete: Complete = dict,
) -> str:
    """Writes the resolved config, or checks that the folder's earlier run had the same.

    Args:
      folder: the run's folder; made if it is missing.
      values: of the run's config, or what else describes it.
      command: what to type to repeat it, for the report.
      complete: see `check_same`.

    Returns:
      The run's hash, by which its files know each other. That of an earlier run stays what it
      was, although this version might have fields that the run began without.

    Raises:
      WorkdirError: if the folder belongs to another run, holds something else, was changed,
        or can't be written.
    """
    saved = check_claim(folder, values, complete)
    wanted = _as_saved(values, command)
    if saved is not None:
        wanted = dataclasses.replace(wanted, hash=saved.hash)
        if saved == wanted:
            return wanted.hash
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _write_config(folder, wanted)
    return wanted.hash


def check_claim(
    folder: AnyPath, values: Mapping[str, Any], complete: Complete = dict
) -> SavedConfig | None:
    """Returns what the folder's earlier run has recorded, None if there was none.

    Raises:
      WorkdirError: if `claim` would; nothing is written.
    """
    check_entries(folder)
    if (folder / CONFIG_FILE).exists():
        return check_same(folder, values, complete)
    if left := [name for name in TRACES if _holds_work(folder / name)]:
        raise WorkdirError(
            f"{folder} has {' and '.join(left)} but no {CONFIG_FILE}; put it back, or choose "
            "another --workdir"
        )
    return None


def check_same(
    folder: AnyPath,
    values: Mapping[str, Any],
    complete: Complete = dict,
    *,
    but: str | None = None,
) -> SavedConfig:
    """Returns what `config.json` holds, if it is the run that `values` describe.

    Args:
      folder: of the run.
      values: of a config, or what else describes a run.
      complete: adds to what an earlier version wrote the fields that it did not have; by
        default none.
      but: fields that begin with this may differ.

    Raises:
      WorkdirError: if it is another run, or as `read_saved`.
    """
    saved = read_saved(folder)
    changes = config_lib.difference(_completed(folder, saved, complete), values)
    changes = {
        name: own for name, own in changes.items() if but is None or not name.startswith(but)
    }
    if changes:
        raise WorkdirError(
            f"{folder} holds a run with another config ({_list_changes(changes)}); "
            "choose another --workdir, or go back to its config"
        )
    return saved


def _completed(folder: AnyPath, saved: SavedConfig, complete: Complete) -> Mapping[str, Any]:
    try:
        return complete(saved.values)
    except ConfigError as error:
        raise WorkdirError(f"{folder / CONFIG_FILE} is of another version: {error}") from error


def _list_changes(changes: Mapping[str, tuple[Any, Any]]) -> str:
    """Returns some fields with their old and new values, those that choose a kind first."""
    names = sorted(changes, key=lambda name: not name.endswith(".kind"))
    told = [f"{name}: {shown(changes[name][0])} -> {shown(changes[name][1])}" for name in names]
    more = len(told) - _MOST_CHANGES
    return "; ".join(told[:_MOST_CHANGES] + [f"{more} more"] * (more > 0))


def _holds_work(path: AnyPath) -> bool:
    """Whether a trace of a run is more than a save that was interrupted."""
    if path.name == CHECKPOINT_FOLDER and path.is_dir():
        return any(INTERRUPTED_SAVE not in found.name for found in path.iterdir())
    return path.exists()


@contextlib.contextmanager
def claimed(
    folder: AnyPath,
    values: Mapping[str, Any],
    command: str = "",
    complete: Complete = dict,
) -> Iterator[str]:
    """Holds a work directory for one run, whose config it checks or writes there.

    Gives the run's hash; see `claim`.

    Raises:
      WorkdirError: as `hold` and `claim` do.
    """
    with hold(folder):
        yield claim(folder, values, command, complete)


def write_config(folder: AnyPath, values: Mapping[str, Any], command: str) -> None:
    """Writes the `config.json` of a new run, with the hash and the digest of what it holds."""
    _write_config(folder, _as_saved(values, command))


def _write_config(folder: AnyPath, saved: SavedConfig) -> None:
    content = {"config": saved.values, "hash": saved.hash, "command": saved.command}
    write_json(folder / CONFIG_FILE, seal(content))


def _as_saved(values: Mapping[str, Any], command: str) -> SavedConfig:
    plain = json.loads(json.dumps(values))
    return SavedConfig(plain, config_lib.fingerprint_values(plain), command)


def read_saved(folder: AnyPath) -> SavedConfig:
    """Returns what `config.json` holds.

    Raises:
      WorkdirError: if it is missing, can't be read, or is not as a run wrote it.
    """
    path = folder / CONFIG_FILE
    if not is_there(path):
        raise WorkdirError(f"{folder} is not the work directory of a run: it has no {CONFIG_FILE}")
    with reading(path, f"; {_PUT_BACK}"):
        content = read_json(path, _CONFIG_BYTES)
        values = content.get("config")
        if not isinstance(values, dict):
            raise FileError(f"{path} has no entry 'config' with the run's settings")
        is_sealed = check_seal(path, content)
        saved = SavedConfig(values, str(content.get("hash")), str(content.get("command") or ""))
        if not is_sealed and saved.hash != config_lib.fingerprint_values(values):
            raise FileError(f"{path} was changed: its hash does not fit its config")
    return saved


_PUT_BACK = (
    "put back the file that the run wrote (settings are changed by flags, never in this file), "
    "or train in another --workdir"
)


def is_made_in_code(values: Mapping[str, Any]) -> bool:
    """Returns whether the values of a saved config describe an experiment without a config."""
    return values.get("made_by") == MADE_IN_CODE


def read_config(folder: AnyPath) -> Config:
    """Returns the config of the run in `folder`; raises as `read_saved`."""
    saved = read_saved(folder)
    if is_made_in_code(saved.values):
        raise WorkdirError(
            f"{folder} holds an experiment that was made in code, not by a config; evaluate it "
            "there: an.evaluate(experiment, workdir)"
        )
    try:
        return config_lib.from_dict(saved.values)
    except ConfigError as error:
        raise WorkdirError(f"{folder / CONFIG_FILE} is of another version: {error}") from error
