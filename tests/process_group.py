"""Several processes on this machine that are one run, with faults at places that are known."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import small_configs

from aninfonce_jax import workdir as workdir_lib

WORKER = Path(__file__).with_name("process_worker.py")

# Rows that eight devices can share, and more of them written down.
SMALL = small_configs.SMALL | {"train.batch_size": 24, "eval.every": 6, "log.every": 1}


def free_port() -> int:
    """Returns a port that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def flags(changes: Mapping[str, object] | None = None, base: Mapping[str, object] = SMALL) -> list:
    """Returns the flags of a small run."""
    return [
        "--config=synthetic",
        "--progress=plain",
        *small_configs.as_flags({**base, **(changes or {})}),
    ]


class Group:
    """Processes of one command; use it in `with`, which leaves none behind.

    Args:
      folder: where their output goes.
      processes: how many.
      arguments: of all of them.
      devices: of each.
      own: more arguments of some.
      fault: RANK:CALL:SIGNAL, see `process_worker`.
      missing: processes that are not started.
      program: what to run; by default the command line.
      environment: more of it.
      devices_of: of those that have another number of devices.
      environment_of: more of some processes' alone.
    """

    def __init__(
        self,
        folder: Path,
        processes: int,
        arguments: Sequence[str],
        *,
        devices: int = 2,
        own: Mapping[int, Sequence[str]] | None = None,
        fault: str = "",
        missing: Sequence[int] = (),
        program: Sequence[str] = (str(WORKER),),
        environment: Mapping[str, str] | None = None,
        devices_of: Mapping[int, int] | None = None,
        environment_of: Mapping[int, Mapping[str, str]] | None = None,
    ) -> None:
        self.folder = folder
        self.outputs = [folder / f"output{rank}.txt" for rank in range(processes)]
        self.port = free_port()
        kept = [
            flag for flag in os.environ.get("XLA_FLAGS", "").split() if "device_count" not in flag
        ]
        environ = {
            **os.environ,
            "PROCESS_FAULT": fault,
            # One process at a time may use the test's cores.
            "OMP_NUM_THREADS": "1",
            **(environment or {}),
        }
        self.members: dict[int, subprocess.Popen] = {}
        for rank in range(processes):
            if rank in missing:
                continue
            cluster = [
                f"--coordinator=localhost:{self.port}",
                f"--num_processes={processes}",
                f"--process_id={rank}",
            ]
            local = (devices_of or {}).get(rank, devices)
            count = f"--xla_force_host_platform_device_count={local}"
            command = [*program, *arguments, *cluster, *(own or {}).get(rank, ())]
            with self.outputs[rank].open("w") as output:
                self.members[rank] = subprocess.Popen(
                    [sys.executable, *command],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={
                        **environ,
                        "XLA_FLAGS": " ".join([*kept, count]),
                        **(environment_of or {}).get(rank, {}),
                    },
                    start_new_session=True,
                )

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members.values():
            if member.poll() is None:
                member.send_signal(signal.SIGCONT)
                member.kill()
            member.wait()

    def wait(self, timeout: float = 300) -> list[int]:
        """Returns the exit codes, a signal's number as minus that.

        Args:
          timeout: seconds in which nothing ends, is printed or written, until they are given up:
            a machine that is busy with other things may take any time for all of it.
        """
        seen, deadline = self._signs(), time.monotonic() + timeout
        while any(member.poll() is None for member in self.members.values()):
            time.sleep(0.1)
            if (signs := self._signs()) != seen:
                seen, deadline = signs, time.monotonic() + timeout
            if time.monotonic() > deadline:
                raise AssertionError(f"nothing has happened for {timeout} s:\n{self}")
        return [member.wait() for member in self.members.values()]

    def _signs(self) -> list[object]:
        """Returns what changes as long as they get on."""
        ended = [member.poll() for member in self.members.values()]
        return [
            *ended,
            *(path.stat().st_size for path in self.outputs if path.exists()),
            sum(1 for _ in self.folder.rglob("*")),
        ]

    def said(self, rank: int) -> str:
        """Returns what a process has printed so far."""
        return self.outputs[rank].read_text()

    def complaint(self, rank: int) -> str:
        """Returns the one line that a process ended with."""
        lines = [x for x in self.said(rank).splitlines() if x.startswith("aninfonce_jax [")]
        lines = [x for x in lines if "warning:" not in x]
        assert len(lines) == 1, self
        return lines[0]

    def __repr__(self) -> str:
        return "\n".join(
            f"--- process {rank}\n{self.said(rank)[-6000:]}" for rank in sorted(self.members)
        )


def run(folder: Path, processes: int, arguments: Sequence[str], **settings: object) -> Group:
    """Runs a group to its end and checks that all of it succeeded."""
    with Group(folder, processes, arguments, **settings) as group:
        codes = group.wait()
    assert codes == [0] * len(codes), group
    return group


def losses(workdir: Path) -> dict[int, float]:
    """Returns the training loss of every step that was logged."""
    rows = workdir_lib.read_metrics(workdir / workdir_lib.METRICS_FILE)
    return {row["step"]: row["loss"] for row in rows if row["split"] == "train"}


def assert_same_losses(workdir: Path, other: Path, *, tolerance: float = 2e-6) -> None:
    """Checks that two runs had the same losses, step by step."""
    own, theirs = losses(workdir), losses(other)
    assert list(own) == list(theirs)
    np.testing.assert_allclose([*own.values()], [*theirs.values()], rtol=tolerance)
