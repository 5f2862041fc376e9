"""Models for others: what they compute there is what `transform` returns here."""

import json

import jax
import numpy as np
import pytest
import yaml

import aninfonce_jax as an
from aninfonce_jax.estimator import saved

ROWS = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
SETTINGS = {"dim": 2, "steps": 1, "batch_size": 8, "optimizer": "adam"}
OBSERVATIONS = {
    "mlp": ROWS,
    "conv1d": np.random.default_rng(1).normal(size=(40, 8, 2)).astype(np.float32),
    "resnet10": np.random.default_rng(2).integers(0, 255, (40, 16, 16, 3), np.uint8),
}


def fit(encoder):
    rows = OBSERVATIONS[encoder]
    return an.AnInfoNCE(encoder=encoder, **SETTINGS).fit(rows, np.roll(rows, 1, axis=0))


@pytest.fixture(scope="module")
def fitted():
    return fit("mlp")


def check_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def call_stablehlo(folder, rows):
    program = jax.export.deserialize(bytearray((folder / "model.stablehlo").read_bytes()))
    assert set(program.platforms) == {"cpu", "tpu", "cuda"}
    return np.asarray(program.call(rows))


def test_weights_as_the_hub_has_them_are_the_same_model(fitted, tmp_path):
    folder = tmp_path / "deep" / "model"
    fitted.export(folder)
    assert {path.name for path in folder.iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
    }
    loaded = an.load(folder)
    np.testing.assert_array_equal(loaded.transform(ROWS), fitted.transform(ROWS))
    assert loaded.get_params() == fitted.get_params()
    safetensors = pytest.importorskip("safetensors.numpy")
    arrays = safetensors.load_file(folder / "model.safetensors")
    kernel = fitted.model_.weights.params["encoder"]["Dense_0"]["kernel"]
    np.testing.assert_array_equal(arrays["params.encoder.Dense_0.kernel"], kernel)


def test_a_program_of_any_number_of_rows(fitted, tmp_path):
    fitted.export(tmp_path / "model", "stablehlo")
    for count in (1, 7, 40):
        expected = fitted.transform(ROWS[:count])
        check_close(call_stablehlo(tmp_path / "model", ROWS[:count]), expected)


def test_a_run_on_images_becomes_a_program(image_runs, tmp_path):
    model = an.load(image_runs[0])
    model.export(tmp_path / "model", "stablehlo")
    images = np.random.default_rng(0).integers(0, 255, (3, *model.rows.shape), np.uint8)
    check_close(call_stablehlo(tmp_path / "model", images), model.transform(images))


@pytest.mark.slow  # needs the extra `onnx`
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("encoder", list(OBSERVATIONS))
def test_onnx_computes_the_same(encoder, tmp_path):
    pytest.importorskip("jax2onnx")
    runtime = pytest.importorskip("onnxruntime")
    model = fit(encoder)
    model.export(tmp_path / "model", "onnx")
    session = runtime.InferenceSession(tmp_path / "model" / "model.onnx")
    for count in (1, 7, 40):
        rows = OBSERVATIONS[encoder][:count]
        check_close(session.run(None, {"x": rows})[0], model.transform(rows))


def test_the_card_shows_the_scores_of_the_run(synthetic_runs, tmp_path):
    an.load(synthetic_runs[0]).export(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text()
    head = yaml.safe_load(card.split("---")[1])
    assert head["library_name"] == "aninfonce_jax"
    scores = json.loads((synthetic_runs[0] / "eval.json").read_text())
    assert f"At step {scores['step']}." in card
    assert f"| R² of the factors, all | {scores['r2']:.3f}"[:-1] in card
    assert "| objective | aninfonce |" in card
    # They stay with the model.
    an.load(tmp_path / "model").export(tmp_path / "again")
    assert (tmp_path / "again" / "README.md").read_text() == card


def test_what_was_exported_is_replaced_and_nothing_else_is(fitted, tmp_path):
    fitted.export(tmp_path / "model")
    with pytest.raises(FileExistsError, match="holds an exported model already"):
        fitted.export(tmp_path / "model")
    fitted.export(tmp_path / "model", "stablehlo", overwrite=True)
    assert not (tmp_path / "model" / "model.safetensors").exists()
    (tmp_path / "thesis").mkdir()
    with pytest.raises(FileExistsError, match="is no exported model; choose another name"):
        fitted.export(tmp_path / "thesis", overwrite=True)


def test_damage_and_other_peoples_models_are_refused(fitted, tmp_path):
    fitted.export(tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(an.ModelError, match=r"model\.safetensors is damaged"):
        an.load(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text('{"architectures": ["Bert"]}')
    with pytest.raises(an.ModelError, match=r"was not written by model\.export"):
        an.load(tmp_path / "model")


def test_a_missing_package_a_wrong_format_and_a_stubborn_encoder(fitted, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="format must be one of safetensors, stablehlo, onnx"):
        fitted.export(tmp_path / "model", "pickle")

    def flat(params, x):
        return x.reshape(len(x), -1) @ params  # a number of rows that is a number

    own = an.AnInfoNCE(encoder=(lambda key, x: np.ones((3, 2), np.float32), flat), **SETTINGS)
    with pytest.raises(an.ModelError, match=r"can't be written as stablehlo: .*x\.shape\[0\]"):
        own.fit(ROWS, ROWS + 0.1).export(tmp_path / "model", "stablehlo")
    monkeypatch.setattr(saved.importlib.util, "find_spec", lambda name: None)
    for format, package in (
        ("safetensors", "safetensors"),
        ("stablehlo", "flatbuffers"),
        ("onnx", "jax2onnx"),
    ):
        with pytest.raises(an.ModelError, match=f"needs {package}, which is not installed; pip"):
            fitted.export(tmp_path / "model", format)
    assert not (tmp_path / "model").exists()
