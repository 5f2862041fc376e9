import json

import pytest

from aninfonce_jax.evaluation import report, workdir
from aninfonce_jax.workdir import WorkdirError, read_metrics, read_saved, write_eval


def test_of_a_step_logged_twice_the_later_row_counts(fake_workdir, tmp_path):
    folder = fake_workdir(tmp_path / "a", evals=2)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 1500, "split": "eval", "r2": 0.123}) + "\n")
    evals = workdir.read_workdir(folder).evals
    assert [row["step"] for row in evals] == [1500, 3000]
    assert evals[0]["r2"] == 0.123


def _remove(name):
    return lambda folder: (folder / name).unlink()


def _write(name, text):
    return lambda folder: (folder / name).write_text(text)


def _no_evaluation(folder):
    _remove("eval.json")(folder)
    rows = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    train = [row for row in rows if json.loads(row)["split"] == "train"]
    (folder / "metrics.jsonl").write_text("".join(train))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_remove("config.json"), r"is not the work directory of a run: it has no config\.json"),
        (_remove("metrics.jsonl"), r"a holds no metrics\.jsonl; the command that trained the run"),
        (_no_evaluation, r"a holds no evaluation yet .* or lower eval\.every$"),
        (_write("config.json", "{"), r"config\.json: not valid JSON "),
        (_write("config.json", "{}"), r"config\.json has no entry 'config'"),
        (_write("metrics.jsonl", "oops\n"), r"metrics\.jsonl, line 1"),
    ],
)
def test_what_cannot_be_reported_is_one_clear_line(fake_workdir, tmp_path, damage, message):
    folder = fake_workdir(tmp_path / "a", evals=1)
    damage(folder)
    with pytest.raises((workdir.ReportError, WorkdirError), match=message) as error:
        report.write_report([folder], tmp_path / "out")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_missing_folder_and_no_folder_at_all(tmp_path):
    with pytest.raises(workdir.ReportError, match=r"no such folder: .*nowhere; expected a work"):
        report.write_report([tmp_path / "nowhere"], tmp_path)
    with pytest.raises(workdir.ReportError, match="at least one work directory to report on"):
        report.write_report([], tmp_path)


def seal(folder):
    """Makes the evaluation of a fake run as a run would have written it."""
    saved = read_saved(folder)
    scores = json.loads((folder / "eval.json").read_text())
    write_eval(folder, scores, saved.hash, read_metrics(folder / "metrics.jsonl"))


def _drop_last_row(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:-1]))


def _edit_eval(folder):
    path = folder / "eval.json"
    path.write_text(path.read_text().replace('"r2": 0.', '"r2": 1.'))


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda folder: None, ""),
        (_drop_last_row, "metrics.jsonl is not the one that this run wrote: 61 rows up to step"),
        (_edit_eval, "eval.json was changed: its digest does not fit its content; the scores"),
        (_write("eval.json", "[]"), "eval.json should hold a JSON object, got list; the scores"),
        (_remove("eval.json"), "eval.json is missing; the scores shown are those of the last row"),
    ],
)
def test_what_is_wrong_with_the_files_is_on_the_page_and_on_stderr(
    fake_workdir, tmp_path, capsys, damage, problem
):
    folder = fake_workdir(tmp_path / "a", evals=1)
    seal(folder)
    damage(folder)
    page = report.write_report([folder], tmp_path / "out").read_text()
    err = capsys.readouterr().err
    assert ("<strong>Mind:</strong>" in page) == bool(problem)
    assert problem in page
    assert err.count("\n") == bool(problem)
    assert problem in err


def test_config_and_evaluation_of_two_runs_are_refused(fake_workdir, tmp_path):
    folder, other = fake_workdir(tmp_path / "a"), fake_workdir(tmp_path / "b", seed=1)
    seal(other)
    (other / "eval.json").replace(folder / "eval.json")
    with pytest.raises(workdir.ReportError, match=r"eval.json is of the run with config hash"):
        report.write_report([folder], tmp_path / "out")
