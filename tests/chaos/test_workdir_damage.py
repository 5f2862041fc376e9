"""Every file of a work directory, damaged in every way, met by every mode.

The files are those that real runs leave behind, made once in a session: a run on a process and
one on images, each with a twin of another seed. Each case ends in one line and the right exit
code, with nothing changed, or in the result that the undamaged run has, to the last bit.

A fixed sample is in the default tests. All of it, and how many cases that is:

    python -m pytest tests/chaos/test_workdir_damage.py -m slow -s
"""

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from run_results import UNEQUAL
from sketched_figures import sketched_figures
from small_configs import SMALL, SMALL_IMAGES

from aninfonce_jax.main import main
from aninfonce_jax.scores import registry

OFTEN = {
    "train.steps": 4,
    "eval.every": 2,
    "checkpoint.every": 2,
    "train.ema_decay": 0.99,
    "log.tensorboard": True,
}
VARIANTS = {"process": SMALL | OFTEN, "images": SMALL_IMAGES | OFTEN}
KINDS = {
    "process": {"optimizer": "adam"},
    "images": {"source": "images", "encoder": "resnet10", "optimizer": "adam"},
}
MODES = ("train", "eval", "report")
# What a run says of itself; the rest is made from it, or for watching only.
RECORDS = ("config.json", "metrics.jsonl", "eval.json")


@dataclasses.dataclass(frozen=True)
class Runs:
    """The config file of a variant, a run of it, and one of another seed."""

    config: Path
    right: Path
    foreign: Path

    def start(self, folder, mode, *flags):
        session = ["--progress=off", f"--workdir={folder}", f"--mode={mode}"]
        given = [f"--config={self.config}", *flags] if mode == "train" else []
        return main(["main", *session, *given])


@pytest.fixture(scope="module", autouse=True)
def _figures_are_sketched():
    with sketched_figures():
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory, image_folder):
    """Makes the runs of a variant when it is first asked for."""
    made = {}

    def make(variant):
        if variant not in made:
            base = tmp_path_factory.mktemp(variant)
            values = dict(VARIANTS[variant])
            if variant == "images":
                values |= {"source.folder": str(image_folder)}
            config = base / "config.py"
            config.write_text(
                "from aninfonce_jax.config import default_config\n\n\n"
                "def get_config():\n"
                f"    config = default_config(**{KINDS[variant]!r})\n"
                f"    config.update_from_flattened_dict({values!r})\n"
                "    return config\n"
            )
            both = Runs(config, base / "right" / "run", base / "foreign" / "run")
            assert both.start(both.right, "train") == 0
            assert both.start(both.foreign, "train", "--config.seed=1") == 0
            made[variant] = both
        return made[variant]

    return make


def replace_by_folder(path, _):
    path.unlink()
    path.mkdir()


def flip_bit(path, _):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def take_from_other_run(path, foreign):
    """Takes the file of the same name, or of the same folder where names are random."""
    if not foreign.exists():
        siblings = sorted(p for p in foreign.parent.glob("*") if p.is_file())
        foreign = siblings[0] if siblings else None
    if foreign is not None:
        shutil.copy(foreign, path)


DAMAGES = {
    "missing": lambda path, _: path.unlink(),
    "empty": lambda path, _: path.write_bytes(b""),
    "truncated": lambda path, _: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "bit flipped": flip_bit,
    "replaced by a folder": replace_by_folder,
    "from another run": take_from_other_run,
}


def replace_by_file(path, _):
    shutil.rmtree(path)
    path.touch()


def take_folder_from_other_run(path, foreign):
    shutil.rmtree(path)
    shutil.copytree(foreign, path)


FOLDER_DAMAGES = {
    "missing": lambda path, _: shutil.rmtree(path),
    "replaced by a file": replace_by_file,
    "from another run": take_folder_from_other_run,
}


def all_cases(folder):
    """Yields (path inside the run, damage) for all that a run left behind."""
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file():
            yield from ((name, damage) for damage in DAMAGES)
        # Inside of a checkpoint the files speak for their folders.
        elif len(Path(name).parts) <= 2:
            yield from ((name, damage) for damage in FOLDER_DAMAGES)


def content_of(folder):
    """Returns the digest of every file; what a folder holds beside files is its names."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def scores_of(folder):
    scores = json.loads((folder / "eval.json").read_text())
    return {name: value for name, value in scores.items() if name not in UNEQUAL}


def rows_of(folder):
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in row.items() if k not in registry.TIMINGS} for row in rows]


def exit_code(name, damage, mode):
    """Returns how a case must end if it is refused."""
    # Config and checkpoints are whole, but not of one run.
    is_misfit = damage == "from another run" and (
        name == "checkpoints" or (name, mode) == ("config.json", "eval")
    )
    return 1 if is_misfit or name.startswith("checkpoints/") else 2


def check_case(both, name, damage, mode, tmp_path, capfd):
    """Returns how a case ended; raises AssertionError if it ended badly."""
    folder = tmp_path / "run"
    shutil.copytree(both.right, folder)
    try:
        damages = FOLDER_DAMAGES if (folder / name).is_dir() else DAMAGES
        damages[damage](folder / name, both.foreign / name)
        before = content_of(folder)
        capfd.readouterr()
        code = both.start(folder, mode)
        err = capfd.readouterr().err
        ours = [line for line in err.splitlines() if line.startswith("aninfonce_jax: ")]
        said = [line for line in ours if not line.startswith("aninfonce_jax: warning: ")]
        assert "Traceback" not in err
        if code != 0:
            assert len(said) == 1, f"expected one line, got {ours}"
            assert code == exit_code(name, damage, mode), said[0]
            after = content_of(folder)
            changed = [n for n in RECORDS if before.get(n) != after.get(n)]
            assert changed == [], "changed though refused"
            return "refused"
        assert said == []
        if name in RECORDS and (mode == "report" or name == "metrics.jsonl"):
            assert ours, "damage must be said"
        if mode == "report":
            page = (folder / "report.html").read_text()
            assert ours or page == (both.right / "report.html").read_text()
            return "reported"
        assert scores_of(folder) == scores_of(both.right)
        if mode == "train":
            assert rows_of(folder) == rows_of(both.right)
        return "right result"
    finally:
        shutil.rmtree(folder)


SAMPLE = [
    ("config.json", "missing", "train"),
    ("config.json", "truncated", "eval"),
    ("config.json", "bit flipped", "report"),
    ("config.json", "replaced by a folder", "train"),
    ("config.json", "from another run", "train"),
    ("config.json", "from another run", "report"),
    ("metrics.jsonl", "empty", "report"),
    ("metrics.jsonl", "missing", "eval"),
    ("figures/loss.svg", "replaced by a folder", "eval"),
    ("metrics.jsonl", "replaced by a folder", "eval"),
    ("metrics.jsonl", "from another run", "train"),
    ("eval.json", "bit flipped", "report"),
    ("eval.json", "from another run", "report"),
    ("checkpoints", "replaced by a file", "eval"),
    ("checkpoints/4/SHA256SUMS", "bit flipped", "eval"),
    ("figures", "replaced by a file", "report"),
    ("report.html", "replaced by a folder", "report"),
    ("tensorboard", "replaced by a file", "train"),
]


@pytest.mark.parametrize(("name", "damage", "mode"), SAMPLE)
def test_a_sample_of_the_damages(runs, tmp_path, capfd, name, damage, mode):
    check_case(runs("process"), name, damage, mode, tmp_path, capfd)


CONFIG_CONTENTS = {
    "not UTF-8": b"\xff\xfe{}",
    "a number": b'{"config": 5}',
    "a list": b"[]",
    "null": b"null",
    "no keys": b"{}",
    "no config": b'{"hash": "0", "command": ""}',
    "NaN": b'{"config": {"seed": NaN}}',
    "too deep": b"[" * 100_000,
    "too large": b" " * 2**21,
    "half a character": b'{"config": {"name": "\xd8"}}',
    "a lone surrogate": b'{"config": {"\\ud800": 1}, "hash": "\\ud800"}',
}


@pytest.mark.parametrize("mode", MODES)
def test_a_config_of_any_content_is_refused_in_one_line(runs, tmp_path, capfd, mode):
    both = runs("process")
    folder = shutil.copytree(both.right, tmp_path / "run")
    for content in CONFIG_CONTENTS.values():
        (folder / "config.json").write_bytes(content)
        assert_refused(both, folder, mode, capfd)


TAKEN = ["config.json", "metrics.jsonl", "eval.json", "report.html"]
TAKEN += ["checkpoints", "tensorboard", "figures", "lock"]


@pytest.mark.parametrize("mode", MODES)
def test_a_name_that_is_taken_is_refused_in_one_line(runs, tmp_path, capfd, mode):
    """By a pipe, which must not hang, or by a link to nothing."""
    both = runs("process")
    for name in TAKEN:
        for take in (os.mkfifo, lambda path: os.symlink("nowhere", path)):
            folder = shutil.copytree(both.right, tmp_path / "run")
            path = folder / name
            if path.exists():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            take(path)
            assert_refused(both, folder, mode, capfd)
            shutil.rmtree(folder)


@pytest.mark.parametrize("mode", MODES)
def test_a_work_directory_that_is_a_file_is_refused_in_one_line(runs, tmp_path, capfd, mode):
    (tmp_path / "run").touch()
    assert_refused(runs("process"), tmp_path / "run", mode, capfd)


HOLD = (
    "import sys, pathlib, time; from aninfonce_jax import workdir\n"
    "with workdir.hold(pathlib.Path(sys.argv[1])):\n"
    "    print('held', flush=True); time.sleep(600)\n"
)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_second_process_changes_nothing_and_names_the_first(runs, tmp_path, capfd, mode):
    both = runs("process")
    folder = shutil.copytree(both.right, tmp_path / "run")
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as first:
        try:
            first.stdout.readline()
            err = assert_refused(both, folder, mode, capfd)
        finally:
            first.kill()
    assert f"run is in use by process {first.pid} on " in err


def test_a_comparison_holds_its_folder_and_its_members(runs, tmp_path, capfd):
    both = runs("process")
    compare = "--config.compare=('aninfonce','infonce')"
    for folder, held in ((tmp_path / "a", "a"), (tmp_path / "b", "b/infonce")):
        command = [sys.executable, "-c", HOLD, str(tmp_path / held)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as first:
            try:
                first.stdout.readline()
                err = assert_refused(both, folder, "train", capfd, compare)
            finally:
                first.kill()
        assert f"{held} is in use by process {first.pid} on " in err


def assert_refused(both, folder, mode, capfd, *flags):
    before = {} if folder.is_file() else content_of(folder)
    capfd.readouterr()
    assert both.start(folder, mode, *flags) == 2
    err = capfd.readouterr().err
    assert err.startswith("aninfonce_jax: ")
    assert err.count("\n") == 1
    assert len(err) < 2_000
    if before:
        assert content_of(folder) == before
    return err


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_damage_of_every_file(runs, tmp_path, capfd, variant, mode):
    both = runs(variant)
    ends, failures = {}, []
    for name, damage in all_cases(both.right):
        try:
            end = check_case(both, name, damage, mode, tmp_path, capfd)
        except Exception as error:
            lines = str(error).splitlines() or [""]
            failures.append(f"{name}, {damage}: {type(error).__name__} {lines[0]}")
            end = "failed"
            with capfd.disabled():
                print(f"\n{variant}, {mode}: {failures[-1]}", flush=True)
        ends[end] = ends.get(end, 0) + 1
    with capfd.disabled():
        print(f"\n{variant}, {mode}: {sum(ends.values())} cases: {ends}")
    assert not failures, "\n" + "\n".join(failures)
