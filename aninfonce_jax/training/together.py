"""What several processes must have in common before they train: settings, data and folder."""

import contextlib
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.config import flatten_values
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.distributed.equal import settings, versions
from aninfonce_jax.distributed.peers import Peers
from aninfonce_jax.placement import local_count, local_platform
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.training.experiment import Experiment

# Settings that hosts may have each for itself.
_OF_A_HOST = ("source.folder", "source.workers", "source.threads")
# Seconds that a shared file system may take to show what another host has written.
_SEEN_SECONDS = 60.0


def to_be_equal(experiment: Experiment) -> dict[str, Any]:
    """Returns what all processes of a run must have alike."""
    config = shared_settings(experiment.description)
    return {
        **of_the_machine(),
        "the data set": experiment.source.fingerprint(),
        **{f"config.{name}": value for name, value in config.items()},
    }


def of_the_machine() -> dict[str, Any]:
    """Returns what all processes must have alike, whatever they run."""
    return {
        **versions(),
        **settings(),
        "the platform of its devices": local_platform(),
        "the number of local devices": local_count(),
    }


def shared_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the part of a config that must be the same in all processes, by dotted name."""
    flat = flatten_values(values)
    return {name: value for name, value in flat.items() if name not in _OF_A_HOST}


@contextlib.contextmanager
def claimed(
    workdir: AnyPath | None, experiment: Experiment, command: str, peers: Peers
) -> Iterator[tuple[AnyPath, str]]:
    """Gives the work directory, held by process 0 for this run, and the run's hash.

    Without a work directory it gives a temporary one, which is removed afterwards.
    """
    with contextlib.ExitStack() as stack:

        def claim() -> tuple[str, str]:
            folder: AnyPath | None = workdir
            if folder is None:
                temporary = tempfile.TemporaryDirectory(prefix="aninfonce_jax-")
                folder = Path(stack.enter_context(temporary))
            claimed = workdir_lib.claimed(
                folder, experiment.description, command, experiment.complete
            )
            return str(folder), stack.enter_context(claimed)

        name, run = peers.by_first("claim the work directory", claim)
        # As it was given, where it was: a path of one's own kind stays what it is.
        folder = workdir if workdir is not None else workdir_lib.locate(name)
        if not peers.is_first:
            _require_shared(folder, run)
        yield folder, run


def _require_shared(folder: AnyPath, run: str) -> None:
    """Raises ConfigError if this process does not see what process 0 has written."""
    deadline = time.monotonic() + _SEEN_SECONDS
    while True:
        try:
            if workdir_lib.read_saved(folder).hash == run:
                return
            problem = "another run is there"
        except ConfigError as error:
            problem = str(error)
        if time.monotonic() > deadline:
            raise ConfigError(
                f"{folder} is not the folder that process 0 writes into, as seen from "
                f"{socket.gethostname()} ({problem}); all hosts must share the work directory"
            )
        time.sleep(1.0)
