import csv

import numpy as np
import pytest
from image_files import encode, random_image

import aninfonce_jax as an
from aninfonce_jax import embed
from aninfonce_jax.main import main

ROWS = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "model"
    fitted = an.AnInfoNCE(dim=2, steps=1, batch_size=8, optimizer="adam").fit(ROWS, ROWS + 0.1)
    fitted.save(folder)
    return folder


def run(**flags):
    return main(["aninfonce", "embed", *(f"--{name}={value}" for name, value in flags.items())])


@pytest.mark.parametrize("ending", ["npy", "csv", "parquet"])
def test_an_array_is_embedded(model, tmp_path, ending, capsys):
    np.save(tmp_path / "x.npy", ROWS)
    output = tmp_path / f"z.{ending}"
    assert run(workdir=model, input=tmp_path / "x.npy", output=output) == 0
    assert f"embeddings of 30 rows: {output}" in capsys.readouterr().out
    match ending:
        case "npy":
            found = np.load(output)
        case "csv":
            found = np.loadtxt(output, delimiter=",", skiprows=1, dtype=np.float32)
        case "parquet":
            table = pytest.importorskip("pyarrow.parquet").read_table(output)
            assert table.column_names == ["z0", "z1"]
            found = np.column_stack([column.to_numpy() for column in table.columns])
    np.testing.assert_array_equal(found, an.load(model).transform(ROWS))


def test_a_folder_of_images_is_embedded_in_the_order_of_names(image_runs, tmp_path):
    folder = tmp_path / "images"
    (folder / "more").mkdir(parents=True)
    images = {
        "b.png": random_image(20, 30),
        "a.jpg": random_image(16, 40, 1),
        "more/c.png": random_image(9, 9, 2),
    }
    for name, pixels in images.items():
        kind = "PNG" if name.endswith("png") else "JPEG"
        (folder / name).write_bytes(encode(pixels, kind))
    (folder / "notes.txt").write_text("not an image")
    output = tmp_path / "z.csv"
    assert run(workdir=image_runs[0], input=folder, output=output) == 0
    with open(output, newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == ["a.jpg", "b.png", "more/c.png"]
    expected = an.load(image_runs[0]).transform([images["b.png"], images["more/c.png"]])
    values = [[float(row[f"z{i}"]) for i in range(expected.shape[1])] for row in rows[1:]]
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)


def test_bad_commands_get_one_line(model, tmp_path, capsys, monkeypatch):
    np.save(tmp_path / "x.npy", ROWS[:, :2])
    (tmp_path / "empty").mkdir()
    given = {"workdir": model, "input": tmp_path / "x.npy", "output": tmp_path / "z.npy"}
    monkeypatch.setattr(
        embed.importlib.util, "find_spec", lambda name: None if name == "pyarrow" else name
    )
    for changes, expected in (
        ({"output": "z.txt"}, "--output must end in .npy, .csv, .parquet"),
        ({"output": "z.parquet"}, "needs pyarrow, which is not installed"),
        ({"output": tmp_path / "no" / "z.npy"}, "there is no such folder"),
        ({"input": tmp_path / "y.npy"}, "is neither a folder nor an array"),
        ({"input": tmp_path / "empty"}, "takes rows of shape (3,), not images"),
        ({"input": ""}, "--input is missing"),
        ({"workdir": tmp_path / "nothing"}, "does not exist: expected what model.save() wrote"),
        ({}, "rows of shape (3,) are expected, as the model was trained on, got (2,)"),
    ):
        assert run(**(given | changes)) == 2
        error = capsys.readouterr().err
        assert expected in error
        assert error.count("\n") == 1
    assert main(["aninfonce", "embed", "--help"]) == 0
    assert "usage: aninfonce embed" in capsys.readouterr().out
    assert main(["aninfonce", "embed", "--inptu=x"]) == 2
