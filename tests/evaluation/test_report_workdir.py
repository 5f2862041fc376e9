import json

import pytest

from aninfonce_jax.evaluation import report, workdir
from aninfonce_jax.workdir import WorkdirError


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
