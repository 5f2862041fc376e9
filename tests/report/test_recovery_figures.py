import dataclasses
import re

import numpy as np
import pytest

from aninfonce_jax.report import figures, recovery_figures, report


@pytest.fixture
def run():
    """A run of four factors, of which nothing but the names is known."""
    unknown = np.full(4, np.nan)
    return recovery_figures.Recovered(
        label="run", color="run-1", place=0, steps=np.zeros(1), r2=unknown[None], r2_final=unknown,
        r2_intervals=np.full((4, 2), np.nan), concentration=unknown[None],
        concentration_true=unknown, map=np.full((4, 4), np.nan),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("true", "mask", "colors"),
    [
        ([25.0, 5.0, 25.0, 5.0], [True, False, True, False], ["content", "style"] * 2),
        ([1.0, 2.0, 3.0, 9.0], [False, False, False, True], ["style"] * 3 + ["content"]),
        ([7.0] * 4, None, ["content"] * 4),
        ([25.0, np.nan, 5.0, 5.0], None, ["content"] * 4),
        ([np.nan] * 4, None, ["content"] * 4),
        ([25.0, 0.0, 5.0, 5.0], None, ["content"] * 4),
    ],
)
def test_factors_are_content_or_style_only_where_the_true_concentrations_say_so(
    run, true, mask, colors
):
    run = dataclasses.replace(run, concentration_true=np.array(true))
    assert (None if run.is_content is None else run.is_content.tolist()) == mask
    assert run.factor_colors == [figures.COLORS[name] for name in colors]


def test_many_factors_stay_readable_and_small(fake_workdir, tmp_path):
    true = np.tile([25.0, 5.0], 20)  # content and style alternate
    folders = [
        fake_workdir(tmp_path / kind, kind, true=true, evals=12)
        for kind in ("aninfonce", "supervised")
    ]
    path = report.write_report(folders, tmp_path / "out")
    assert path.stat().st_size < 1_000_000
    page = path.read_text()
    assert "40 latent factors" in page
    maps = re.findall(r"<svg.*?</svg>", page[page.index('id="map"') :], re.DOTALL)
    labels = re.findall(r">(\d+)</text>", maps[0])
    # Factors of one Λ stand together: first the odd ones, which are content.
    assert labels == ["9", "19", "29", "39", "10", "20", "30", "40"] * 2
