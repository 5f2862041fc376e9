"""Where the runs of a sweep take place: in processes of this machine, or as jobs of Slurm."""

import dataclasses
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from aninfonce_jax.cli import EXIT_FAILED, EXIT_PREEMPTED
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.stop import StopSignal

_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_BETWEEN_LOOKS_AT_SLURM = 5.0


@dataclasses.dataclass(frozen=True)
class Job:
    """One run of a sweep: what to execute, and where its output goes."""

    name: str
    command: tuple[str, ...]
    log: Path


class Executor(Protocol):
    """Runs jobs."""

    def run(self, jobs: Sequence[Job], stop: StopSignal) -> Iterator[tuple[Job, int]]:
        """Gives every job with its exit code as it ends.

        A job that has not begun when a stop is requested is not begun any more, and not given.
        Those that run are asked to stop, and end with what they have saved.
        """
        ...


def run_job(command: Sequence[str], log: str) -> int:
    """Runs a command to its end, appends its output to the log, and returns its exit code."""
    with open(log, "ab") as output:
        return subprocess.call(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)


@dataclasses.dataclass(frozen=True)
class LocalExecutor:
    """Processes of this machine, each on its own share of the CPUs."""

    processes: int

    def run(self, jobs: Sequence[Job], stop: StopSignal) -> Iterator[tuple[Job, int]]:
        """Gives every job with its exit code as it ends."""
        waiting = list(reversed(jobs))
        shares = _shares_of_cpus(self.processes)
        running: dict[int, tuple[Job, subprocess.Popen[bytes]]] = {}
        is_told = False
        try:
            while waiting or running:
                if stop.requested and not is_told:
                    is_told = True
                    waiting.clear()
                    _terminate(running)
                for place in range(self.processes):
                    if place not in running and waiting:
                        job = waiting.pop()
                        running[place] = job, _start(job, shares[place])
                ended = [place for place, (_, own) in running.items() if own.poll() is not None]
                for place in ended:
                    job, process = running.pop(place)
                    yield job, process.returncode
                if not ended:
                    time.sleep(_SECONDS_BETWEEN_LOOKS)
        finally:
            _terminate(running)  # none outlives whoever waits for it
            for _, process in running.values():
                process.wait()


def _start(job: Job, cpus: set[int]) -> subprocess.Popen[bytes]:
    with open(job.log, "ab") as output:
        process = subprocess.Popen(
            job.command,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            # Ctrl-C is for the sweep, which passes it on once.
            start_new_session=True,
        )
    if cpus:
        # It has not even imported jax by now, which starts a thread for each CPU that it sees.
        os.sched_setaffinity(process.pid, cpus)
    return process


def _terminate(running: Mapping[int, tuple[Job, subprocess.Popen[bytes]]]) -> None:
    for _, process in running.values():
        if process.poll() is None:
            process.terminate()


def _shares_of_cpus(processes: int) -> list[set[int]]:
    """Returns which CPUs each process gets; empty sets where that can't be said."""
    if not hasattr(os, "sched_setaffinity"):
        return [set()] * processes
    cpus = sorted(os.sched_getaffinity(0))
    if processes > len(cpus):
        return [set()] * processes
    return [set(cpus[place::processes]) for place in range(processes)]


@dataclasses.dataclass(frozen=True)
class SubmittedExecutor:
    """Jobs of a cluster, through submitit.

    Attributes:
      folder: where submitit keeps what it sends and receives; on storage that all nodes share.
      options: of `submitit.AutoExecutor.update_parameters`, such as timeout_min or
        slurm_partition.
      cluster: as submitit calls it.
    """

    folder: Path
    options: Mapping[str, Any]
    cluster: str = "slurm"

    def run(self, jobs: Sequence[Job], stop: StopSignal) -> Iterator[tuple[Job, int]]:
        """Gives every job with its exit code as it ends; submits all of them at once."""
        if not jobs:
            return
        executor = self._executor()
        with executor.batch():
            submitted = [executor.submit(run_job, job.command, str(job.log)) for job in jobs]
        running = dict(zip(jobs, submitted, strict=True))
        while running:
            if stop.requested:
                for sent in running.values():
                    sent.cancel()
                yield from ((job, EXIT_PREEMPTED) for job in running)
                return
            ended = [job for job, sent in running.items() if sent.done()]
            for job in ended:
                yield job, _exit_code(running.pop(job))
            if not ended:
                time.sleep(_SECONDS_BETWEEN_LOOKS_AT_SLURM)

    def _executor(self) -> Any:
        submitit = _import_submitit()
        try:
            executor = submitit.AutoExecutor(folder=self.folder / "%j", cluster=self.cluster)
            executor.update_parameters(**self.options)
        except (RuntimeError, NameError, TypeError, AssertionError) as error:
            raise ConfigError(f"--executor={self.cluster} can't be used: {error}") from error
        return executor


def check_submitit() -> None:
    """Raises ConfigError if jobs can't be submitted for want of the package."""
    _import_submitit()


def _import_submitit() -> Any:
    try:
        import submitit
    except ImportError as error:
        raise ConfigError(
            "--executor=slurm needs the package submitit: pip install 'aninfonce-jax[slurm]'"
        ) from error
    return submitit


def _exit_code(sent: Any) -> int:
    """Returns what the command ended with; a job that the cluster ended has failed."""
    if sent.exception() is not None:
        return EXIT_FAILED
    return int(sent.result())
