"""Runs that are killed again and again, and end as if nothing had happened, bit for bit.

A run on a process, a comparison of two objectives and a run on images. Each session is a
process of its own; a generator with a fixed seed says after how many changes in its work
directory it is killed (kill -9) or asked to stop (SIGTERM). What counts is what can be seen
from outside, a row, a file, a folder, so that it does not matter how fast the machine is. A run
that has ended is compared with one that nobody disturbed; then the next begins, until there
were as many kills as wanted:

    python -m pytest tests/chaos/test_soak.py -m slow -s
    ANINFONCE_SOAK_KILLS=12 python -m pytest tests/chaos/test_soak.py -m slow -s
"""

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from run_results import result_of
from small_configs import SMALL, SMALL_IMAGES, as_flags

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("ANINFONCE_SOAK_KILLS", "100"))
# A session is killed within this part of the changes that a whole run makes.
LONGEST_SESSION = 1 / 4

PROCESS = SMALL | {"train.steps": 60, "eval.every": 6, "log.tensorboard": True}
IMAGES = SMALL_IMAGES | {
    "compare": (),
    "train.ema_decay": 0.99,
    "train.steps": 12,
    "eval.every": 4,
    "log.every": 1,
    "log.tensorboard": True,
}
DATA_FOLDER = "source.folder"
OBJECTIVES = ("aninfonce", "infonce")


@dataclasses.dataclass(frozen=True)
class Kind:
    """What is run, into which folders below the work directory, and its share of the kills."""

    values: dict[str, object]
    members: tuple[str, ...]
    share: float


KINDS = {
    "process": Kind(PROCESS | {"compare": ()}, ("",), 0.4),
    "comparison": Kind(PROCESS | {"compare": OBJECTIVES, "train.steps": 30}, OBJECTIVES, 0.3),
    "images": Kind(IMAGES, ("",), 0.3),
}


def start(folder, values):
    command = [sys.executable, "-m", "aninfonce_jax.main", "--progress=off", f"--workdir={folder}"]
    return subprocess.Popen(
        [*command, *as_flags(values)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def look(folder):
    """Returns all that can be seen of a work directory from outside."""
    seen = {}
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(place, name)
            try:
                found = os.stat(path)
            except FileNotFoundError:  # gone since
                continue
            seen[path] = (found.st_size, found.st_mtime_ns)
    return seen


def watch(process, folder, changes=None):
    """Returns how many changes there were when the process ended, or as soon as so many came."""
    count, before = 0, look(folder)
    while process.poll() is None and (changes is None or count < changes):
        time.sleep(0.002)
        now = look(folder)
        count, before = count + (now != before), now
    return count


def check_said(err):
    """Checks that one line says why a session ended, besides warnings."""
    lines = err.splitlines()
    assert all(line.startswith("aninfonce_jax: ") for line in lines), err
    said = [line for line in lines if not line.startswith("aninfonce_jax: warning: ")]
    assert len(said) <= 1, err
    return said


def run_session(folder, values, generator, most):
    """Returns the exit code of a session, and whether it was killed, or asked to stop."""
    number = generator.choice([signal.SIGKILL, signal.SIGTERM])
    with start(folder, values) as process:
        watch(process, folder, generator.randint(0, most))
        is_struck = process.poll() is None
        process.send_signal(number)
        # Workers of a dead process would keep its stderr open.
        _, err = process.communicate(timeout=600)
    code = process.returncode
    if not is_struck:
        assert code == 0, err
    elif number == signal.SIGKILL:
        assert code == -signal.SIGKILL
    elif code != -signal.SIGTERM:  # before the interpreter has read our first line
        # It may have ended in the meantime, and then needs no word.
        assert (code, len(check_said(err))) in ((75, 1), (0, 0)), err
    if code >= 0:
        check_said(err)
    return code, is_struck


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_killed_again_and_again(tmp_path, image_folder, name):
    kind = KINDS[name]
    values = dict(kind.values)
    if name == "images":
        values[DATA_FOLDER] = str(image_folder)
    with start(tmp_path / "whole", values) as whole:
        changes = watch(whole, tmp_path / "whole")
        _, err = whole.communicate()
    assert whole.returncode == 0, err
    right = {member: result_of(tmp_path / "whole" / member) for member in kind.members}

    generator = random.Random(f"soak {name}")
    kills, runs, wanted = 0, 0, round(KILLS * kind.share)
    while kills < wanted:
        runs += 1
        folder, code, is_struck = tmp_path / f"run{runs}", None, False
        while code != 0:
            most = round(changes * LONGEST_SESSION)
            code, is_struck = run_session(folder, values, generator, most)
            kills += is_struck and code != 0
        for member in kind.members:
            found = result_of(folder / member)
            for part, expected in right[member].items():
                assert found[part] == expected, f"{part} of run {runs} after {kills} kills"
        assert (folder / "report.html").is_file()
    print(f"\n{name}: {kills} kills, {runs} runs, each bit for bit the undisturbed one")
