"""A work directory tells its own files from what was edited, damaged or copied there."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from aninfonce_jax import config as config_lib
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.workdir import WorkdirError

CONFIG = config_lib.from_dict(config_lib.default_config())
VALUES = config_lib.to_dict(CONFIG)
HASH = config_lib.fingerprint(CONFIG)
ROWS = [
    {"step": 0, "split": "eval", "r2": 0.1},
    {"step": 2, "split": "train", "loss": 0.5, "half": None},
    {"step": 4, "split": "train", "loss": 0.25},
    {"step": 4, "split": "eval", "r2": 0.5},
]


@pytest.fixture
def run(tmp_path):
    """A work directory with a config, metrics and an evaluation."""
    workdir_lib.claim(tmp_path, VALUES, "the command")
    write_rows(tmp_path, ROWS)
    workdir_lib.write_eval(tmp_path, {"step": 4, "r2": 0.5}, HASH, ROWS)
    return tmp_path


def write_rows(folder, rows):
    text = "".join(map(workdir_lib.encode_row, rows))
    (folder / "metrics.jsonl").write_text(text)


def edit(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_jax_is_not_imported():
    code = "import sys, aninfonce_jax.workdir; assert not {'jax', 'numpy'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- config.json ---


def test_a_config_comes_back_and_is_not_written_twice(run):
    assert workdir_lib.read_config(run) == CONFIG
    saved = workdir_lib.read_saved(run)
    assert (saved.hash, saved.command) == (HASH, "the command")
    before = (run / "config.json").stat()
    workdir_lib.claim(run, VALUES, "the command")
    assert os.path.samestat((run / "config.json").stat(), before)
    workdir_lib.claim(run, VALUES, "another one")
    assert workdir_lib.read_saved(run).command == "another one"


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["config"].update(seed=1),
        lambda content: content["config"]["log"].update(every=7),  # free, but not to be edited
        lambda content: content.update(command="rm -rf ."),
        lambda content: content.update(hash="0" * 16),
        lambda content: content.update(digest="0" * 64),
        lambda content: content.update(format=1),
        lambda content: content.pop("digest"),
        lambda content: content.pop("format"),
        lambda content: content["config"].pop("seed"),
    ],
)
def test_an_edited_config_is_refused(run, change):
    edit(run / "config.json", change)
    before = (run / "config.json").read_bytes()
    for use in (
        workdir_lib.read_saved,
        workdir_lib.read_config,
        lambda folder: workdir_lib.claim(folder, VALUES),
    ):
        with pytest.raises(WorkdirError, match=r"config.json was changed: .* put back") as error:
            use(run)
        assert "\n" not in str(error.value)
    assert (run / "config.json").read_bytes() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"\xff\xfe{}", "not valid JSON .*utf-8"),
        (b"null", "should hold a JSON object, got NoneType"),
        (b"[]", "should hold a JSON object, got list"),
        (b"{}", "has no entry 'config'"),
        (b'{"config": 5}', "has no entry 'config'"),
        (b'{"config": {}}', "its hash does not fit"),
        (b'{"config": {"seed": NaN}}', "NaN is not a number of JSON"),
        (b'{"config": ' + b"9" * 400 + b"}", "an integer of 400 digits"),
        (b'{"config": ' + b"9" * 5000 + b"}", "an integer of 5000 digits"),
        (b"[" * 100_000, "nested too deep"),
        (b" " * (2**20 + 1), "no more than 1,048,576 were expected"),
    ],
)
def test_a_config_that_cannot_be_read_is_one_line(tmp_path, content, message):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(WorkdirError, match=message) as error:
        workdir_lib.read_config(tmp_path)
    assert "\n" not in str(error.value)


def test_a_config_of_the_first_format_is_verified_by_its_hash(tmp_path):
    values = config_lib.to_dict(CONFIG)
    content = {"config": values, "hash": HASH, "command": "old"}
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert workdir_lib.read_config(tmp_path) == CONFIG
    # Written before a field was known: its hash is that of the fields it had.
    del values["source"]["shell"], values["eval"]["neighbours"]
    content["hash"] = config_lib.fingerprint_values(values)
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert workdir_lib.read_config(tmp_path) == CONFIG
    values["seed"] = 1
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(WorkdirError, match="its hash does not fit"):
        workdir_lib.read_config(tmp_path)


def test_a_folder_of_another_run_says_in_what_it_differs(run):
    other = config_lib.from_dict({"seed": 3, "log": {"every": 7}})
    with pytest.raises(WorkdirError, match=r"with another config \(seed: 0 -> 3\); choose another"):
        workdir_lib.claim(run, config_lib.to_dict(other))
    images = {"source": {"kind": "images", "folder": "x"}, "encoder": {"dim": 3}}
    with pytest.raises(
        WorkdirError, match=r"source.kind: 'process' -> 'images'; .*more\)"
    ) as error:
        workdir_lib.claim(run, config_lib.to_dict(config_lib.from_dict(images)))
    assert len(str(error.value)) < 700


def test_an_experiment_made_in_code_is_known_by_its_description(tmp_path):
    """It is claimed, held and told from others like any run; only its maker can build it."""
    made = {"made_by": workdir_lib.MADE_IN_CODE, "name": "mine", "seed": 0}
    workdir_lib.claim(tmp_path, made)
    workdir_lib.claim(tmp_path, made)
    assert workdir_lib.read_saved(tmp_path).values == made
    for other in (made | {"seed": 1}, VALUES):
        with pytest.raises(WorkdirError, match="holds a run with another config"):
            workdir_lib.claim(tmp_path, other)
    with pytest.raises(WorkdirError, match=r"was made in code, .*an.evaluate\(experiment, work"):
        workdir_lib.read_config(tmp_path)


def test_another_version_is_said(run):
    values = config_lib.to_dict(CONFIG) | {"colour": "red"}
    workdir_lib.write_config(run, values, "")
    with pytest.raises(WorkdirError, match=r"config.json is of another version: .*'colour'"):
        workdir_lib.read_config(run)


@pytest.mark.parametrize("left", ["checkpoints", "metrics.jsonl", "eval.json"])
def test_traces_of_a_run_without_its_config_are_refused(tmp_path, left):
    if left == "checkpoints":
        (tmp_path / left / "4").mkdir(parents=True)
    else:
        (tmp_path / left).touch()
    with pytest.raises(WorkdirError, match=f"has {left} but no config.json; put it back"):
        workdir_lib.claim(tmp_path, VALUES)
    assert os.listdir(tmp_path) == [left]


def test_a_save_in_a_folder_that_was_removed_is_no_trace_of_a_run(tmp_path):
    (tmp_path / "checkpoints" / "4.orbax-checkpoint-tmp" / "state").mkdir(parents=True)
    workdir_lib.claim(tmp_path, VALUES)
    assert workdir_lib.read_config(tmp_path) == CONFIG


# --- names that are taken ---

FILES = ["config.json", "metrics.jsonl", "eval.json", "report.html", "table1.csv", "lock"]
FOLDERS = ["checkpoints", "tensorboard", "figures"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("take", "kind"),
    [
        (os.mkdir, "a folder"),
        (os.mkfifo, "neither file nor folder"),
        (lambda path: os.symlink("nowhere", path), "a link to nothing"),
        (lambda path: os.symlink(path, path), "a link to nothing"),
        (lambda path: os.symlink("/dev/zero", path), "neither file nor folder"),
    ],
)
def test_a_name_of_a_file_that_is_taken(tmp_path, name, take, kind):
    take(tmp_path / name)
    with pytest.raises(WorkdirError, match=f"{name} is {kind}, expected a file; move it away"):
        workdir_lib.claim(tmp_path, VALUES)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_name_of_a_folder_that_is_taken(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(WorkdirError, match=f"{name} is a file, expected a folder; move it away"):
        workdir_lib.claim(tmp_path, VALUES)


def test_readers_do_not_wait_for_a_pipe(tmp_path):
    for name in ("config.json", "metrics.jsonl", "eval.json"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(WorkdirError, match="not a regular file"):
        workdir_lib.read_saved(tmp_path)
    with pytest.raises(WorkdirError, match="not a regular file"):
        workdir_lib.read_metrics(tmp_path / "metrics.jsonl")
    with pytest.raises(WorkdirError, match="not a regular file"):
        workdir_lib.restore_metrics(tmp_path, 4, ROWS)
    assert "not a regular file" in workdir_lib.read_eval(tmp_path, HASH).problem


def test_what_may_not_be_read_is_said(run, monkeypatch):
    def deny(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", deny)
    with pytest.raises(WorkdirError, match=r"config.json can't be read: Permission denied"):
        workdir_lib.read_saved(run)
    with pytest.raises(WorkdirError, match=r"metrics.jsonl can't be read: Permission denied"):
        workdir_lib.read_metrics(run / "metrics.jsonl")
    assert workdir_lib.read_eval(run, HASH).problem.endswith("can't be read: Permission denied")
    with pytest.raises(WorkdirError, match="can't be written: Permission denied; choose another"):
        workdir_lib.hold(run).__enter__()


def test_runs_are_found_here_and_one_level_below(tmp_path):
    for name in ("b", "a"):
        workdir_lib.claim(tmp_path / name, VALUES)
    (tmp_path / "figures").mkdir()
    assert workdir_lib.find_runs([tmp_path]) == [tmp_path / "a", tmp_path / "b"]
    assert workdir_lib.find_runs([tmp_path / "b"]) == [tmp_path / "b"]
    # A member that lost its config is not left out of a comparison without a word.
    (tmp_path / "a" / "config.json").rename(tmp_path / "a" / "metrics.jsonl")
    assert workdir_lib.find_runs([tmp_path]) == [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(WorkdirError, match="holds no run"):
        workdir_lib.find_runs([tmp_path / "b", tmp_path / "figures"])
    # Neither are those below a folder in which somebody has trained another run.
    workdir_lib.claim(tmp_path, VALUES)
    assert workdir_lib.find_runs([tmp_path]) == [tmp_path, tmp_path / "a", tmp_path / "b"]


# --- eval.json ---


def test_an_evaluation_comes_back(run):
    evaluation = workdir_lib.read_eval(run, HASH)
    assert evaluation.problem == ""
    assert evaluation.scores["r2"] == 0.5
    assert evaluation.scores["metrics_rows"] == 4


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_text(""), "not valid JSON"),
        (lambda path: path.write_text("[]"), "should hold a JSON object"),
        (lambda path: edit(path, lambda content: content.update(r2=0.9)), "was changed"),
        (lambda path: edit(path, lambda content: content.pop("digest")), "was changed"),
        (lambda path: path.write_text('{"step": "last"}'), "holds step='last'"),
        (lambda path: path.write_text('{"evaluated_with": [1]}'), "holds evaluated_with"),
    ],
)
def test_a_damaged_evaluation_has_no_scores(run, damage, problem):
    damage(run / "eval.json")
    evaluation = workdir_lib.read_eval(run, HASH)
    assert evaluation.scores == {}
    assert problem in evaluation.problem
    assert not evaluation.is_foreign


def test_an_evaluation_of_another_run_or_of_the_first_format(run):
    evaluation = workdir_lib.read_eval(run, "another")
    assert evaluation.is_foreign
    assert evaluation.scores == {}
    (run / "eval.json").write_text('{"step": 4, "r2": 0.5}')
    evaluation = workdir_lib.read_eval(run, HASH)
    assert evaluation.scores["r2"] == 0.5
    assert "carries no digest" in evaluation.problem


def test_an_evaluation_of_a_step_that_is_undone_goes(run):
    workdir_lib.undo_eval(run, 4)
    assert (run / "eval.json").exists()
    workdir_lib.undo_eval(run, 3)
    assert not (run / "eval.json").exists()


# --- metrics.jsonl ---

WRONG_ROWS = {
    "deleted": [],
    "halved": ROWS[:2],
    "doubled": [*ROWS, *ROWS],
    "reordered": ROWS[::-1],
    "edited": [*ROWS[:2], ROWS[2] | {"loss": 0.26}, ROWS[3]],
    "foreign": [ROWS[0], {"step": 1, "split": "train", "loss": 9.0}, *ROWS[1:]],
}


@pytest.mark.parametrize("rows", WRONG_ROWS.values(), ids=WRONG_ROWS)
def test_a_resume_writes_the_rows_of_the_checkpoint_again(run, rows):
    path = run / "metrics.jsonl"
    right = path.read_bytes()
    write_rows(run, rows)
    wrong = path.read_bytes()
    message = workdir_lib.restore_metrics(run, 4, ROWS)
    assert message.endswith("; written again from the checkpoint of step 4")
    assert "\n" not in message
    assert path.read_bytes() == right
    assert (run / "metrics.jsonl.damaged").read_bytes() == wrong
    assert workdir_lib.restore_metrics(run, 4, ROWS) == ""


@pytest.mark.parametrize("content", [None, b"oops\n{}\n", b"\xff\n\n", b"[" * 9999 + b"\n"])
def test_a_resume_mends_what_is_no_file_of_rows(run, content):
    path = run / "metrics.jsonl"
    right = path.read_bytes()
    path.unlink() if content is None else path.write_bytes(content)
    message = workdir_lib.restore_metrics(run, 4, ROWS)
    assert ("is missing" if content is None else "line 1: not valid JSON") in message
    assert path.read_bytes() == right


def test_rows_that_a_resume_undoes_are_no_damage(run):
    write_rows(run, [*ROWS, {"step": 6, "split": "train", "loss": 0.1}])
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "spl')
    assert workdir_lib.restore_metrics(run, 4, ROWS) == ""
    assert workdir_lib.read_metrics(run / "metrics.jsonl") == ROWS
    assert not (run / "metrics.jsonl.damaged").exists()


def test_without_a_checkpoint_the_rows_go_and_it_is_said(run):
    assert "no checkpoint: the run begins anew" in workdir_lib.restore_metrics(run, 0, None)
    assert (run / "metrics.jsonl").read_bytes() == b""
    assert workdir_lib.restore_metrics(run, 0, None) == ""


@pytest.mark.parametrize("rows", WRONG_ROWS.values(), ids=WRONG_ROWS)
def test_rows_that_differ_from_those_of_the_evaluation_are_said(run, rows):
    path = run / "metrics.jsonl"
    evaluation = workdir_lib.read_eval(run, HASH)
    assert workdir_lib.check_metrics(path, ROWS, evaluation, 4) == ""
    assert str(path) in workdir_lib.check_metrics(path, rows, evaluation, 4)


def test_a_run_that_goes_on_has_more_rows_than_its_evaluation(run):
    path = run / "metrics.jsonl"
    evaluation = workdir_lib.read_eval(run, HASH)
    more = [*ROWS, {"step": 6, "split": "train"}]
    assert workdir_lib.check_metrics(path, more, evaluation, 12) == ""
    assert "1 rows more" in workdir_lib.check_metrics(path, more, evaluation, 4)
    assert "1 rows twice" in workdir_lib.check_metrics(path, [*more, more[-1]], evaluation, 12)
    unknown = workdir_lib.Evaluation({})
    assert workdir_lib.check_metrics(path, ROWS, unknown, 4) == ""
    assert "twice" in workdir_lib.check_metrics(path, [*ROWS, ROWS[0]], unknown, 4)
    assert "order" in workdir_lib.check_metrics(path, ROWS[::-1], unknown, 4)


# --- holding it ---


def test_a_folder_is_held_by_one_thread_at_a_time_and_removed_if_it_stays_empty(tmp_path):
    folder = tmp_path / "new" / "run"
    with workdir_lib.hold(folder), workdir_lib.hold(folder):
        failures = []

        def try_too():
            try:
                workdir_lib.hold(folder).__enter__()
            except WorkdirError as error:
                failures.append(str(error))

        thread = threading.Thread(target=try_too)
        thread.start()
        thread.join()
        assert f"{folder} is in use by process {os.getpid()}" in failures[0]
    assert os.listdir(tmp_path) == []
    with workdir_lib.claimed(folder, VALUES, ""):
        pass
    assert os.listdir(folder) == ["config.json"]


def test_a_report_may_be_written_while_a_run_is_held(tmp_path):
    with workdir_lib.hold(tmp_path), workdir_lib.hold_report(tmp_path):
        assert sorted(os.listdir(tmp_path)) == ["lock", "report.lock"]
    assert os.listdir(tmp_path) == []


def test_errors_of_the_body_pass_through(tmp_path):
    with pytest.raises(OSError, match="of the body"), workdir_lib.hold(tmp_path):
        raise OSError("of the body")


def test_a_path_that_no_file_system_takes_is_said_in_a_line():
    path = Path("y" * 300)
    with (
        pytest.raises(WorkdirError, match="can't be written: File name too long; choose another"),
        workdir_lib.hold(path),
    ):
        pass
    with pytest.raises(WorkdirError, match="can't be read: File name too long"):
        workdir_lib.find_runs([path])
