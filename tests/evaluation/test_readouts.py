import csv
import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.config_schema import ConfigError
from aninfonce_jax.data.source import Subset
from aninfonce_jax.evaluation import runner
from aninfonce_jax.evaluation.interventions import READOUTS
from aninfonce_jax.evaluation.table import AVERAGED
from aninfonce_jax.files import write_json
from aninfonce_jax.mesh import make_mesh
from aninfonce_jax.training.state import build_experiment


def scores_of(config, devices, full):
    experiment = build_experiment(config)
    evaluate = runner.make_evaluate(experiment, make_mesh(devices))
    return evaluate(jax.jit(experiment.init_state)().weights, full=full)


def test_monitors_do_not_depend_on_the_mesh(image_config):
    config = image_config()
    one, four = scores_of(config, 1, full=False), scores_of(config, 4, full=False)
    assert set(one) == set(four)
    assert "readouts" not in one
    found = one.pop("intervals"), four.pop("intervals")
    assert set(found[0]) == {
        "loss", "knn_accuracy", "probe_accuracy", "effective_rank_backbone",
        "effective_rank_projector",
    }  # fmt: skip
    for name, interval in found[0].items():
        if name != "loss":  # of a single batch
            assert interval[0] <= one[name] <= interval[1], name
    assert found[0]["loss"] is None
    for name, value in one.items():
        np.testing.assert_allclose(value, four[name], rtol=1e-3, atol=1e-4, err_msg=name)
    assert one["chance"] == 0.5
    assert len(one["concentration"]) == len(one["spread"]) == 8


@pytest.mark.parametrize(("strength", "context"), [("upper", "clean"), ("drawn", "augmented")])
def test_readouts_of_both_layers(image_config, strength, context):
    config = image_config(eval__readout_strength=strength, eval__readout_context=context)
    scores = scores_of(config, 1, full=True)
    for layer in ("backbone", "projector"):
        row = scores["readouts"][layer]
        assert set(row) == {*READOUTS, "average", "classes"}
        assert all(0 <= value <= 1 for value in row.values())
        assert set(scores["strength_r2"][layer]) == set(READOUTS) - {"grey"}
        for kind in ("readouts", "strength_r2"):
            found = scores["intervals"][kind][layer]
            assert set(found) == set(scores[kind][layer])
            for name, (low, high) in found.items():
                assert low <= scores[kind][layer][name] <= high, (kind, layer, name)
        assert row["average"] == pytest.approx(np.mean([row[name] for name in AVERAGED]))
    assert scores["never_applied"] == ["blur"]  # simclr_cifar has none
    assert scores["unreadable_images"] == 0


def test_too_few_pictures_for_a_class_readout_are_a_clear_error(image_config):
    with pytest.raises(ConfigError, match=r"eval.train_images=2 is too few for a class"):
        scores_of(image_config(eval__train_images=2), 1, full=False)


def test_what_the_test_pictures_can_t_give_is_missing_or_counted(
    image_config, image_folder, tmp_path
):
    folder = shutil.copytree(image_folder, tmp_path / "pictures")
    (folder / "test" / "a" / "broken.JPEG").write_bytes(b"not a picture")
    config = image_config(
        train__batch_size=24, data__folder=str(folder), data__max_bad_share=0.1, eval__test_images=0
    )
    scores = scores_of(config, 1, full=False)
    assert np.isnan(scores["loss"])  # 21 pictures fill no batch
    assert scores["unreadable_images"] == 1
    assert 0 <= scores["knn_accuracy"] <= 1


def test_a_readout_takes_whole_folders_though_they_are_sorted_by_class(image_config):
    scores = scores_of(image_config(eval__train_images=0), 1, full=False)
    assert 0 <= scores["probe_accuracy"] <= 1


def test_the_table_is_written_from_the_last_evaluation(image_config, tmp_path):
    config = image_config(objective__kind="aninfonce_no_l2")
    workdir_lib.claim(tmp_path, config)
    row = dict.fromkeys([*READOUTS, "classes", "average"], 0.75)
    readouts = {"backbone": row, "projector": row | {"grey": 0.5}}
    strengths = {"backbone": {"hue": 0.1}, "projector": {"hue": 0.2}}
    write_json(
        tmp_path / workdir_lib.EVAL_FILE,
        {"readouts": readouts, "strength_r2": strengths, "untrained": {"readouts": readouts}},
    )
    rows = runner.tabulate(tmp_path)
    assert [(r["objective"], r["features"]) for r in rows][1] == (
        "AnInfoNCE, no ℓ2 norm",
        "projector",
    )
    with (tmp_path / "table1.csv").open() as file:
        assert [r["grey"] for r in csv.DictReader(file)] == ["75.0", "50.0", "75.0", "50.0"]
    assert json.loads((tmp_path / "table1.json").read_text())[0]["strength_r2"] == {"hue": 0.1}


def test_a_run_on_a_process_has_no_table(small_config, tmp_path):
    workdir_lib.claim(tmp_path, small_config())
    write_json(tmp_path / workdir_lib.EVAL_FILE, {"r2": 0.5})
    assert runner.tabulate(tmp_path) == []


def test_pictures_without_labels_have_no_class_scores(image_config):
    experiment = build_experiment(image_config())
    source = experiment.source
    unlabelled = Subset(source.train, np.arange(len(source.train)))
    unlabelled.class_names = ()
    source = dataclasses.replace(source, train=unlabelled)
    experiment = dataclasses.replace(experiment, source=source)
    evaluate = runner.make_evaluate(experiment, make_mesh(1))
    scores = evaluate(jax.jit(experiment.init_state)().weights, full=False)
    assert "knn_accuracy" not in scores
    assert scores["effective_rank_backbone"] > 0
