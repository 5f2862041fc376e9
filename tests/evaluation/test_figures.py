import dataclasses
import re
import xml.etree.ElementTree

import numpy as np
import pytest

from aninfonce_jax.evaluation import figures, report


@pytest.fixture
def run():
    """A run of four factors, of which nothing but the names is known."""
    unknown = np.full(4, np.nan)
    return figures.Run(
        label="run", color="run-1", loss_family="contrastive", train_steps=np.zeros(0),
        train_loss=np.zeros(0), eval_steps=np.zeros(1), eval_loss=np.zeros(1), floor=np.nan,
        r2=unknown[None], r2_final=unknown,
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


def test_pictures_are_written_as_png_and_svg(contrast):
    folder = contrast[1].parent / "figures"
    names = {"factors", "loss", "r2", "concentration", "map"}
    assert {path.name for path in folder.iterdir()} == {
        f"{name}.{kind}" for name in names for kind in ("png", "svg")
    }
    for name in names:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert xml.etree.ElementTree.parse(folder / f"{name}.svg").getroot().tag.endswith("svg")


def test_colours_come_from_variables_that_both_schemes_define(page):
    light, dark = re.search(
        r":root \{(.*?)\}\s*@media \(prefers-color-scheme: dark\) \{(.*?)\}", page, re.DOTALL
    ).groups()
    defined = dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]+)", light))
    darker = dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]+)", dark))
    used = set(re.findall(r"var\(--([a-z0-9-]+)\)", page)) - {"key"}
    assert used <= set(defined)
    assert {"page", "ink", "muted", "grid", "content", "style", "run-1", "run-2"} <= set(darker)
    assert all(defined[name] != color for name, color in darker.items())
    drawings = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    painted = re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", drawings)
    assert not painted, "a fixed colour would vanish on one of the two backgrounds"


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
