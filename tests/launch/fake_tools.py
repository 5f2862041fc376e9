"""Stands in for programs that a launcher calls: records every call, and answers as they do.

Called as `fake_tools.py TOOL ARGUMENT...`, by the scripts that `Fakes` in conftest.py puts on PATH.
The folder FAKES holds what they are to do and what was done.
"""

import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

FAKES = pathlib.Path(os.environ["FAKES"])


def record(tool: str, arguments: list[str]) -> None:
    with open(FAKES / "calls.jsonl", "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps([tool, *arguments]) + "\n")


def next_of(plan: pathlib.Path) -> str:
    """Takes the first line off a plan; the last one stays for ever."""
    with open(plan, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        lines = file.read().splitlines()
        file.seek(0)
        file.truncate()
        file.write("\n".join(lines[1:] or lines) + "\n")
    return lines[0]


def program(arguments: list[str]) -> int:
    """The training program: does what the plan of its process says for this start.

    A step of a plan is an exit code; "save CODE" writes a checkpoint first, "wait CODE" waits to
    be asked to stop, "hang" does not heed that either, "linger CODE" ends a second later.
    """
    flags = dict(word.split("=", 1) for word in arguments if word.startswith("--") and "=" in word)
    number = flags.get("--process_id", "0")
    print(f"process {number} says: {arguments}", flush=True)
    plan = FAKES / f"process-{number}"
    step = (next_of(plan) if plan.exists() else "0").split()
    code = int(step[-1]) if step[-1].isdecimal() else 0
    if step[0] == "save":
        folder = pathlib.Path(flags["--workdir"]) / "checkpoints"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(len(list(folder.iterdir())))).mkdir()
    elif step[0] in ("wait", "hang"):
        asked: list[int] = []
        signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
        print("ready", flush=True)
        (FAKES / f"ready-{number}").touch()
        while not asked or step[0] == "hang":
            time.sleep(0.02)
        print("saved", flush=True)
    elif step[0] == "linger":
        time.sleep(1)
    if code not in (0, 75):
        print(f"process {number} ends with {code}", file=sys.stderr, flush=True)
    return code


def python(arguments: list[str]) -> int:
    if arguments[:2] == ["-m", "aninfonce_jax.main"]:
        return program(arguments[2:])
    # In its place, so that signals reach it.
    os.execv(sys.executable, [sys.executable, *arguments])
    raise AssertionError


def at_host(host: str, command: str) -> int:
    """Runs a command line as a host would, in a home of its own."""
    if (FAKES / f"{host}.down").exists():
        print(f"ssh: connect to host {host} port 22: Connection timed out", file=sys.stderr)
        return 255
    home = FAKES / "homes" / host
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"HOME": str(home), "TMPDIR": str(home / "tmp")}
    return subprocess.run(
        ["bash", "-c", command], cwd=home, env=environment, check=False
    ).returncode


def without_options(arguments: list[str]) -> list[str]:
    left = list(arguments)
    while left[0].startswith("-"):
        left = left[2 if left[0] == "-o" else 1 :]
    return left


def ssh(arguments: list[str]) -> int:
    host, command = without_options(arguments)
    return at_host(host, command)


def scp(arguments: list[str]) -> int:
    source, target = without_options(arguments)
    host, _, path = target.partition(":")
    if (FAKES / f"{host}.down").exists():
        print(f"ssh: connect to host {host} port 22: Connection timed out", file=sys.stderr)
        return 255
    shutil.copy(source, FAKES / "homes" / host / path)
    return 0


TOOLS = {"python": python, "ssh": ssh, "scp": scp}

if __name__ == "__main__":
    if sys.argv[1] != "python" or sys.argv[2:4] == ["-m", "aninfonce_jax.main"]:
        record(sys.argv[1], sys.argv[2:])
    sys.exit(TOOLS[sys.argv[1]](sys.argv[2:]))
