"""A Slurm cluster of one node, this machine, from Debian's packages slurm-wlm and munge, as root.

Everything it writes is in one folder, and it listens on ports of its own, so that several may run
side by side and none is left when the test ends.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scontrol", "scancel")
_CONFIG = """\
ClusterName=one
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={controller_port}
SlurmdPort={node_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=10
JobRequeue=1
SchedulerParameters=sched_interval=2,bf_interval=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=localhost NodeHostname=localhost NodeAddr=127.0.0.1 CPUs=4
PartitionName=low Nodes=localhost Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime=600
PartitionName=high Nodes=localhost MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF
"""


def why_not() -> str:
    """Says what is missing for a cluster here; nothing if one can be had."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if missing:
        return f"{', '.join(missing)} not found: apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "a Slurm cluster of one's own needs root"


def _path() -> str:
    # Daemons are not on the path of every user.
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_until(what: Callable[[], bool], message: Callable[[], str], seconds: float) -> None:
    """Waits for something to be true, and says what is the matter if it is not in time."""
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, message()
        time.sleep(0.3)


class SlurmCluster:
    """A controller and a node, with the partitions low (the default) and high, which preempts.

    Args:
      folder: an empty folder for all its files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = os.environ | {
            "PATH": _path(),
            "SLURM_CONF": str(folder / "slurm.conf"),
        }
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "SlurmCluster":
        for name in ("state", "spool"):
            (self.folder / name).mkdir(parents=True)
        # munged is strict about who may reach its files.
        self.folder.chmod(0o755)
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(256))
        key.chmod(0o400)
        (self.folder / "slurm.conf").write_text(
            _CONFIG.format(folder=self.folder, controller_port=_free_port(), node_port=_free_port())
        )
        files = {
            "--key-file": "munge.key",
            "--socket": "munge.socket",
            "--pid-file": "munge.pid",
            "--log-file": "munge.log",
            "--seed-file": "munge.seed",
        }
        self._start(
            ["munged", "--foreground", "--force"]
            + [f"{flag}={self.folder / name}" for flag, name in files.items()]
        )
        wait_until((self.folder / "munge.socket").exists, self._logs, 20)
        self._start(["slurmctld", "-D", "-c", "-f", str(self.folder / "slurm.conf")])
        self._start(["slurmd", "-D", "-N", "localhost", "-f", str(self.folder / "slurm.conf")])
        wait_until(lambda: self.call("sinfo", "-h", "-o", "%T").startswith("idle"), self._logs, 60)
        return self

    def __exit__(self, *_: object) -> None:
        self.call("scancel", "--user=root")
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _start(self, command: list[str]) -> None:
        with open(self.folder / f"{command[0]}.out", "wb") as out:
            self._daemons.append(
                subprocess.Popen(command, env=self.environment, stdout=out, stderr=out)
            )

    def _logs(self) -> str:
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
            for path in sorted(self.folder.glob("*"))
            if path.suffix in (".log", ".out")
        )

    def call(self, *command: str) -> str:
        """Runs one of Slurm's programs, and returns what it prints."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    def submit(self, *words: str, folder: Path, environment: dict[str, str] | None = None) -> "Job":
        """Submits a job from a folder."""
        done = subprocess.run(
            ["sbatch", "--parsable", *words],
            cwd=folder,
            env=self.environment | (environment or {}),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return Job(self, done.stdout.strip(), folder)


class Job:
    """A job of a cluster.

    Args:
      cluster: where it runs.
      number: its id.
      folder: where it was submitted, and has its log.
    """

    def __init__(self, cluster: SlurmCluster, number: str, folder: Path) -> None:
        self.cluster = cluster
        self.number = number
        self.folder = folder

    @property
    def log(self) -> str:
        """What it has written so far, in all its starts."""
        return "".join(
            path.read_text(errors="replace") for path in self.folder.glob(f"*-{self.number}.log")
        )

    def _shown(self) -> str:
        return self.cluster.call("scontrol", "show", "job", self.number)

    def field(self, name: str) -> str:
        """Returns a field of what Slurm shows about it."""
        return next(
            (
                word.partition("=")[2]
                for word in self._shown().split()
                if word.startswith(f"{name}=")
            ),
            "",
        )

    def wait_for(self, what: Callable[[], bool], seconds: float = 300) -> None:
        """Waits for something that the job should come to."""
        wait_until(what, lambda: f"{self._shown()}\n{self.log}", seconds)

    def change(self, *fields: str) -> None:
        """Changes what Slurm knows about it."""
        said = self.cluster.call("scontrol", "update", f"JobId={self.number}", *fields)
        assert not said, said

    def go_on(self, start: int, seconds: float = 300, changes: tuple[str, ...] = ()) -> None:
        """Waits until it has been queued again for its n-th start, and lets that begin soon.

        Slurm lets a job that was queued again wait two minutes; without any wait its node would
        take the new start for the old one ("Job credential revoked").
        """

        def is_queued() -> bool:
            return self.field("Restarts") == str(start - 1) and self.field("JobState") == "PENDING"

        self.wait_for(is_queued, seconds)
        self.change("StartTime=now+5", *changes)

    def wait(self, seconds: float = 600) -> tuple[str, int]:
        """Waits for its end, and returns its state and exit code."""
        final = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
        self.wait_for(lambda: self.field("JobState") in final, seconds)
        return self.field("JobState"), int(self.field("ExitCode").partition(":")[0])
