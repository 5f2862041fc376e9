"""Saved models and work directories: opened without the data that they were trained on."""

import json

import numpy as np
import pytest
from image_files import random_image

import aninfonce_jax as an
from aninfonce_jax import config as config_lib
from aninfonce_jax import workdir

ROWS = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def fitted():
    model = an.AnInfoNCE(dim=2, steps=2, batch_size=8, optimizer="adam", seed=3)
    return model.fit(ROWS, ROWS + 0.1)


def test_a_saved_model_is_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "deep" / "model")
    loaded = an.load(tmp_path / "deep" / "model")
    np.testing.assert_array_equal(loaded.transform(ROWS), fitted.transform(ROWS))
    np.testing.assert_array_equal(loaded.concentration_, fitted.concentration_)
    assert loaded.score(ROWS, ROWS + 0.1) == fitted.score(ROWS, ROWS + 0.1)
    assert loaded.loss_curve_ == fitted.loss_curve_
    assert loaded.get_params() == fitted.get_params()


def test_a_saved_model_is_replaced_and_nothing_else_is(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    with pytest.raises(FileExistsError, match=r"holds a saved model already; .* overwrite=True"):
        fitted.save(tmp_path / "model")
    fitted.save(tmp_path / "model", overwrite=True)
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "model.json",
        "weights.npz",
    ]
    (tmp_path / "thesis").mkdir()
    with pytest.raises(FileExistsError, match="is no saved model; choose another name"):
        fitted.save(tmp_path / "thesis")


def test_a_model_of_a_newer_version_is_refused(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    file = tmp_path / "model" / "model.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 2, "saved_by": "9.0"}))
    with pytest.raises(an.ModelError, match=r"has format 2, of aninfonce_jax 9.0.*update"):
        an.load(tmp_path / "model")


def test_damaged_weights_are_refused(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    file = tmp_path / "model" / "weights.npz"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(an.ModelError, match=r"weights\.npz is damaged"):
        an.load(tmp_path / "model")


DAMAGE = {
    "nothing of the estimator": lambda content: content.pop("estimator"),
    "nothing of the fit": lambda content: content.pop("fitted"),
    "a text for a number": lambda content: content["estimator"].update(dim="a"),
    "an argument that there is not": lambda content: content["params"].update(other=1),
    "no layout": lambda content: content.pop("layout"),
    "an encoder of a later version": lambda content: content["estimator"].update(encoder="vit"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_description_with_something_wrong_in_it_is_refused(fitted, tmp_path, case):
    fitted.save(tmp_path / "model")
    file = tmp_path / "model" / "model.json"
    content = json.loads(file.read_text())
    DAMAGE[case](content)
    file.write_text(json.dumps(content))
    with pytest.raises(an.ModelError, match=r"model\.json is damaged, or of another version"):
        an.load(tmp_path / "model")


def test_an_objective_of_a_later_version_is_refused(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    file = tmp_path / "model" / "model.json"
    content = json.loads(file.read_text())
    content["estimator"]["objective"]["kind"] = "Later"
    file.write_text(json.dumps(content))
    with pytest.raises(an.ModelError, match="trained by Later, which this version does not know"):
        an.load(tmp_path / "model")


def test_a_file_is_neither_loaded_nor_saved_into(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    with pytest.raises(an.ModelError, match=r"model\.json is a file, and a model is a folder"):
        an.load(tmp_path / "model" / "model.json")
    (tmp_path / "file").write_text("mine")
    for place in ("file", "file/below"):
        with pytest.raises(FileExistsError, match="choose another name"):
            fitted.save(tmp_path / place, overwrite=True)
    assert (tmp_path / "file").read_text() == "mine"


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(an.ModelError, match=r"does not exist: expected what model\.save"):
        an.load(tmp_path / "nothing")
    with pytest.raises(an.ModelError, match="holds no model"):
        an.load(tmp_path)


def test_a_work_directory_without_a_checkpoint_is_refused(small_config, tmp_path):
    workdir.write_config(tmp_path, config_lib.to_dict(small_config()), "")
    with pytest.raises(an.ConfigError, match="has no checkpoint yet; train it first"):
        an.load(tmp_path)


def test_a_work_directory_keeps_the_arguments_of_the_fit(tmp_path):
    # As a search over NumPy ranges gives them.
    given = {
        "learning_rate": np.float32(0.5),
        "held_out": np.float32(0.25),
        "standardise": np.bool_(False),
        "early_stopping": np.bool_(False),
        "ema_decay": np.float32(0.5),
        "steps": np.int64(2),
        "batch_size": np.int64(8),
        "seed": np.int64(3),
        "dim": np.int64(2),
    }
    an.AnInfoNCE(workdir=tmp_path, **given).fit(ROWS, ROWS + 0.1)
    params = an.load(tmp_path).get_params()
    assert {name: params[name] for name in given} == given


def test_the_run_of_a_config_is_opened_and_saved(synthetic_runs, tmp_path):
    model = an.load(synthetic_runs[0])
    rows = np.random.default_rng(0).normal(size=(5, *model.rows.shape)).astype(np.float32)
    embeddings = model.transform(rows)
    assert embeddings.shape == (5, model.dim)
    scores = json.loads((synthetic_runs[0] / "eval.json").read_text())
    assert sorted(model.concentration_, reverse=True) == pytest.approx(scores["concentration"])
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(an.load(tmp_path / "model").transform(rows), embeddings)


def test_a_run_on_images_takes_images_of_any_size_and_no_data(image_runs, monkeypatch):
    def fail(*_):
        raise AssertionError("the data were opened")

    monkeypatch.setattr("aninfonce_jax.builders.images.open_dataset", fail)
    model = an.load(image_runs[0])
    images = [random_image(20, 30), random_image(16, 16), random_image(64, 40)]
    embeddings = model.transform(images)
    assert embeddings.shape == (3, model.dim)
    np.testing.assert_array_equal(model.transform(images[1][None])[0], embeddings[1])
    with pytest.raises(ValueError, match="images are expected as uint8"):
        model.transform(images[1][None] / 255.0)


def test_an_experiment_in_code_says_what_to_do(pairs_run):
    with pytest.raises(an.ModelError, match="an experiment that was made in code"):
        an.load(pairs_run)


def test_the_folder_of_a_comparison_names_its_runs(tmp_path):
    for name in ("infonce", "aninfonce"):
        (tmp_path / name).mkdir()
        (tmp_path / name / workdir.CONFIG_FILE).write_text("{}")
    with pytest.raises(an.ModelError, match="holds 2 runs; name one: aninfonce, infonce"):
        an.load(tmp_path)
