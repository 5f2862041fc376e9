"""The pages of work directories that the loop wrote: whatever it calls a score is found there."""

import json
import math
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest
from page_outline import Outline

from aninfonce_jax.report import report
from aninfonce_jax.scores import registry
from aninfonce_jax.scores.objectives import objective
from aninfonce_jax.workdir import read_metrics, read_saved

RECOVERY = ["factors", "r2", "concentration", "map"]
READOUTS = ["readouts", "strengths", "accuracy"]
VIEWS = ["views", "view_shapes"]
FEATURES = ["profile", "rank", "spread", "overlap"]
FIGURES = {
    "synthetic": [*RECOVERY, "loss", "time", "overlap"],
    "images": [*READOUTS, "loss", "time", *FEATURES],
    "pairs": ["loss", "time", *FEATURES],
    # Three outputs for two factors: its Λ̂ has a profile, but nothing to be set against.
    "known": ["factors", "r2", *READOUTS, *VIEWS, "samples", "loss", "time", *FEATURES],
    "mixed": [*RECOVERY, *READOUTS, "loss", "time", *FEATURES],
}
NAMES = list(FIGURES)


def evaluation(folder):
    return json.loads((folder / "eval.json").read_text())


def entries(folder):
    """All names that a run's files have for what they hold."""
    rows = read_metrics(folder / "metrics.jsonl")
    return set(evaluation(folder)).union(*rows)


def cell(score, scores):
    interval = scores["intervals"].get(score.key)
    return score.form.both(scores[score.key], interval)


@pytest.fixture(params=NAMES)
def named(request, pages):
    folders, path = pages[request.param]
    return request.param, folders, path, path.read_text(encoding="utf-8")


def test_the_loop_writes_all_that_the_registry_names(pages):
    written = set().union(*(entries(folder) for folders, _ in pages.values() for folder in folders))
    details = {
        registry.STEP, registry.SECONDS, registry.PARAMETERS, registry.R2_PER_FACTOR,
        registry.BLOCK_ENERGY, registry.CONCENTRATION, registry.LOSS_ABOVE_FLOOR, registry.CHANCE,
        registry.EXAMPLES_PER_SECOND, registry.DATA_WAIT_SHARE, registry.UNREADABLE,
        registry.WALL_SECONDS, registry.GOODPUT, *map(registry.phase_key, registry.PHASES),
    }  # fmt: skip
    shown = {score.key for score in registry.SCORES} | details | set(registry.DETAILS)
    # What ensembles alone have: tests/test_ensemble_run.py.
    shown -= {registry.MEMBER_CONCENTRATIONS_TRUE, registry.PREDICTION}
    # What needs test anchors of their own: tests/evaluation/test_shifted.py.
    shown -= {registry.R2_SHIFTED.key, registry.SHIFT_ACCURACY.key}
    assert shown <= written
    layers = set(registry.ranked_layers(written))
    assert layers == {"backbone", "projector", "embedding"}


def test_each_section_holds_the_numbers_of_the_files_of_the_runs_that_have_them(named):
    _, folders, _, page = named
    rows = Outline(page).rows
    cells = {text for row in rows for text in row}
    for folder in folders:
        scores = evaluation(folder)
        expected = {}
        ranks = map(registry.effective_rank, registry.ranked_layers(scores))
        for score in (*ranks, *registry.SCORES):
            if score.key in scores:
                expected.setdefault(score.table, []).append(cell(score, scores))
        found = [table for table in expected if any(_holds(row, expected[table]) for row in rows)]
        assert found == [*expected]
        for layer, shares in scores.get("readouts", {}).items():
            for name, share in shares.items():
                interval = scores["intervals"]["readouts"][layer][name]
                percents = [100 * end for end in interval]
                assert registry.ONE_DECIMAL.both(100 * share, percents) in cells


def _holds(row, cells):
    """Whether a row has these cells in this order, among others."""
    rest = iter(row)
    return all(cell in rest for cell in cells)


def test_the_figures_are_those_of_the_data(named):
    name, folders, path, page = named
    figures = re.findall(r'<figure id="(\w+)">(.*?)</figure>', page, re.DOTALL)
    assert [figure for figure, _ in figures] == FIGURES[name]
    for number, (figure, text) in enumerate(figures, start=1):
        assert f"<h3>{number}. " in text
        assert (
            "<strong>Good:</strong>"
            in re.search(r"<figcaption>(.*?)</figcaption>", text, re.DOTALL)[1]
        )
        labels = re.findall(r'role="img" aria-label="([^"]*)"', text)
        assert len(labels) == text.count("<svg") > 0, figure
        if len(folders) > 1:
            assert all("InfoNCE" in label for label in labels), figure
    files = {file.name for file in (path.parent / "figures").iterdir()}
    assert files == {f"{figure}.{kind}" for figure in FIGURES[name] for kind in ("png", "svg")}
    for figure in FIGURES[name]:
        stem = path.parent / "figures" / figure
        assert stem.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
        root = xml.etree.ElementTree.parse(stem.with_suffix(".svg")).getroot()
        assert root.tag.endswith("svg")


def test_the_page_needs_nothing_else(named):
    *_, page = named
    outline = Outline(page)
    assert "http" not in page
    assert "@import" not in page
    assert not {"script", "link", "iframe", "img"} & {tag for tag, _ in outline.tags}
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", page))
    references = [
        value
        for _, attrs in outline.tags
        for name, value in attrs.items()
        if name in ("src", "href", "xlink:href")
    ]
    assert references
    assert all(value.startswith(("#", "data:image/png;base64,")) for value in references)
    assert outline.of("html")[0]["lang"] == "en-GB"
    assert any("width=device-width" in meta.get("content", "") for meta in outline.of("meta"))
    assert "nan" not in page.lower()


def test_ids_are_unique_and_every_reference_resolves(named):
    *_, page = named
    ids = [attrs["id"] for _, attrs in Outline(page).tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r"url\(#([^)]*)\)", page)) | set(re.findall(r'href="#([^"]*)"', page))
    assert used <= set(ids)


def test_colours_come_from_variables_that_both_schemes_define(named):
    *_, page = named
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


def test_the_same_files_give_the_same_bytes(pages, tmp_path):
    folders, first = pages["mixed"]  # which has every section
    names = [*map(str, folders), folders[0]]  # one twice counts once
    second = report.write_report(names, str(tmp_path))
    for path in [first, *sorted((first.parent / "figures").iterdir())]:
        again = second.parent / path.relative_to(first.parent)
        assert path.read_bytes() == again.read_bytes(), path.name


def test_every_run_has_a_command_of_its_own_and_its_settings(pages):
    folders, path = pages["synthetic"]
    page = path.read_text(encoding="utf-8")
    for folder in folders:
        own = page[page.index(f"To repeat {objective(folder.name).label}:") :]
        assert re.search(r"<pre[^>]*>(.*?)</pre>", own)[1].endswith(f"kind={folder.name}")
    rows = {row[0]: row[1:] for row in Outline(page).rows}
    assert rows["objective.kind ≠"] == ["aninfonce", "infonce"]
    assert rows["train.steps"] == ["12", "12"]
    assert rows["config hash"] == [read_saved(folder).hash for folder in folders]
    assert "differ in more than objective and seed" not in page


def test_a_run_that_knows_nothing_but_pairs(pages):
    (folder,), path = pages["pairs"]
    page, scores = path.read_text(encoding="utf-8"), evaluation(folder)
    rank = registry.effective_rank("embedding")
    assert (
        f"AnInfoNCE: the held-out loss ended at {cell(registry.LOSS, scores)}, and the embedding "
        f"uses {cell(rank, scores)} of 4 directions. Neither latent factors nor classes"
    ) in page
    rows = Outline(page).rows
    assert ["AnInfoNCE", cell(registry.LOSS, scores), "40"] in [row[:3] for row in rows]
    for words in ("R²", "MCC", "Readout", "guessing", "latent factor.", "Backbone", "floor"):
        assert words not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL), words
    assert ["made_by", "code"] in rows


def test_a_run_that_knows_latents_and_labels_has_both(pages):
    (folder,), path = pages["known"]
    page, scores = path.read_text(encoding="utf-8"), evaluation(folder)
    said = page[page.index("<h1>") : page.index("<h2>")]
    assert "AnInfoNCE recovered all 2 factors" in said
    assert "a linear readout tells the class correctly 100.0%" in said
    assert "and whether an augmentation was applied" in said
    assert "Training never applied reversed" in page
    rows = Outline(page).rows
    assert ["Run", "classes", "louder", "reversed", "average"] in rows
    assert [row[0] for row in rows if len(row) == 1] == ["Embedding"]
    # More outputs than factors: nothing to set Λ̂ against.
    assert "learned Λ was recorded" not in page
    assert math.isclose(sum(scores["concentration"]) / 3, 0.73, abs_tol=0.01)


def test_runs_of_different_kinds_are_compared_only_with_their_own(pages):
    folders, path = pages["mixed"]
    page = path.read_text(encoding="utf-8")
    data = read_saved(folders[2]).values["source"]["folder"].rpartition("/")[2]
    synthetic, images = "4 latent factors", data
    labels = [
        f"AnInfoNCE ({synthetic})", f"InfoNCE ({synthetic})", f"InfoNCE ({images})",
        f"AnInfoNCE ({images})", "AnInfoNCE (ShiftedWaves)",
    ]  # fmt: skip
    assert f"· {', '.join(labels)}</p>" in page
    assert (
        f"compared with each other: {labels[0]}, {labels[1]}; {labels[2]}, {labels[3]}; "
        f"{labels[4]}."
    ) in page
    assert f"Shown for {labels[0]}, {labels[1]}: the runs of which it is known what gen" in page
    assert f"Shown for {labels[2]}, {labels[3]}: the runs of which the examples are" in page
    said = page[page.index('class="summary"') : page.index("<h2>")]
    assert f"Compared with {labels[2]}, {labels[3]} " in said
    assert f"Compared with {labels[2]}, {labels[0]} " not in said
    assert "differ in more than objective and seed" not in page


def test_bold_is_decided_between_runs_on_the_same_data(fake_image_workdir, fake_workdir, tmp_path):
    folders = [
        fake_image_workdir(tmp_path / "a", "infonce", backbone=(0.9, 0.6)),
        fake_image_workdir(tmp_path / "b", backbone=(0.8, 0.6)),
        fake_image_workdir(tmp_path / "c", "infonce", dataset="mnist", backbone=(0.5, 0.6)),
        fake_image_workdir(tmp_path / "d", dataset="mnist", backbone=(0.4, 0.6)),
        fake_workdir(tmp_path / "e"),
    ]
    page = report.write_report(folders, tmp_path / "out").read_text(encoding="utf-8")
    bold = re.findall(r'<td class="best">([^<]*)<', page)
    assert {"90.0", "50.0"} <= set(bold)
    assert not {"80.0", "40.0"} & set(bold)
    assert "no other in the column on the same data is better" in page


def test_a_report_needs_neither_jax_nor_anything_that_trains(pages, tmp_path):
    folders, _ = pages["pairs"]
    code = (
        "import sys\n"
        "from aninfonce_jax.report import preview, report, table\n"
        "report.write_report(sys.argv[1], sys.argv[2])\n"
        "parts = 'training', 'evaluation', 'data', 'models', 'sources', 'objectives', 'dgp'\n"
        "loaded = {name.removeprefix('aninfonce_jax.').split('.')[0] for name in sys.modules}\n"
        "assert not loaded & {'jax', 'flax', *parts}, loaded"
    )
    subprocess.run([sys.executable, "-c", code, folders[0], tmp_path], check=True)
