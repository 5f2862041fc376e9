"""The page and the table of a sweep, from work directories that the loop wrote."""

import csv
import dataclasses
import json
import shutil

import pytest

from aninfonce_jax import workdir
from aninfonce_jax.report.sweep import write_sweep
from aninfonce_jax.scores import registry


@pytest.fixture
def swept(synthetic_runs, tmp_path):
    """A sweep over the objective, of two runs that are finished and one that has not begun."""
    points = []
    for folder in synthetic_runs:
        shutil.copytree(
            folder, tmp_path / folder.name, ignore=shutil.ignore_patterns("checkpoints")
        )
        values = {"objective.kind": folder.name, "seed": 0}
        points.append(workdir.SweepPoint(folder.name, values, workdir.FINISHED))
    later = {"objective.kind": "lp", "seed": 0}
    points.append(workdir.SweepPoint("later", later, workdir.WAITING))
    record = workdir.SweepRecord(
        fields=("objective.kind",),
        x="",
        scores=(),
        targets={registry.R2.key: (-1.0, 2.0)},
        command="aninfonce --mode=sweep",
        points=tuple(points),
    )
    workdir.write_sweep(tmp_path, record)
    return tmp_path


def test_every_score_of_a_run_is_in_the_table(swept, synthetic_runs):
    write_sweep(swept)
    with open(swept / "sweep.csv") as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    for folder in synthetic_runs:
        scores = json.loads((folder / "eval.json").read_text())
        row = rows[folder.name]
        for score in registry.SCORES:
            if scores.get(score.key) is not None:
                assert float(row[score.key]) == pytest.approx(scores[score.key], rel=1e-6)
        assert row["status"] == workdir.FINISHED
        assert float(row["r2"]) < 1
        # Any R² is reached at the first evaluation, and none above 1 ever.
        assert row["step_at_r2_-1"] == "0"
        assert row["step_at_r2_2"] == ""
    assert rows["later"]["status"] == workdir.WAITING
    assert rows["later"]["r2"] == ""


def test_the_page_shows_what_is_known_and_what_is_missing(swept):
    page = write_sweep(swept).read_text()
    assert "1 of 3 runs are not finished" in page
    for words in ("along objective.kind", "R² of the factors, all", "aninfonce --mode=sweep"):
        assert words in page
    # Along names there are dots; no line leads from one to the next.
    assert 'class="key dot' in page
    assert 'class="key line' not in page
    assert (swept / "figures" / "sweep-scores.png").stat().st_size > 5000
    assert write_sweep(swept).read_text() == page


def test_what_a_point_leaves_alone_is_not_in_its_name(swept):
    record = workdir.read_sweep(swept)
    first, second, later = record.points
    field = "objective.spreading"
    kept = dataclasses.replace(second, values=second.values | {field: 3.0})
    record = dataclasses.replace(
        record, fields=(*record.fields, field), points=(first, kept, later)
    )
    workdir.write_sweep(swept, record)
    page = write_sweep(swept).read_text()
    assert "spreading 3" in page
    assert "as the config has it" in page
    assert "spreading None" not in page
