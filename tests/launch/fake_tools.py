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
    be asked to stop, "hang" does not heed that either.
    """
    flags = dict(word.split("=", 1) for word in arguments if word.startswith("--") and "=" in word)
    number = flags.get("--process_id", os.environ.get("FAKE_PROCESS", "0"))
    if "FAKE_LINE" in os.environ:
        print(os.environ["FAKE_LINE"], flush=True)
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
    if code not in (0, 75):
        print(f"process {number} ends with {code}", file=sys.stderr, flush=True)
    return code


def python(arguments: list[str]) -> int:
    if arguments[:2] == ["-m", "aninfonce_jax.main"]:
        return program(arguments[2:])
    # In its place, so that signals reach it.
    os.execv(sys.executable, [sys.executable, *arguments])
    raise AssertionError


def at_host(host: str, command: str, **variables: str) -> int:
    """Runs a command line as a host would, in a home of its own."""
    if (FAKES / f"{host}.down").exists():
        print(f"ssh: connect to host {host} port 22: Connection timed out", file=sys.stderr)
        return 255
    home = FAKES / "homes" / host
    (home / "tmp").mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"HOME": str(home), "TMPDIR": str(home / "tmp")} | variables
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
    target_path = FAKES / "homes" / host / path
    target_path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target_path)
    return 0


# --- A Cloud TPU: its request has states, its hosts are folders. ---


def gcloud(arguments: list[str]) -> int:
    words = [word for word in arguments if not word.startswith("--")]
    flags = dict(word[2:].partition("=")[::2] for word in arguments if word.startswith("--"))
    if words[:2] != ["compute", "tpus"] or "zone" not in flags:
        print(f"ERROR: (gcloud) Invalid choice: {arguments}", file=sys.stderr)
        return 2
    kind, verb, name = words[2:5]
    return {
        "queued-resources describe": describe_request,
        "queued-resources create": create_request,
        "queued-resources delete": delete_request,
        "tpu-vm describe": describe_node,
        "tpu-vm ssh": node_ssh,
        "tpu-vm scp": node_scp,
    }[f"{kind} {verb}"](name, words[5:], flags)


def hosts_of(node: str) -> list[str]:
    return [f"{node}-w{number}" for number in range(int((FAKES / "hosts").read_text()))]


def describe_request(name: str, words: list[str], flags: dict[str, str]) -> int:
    states, failure = FAKES / "request", FAKES / "describe"
    if failure.exists() and (answer := next_of(failure)).startswith("ERROR"):
        print(answer, file=sys.stderr)
        return 1
    if not states.exists():
        text = f"NOT_FOUND: Resource 'projects/p/locations/z/queuedResources/{name}' was not found"
        print(f"ERROR: (gcloud.compute.tpus.queued-resources.describe) {text}", file=sys.stderr)
        return 1
    print(next_of(states) if flags["format"] == "value(state.state)" else "failedData=no capacity")
    return 0


def create_request(name: str, words: list[str], flags: dict[str, str]) -> int:
    answers = FAKES / "create"
    answer = next_of(answers) if answers.exists() else "ACTIVE"
    if answer.startswith("ERROR"):
        print(answer, file=sys.stderr)
        return 1
    (FAKES / "request").write_text(answer.replace(" ", "\n") + "\n")
    print(f"Create request issued for: [{name}]", file=sys.stderr)
    return 0


def delete_request(name: str, words: list[str], flags: dict[str, str]) -> int:
    """Takes the machines away, with all that runs there and lies on their disks."""
    (FAKES / "request").unlink()
    for home in (FAKES / "homes").glob("*"):
        for pid in home.glob("tmp/*/*/pid"):
            subprocess.run(["pkill", "-KILL", "--session", pid.read_text().strip()], check=False)
        shutil.rmtree(home)
    return 0


def describe_node(name: str, words: list[str], flags: dict[str, str]) -> int:
    if flags["format"] == "value(state)":
        state = FAKES / "node"
        print(state.read_text().strip() if state.exists() else "READY")
    else:
        print(";".join(f"10.0.0.{number}" for number, _ in enumerate(hosts_of(name))))
    return 0


def chosen(node: str, worker: str) -> list[tuple[int, str]]:
    hosts = list(enumerate(hosts_of(node)))
    return hosts if worker == "all" else [hosts[int(worker)]]


def node_ssh(name: str, words: list[str], flags: dict[str, str]) -> int:
    codes = []
    for number, host in chosen(name, flags["worker"]):
        print(f"SSH: Attempting to connect to worker {number}...", file=sys.stderr, flush=True)
        codes.append(at_host(host, flags["command"], FAKE_PROCESS=str(number)))
    return next((code for code in codes if code), 0)


def node_scp(source: str, words: list[str], flags: dict[str, str]) -> int:
    node, _, path = words[0].partition(":")
    return max(scp([source, f"{host}:{path}"]) for _, host in chosen(node, flags["worker"]))


def kubectl(arguments: list[str]) -> int:
    """A cluster with one JobSet, whose states are in a plan."""
    if arguments[0] == "apply":
        (FAKES / "manifest.yaml").write_text(sys.stdin.read())
        print("jobset.jobset.x-k8s.io/one created")
    elif arguments[:2] == ["get", "jobset"]:
        states = FAKES / "jobset"
        if not states.exists():
            print('Error from server (NotFound): jobsets "one" not found', file=sys.stderr)
            return 1
        print(next_of(states), end="")
    elif arguments[0] == "logs":
        print("the last line of the log")
    return 0


TOOLS = {"python": python, "ssh": ssh, "scp": scp, "gcloud": gcloud, "kubectl": kubectl}

if __name__ == "__main__":
    if sys.argv[1] != "python" or sys.argv[2:4] == ["-m", "aninfonce_jax.main"]:
        record(sys.argv[1], sys.argv[2:])
    sys.exit(TOOLS[sys.argv[1]](sys.argv[2:]))
