"""`--mode=sweep` end to end, with runs of a second each."""

import csv
import json

import pytest
from small_configs import SMALL

from aninfonce_jax import main as main_lib
from aninfonce_jax.cli import EXIT_FAILED, EXIT_USAGE
from aninfonce_jax.config.file import load_config, load_sweep
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.config.sweep import make_sweep
from aninfonce_jax.report.sweep import write_sweep
from aninfonce_jax.stop import StopSignal
from aninfonce_jax.sweeps.executors import Job, LocalExecutor, SubmittedExecutor
from aninfonce_jax.sweeps.run import run_sweep
from aninfonce_jax.workdir import FAILED, FINISHED, STOPPED, WAITING, WorkdirError

FILE = """
SMALL = {small!r}
SWEEP = {sweep!r}
def get_config(variant="plain"):
    config = {{}}
    for name, value in SMALL.items():
        inside = config
        *sections, key = name.split(".")
        for section in sections:
            inside = inside.setdefault(section, {{}})
        inside[key] = value
    return config
def sweep(variant="plain"):
    return SWEEP
"""


def write_file(folder, sweep, **small):
    path = folder / "own.py"
    path.write_text(FILE.format(small=SMALL | small, sweep=sweep))
    return str(path)


def points(sweep, **overrides):
    return make_sweep({}, sweep, overrides)


def test_points_are_every_combination():
    sweep = points(
        {
            "points": [{"objective.kind": "infonce"}, {"objective.kind": "lp"}],
            "grid": {"objective.temperature": (0.5, 1.0), "source.dim": (4, 5, 6)},
            "seeds": range(2),
        }
    )
    assert len(sweep.points) == 24
    assert len({point.name for point in sweep.points}) == 24
    assert sweep.fields == ("objective.kind", "objective.temperature", "source.dim")
    last = sweep.points[-1]
    assert last.name == "objective.kind=lp+temperature=1.0+source.dim=6+seed=1"
    assert (last.config.seed, last.config.source.dim, last.config.objective.kind) == (1, 6, "lp")


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({}, "something to vary"),
        ({"grid": {"source.dmi": (1,)}}, "did you mean 'source.dim'?"),
        ({"grid": {"source.dim": ()}}, "source.dim, is empty"),
        ({"grid": {"source.dim": 4}}, "must be a list of values"),
        ({"grid": {"train": (1,)}}, "fields of the config, and 'train' is none"),
        ({"seeds": ()}, "seeds is empty"),
        ({"points": []}, "points is empty"),
        ({"points": [4]}, "dictionaries of fields"),
        ({"gird": {}}, "did you mean 'grid'?"),
        ({"grid": {"source.dim": (4, 4)}}, "the same run twice"),
        ({"grid": {"source.dim": (4, 0)}}, "at source.dim=0: config.source.dim must be"),
        ({"grid": {"source.dim": range(200), "train.steps": range(200)}}, "at most 10,000"),
        ({"grid": {"seed": (1, 2)}, "seeds": (1,)}, "seeds twice"),
        ({"grid": {"source.dim": (4,)}, "x": "train.steps"}, "not among what it varies"),
        ({"seeds": (1,), "targets": {"r2": ("much",)}}, "finite numbers"),
        ({"seeds": (0, 1), "scores": 5}, "scores of a sweep are names of scores, got 5"),
        ({"seeds": (0, 1), "scores": None}, "scores of a sweep are names of scores, got None"),
        ({"seeds": (0, 1), "targets": {"r2": (True,)}}, "targets of r2 must be finite numbers"),
    ],
)
def test_what_can_not_be_swept_is_said_in_a_line(sweep, message):
    with pytest.raises(ConfigError, match=r"^[^\n]*$") as caught:
        points(sweep)
    assert message in str(caught.value)


def test_a_field_of_the_command_line_is_not_swept_too():
    with pytest.raises(ConfigError, match="varied by the sweep"):
        make_sweep({}, {"grid": {"source.dim": (4, 5)}}, {"source.dim": 6})


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--mode=train", "--executor=local"], "no use without --mode=sweep"),
        (["--mode=sweep", "--executor=pbs"], "--executor must be one of local, slurm"),
        (["--mode=sweep", "--processes=0"], "--processes must be at least 1"),
        (["--mode=sweep", "--slurm=timeout_min=5"], "no use without --executor=slurm"),
        (["--mode=sweep", "--executor=slurm", "--slurm=timeout"], "must be KEY=VALUE"),
        (["--mode=sweep", "--executor=slurm", "--processes=2"], "is for --executor=local"),
        (["--mode=sweep", "--workdir=gs://bucket/x"], "local folder"),
        (["--mode=sweep", "--config=synthetic:linear", "--sweep=synthetic"], "must define sweep()"),
    ],
)
def test_flags_that_do_not_go_together(flags, message, tmp_path, capsys):
    own = write_file(tmp_path, {"seeds": (0,)})
    assert main_lib.main(["main", f"--config={own}", *flags]) == EXIT_USAGE
    assert message in capsys.readouterr().err


def test_a_score_that_does_not_exist_is_refused_before_anything_runs(tmp_path, capsys):
    own = write_file(tmp_path, {"seeds": (0,), "scores": ("r3",)})
    folder = tmp_path / "sweep"
    assert main_lib.main(["main", f"--config={own}", "--mode=sweep", f"--workdir={folder}"]) == 2
    assert "unknown score 'r3'" in capsys.readouterr().err
    assert not folder.exists()


@pytest.mark.slow  # three processes of jax
def test_a_sweep_runs_resumes_and_lists_what_failed(tmp_path, capsys):
    # The last learning rate is one by which every run diverges.
    spec = {
        "grid": {"optimizer.learning_rate": (1e-3, 1e30)},
        "seeds": (0,),
        "scores": ("r2", "loss"),
        "targets": {"r2": (-1.0,)},
    }
    own, folder = write_file(tmp_path, spec), tmp_path / "sweep"
    command = ["main", f"--config={own}:plain", "--mode=sweep", f"--workdir={folder}"]
    assert main_lib.main([*command, "--processes=1"]) == EXIT_FAILED
    said = capsys.readouterr()
    assert "1 of 2 runs failed" in said.err
    good, bad = "learning_rate=0.001+seed=0", "learning_rate=1e+30+seed=0"
    with open(folder / "sweep.csv") as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    assert rows[good]["status"] == FINISHED
    assert rows[bad]["status"] == FAILED
    assert float(rows[good]["loss"]) > 0
    assert rows[good]["optimizer.learning_rate"] == "0.001"
    assert rows[good]["step_at_r2_-1"] != ""
    page = (folder / "sweep.html").read_text()
    assert bad in page
    assert (folder / "figures" / "sweep-scores.png").exists()
    # The finished one is not touched again.
    before = (folder / good / "eval.json").stat().st_mtime_ns
    assert main_lib.main([*command, "--processes=1"]) == EXIT_FAILED
    assert "1 are finished, 1 to go" in capsys.readouterr().out
    assert (folder / good / "eval.json").stat().st_mtime_ns == before
    # From the files alone, the same page again.
    assert write_sweep(folder).read_text() == (folder / "sweep.html").read_text()


def sweep_of(tmp_path, seeds):
    own = write_file(tmp_path, {"seeds": seeds})
    return make_sweep(load_config(own), load_sweep(own), {})


def commands_of(sweep, *command):
    return {point.name: command for point in sweep.points}


def test_a_stop_is_passed_on_and_nothing_new_begins(tmp_path):
    sweep = sweep_of(tmp_path, (0, 1, 2))
    script = "trap 'exit 75' TERM; sleep 60 & wait"  # waits to be stopped, and says that it saved

    class Soon(StopSignal):
        looks = 0

        @property
        def requested(self):
            self.looks += 1
            return self.looks > 5

        @requested.setter
        def requested(self, value):
            pass

    commands = commands_of(sweep, "bash", "-c", script)
    outcomes = run_sweep(sweep, tmp_path, commands, LocalExecutor(1), Soon())
    assert [own.status for own in outcomes.values()] == [STOPPED, WAITING, WAITING]
    recorded = json.loads((tmp_path / "sweep.json").read_text())
    assert [point["status"] for point in recorded["points"]] == [STOPPED, WAITING, WAITING]


def test_a_failure_is_told_by_the_last_line_of_the_run(tmp_path):
    sweep = sweep_of(tmp_path, (0, 1))
    script = "echo began; echo 'it broke'; exit 3"
    outcomes = run_sweep(
        sweep, tmp_path, commands_of(sweep, "bash", "-c", script), LocalExecutor(2), StopSignal()
    )
    assert {own.reason for own in outcomes.values()} == {"exit code 3; it broke"}


def test_a_record_that_was_edited_or_is_another_file_is_said_in_a_line(tmp_path):
    sweep = sweep_of(tmp_path, (0,))
    folder = tmp_path / "sweep"
    run_sweep(sweep, folder, commands_of(sweep, "false"), LocalExecutor(1), StopSignal())
    write_sweep(folder)
    path = folder / "sweep.json"
    whole = path.read_text()
    for text, message in (
        (whole.replace(FAILED, FINISHED), "was changed"),
        ("{}", "is not what a sweep wrote"),
        ("[", "not valid JSON"),
    ):
        path.write_text(text)
        with pytest.raises(WorkdirError, match=message):
            write_sweep(folder)
    path.unlink()
    with pytest.raises(WorkdirError, match=r"sweep\.json can't be read"):
        write_sweep(folder)


@pytest.mark.slow
def test_jobs_go_through_submitit(tmp_path):
    pytest.importorskip("submitit")
    jobs = [
        Job(str(code), ("bash", "-c", f"echo {code}; exit {code}"), tmp_path / f"{code}.log")
        for code in (0, 7)
    ]
    executor = SubmittedExecutor(tmp_path / "submitted", {"timeout_min": 1}, cluster="local")
    assert {job.name: code for job, code in executor.run(jobs, StopSignal())} == {"0": 0, "7": 7}
    assert (tmp_path / "7.log").read_text() == "7\n"


def test_options_that_submitit_does_not_know_are_said(tmp_path):
    pytest.importorskip("submitit")
    job = Job("x", ("true",), tmp_path / "log")
    executor = SubmittedExecutor(tmp_path / "submitted", {"tiemout": 1}, cluster="local")
    with pytest.raises(ConfigError, match="tiemout"):
        list(executor.run([job], StopSignal()))
