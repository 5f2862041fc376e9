import numpy as np

import aninfonce_jax as an
from aninfonce_jax.main import main


def run(**flags):
    return main(["aninfonce", "export", *(f"--{name}={value}" for name, value in flags.items())])


def test_a_run_is_exported(synthetic_runs, tmp_path, capsys):
    output = tmp_path / "model"
    assert run(workdir=synthetic_runs[0], output=output, format="safetensors") == 0
    assert f"exported as safetensors: {output}" in capsys.readouterr().out
    expected, found = an.load(synthetic_runs[0]), an.load(output)
    rows = np.ones((2, *expected.rows.shape), np.float32)
    np.testing.assert_array_equal(found.transform(rows), expected.transform(rows))


def test_bad_commands_get_one_line(synthetic_runs, tmp_path, capsys):
    given = {
        "workdir": synthetic_runs[0],
        "output": tmp_path / "model",
        "format": "safetensors",
    }
    for changes, expected in (
        (
            {"format": "pickle"},
            "--format must be one of safetensors, stablehlo, onnx, got 'pickle'",
        ),
        ({"format": ""}, "--format is missing; see aninfonce export --help"),
        ({"output": tmp_path}, "exists; choose another name, or remove it"),
        ({"workdir": tmp_path / "nothing"}, "does not exist: expected what model.save() wrote"),
    ):
        assert run(**(given | changes)) == 2
        error = capsys.readouterr().err
        assert expected in error
        assert error.count("\n") == 1
    assert main(["aninfonce", "export", "--help"]) == 0
    assert "usage: aninfonce export" in capsys.readouterr().out
