"""What --mode=train does: one run or several in turn, and a report on them.

Heavy imports wait until the work directory is known to be good.
"""

import contextlib
import dataclasses
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aninfonce_jax import command_line
from aninfonce_jax import config as config_lib
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.cli import EXIT_FAILED, EXIT_PREEMPTED, EXIT_USAGE, complain, printable
from aninfonce_jax.config.schema import Config, ConfigError
from aninfonce_jax.distributed.peers import Peers
from aninfonce_jax.modes.report import show
from aninfonce_jax.remote import AnyPath, RemoteError, RemotePath, remote_error
from aninfonce_jax.stop import Preempted, StopSignal

if TYPE_CHECKING:
    from aninfonce_jax.placement import Placement
    from aninfonce_jax.training.experiment import Experiment

# Seconds to wait for another process that trains the same VAE.
_VAE_PATIENCE = 24 * 3600.0


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a command: what it is, where it lives, and what to type to repeat it."""

    config: Config
    folder: AnyPath
    command: str


def train(
    runs: Mapping[str, Run], workdir: AnyPath, command: command_line.Command, peers: Peers
) -> int:
    """Trains several runs in turn, and shows what came of them; returns the exit code.

    Args:
      runs: by name.
      workdir: where the report goes: the folder of the run, or that of the folders of several.
      command: what asked for them.
      peers: the processes that share each run.
    """
    with StopSignal() as stop, contextlib.ExitStack() as stack:
        stop.is_patient = peers.are_many
        folders = (workdir, *(run.folder for run in runs.values()))
        peers.by_first(
            "hold the work directory", lambda: stack.enter_context(workdir_lib.hold(*folders))
        )
        peers.by_first("look at the work directory", lambda: _check_folders(runs, workdir))
        try:
            return _train_and_report(runs, workdir, command, stop, peers)
        except Preempted as notice:
            flag = shlex.quote(f"--workdir={workdir}")
            return complain(f"{notice}; the same command with {flag} goes on", EXIT_PREEMPTED)


def _check_folders(runs: Mapping[str, Run], workdir: AnyPath) -> None:
    """Raises ConfigError if a run, or the report, would be refused after hours of training."""

    def complete(recorded: Mapping[str, Any]) -> Mapping[str, Any]:
        # One that was made in code has no fields of a config.
        is_code = workdir_lib.is_made_in_code(recorded)
        return recorded if is_code else config_lib.complete(recorded)

    workdir_lib.check_entries(workdir)
    for run in runs.values():
        workdir_lib.check_claim(run.folder, config_lib.to_dict(run.config), complete)


def _train_and_report(
    runs: Mapping[str, Run],
    workdir: AnyPath,
    command: command_line.Command,
    stop: StopSignal,
    peers: Peers,
) -> int:
    from aninfonce_jax import compile_cache
    from aninfonce_jax.console import print_config
    from aninfonce_jax.runs import place, require_alike

    compile_cache.use()
    require_alike(peers, {name: run.config for name, run in runs.items()}, workdir)
    placements = {name: place(run.config) for name, run in runs.items()}
    print_config({name: run.config for name, run in runs.items()})
    # At once: a log that is a file would hold it back until the end of the run.
    print(f"work directory: {printable(workdir)}", flush=True)
    for name, run in runs.items():
        code = _train_decoder(run, command, stop, peers) or _train_one(
            name, run, placements[name], command, stop, peers
        )
        if code:
            return code
    try:
        folders = [run.folder for run in runs.values()]
        return peers.by_first("report", lambda: show(folders, workdir))
    except ConfigError as error:  # what a run wrote was damaged since: it is not the command
        return complain(error, EXIT_FAILED)


def _train_decoder(run: Run, command: command_line.Command, stop: StopSignal, peers: Peers) -> int:
    """Trains the VAE whose decoder a run needs, unless it is there; returns the exit code.

    If several runs begin at once, one trains it and the others wait.
    """
    from aninfonce_jax.decoders import needed_run
    from aninfonce_jax.runs import place

    needed = needed_run(run.config)
    if needed is None:
        return 0
    folder = needed.folder
    with contextlib.ExitStack() as stack:

        def hold() -> None:
            print(f"its VAE is trained first, in {printable(folder)}", flush=True)
            with contextlib.ExitStack() as waiting:
                # One of several processes must not leave without the others.
                if not peers.are_many:
                    waiting.enter_context(stop.raising(f"stopped while waiting for {folder}"))
                stack.enter_context(workdir_lib.hold(folder, patience=_VAE_PATIENCE))

        peers.by_first("hold the VAE's folder", hold)
        needed = needed_run(run.config)
        if needed is None:  # another process has trained it since
            return 0
        vae = Run(needed.config, needed.folder, needed.command)
        return _train_one("VAE", vae, place(vae.config), command, stop, peers)


def _train_one(
    name: str,
    run: Run,
    placement: "Placement",
    command: command_line.Command,
    stop: StopSignal,
    peers: Peers,
) -> int:
    """Trains a run to its end; returns the exit code."""
    from aninfonce_jax import runs
    from aninfonce_jax.data.source import DataError
    from aninfonce_jax.training.checkpoint import CheckpointError
    from aninfonce_jax.training.session import DivergedError, UnfinishedError

    progress: Any = command.progress
    if peers.any("whether to stop", stop.requested):
        raise Preempted(f"stopped before {name} began")
    try:
        runs.train(
            _build(name, run.config, progress, stop, peers),
            run.folder,
            placement=placement,
            stop=stop,
            progress=progress,
            label=name,
            command=run.command,
            profile=command.profile,
        )
    except (DivergedError, UnfinishedError, CheckpointError, DataError) as error:
        return complain(error, EXIT_FAILED)
    except OSError as error:  # a full disk, a folder that was removed or made read-only
        if isinstance(run.folder, RemotePath) and not isinstance(error, RemoteError):
            # Where Orbax lists files itself, the store's answer comes as it is: a page of HTML.
            error = remote_error(run.folder, error)
        return complain(
            f"the run in {run.folder} can't go on: {error}; mend it, and the same command "
            "goes on from the last checkpoint",
            EXIT_FAILED,
        )
    except ImportError as error:  # an optional package that the config asks for
        return complain(error, EXIT_USAGE)
    return 0


def _build(
    name: str, config: Config, progress: Any, stop: StopSignal, peers: Peers
) -> "Experiment":
    """Builds a run's parts, and says so: opening a data set may take its time.

    Raises:
      ConfigError: it can't be built; data that are missing or damaged are as wrong, before
        anything has begun, as a config is.
    """
    from aninfonce_jax.build import build_experiment
    from aninfonce_jax.data.source import DataError
    from aninfonce_jax.training.progress import Progress

    with Progress(config.train.steps, mode=progress, label=name, is_shown=peers.is_first) as bar:
        bar.status(f"setting up the source of pairs: {config.source.kind}")
        try:
            # One of several processes must not leave alone: all are asked once they are set up.
            if peers.are_many:
                return build_experiment(config)
            with stop.raising(f"stopped while {name} was set up"):
                return build_experiment(config)
        except DataError as error:
            raise ConfigError(str(error)) from error
