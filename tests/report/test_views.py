"""Views of one example: drawn as the files have them, and not at all where these are damaged."""

import json

import numpy as np
import pytest
from matplotlib.figure import Figure
from sketched_figures import sketched_figures

from aninfonce_jax.report import report, view_figures

FIRST = {
    "edges": [0.0, 1.0, 2.0],
    "shares": [0.25, 0.75],
    "mean": 1.2,
    "deviation": 0.4,
    "skewness": -0.5,
    "one_mode": 0.031,
}
VIEWS = {
    "examples": 64,
    "per_example": 500,
    "widths": [[0.1, 0.2, 0.3, 0.4, 0.5]] * 2,
    "not_normal": [0.5, 1.0],
    "many_modes": [0.0, 0.5],
    "first": [FIRST] * 2,
}


def page_of(folders, out, views):
    for folder in folders:
        last = json.loads((folder / "eval.json").read_text())
        entries = {"views": views, "views_width": 0.3, "views_not_normal": 0.75}
        (folder / "eval.json").write_text(json.dumps(last | entries))
    with sketched_figures():
        return report.write_report(folders, out).read_text(encoding="utf-8")


def test_views_are_told_beside_their_figures(fake_workdir, tmp_path):
    page = page_of([fake_workdir(tmp_path / "run", evals=2)], tmp_path / "out", VIEWS)
    assert '<figure id="views">' in page
    assert "skewness -0.50, one mode: p = 0.031" in page
    assert "500 views of each of 64 test examples" in page
    assert "medians from 0.30 to 0.30" in page
    assert "not normal 75%, several modes 25%" in page
    assert "75.0%" in page


def test_several_runs_have_figures_of_their_own(fake_workdir, tmp_path):
    folders = [fake_workdir(tmp_path / name, evals=2) for name in ("one", "two")]
    page = page_of(folders, tmp_path / "out", VIEWS)
    assert '<figure id="views">' in page
    assert '<figure id="views_2">' in page
    assert page.count('<figure id="view_shapes">') == 1


@pytest.mark.parametrize(
    "damaged",
    [
        "text",
        {},
        VIEWS | {"first": []},
        VIEWS | {"first": [FIRST | {"edges": [0.0, 1.0]}]},
        VIEWS | {"first": ["one"]},
        VIEWS | {"widths": [[0.1, 0.2]] * 2},
        VIEWS | {"widths": [[0.1, 0.2, 0.3, 0.4, None]] * 2},
        VIEWS | {"many_modes": [0.0]},
        VIEWS | {"examples": None},
    ],
)
def test_damaged_views_are_not_drawn(fake_workdir, tmp_path, damaged):
    page = page_of([fake_workdir(tmp_path / "run", evals=2)], tmp_path / "out", damaged)
    assert '<figure id="views">' not in page


def test_a_normal_curve_covers_as_much_as_the_histogram():
    ax = Figure().add_subplot()
    one = {name: np.array(value) for name, value in FIRST.items()}
    one["edges"] = np.array([-1.0, 1.0, 3.0])
    view_figures.draw_histogram(ax, one, "run-1")
    (curve,) = ax.lines
    x, y = curve.get_data()
    width = one["edges"][1] - one["edges"][0]
    assert np.sum((x[1] - x[0]) * y) == pytest.approx(width * one["shares"].sum(), rel=0.01)


def test_views_that_do_not_differ_have_no_curve():
    ax = Figure().add_subplot()
    one = {name: np.array(value) for name, value in FIRST.items()} | {"deviation": np.array(0.0)}
    view_figures.draw_histogram(ax, one, "run-1")
    assert not ax.lines
