import csv
import json

import pytest

from aninfonce_jax import config as config_lib
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.data.interventions import READOUTS
from aninfonce_jax.report.table import tabulate


@pytest.fixture
def claim(tmp_path):
    """Returns a work directory of a config with scores."""

    def make(config, scores):
        workdir_lib.claim(tmp_path, config_lib.to_dict(config))
        workdir_lib.write_eval(tmp_path, scores, config_lib.fingerprint(config), None)
        return tmp_path

    return make


def test_the_table_is_written_from_the_last_evaluation(image_config, claim):
    row = dict.fromkeys([*READOUTS, "classes", "average"], 0.75)
    readouts = {"backbone": row, "projector": row | {"grey": 0.5}}
    strengths = {"backbone": {"hue": 0.1}, "projector": {"hue": 0.2}}
    folder = claim(
        image_config(objective__kind="aninfonce_no_l2"),
        {
            "step": 4,
            "readouts": readouts,
            "strength_r2": strengths,
            "untrained": {"readouts": readouts},
        },
    )
    assert len(tabulate(folder)) == 4
    with (folder / "table1.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["grey"] for row in rows] == ["75.0", "50.0", "75.0", "50.0"]
    assert (rows[1]["objective"], rows[1]["features"]) == ("AnInfoNCE, no ℓ2 norm", "projector")
    assert json.loads((folder / "table1.json").read_text())[0]["strength_r2"] == {"hue": 0.1}


def test_a_run_on_a_process_has_no_table(small_config, claim):
    folder = claim(small_config(), {"step": 12, "r2": 0.5})
    assert tabulate(folder) == []
    assert not (folder / "table1.csv").exists()
