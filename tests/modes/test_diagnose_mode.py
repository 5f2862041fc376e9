"""--mode=diagnose on a saved model with pairs, and what it refuses."""

import numpy as np
import pytest

import aninfonce_jax as an
from aninfonce_jax.main import main


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(300, 4))
    views = [shared + 0.2 * rng.normal(size=shared.shape) for _ in range(2)]
    for name, view in zip(("one", "two"), views, strict=True):
        np.save(folder / f"{name}.npy", view)
    model = an.AnInfoNCE(dim=3, steps=1, batch_size=32, optimizer="adam")
    model.fit(*views)
    model.save(folder / "model")
    return folder


def test_a_saved_model_is_diagnosed_on_pairs(saved, capsys):
    pairs = f"--pairs={saved / 'one.npy'},{saved / 'two.npy'}"
    assert main(["", "--mode=diagnose", f"--workdir={saved / 'model'}", pairs]) == 0
    assert "300 pairs in 3 dimensions" in capsys.readouterr().out
    assert (saved / "model" / "diagnosis.html").is_file()
    assert an.load(saved / "model").transform(np.zeros((2, 4))).shape == (2, 3)


def test_what_can_t_be_is_one_line(saved, capsys):
    assert main(["", "--mode=diagnose"]) == 2
    assert "--workdir is missing" in capsys.readouterr().err
    assert main(["", "--mode=diagnose", f"--workdir={saved}", "--pairs=a,b"]) == 2
    assert "VIEW1.npy,VIEW2.npy" in capsys.readouterr().err
    assert main(["", f"--workdir={saved}", "--pairs=a.npy,b.npy"]) == 2
    assert "no use without --mode=diagnose" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((50, 4), "at least 100 rows, got 50"),
        ((300, 5), "rows of shape (4,) are expected"),
    ],
)
def test_pairs_that_do_not_fit_are_one_line(saved, tmp_path, capsys, shape, message):
    for name in ("one", "two"):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(0).normal(size=shape))
    pairs = f"--pairs={tmp_path / 'one.npy'},{tmp_path / 'two.npy'}"
    assert main(["", "--mode=diagnose", f"--workdir={saved / 'model'}", pairs]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert main(["", "--mode=diagnose", f"--workdir={tmp_path}", pairs]) == 2
    assert "holds no model" in capsys.readouterr().err


def test_a_bug_is_not_told_as_an_error_of_the_user(saved, monkeypatch):
    def broken(*views, **settings):
        raise ValueError("operands could not be broadcast")

    monkeypatch.setattr("aninfonce_jax.diagnosis.diagnose.diagnose", broken)
    pairs = f"--pairs={saved / 'one.npy'},{saved / 'two.npy'}"
    with pytest.raises(ValueError, match="broadcast"):
        main(["", "--mode=diagnose", f"--workdir={saved / 'model'}", pairs])
