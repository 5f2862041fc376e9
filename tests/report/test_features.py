"""Similarities of pairs: drawn as the files have them, and not at all where these are damaged."""

import json

import numpy as np
import pytest
from matplotlib.figure import Figure
from sketched_figures import sketched_figures

from aninfonce_jax.report import feature_figures, report

ALIKE = [[0.0, 0.25, 0.75], [0.5, 0.25, 0.25]]


def page_with(folder, out, **entries):
    last = json.loads((folder / "eval.json").read_text())
    (folder / "eval.json").write_text(json.dumps(last | entries))
    with sketched_figures():
        return report.write_report([folder], out).read_text(encoding="utf-8")


def test_the_overlap_is_told_beside_its_figure(fake_workdir, tmp_path):
    similarities = {"of_embeddings": ALIKE, "of_latents": ALIKE}
    entries = {"similarities": similarities, "overlap": 0.5, "overlap_true": 0.25}
    folder = fake_workdir(tmp_path / "run", evals=2)
    page = page_with(folder, tmp_path / "out", **entries)
    assert '<figure id="overlap">' in page
    assert "overlap 0.500, of the true latents 0.250" in page
    del entries["overlap_true"]
    page = page_with(folder, tmp_path / "out", **entries | {"overlap_true": None})
    assert "overlap 0.500</span>" in page


@pytest.mark.parametrize(
    "damaged",
    [
        "text",
        {},
        {"of_embeddings": [[0.5]]},
        {"of_embeddings": [[0.5, 0.5], [1.0]]},
        {"of_embeddings": [[0.5], [None]]},
        {"of_embeddings": [0.5, 0.5]},
    ],
)
def test_damaged_similarities_are_not_drawn(fake_workdir, tmp_path, damaged):
    folder = fake_workdir(tmp_path / "run", evals=2)
    page = page_with(folder, tmp_path / "out", similarities=damaged, overlap=0.5)
    assert '<figure id="overlap">' not in page


def test_histograms_reach_from_minus_one_to_one():
    ax = Figure().add_subplot()
    feature_figures.draw_similarities(ax, learned=np.array(ALIKE), true=np.zeros((2, 0)))
    assert ax.get_xlim() == (-1, 1)
    drawn = [patch.get_data() for patch in ax.patches]
    assert [stairs.values.tolist() for stairs in drawn] == ALIKE
    np.testing.assert_allclose(drawn[0].edges, [-1, -1 / 3, 1 / 3, 1])
    feature_figures.draw_similarities(ax, learned=np.array(ALIKE), true=np.array(ALIKE))
    assert len(ax.patches) == 6
