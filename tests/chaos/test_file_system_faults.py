"""Every fault of a file system that can be made here × the moments at which it can strike.

The moments are operations of the run itself: Python's audit hook calls us just before the run
makes a folder, opens a file for writing or renames one, in the thread that does so. There the
fault is made, with the real file system: no wrapped function, no sleep. A case ends in one line
and exit code 1 (or 2, while it is set up), or does not concern the run, which then ends
with 0. After the fault is mended the same command goes on, to the result of a run that nobody
disturbed, bit for bit.

A fixed sample is in the default tests. All of it:

    python -m pytest tests/chaos/test_file_system_faults.py -m "slow or not slow"

Faults that need a disk of their own are skipped by name where mounting one is not allowed.
"""

import contextlib
import dataclasses
import functools
import io
import itertools
import os
import re
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from run_results import result_of
from sketched_figures import sketched_figures
from small_configs import SMALL, as_flags

from aninfonce_jax.main import main

ROOT = Path(__file__).resolve().parents[2]
VALUES = SMALL | {"compare": (), "train.steps": 8, "eval.every": 2, "log.tensorboard": True}
DISK_SIZE = "16m"
INODES = 600


# --- When: just before the run does this for the n-th time ---


@dataclasses.dataclass(frozen=True)
class Moment:
    """An operation of the run, by its audit event and its path inside of the work directory."""

    event: str
    path: str
    count: int = 1
    # Whether nothing was trained or scored yet.
    is_set_up: bool = False


MOMENTS = {
    "set-up: the lock": Moment("open", r"lock", is_set_up=True),
    "set-up: the config": Moment("open", r"config\.json\.partial", is_set_up=True),
    "set-up: the config gets its name": Moment("os.rename", r"config\.json", is_set_up=True),
    "set-up: the checkpoints' folder": Moment("os.mkdir", r"checkpoints", is_set_up=True),
    "set-up: the metrics": Moment("open", r"metrics\.jsonl", is_set_up=True),
    "set-up: TensorBoard": Moment("os.mkdir", r"tensorboard", is_set_up=True),
    "the first evaluation": Moment("open", r"eval\.json\.partial"),
    "an evaluation before the first save": Moment("os.rename", r"eval\.json", 2),
    "the first save": Moment("os.mkdir", r"checkpoints/4\.orbax[^/]*"),
    "the record of a save": Moment("open", r"checkpoints/4\.orbax[^/]*/record[^/]*/metadata"),
    "the arrays of a save": Moment("open", r"checkpoints/4\.orbax[^/]*/state[^/]*/_METADATA"),
    "a save gets its name": Moment("os.rename", r"checkpoints/4"),
    "the seal of a save": Moment("open", r"checkpoints/4/SHA256SUMS\.partial"),
    "an evaluation between two saves": Moment("open", r"eval\.json\.partial", 4),
    "the last save": Moment("os.mkdir", r"checkpoints/8\.orbax[^/]*"),
    "the last save gets its name": Moment("os.rename", r"checkpoints/8"),
    "the report: its lock": Moment("open", r"report\.lock"),
    "the report: its figures": Moment("open", r"figures/.*\.partial", 2),
    "the report: its page": Moment("os.rename", r"report\.html"),
}

_WRITING = os.O_WRONLY | os.O_RDWR
# What is called with every (event, path) of this process, if a test wants it.
_watcher: list[Callable[[str, str], None]] = []


def _audit(event, arguments):
    if not _watcher or event not in ("open", "os.mkdir", "os.rename"):
        return
    path = arguments[1] if event == "os.rename" else arguments[0]
    if event == "open" and not arguments[2] & _WRITING:
        return
    if isinstance(path, (str, os.PathLike)):
        _watcher[0](event, os.fspath(path))


@functools.cache
def _install_audit():
    sys.addaudithook(_audit)  # can't be taken out again


@contextlib.contextmanager
def striking(moment, folder, strike):
    """Calls `strike` once, at the moment; yields a list that is not empty afterwards."""
    _install_audit()
    struck, seen, lock = [], [], threading.Lock()
    pattern = re.compile(f"{re.escape(str(folder))}/{moment.path}")

    def watch(event, path):
        if struck or event != moment.event or not pattern.fullmatch(path):
            return
        with lock:
            seen.append(path)
            if len(seen) != moment.count:
                return
            struck.append(path)
        strike()

    _watcher.append(watch)
    try:
        yield struck
    finally:
        _watcher.clear()


# --- What ---


def run_command(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(done.stderr.strip())


@pytest.fixture
def disk(tmp_path):
    """A disk of few bytes, or the test is skipped."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if sys.platform != "linux":
        pytest.skip("needs a tmpfs, which only Linux has")
    options = f"size={DISK_SIZE},nr_inodes={INODES}"
    try:
        run_command("mount", "-t", "tmpfs", "-o", options, "none", str(folder))
    except OSError as error:
        pytest.skip(f"needs the right to mount a small tmpfs: {error}")
    yield folder
    run_command("umount", "-l", str(folder))


def write_block(file):
    try:
        return file.write(b"\0" * 4096)
    except OSError:
        return 0


def fill(path, left=0):
    """Fills a disk up to its last bytes."""
    with open(path, "wb", buffering=0) as file:
        while write_block(file):
            pass
        file.truncate(max(file.tell() - left, 0))


def use_up_inodes(folder):
    folder.mkdir()
    with contextlib.suppress(OSError):
        for number in range(INODES + 1):
            (folder / f"{number}").touch()


def make_read_only(folder):
    # A mount with files that are open can't be made read-only, one on top of it can.
    run_command("mount", "--bind", str(folder), str(folder))
    run_command("mount", "-o", "remount,bind,ro", str(folder))


def move_away(path):
    if path.exists():
        path.rename(path.with_name(f"{path.name}.away"))


def move_back(path):
    away = path.with_name(f"{path.name}.away")
    if away.exists():
        # A save that was under way may have gone on where the folder was, and nothing else.
        left = [found for found in path.rglob("*") if found.is_file()]
        assert all(".orbax-checkpoint-tmp" in str(found) for found in left), left
        remove(path)
        away.rename(path)


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()


def limit_file_size(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@dataclasses.dataclass(frozen=True)
class Fault:
    """Something that befalls a work directory, and how it is mended."""

    strike: Callable[[Path], object]
    mend: Callable[[Path], object] = lambda folder: None
    needs_disk: bool = False


def replaced(name, make):
    """Something that has the name of a file or folder of the run, which is kept elsewhere."""

    def strike(folder):
        kept = folder.with_name("kept")
        if (folder / name).exists():
            (folder / name).rename(kept)
        if folder.is_dir():
            make(folder / name)

    def mend(folder):
        remove(folder / name)
        kept = folder.with_name("kept")
        if kept.exists():
            kept.rename(folder / name)

    return Fault(strike, mend)


FILLER = "filler"
FAULTS = {
    "disk full": Fault(
        lambda folder: fill(folder.with_name(FILLER)),
        lambda folder: folder.with_name(FILLER).unlink(),
        needs_disk=True,
    ),
    "disk full but for 12 kB": Fault(
        lambda folder: fill(folder.with_name(FILLER), left=3 * 4096),
        lambda folder: folder.with_name(FILLER).unlink(),
        needs_disk=True,
    ),
    "no inodes left": Fault(
        lambda folder: use_up_inodes(folder.with_name(FILLER)),
        lambda folder: shutil.rmtree(folder.with_name(FILLER)),
        needs_disk=True,
    ),
    "read-only": Fault(
        make_read_only, lambda folder: run_command("umount", "-l", str(folder)), needs_disk=True
    ),
    "files of 2 kB at most": Fault(
        lambda _: limit_file_size(2048), lambda _: limit_file_size(resource.RLIM_INFINITY)
    ),
    "folder moved away": Fault(move_away, move_back),
    "folder removed": Fault(remove),
    "checkpoints moved away": Fault(
        lambda folder: move_away(folder / "checkpoints"),
        lambda folder: move_back(folder / "checkpoints"),
    ),
    "checkpoints removed": Fault(lambda folder: remove(folder / "checkpoints")),
    "checkpoints replaced by a file": replaced("checkpoints", Path.touch),
    "figures replaced by a file": replaced("figures", Path.touch),
    "config.json replaced by a folder": replaced("config.json", Path.mkdir),
    "metrics.jsonl replaced by a folder": replaced("metrics.jsonl", Path.mkdir),
    "eval.json replaced by a folder": replaced("eval.json", Path.mkdir),
    "report.html replaced by a folder": replaced("report.html", Path.mkdir),
}


# --- The run ---


FLAGS = as_flags(VALUES)


def start(folder, mode="train"):
    session = ["--progress=off", f"--workdir={folder}", f"--mode={mode}"]
    # What it shows goes nowhere, so that a limit of file sizes is not about our own notes.
    with contextlib.redirect_stdout(io.StringIO()):
        return main(["main", *session, *(FLAGS if mode == "train" else ())])


@pytest.fixture(scope="module", autouse=True)
def _figures_are_sketched():
    with sketched_figures():
        yield


@pytest.fixture(scope="module")
def right_folder(tmp_path_factory):
    """The work directory of a run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("right") / "run"
    assert start(folder) == 0
    return folder


@pytest.fixture(scope="module")
def right(right_folder):
    """The result of that run."""
    return result_of(right_folder)


def check_end(code, err, is_set_up):
    lines = err.splitlines()
    assert all(line.startswith("aninfonce_jax: ") for line in lines), err
    said = [line for line in lines if not line.startswith("aninfonce_jax: warning: ")]
    if code == 0:
        assert said == []
        return
    assert len(said) == 1, err
    assert code == 1 or (is_set_up and code == 2), err


def check_case(right, folder, fault, moment, capfd, mode="train"):
    """Strikes a command, mends, and gives the same command again."""
    capfd.readouterr()
    strike = functools.partial(fault.strike, folder)
    with striking(moment, folder, strike) as struck:
        code = start(folder, mode)
    err = capfd.readouterr().err
    assert struck, "the moment never came"
    fault.mend(folder)
    check_end(code, err, moment.is_set_up)
    assert start(folder, mode) == 0, capfd.readouterr().err
    assert "Traceback" not in capfd.readouterr().err
    assert result_of(folder) == right
    assert (folder / "report.html").is_file()
    leftovers = [path for path in folder.rglob("*") if path.name.endswith((".partial", "lock"))]
    assert leftovers == []


SAMPLE = {
    ("disk full", "the record of a save"),
    ("folder moved away", "an evaluation between two saves"),
}


@pytest.mark.parametrize(
    ("fault", "moment"),
    [
        pytest.param(*case, marks=[] if case in SAMPLE else pytest.mark.slow)
        for case in itertools.product(FAULTS, MOMENTS)
    ],
)
def test_a_fault_is_said_once_and_undone_by_the_same_command(
    right, tmp_path, request, capfd, fault, moment
):
    given = FAULTS[fault]
    place = request.getfixturevalue("disk") if given.needs_disk else tmp_path
    check_case(right, place / "run", given, MOMENTS[moment], capfd)


# What the other modes do to a work directory whose run has ended.
LATER_MOMENTS = {
    "eval: the scores": Moment("open", r"eval\.json\.partial"),
    "eval: the scores get their name": Moment("os.rename", r"eval\.json"),
    "report: its lock": Moment("open", r"report\.lock"),
    "report: its figures": Moment("open", r"figures/.*\.partial", 2),
    "report: its page": Moment("os.rename", r"report\.html"),
}
LATER_FAULTS = [fault for fault in FAULTS if "replaced" not in fault and "removed" not in fault]
LATER_SAMPLE = {("files of 2 kB at most", "eval: the scores")}


@pytest.mark.parametrize(
    ("fault", "moment"),
    [
        pytest.param(*case, marks=[] if case in LATER_SAMPLE else pytest.mark.slow)
        for case in itertools.product(LATER_FAULTS, LATER_MOMENTS)
    ],
)
def test_a_fault_of_eval_and_report_is_said_once(
    right, right_folder, tmp_path, request, capfd, fault, moment
):
    given = FAULTS[fault]
    place = request.getfixturevalue("disk") if given.needs_disk else tmp_path
    folder = shutil.copytree(right_folder, place / "run")
    mode = moment.partition(":")[0]
    check_case(right, folder, given, LATER_MOMENTS[moment], capfd, mode)


@pytest.mark.slow
def test_a_full_output_is_said_once(right, tmp_path):
    command = [sys.executable, "-m", "aninfonce_jax.main", f"--workdir={tmp_path / 'run'}", *FLAGS]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    check_end(ended.returncode, ended.stderr, is_set_up=False)
    assert ended.returncode == 1
    assert start(tmp_path / "run") == 0
    assert result_of(tmp_path / "run") == right
