import contextlib
import functools
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import pytest
from small_configs import SMALL_VAE, as_flags

import aninfonce_jax as an
from aninfonce_jax import config as config_lib
from aninfonce_jax import runs as runs_lib
from aninfonce_jax.dgp import mixing
from aninfonce_jax.evaluation import runner
from aninfonce_jax.main import main
from aninfonce_jax.scores import registry
from aninfonce_jax.workdir import has_config, read_metrics

ROOT = Path(__file__).resolve().parent.parent
# A run of seconds, as overrides of the quickstart.
SMALL = [
    "--config.source.dim=4",
    "--config.source.mixing.candidates=50",
    "--config.encoder.widths=(16,16)",
    "--config.train.batch_size=16",
    "--config.train.steps_per_dispatch=2",
    "--config.optimizer.warmup_steps=2",
    "--config.eval.samples=64",
    "--config.eval.held_out_batches=2",
    "--config.log.every=2",
    "--config.log.tensorboard=false",
]

# Compiles faster than the exact sampler.
NORMAL = [
    "--config.source.space=real",
    "--config.source.marginal=normal",
    "--config.source.conditional=normal",
]

TIMES = re.compile(r'\d+ s(?=</td>)|<figure id="time">.*?</figure>', re.DOTALL)


def run(*arguments):
    return main(["main", "--progress=off", *arguments])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--config=nowhere.py"], "config file 'nowhere.py' does not exist"),
        (["--config", "nowhere.py"], "config file 'nowhere.py' does not exist"),
        (["--help=train"], "--help takes no value"),
        (["--config=nowhere"], "expected FILE[:VARIANT], or one of causal3dident, cifar10, "),
        (["--config="], "config file '' does not exist"),
        (["--config=elsewhere/quickstart.py"], "'elsewhere/quickstart.py' does not exist"),
        (["--config=setup.cfg"], "config file 'setup.cfg' must be a Python file"),
        (["--config=configs/synthetic.py:cubic"], "unknown variant 'cubic'; choose one of bimodal"),
        (["--config.train.stepz=3"], "did you mean '--config.train.steps'?"),
        (["--config.train.steps=many"], "config.train.steps must be a whole number, got 'many'"),
        (["--config.train.batch_size=-8"], "config.train.batch_size must be at least 2, got -8"),
        (["--config.train.batch_size=1001"], "can't be divided over 8 devices"),
        (
            ["--mode=dance"],
            "--mode must be one of train, eval, report, diagnose, preview, compile, sweep; "
            "got 'dance'",
        ),
        (["--wrokdir=x"], "unknown flag '--wrokdir'; did you mean '--workdir'?"),
        (["--workdir="], "--workdir names a folder, or several with commas between them, got ''"),
        (["--workdir=a,b"], "--mode=train writes into one folder, got --workdir=a,b"),
        (["--mode=report", "--workdir=a,,b"], "--workdir names a folder, or several"),
        (["--config.encoder.widths=1000000,1000000"], "TiB of memory (parameters and optimiser: "),
        (["--config.objective.strategy=pallas"], "='pallas' is for TPU and this is a cpu; use"),
        (["extra"], "unexpected argument 'extra'"),
        (["--mode=eval"], "--workdir is missing"),
        (["--mode=report", "--workdir=nowhere"], "work directory nowhere does not exist"),
        (["--mode=report", "--workdir=configs"], "configs holds no run: no config.json"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_two(arguments, expected, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert expected in err
    assert err.startswith("aninfonce_jax: ")
    assert err.count("\n") == 1
    assert out == ""


@pytest.mark.parametrize("taken", ["a file", "/proc"])
def test_a_work_directory_that_cannot_be_written(taken, tmp_path, capsys):
    (tmp_path / "file").touch()
    workdir = tmp_path / "file" if taken == "a file" else "/proc/aninfonce"
    assert run(*SMALL, *NORMAL, f"--workdir={workdir}") == 2
    err = capsys.readouterr().err
    assert f"work directory {workdir}" in err
    assert "can't be written" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda path: path.unlink(), "expected the four idx files of MNIST"),
        (lambda path: path.write_bytes(path.read_bytes()[:-20]), "fetch the file again"),
    ],
)
def test_data_that_are_missing_or_damaged_from_the_start(
    damage, expected, mnist_folder, tmp_path, capsys
):
    folder = shutil.copytree(mnist_folder, tmp_path / "mnist")
    damage(next(folder.glob("t10k-images*")))
    flags = as_flags(SMALL_VAE | {"source.folder": folder})
    assert run("--config.compare=", *flags, f"--workdir={tmp_path / 'run'}", "--progress=off") == 2
    err = capsys.readouterr().err
    assert expected in err
    assert err.count("\n") == 1
    assert not has_config(tmp_path / "run")


def test_help_lists_every_key(capsys):
    assert main(["main", "--help"]) == 0
    text = capsys.readouterr().out
    for expected in (
        "examples:",
        "train.batch_size = 1000",
        "source.sampler = 'exact'  (exact|paper; process, ",
        "objective.exponent = 2.0  (float; lp)",
    ):
        assert expected in text


def test_version_names_what_numbers_depend_on(capsys):
    assert main(["main", "--version"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"aninfonce_jax {an.__version__} (jax {jax.__version__}, jaxlib ")
    assert text.count("\n") == 1


def test_help_and_a_bad_flag_need_no_jax():
    lines = [["--help"], ["--version"], ["--wrokdir=x"], ["--config.train.steps=-5"]]
    lines += [["--config=nowhere.py"]]
    code = "import sys; import aninfonce_jax.main as m\n"
    code += f"codes = [m.main(['m', *line]) for line in {lines}]\n"
    code += "assert codes == [0, 0, 2, 2, 2], codes; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)


@pytest.mark.parametrize("module", ["main", "prepare"])
def test_a_reader_that_goes_away_ends_a_command_quietly(module):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", f"aninfonce_jax.{module}", "--help"]
    ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, cwd=ROOT, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize("module", ["main", "prepare"])
def test_an_output_that_cannot_be_written_is_said(module):
    command = [sys.executable, "-m", f"aninfonce_jax.{module}", "--help"]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, cwd=ROOT, check=False)
    expected = b"aninfonce_jax: the output can't be written: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (1, expected)


def test_help_can_be_written_in_ascii():
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "aninfonce_jax.main", "--help"]
    ended = subprocess.run(command, capture_output=True, cwd=ROOT, env=environment, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert rb"\u039b" in ended.stdout


@pytest.mark.usefixtures("undrawn_figures")
def test_compare_trains_evaluates_and_reports(tmp_path, capsys):
    assert run(*SMALL, "--config.train.steps=4", f"--workdir={tmp_path}") == 0
    text = capsys.readouterr().out
    assert "train.batch_size" in text
    assert "report.html" in text
    assert "±: 95 % interval" in text
    assert text.index("where the time went") < text.index("report: ")
    page = (tmp_path / "report.html").read_text()
    assert "AnInfoNCE" in page
    commands = {
        kind: json.loads((tmp_path / kind / "config.json").read_text())["command"]
        for kind in ("aninfonce", "infonce")
    }
    assert commands["infonce"].endswith("--config.objective.kind=infonce")
    assert commands["infonce"] != commands["aninfonce"]
    for kind in ("aninfonce", "infonce"):
        final = json.loads((tmp_path / kind / "eval.json").read_text())
        for key in ("r2", "r2_content", "r2_style", "mcc_pearson", "mcc_spearman", "loss"):
            low, high = final["intervals"][key]
            assert low <= final[key] <= high, key
            # What the loop wrote is what the page shows, in the form of the registry.
            form = registry.score(key).form
            assert form.value(final[key], [low, high]) in page, key
            assert form.margin(final[key], [low, high]) in page, key
        assert len(final["intervals"]["r2_per_factor"]) == len(final["r2_per_factor"])
        assert run("--mode=eval", f"--workdir={tmp_path / kind}") == 0
        again = json.loads((tmp_path / kind / "eval.json").read_text())
        timing = dict.fromkeys([*registry.TIMINGS, "digest"])
        assert again | timing == final | timing
        assert "evaluated_with" not in again
    (tmp_path / "report.html").unlink()
    assert run("--mode=report", f"--workdir={tmp_path}") == 0
    again = (tmp_path / "report.html").read_text()
    # An evaluation of a checkpoint knows the duration up to it.
    assert TIMES.sub("", again) == TIMES.sub("", page)
    capsys.readouterr()
    one = f"--workdir={tmp_path / 'infonce'}"
    assert run("--mode=eval", one, "--config.train.steps=9") == 2
    assert "train.steps can't be changed for a run that is trained" in capsys.readouterr().err
    assert run("--mode=eval", one, "--config.eval.samples=32") == 0
    changed = json.loads((tmp_path / "infonce" / "eval.json").read_text())
    assert changed["evaluated_with"] == {"eval.samples": 32}
    assert (tmp_path / "infonce" / "report.html").exists()
    # A run is called the same while it trains and when it is scored, whatever its folder is called;
    # the folder's name is used where the objective does not tell runs apart.
    capsys.readouterr()
    shutil.copytree(tmp_path / "infonce", tmp_path / "other")
    assert run("--mode=eval", f"--workdir={tmp_path / 'other'}") == 0
    assert re.search(r"^infonce +4 ", capsys.readouterr().out, re.MULTILINE)
    assert run("--mode=eval", f"--workdir={tmp_path / 'other'},{tmp_path / 'infonce'}") == 0
    assert re.search(r"^other +4 ", capsys.readouterr().out, re.MULTILINE)
    shutil.rmtree(tmp_path / "other")
    # A page that can't be written is refused before any scores are.
    (tmp_path / "figures" / "loss.svg").unlink()
    (tmp_path / "figures" / "loss.svg").mkdir()
    before = [(tmp_path / kind / "eval.json").read_bytes() for kind in ("aninfonce", "infonce")]
    assert run("--mode=eval", f"--workdir={tmp_path}") == 2
    assert "loss.svg is a folder, expected a file" in capsys.readouterr().err
    after = [(tmp_path / kind / "eval.json").read_bytes() for kind in ("aninfonce", "infonce")]
    assert before == after


@pytest.mark.parametrize("taken", ["report.html", "figures/r2.png", "infonce/config.json"])
def test_a_comparison_is_refused_before_its_first_run_begins(tmp_path, capsys, taken):
    (tmp_path / taken).mkdir(parents=True)
    assert run(*SMALL, "--config.train.steps=4", f"--workdir={tmp_path}") == 2
    err = capsys.readouterr().err
    assert f"{tmp_path / taken} is a folder, expected a file" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "aninfonce").exists()


def test_preview_writes_a_sheet_or_says_what_is_wrong(image_folder, tmp_path, capsys):
    arguments = ["--config=configs/imagenette_cpu.py", f"--config.source.folder={image_folder}"]
    arguments += ["--config.source.test_split=test", "--config.source.image_size=16"]
    arguments += ["--mode=preview", f"--workdir={tmp_path}"]
    assert run(*arguments) == 0
    assert capsys.readouterr().out == f"preview: {tmp_path / 'preview.png'}\n"
    assert (tmp_path / "preview.png").stat().st_size > 1000
    for wrong, expected in (
        ("--config.source.strength=90", "strength"),
        ("--config.source.folder=nowhere", "nowhere"),
        ("--config=configs/quickstart.py", "'source.folder' is not used by source.kind='process'"),
    ):
        assert run(*arguments, wrong) == 2
        out, err = capsys.readouterr()
        assert expected in err
        assert err.count("\n") == 1
        assert out == ""


def test_preview_of_what_can_not_be_looked_at(tmp_path, capsys):
    assert run("--mode=preview", f"--workdir={tmp_path}") == 2
    out, err = capsys.readouterr()
    assert "which source.kind='process' does not give; use source.kind='images'" in err
    assert err.count("\n") == 1
    assert out == ""


def test_data_that_are_not_there_are_said_before_anything_else(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for folder, problem in (("nowhere", "does not exist"), ("file", "is a file, not a folder")):
        # So large that it would also be refused for its memory.
        arguments = ["--config=configs/imagenet.py", f"--config.source.folder={tmp_path / folder}"]
        assert run(*arguments, f"--workdir={tmp_path / 'run'}") == 2
        out, err = capsys.readouterr()
        assert f"source.folder: {tmp_path / folder} {problem}" in err
        assert "say where it is with --config.source.folder=DIR" in err
        assert (out, err.count("\n")) == ("", 1)
        assert not (tmp_path / "run").exists()


class NoisyNumbers(an.Source):
    """A source of one's own, about which nothing is known."""

    def example(self):
        return jnp.zeros((2, 3))

    def pairs(self, key, fed, batch_size):
        view1, noise = jax.random.normal(key, (2, batch_size, 3))
        return an.Pairs(view1, view1 + 0.1 * noise)


def test_an_experiment_made_in_code_has_a_work_directory_that_the_command_line_knows(
    tmp_path, capsys
):
    made = an.Experiment(
        NoisyNumbers(),
        nn.Dense(2),
        an.objectives.AnInfoNCE(),
        optax.adam(1e-3),
        steps=2,
        batch_size=8,
        evaluation=an.EvalConfig(held_out_batches=2),
        log=an.LogConfig(every=1, tensorboard=False),
    )
    result = an.train(made, tmp_path, progress="off")
    before = json.loads((tmp_path / "eval.json").read_text())
    assert before["step"] == result.scores["step"] == 2
    capsys.readouterr()
    assert run("--mode=eval", f"--workdir={tmp_path}") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"aninfonce_jax: {tmp_path} holds an experiment that was made in code, not by a config; "
        "evaluate it there: an.evaluate(experiment, workdir)\n"
    )
    again = an.evaluate(made, tmp_path)
    assert again["loss"] == before["loss"]
    # Nor is it trained over by a config.
    assert run(*SMALL, *NORMAL, "--config=configs/synthetic.py", f"--workdir={tmp_path}") == 2
    err = capsys.readouterr().err
    assert "holds a run with another config" in err
    assert err.count("\n") == 1


def terminate(function, *args, **kwargs):
    os.kill(os.getpid(), signal.SIGTERM)
    return function(*args, **kwargs)


@pytest.mark.usefixtures("undrawn_figures")
def test_a_stop_in_the_last_evaluation_keeps_the_next_run_from_beginning(
    tmp_path, capsys, monkeypatch
):
    make_evaluate = runner.make_evaluate

    def make(*args):
        evaluate = make_evaluate(*args)
        scored = []

        def run(weights, *, full):
            scored.append(full)
            finish = functools.partial(terminate, evaluate) if len(scored) == 2 else evaluate
            return finish(weights, full=full)

        return run

    arguments = [*SMALL, *NORMAL, "--config.train.steps=4", f"--workdir={tmp_path}"]
    with monkeypatch.context() as patch:
        patch.setattr(runs_lib, "make_evaluate", make)
        assert run(*arguments) == 75
    assert "stopped at step 4 of 4; the state is saved; the same command" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["aninfonce"]
    assert run(*arguments) == 0
    assert (tmp_path / "report.html").exists()


def test_a_work_directory_that_is_removed_in_mid_run(tmp_path, capfd, monkeypatch):
    make_evaluate, workdir = runner.make_evaluate, tmp_path / "run"

    def make(*args):
        evaluate = make_evaluate(*args)

        def run(weights, *, full):
            if (workdir / "metrics.jsonl").stat().st_size:  # not the first evaluation
                shutil.rmtree(workdir)
            return evaluate(weights, full=full)

        return run

    monkeypatch.setattr(runs_lib, "make_evaluate", make)
    one = ["--config=configs/synthetic.py", "--config.train.steps=4", f"--workdir={workdir}"]
    assert run(*SMALL, *NORMAL, *one) == 1
    err = capfd.readouterr().err
    assert err.startswith("aninfonce_jax: ")
    assert "can't go on: " in err
    assert err.count("\n") == 1


def test_a_stop_while_a_mixing_is_sought_among_a_billion(tmp_path, capsys, monkeypatch):
    """And the folder of the command is quoted as a shell wants it."""
    keep_best, calls = mixing._keep_best, []

    def search(*args):
        calls.append(args)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGTERM)
        return keep_best(*args)

    monkeypatch.setattr(mixing, "_keep_best", search)
    monkeypatch.setattr(mixing, "_CHUNK_ENTRIES", 2**10)
    workdir = tmp_path / "it's a [run]"
    one = ["--config.compare=", "--config.source.mixing.candidates=1000000000"]
    assert run(*SMALL, *one, f"--workdir={workdir}") == 75
    assert len(calls) == 2
    err = capsys.readouterr().err
    flag = shlex.quote(f"--workdir={workdir}")
    assert f"stopped while aninfonce was set up; the same command with {flag} goes on\n" in err
    assert err.count("\n") == 1
    assert shlex.split(flag) == [f"--workdir={workdir}"]


def test_a_stop_while_setting_up_asks_to_be_started_again(tmp_path, capsys, monkeypatch):
    check = config_lib.check_devices
    monkeypatch.setattr(config_lib, "check_devices", functools.partial(terminate, check))
    # Of the first run only: a second signal ends the process at once.
    one = ["--config.compare=", f"--workdir={tmp_path / 'run'}"]
    assert run(*SMALL, *one) == 75
    err = capsys.readouterr().err
    assert "stopped before aninfonce began; the same command with --workdir=" in err
    assert not (tmp_path / "run").exists()


# The command line, but when it has begun to save a step, it says so and waits for a line.
WAITING = """
import sys
from aninfonce_jax.main import script
from aninfonce_jax.training.session import Session

wait_at, save = int(sys.argv.pop(1)), Session._save

def save_and_wait(session, step, state):
    save(session, step, state)
    if step == wait_at:
        print("saving", flush=True)
        sys.stdin.readline()

Session._save = save_and_wait
script()
"""


@contextlib.contextmanager
def saving(step, arguments):
    """Gives a process that is in the middle of saving a step, and waits."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITING, str(step), *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert "saving\n" in process.stdout, process.stderr.read()
        yield process


def evaluations(workdir):
    """Returns the rows of evaluations, without what measures the machine."""
    rows = read_metrics(workdir / "metrics.jsonl")
    return [
        {key: value for key, value in row.items() if key not in registry.TIMINGS}
        for row in rows
        if row["split"] == "eval"
    ]


@pytest.mark.usefixtures("undrawn_figures")
def test_terminated_and_killed_runs_end_like_an_uninterrupted_one(tmp_path):
    """SIGTERM, then kill -9 while a checkpoint is being written, then to the end."""
    often = ["--config.train.steps=12", "--config.checkpoint.every=2", "--config.eval.every=4"]
    one = ["--config=configs/synthetic.py", "--config.train.devices=1", *SMALL, *NORMAL, *often]
    assert run(*one, f"--workdir={tmp_path / 'whole'}") == 0
    broken = [*one, f"--workdir={tmp_path / 'broken'}"]

    with saving(4, ["--progress=off", *broken]) as process:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate("go on\n", timeout=120)
        assert process.returncode == 75, err
    assert "stopped at step 4 of 12; the state is saved; the same command with" in err

    with saving(8, ["--progress=off", *broken]) as process:
        process.kill()

    assert run(*broken) == 0
    assert evaluations(tmp_path / "broken") == evaluations(tmp_path / "whole")
    assert [row["step"] for row in evaluations(tmp_path / "broken")] == [0, 4, 8, 12]
