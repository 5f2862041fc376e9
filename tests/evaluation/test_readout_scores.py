import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from aninfonce_jax.build import build_experiment
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.data.interventions import AVERAGED, READOUTS
from aninfonce_jax.data.source import Subset
from aninfonce_jax.evaluation import runner
from aninfonce_jax.placement import Placement
from aninfonce_jax.workdir import EVAL_FILE


def scores_of(config, devices, full):
    experiment = build_experiment(config)
    evaluate = runner.make_evaluate(experiment, Placement.local(devices))
    return evaluate(jax.jit(experiment.init_state)().weights, full=full)


def test_monitors_do_not_depend_on_the_devices(image_config):
    config = image_config()
    one, four = scores_of(config, 1, full=False), scores_of(config, 4, full=False)
    assert set(one) == set(four)
    assert "readouts" not in one
    found = one.pop("intervals"), four.pop("intervals")
    assert set(found[0]) == {
        "loss", "knn_accuracy", "probe_accuracy", "effective_rank_backbone",
        "effective_rank_projector", "overlap",
    }  # fmt: skip
    for name, interval in found[0].items():
        if name not in ("loss", "overlap"):  # of a single batch
            assert interval[0] <= one[name] <= interval[1], name
    assert found[0]["loss"] is found[0]["overlap"] is None
    assert one.pop("warnings") == four.pop("warnings")
    alike = [x.pop("similarities")["of_embeddings"] for x in (one, four)]
    # Rounding may move one of 8 positives, or of 56 negatives, over the edge of a bin.
    np.testing.assert_allclose(*np.cumsum(alike, axis=-1), atol=1 / 7)
    for name, value in one.items():
        np.testing.assert_allclose(value, four[name], rtol=1e-3, atol=1e-4, err_msg=name)
    assert one["chance"] == 0.5
    assert len(one["concentration"]) == len(one["spread"]) == 8


def test_readouts_of_both_layers(image_runs):
    _, trained = image_runs
    assert_readouts_of_both_layers(json.loads((trained / EVAL_FILE).read_text()))


@pytest.mark.slow
def test_readouts_of_drawn_strengths_among_other_augmentations(image_config):
    config = image_config(eval__readout_strength="drawn", eval__readout_context="augmented")
    assert_readouts_of_both_layers(scores_of(config, 1, full=True))


def assert_readouts_of_both_layers(scores):
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
    for layer, end in (("backbone", ""), ("projector", "_last")):
        row = scores["readouts"][layer]
        assert scores[f"operation_accuracy{end}"] == row["average"]
        assert scores[f"probe_accuracy{end}"] == row["classes"]
    assert scores["never_applied"] == ["blur"]  # simclr_cifar has none
    assert scores["unreadable_examples"] == 0


def test_too_few_images_for_a_class_readout_are_a_clear_error(image_config):
    with pytest.raises(ConfigError, match=r"eval.train_examples=2 is too few for a class"):
        scores_of(image_config(eval__train_examples=2), 1, full=False)


def test_what_the_test_images_can_t_give_is_missing_or_counted(
    image_config, image_folder, tmp_path
):
    folder = shutil.copytree(image_folder, tmp_path / "images")
    (folder / "test" / "a" / "broken.JPEG").write_bytes(b"not an image")
    config = image_config(
        train__batch_size=24,
        source__folder=str(folder),
        source__max_bad_share=0.1,
        eval__test_examples=0,
    )
    scores = scores_of(config, 1, full=False)
    assert np.isnan(scores["loss"])  # 21 images fill no batch
    assert scores["unreadable_examples"] == 1
    assert 0 <= scores["knn_accuracy"] <= 1


def test_a_readout_takes_whole_folders_though_they_are_sorted_by_class(image_config):
    scores = scores_of(image_config(eval__train_examples=0), 1, full=False)
    assert 0 <= scores["probe_accuracy"] <= 1


def test_images_without_labels_have_no_class_scores(image_config):
    experiment = build_experiment(image_config())
    source = experiment.source
    unlabelled = Subset(source.train, np.arange(len(source.train)))
    unlabelled.class_names = ()
    source = dataclasses.replace(source, train=unlabelled)
    experiment = dataclasses.replace(experiment, source=source)
    evaluate = runner.make_evaluate(experiment, Placement.local(1))
    scores = evaluate(jax.jit(experiment.init_state)().weights, full=False)
    assert "knn_accuracy" not in scores
    assert scores["effective_rank_backbone"] > 0
