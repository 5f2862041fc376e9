import csv
import json
import shutil

import pytest

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.report.table import tabulate
from aninfonce_jax.scores import registry


@pytest.fixture
def copied(tmp_path):
    """Copies a work directory, which others use too."""
    return lambda folder: shutil.copytree(folder, tmp_path / "run")


def test_the_table_is_written_from_the_last_evaluation(image_runs, copied):
    folder = copied(image_runs[0])
    scores = workdir_lib.read_eval(folder, workdir_lib.read_saved(folder).hash).scores
    assert len(tabulate(folder)) == 4
    with (folder / workdir_lib.TABLE_CSV_FILE).open() as file:
        rows = list(csv.DictReader(file))
    names = [(row[registry.OBJECTIVE], row[registry.FEATURES]) for row in rows]
    layers = ["backbone", "projector"]
    assert names == [(label, layer) for label in ("InfoNCE", "untrained") for layer in layers]
    before = scores[registry.UNTRAINED][registry.READOUTS]
    shares = [own[layer] for own in (scores[registry.READOUTS], before) for layer in layers]
    for row, own in zip(rows, shares, strict=True):
        assert {name: row[name] for name in own} == {x: f"{100 * own[x]:.1f}" for x in own}
    full = json.loads((folder / workdir_lib.TABLE_JSON_FILE).read_text())
    strengths = scores[registry.STRENGTHS]
    assert [row[registry.STRENGTHS] for row in full[:2]] == [strengths[x] for x in layers]


def test_a_run_on_a_process_has_no_table(synthetic_runs, copied):
    folder = copied(synthetic_runs[0])
    assert tabulate(folder) == []
    assert not (folder / workdir_lib.TABLE_CSV_FILE).exists()
