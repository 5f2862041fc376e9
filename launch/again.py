"""Runs a command, unless it was started too often without getting any further.

    python launch/again.py --workdir=DIR [--launch=ID] [--restarts=3] [--rank=0] [-- COMMAND...]

A run that is preempted is started again for as long as it takes. One that never reaches its next
checkpoint would be started again for ever, and every start of a large machine is paid for: after
--restarts restarts without a new checkpoint this program ends with 1 and one line.

The count is kept beside the work directory, in DIR.starts.json, so that it outlives the machine
of the run. It begins anew with every launch: a Slurm job, a JobSet, a call of a launcher, by the
ID that it is given here or as ANINFONCE_LAUNCH. Only the first of several processes counts
(--rank=0, or 0-0 in the first of several slices); the others run their command. Without a command
only the count is made.
"""

import argparse
import json
import os
import pathlib
import sys
from typing import Any

_CHECKPOINTS = "checkpoints"


def main(arguments: list[str]) -> int:
    """Counts this start, and becomes the command, or returns an exit code."""
    own, command = arguments, []
    if "--" in arguments:
        cut = arguments.index("--")
        own, command = arguments[:cut], arguments[cut + 1 :]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workdir", required=True)
    parser.add_argument("--launch", default=os.environ.get("ANINFONCE_LAUNCH", ""))
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--rank", default="0")
    given = parser.parse_args(own)
    if given.rank in ("0", "0-0"):
        try:
            message = count_start(given.workdir, given.launch, given.restarts)
        except Exception as error:  # stores have errors of their own kinds
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            message = f"starts can't be counted beside {given.workdir}: {reason}"
        if message:
            print(f"aninfonce_jax: {message}", file=sys.stderr)
            return 1
    if command:
        os.execvp(command[0], command)
    return 0


def count_start(workdir: str, launch: str, restarts: int) -> str:
    """Records a start, and returns why it should not take place, or nothing."""
    folder = as_path(workdir)
    reached = latest_steps(folder)
    record = folder.parent / f"{folder.name}.starts.json"
    last = read_record(record)
    stuck = last.get("launch") == launch and last.get("reached") == reached
    starts = 1 + (int(last.get("starts", 0)) if stuck else 0)
    if starts > 1 + restarts:
        latest = ", ".join(f"{name or 'run'} at step {step}" for name, step in reached.items())
        return (
            f"{starts - 1} starts without a new checkpoint (latest: {latest or 'none'}), "
            f"{restarts} restarts are allowed; see the log for why, then launch it again"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps({"launch": launch, "starts": starts, "reached": reached}) + "\n")
    return ""


def as_path(name: str) -> Any:
    """Returns a folder as a path: of this machine, or of a bucket (gs://...)."""
    if "://" not in name:
        return pathlib.Path(name).absolute()
    from etils import epath

    return epath.Path(name)


def latest_steps(folder: Any) -> dict[str, int]:
    """Returns the latest checkpoint of a run ("") or of each member of a comparison, by name."""
    runs = {"": folder}
    if folder.is_dir():
        runs |= {path.name: path for path in sorted(folder.iterdir()) if path.is_dir()}
    steps = {}
    for name, run in runs.items():
        saved = run / _CHECKPOINTS
        found = [path.name for path in saved.iterdir()] if saved.is_dir() else []
        numbers = [int(step) for step in found if step.isdecimal()]
        if numbers:
            steps[name] = max(numbers)
    return steps


def read_record(path: Any) -> dict[str, Any]:
    """Returns what the last start has recorded; nothing, if there was none or it is damaged."""
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
