"""The names of all that a run writes, and how a work directory says that it can't be used."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from aninfonce_jax import remote
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.files import FileError
from aninfonce_jax.remote import AnyPath, RemotePath

CONFIG_FILE = "config.json"
METRICS_FILE = "metrics.jsonl"
# Rows that follow those of the file above, from the numbered one on.
METRICS_PART = "metrics-{:08d}.jsonl"
METRICS_PARTS = re.compile(r"metrics-(\d{8,})\.jsonl")
EVAL_FILE = "eval.json"
REPORT_FILE = "report.html"
TABLE_CSV_FILE = "table1.csv"
TABLE_JSON_FILE = "table1.json"
PREVIEW_FILE = "preview.png"
COMPILE_FILE = "compile.json"
COMPILE_PAGE = "compile.html"
COMPILE_LOG = "compile.log"
DIAGNOSIS_FILE = "diagnosis.json"
DIAGNOSIS_PAGE = "diagnosis.html"
SWEEP_FILE = "sweep.json"
SWEEP_PAGE = "sweep.html"
SWEEP_CSV_FILE = "sweep.csv"
LOCK_FILE = "lock"
REPORT_LOCK_FILE = "report.lock"
CHECKPOINT_FOLDER = "checkpoints"
TENSORBOARD_FOLDER = "tensorboard"
FIGURES_FOLDER = "figures"
FIGURE_ENDINGS = (".png", ".svg")
PROFILE_FOLDER = "profile"
# Folders of a sweep: for what its runs print, and for what is sent to a cluster.
LOGS_FOLDER = "logs"
LOG_ENDING = ".log"
SUBMITTED_FOLDER = "submitted"
# In a checkpoint: its arrays, what is kept beside them, and the digests of all its files.
STATE_FOLDER = "state"
RECORD_FOLDER = "record"
SEAL_FILE = "SHA256SUMS"
# As Orbax calls the file of an item of JSON.
RECORD_FILE = "metadata"
# In the name of a checkpoint that Orbax has not finished.
INTERRUPTED_SAVE = ".orbax-checkpoint-tmp"
# In a checkpoint that Orbax has finished where nothing can be renamed.
FINISHED_SAVE = "commit_success.txt"

# The entry of an evaluation for what it did in another way than the run itself.
EVALUATED_WITH = "evaluated_with"
# What `made_by` says in the config.json of an experiment that no config file made.
MADE_IN_CODE = "code"

FOLDERS = (CHECKPOINT_FOLDER, TENSORBOARD_FOLDER, FIGURES_FOLDER, PROFILE_FOLDER)
FILES = (
    CONFIG_FILE,
    METRICS_FILE,
    EVAL_FILE,
    REPORT_FILE,
    TABLE_CSV_FILE,
    TABLE_JSON_FILE,
    DIAGNOSIS_FILE,
    DIAGNOSIS_PAGE,
    LOCK_FILE,
    REPORT_LOCK_FILE,
)
# What only a run leaves behind.
TRACES = (CHECKPOINT_FOLDER, METRICS_FILE, EVAL_FILE)

Row = Mapping[str, Any]


class WorkdirError(ConfigError):
    """A work directory that can't be used as it is; its message is one line for the user."""


def locate(where: str | os.PathLike[str] | RemotePath) -> AnyPath:
    """Returns the path of a work directory, local or remote, as it was given.

    Raises:
      WorkdirError: if no run can live there.
    """
    try:
        return remote.locate(where)
    except remote.PathError as error:
        raise WorkdirError(f"work directory {error}") from error


@contextlib.contextmanager
def writing(folder: AnyPath) -> Iterator[None]:
    """Turns what the file system refuses into one line about the work directory."""
    try:
        yield
    except OSError as error:
        raise WorkdirError(
            f"work directory {folder} can't be written: {error.strerror or error}; "
            "choose another --workdir"
        ) from error


@contextlib.contextmanager
def reading(path: AnyPath, advice: str = "") -> Iterator[None]:
    """Turns a file that can't be read, or is not what it should be, into one line about it."""
    try:
        yield
    except FileError as error:
        raise WorkdirError(f"{error}{advice}") from error
    except OSError as error:
        raise WorkdirError(f"{path} can't be read: {error.strerror or error}") from error
