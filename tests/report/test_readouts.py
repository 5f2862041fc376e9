import json
import re
import shutil

import pytest
from matplotlib.figure import Figure
from page_outline import Outline

from aninfonce_jax.report import (
    features,
    groups,
    readout_figures,
    readouts,
    report,
    training,
)
from aninfonce_jax.report import runs as runs_lib
from aninfonce_jax.scores import registry

READOUTS = ("classes", *registry.AVERAGED, "average", "crop", "blur")


def compare(*runs):
    return groups.compare(runs, ["run-1", "run-2", "run-3"][: len(runs)])


@pytest.fixture(scope="module")
def folders(fake_image_workdir, tmp_path_factory):
    base = tmp_path_factory.mktemp("images")
    return [
        fake_image_workdir(
            base / "info", "infonce", backbone=(0.552, 0.571), projector=(0.533, 0.518)
        ),
        fake_image_workdir(base / "an"),
    ]


@pytest.fixture(scope="module")
def image_page(folders, tmp_path_factory):
    return report.write_report(folders, tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def text(image_page):
    return image_page.read_text(encoding="utf-8")


def test_table_1_holds_the_rows_of_the_files_and_the_paper_s(folders, text):
    rows = Outline(text).rows
    headings = [row[0] for row in rows if len(row) == 1]
    assert headings == [
        "Backbone", "Projector", "The paper’s backbone, CIFAR-10", "The paper’s projector, CIFAR-10"
    ]  # fmt: skip
    for folder, label in zip(folders, ("InfoNCE", "AnInfoNCE"), strict=True):
        last = json.loads((folder / "eval.json").read_text())
        for layer in ("backbone", "projector"):
            shares = last["readouts"][layer]
            assert [label, *(f"{100 * shares[key]:.1f} ±0.4" for key in READOUTS)] in rows
    before = last["untrained"]["readouts"]["backbone"]
    row = ["before training", *(f"{100 * before[key]:.1f} ±0.4" for key in READOUTS)]
    assert rows.count(row) == 1, "the runs began alike"
    paper = ["AnInfoNCE, no ℓ2 norm", "83.2", "96.2", "98.0", "96.6", "76.8", "88.4", "91.2"]
    assert [*paper, "–", "–"] in rows
    bold = re.findall(r'<td class="best">([^<]*)<', text)
    assert {"55.2", "71.0"} <= set(bold)
    assert "90.9" not in bold
    assert "a far larger network and far longer" in text


def test_the_page_says_what_the_summary_and_the_training_say(folders, text):
    assert "Compared with InfoNCE, AnInfoNCE reads the augmentations better by 10.2 points" in text
    last = json.loads((folders[0] / "eval.json").read_text())
    rows = Outline(text).rows
    assert [
        "InfoNCE",
        f"{100 * last['knn_accuracy']:.1f}% ±0.4",
        f"{100 * last['probe_accuracy']:.1f}% ±0.4",
        f"{last['loss']:.3f} ±0.004",
        "2,000",
        "20 min 34 s",
        "1,024",
        "3.1%",
    ] in rows
    assert [
        "InfoNCE",
        f"{last['effective_rank_backbone']:.1f}",
        f"{last['effective_rank_projector']:.1f}",
        "0.020",
        "0.080",
    ] in rows
    assert "could not be read" not in text
    assert "latent factor" not in text


def test_missing_pieces_are_shown_as_missing(fake_image_workdir, tmp_path):
    folder = fake_image_workdir(tmp_path / "<b>", dataset="tfds:mnist", evals=1)
    steps = [{"step": step, "split": split} for step, split in ((10, "train"), (20, "eval"))]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in steps))
    (folder / "eval.json").write_text(
        json.dumps({"step": 20, "readouts": {"backbone": 3}, "untrained": [], "concentration": "?"})
    )
    page = report.write_report([folder], tmp_path / "out").read_text(encoding="utf-8")
    assert ["AnInfoNCE", "20 of 2,000", "–"] in Outline(page).rows
    assert page.count("no data yet") == 2  # both layouts of the concentrations
    assert "no loss was recorded" in page
    assert "no readouts were recorded yet" in page
    assert "No readouts were recorded yet" in page
    assert "The paper" not in page
    assert "nan" not in page.lower()
    assert "&lt;b&gt;" in page


def test_with_few_images_a_few_points_are_no_loss(fake_image_workdir, tmp_path):
    folders = [
        fake_image_workdir(tmp_path / "a", "infonce", backbone=(0.5, 0.6), margin=0.069),
        fake_image_workdir(tmp_path / "b", backbone=(0.465, 0.6), margin=0.069),
    ]
    page = report.write_report(folders, tmp_path / "out").read_text(encoding="utf-8")
    said = page[page.index("<h1>") : page.index("<h2>")]
    assert "Compared with InfoNCE, AnInfoNCE cannot be told from it at the projector" in said
    assert "it cannot be told from it at the backbone" in said
    assert not re.search(r"(loses|gains|better by|worse by) ", said)
    assert 'class="best"' not in page


def test_warnings_of_image_runs_stand_on_top(fake_image_workdir, tmp_path):
    folder = fake_image_workdir(tmp_path / "a", warnings=["The embeddings have collapsed."])
    page = report.write_report([folder], tmp_path / "out").read_text(encoding="utf-8")
    assert "<strong>AnInfoNCE:</strong> The embeddings have collapsed." in page
    assert page.index("have collapsed") < page.index("<h1>")


def test_networks_that_began_differently_have_rows_of_their_own(
    fake_image_workdir, folders, tmp_path
):
    other = fake_image_workdir(tmp_path / "b", "aninfonce_no_l2")
    last = json.loads((other / "eval.json").read_text())
    last["untrained"]["readouts"]["backbone"]["classes"] = 0.123
    (other / "eval.json").write_text(json.dumps(last))
    runs = [runs_lib.read_workdir(folder) for folder in (*folders, other)]
    parts = readouts.readout_parts(compare(*runs), READOUTS)
    assert [row.label for row in parts[0].rows][3:] == [
        "InfoNCE, before training",
        "AnInfoNCE, before training",
        "AnInfoNCE, no ℓ2 norm, before training",
    ]
    assert [row.label for row in parts[1].rows][3:] == ["before training"]
    assert parts[0].rows[-1].cells[0].text == "12.3"


def test_unreadable_examples_are_said(folders, tmp_path):
    run = runs_lib.read_workdir(folders[1])
    run.train[-1]["unreadable_examples"] = 1234
    assert training.training_section(compare(run), tmp_path).more["unreadable"] == [
        "AnInfoNCE 1,234"
    ]
    run.train[-1]["unreadable_examples"] = 0
    run.final["unreadable_examples"] = 7  # in evaluation alone
    assert training.training_section(compare(run), tmp_path).more["unreadable"] == ["AnInfoNCE 7"]


def test_readouts_of_what_training_never_did_are_said(folders, tmp_path):
    folder = shutil.copytree(folders[1], tmp_path / "an")
    last = json.loads((folder / "eval.json").read_text())
    (folder / "eval.json").write_text(json.dumps(last | {"never_applied": ["crop", "blur"]}))
    page = report.write_report([folder], tmp_path / "out").read_text(encoding="utf-8")
    assert "Training never applied crop and blur" in page
    assert "Training never applied" not in report.write_report(
        [folders[1]], tmp_path / "other"
    ).read_text(encoding="utf-8")


@pytest.fixture
def drawn(folders, tmp_path, monkeypatch):
    """The arguments of everything that is drawn on a page, by function and in order."""
    calls = {}

    def watch(module, name):
        original = getattr(module, name)

        def draw(ax, **arguments):
            calls.setdefault(name, []).append(arguments)
            return original(ax, **arguments)

        monkeypatch.setattr(module, name, draw)

    watch(readouts, "draw_readouts")
    watch(features, "draw_spread")
    watch(features, "draw_concentrations")
    report.write_report(folders, tmp_path / "out")
    return calls


def test_dots_and_profiles_are_where_the_files_say(folders, drawn):
    last = json.loads((folders[1] / "eval.json").read_text())
    operations = [*registry.AVERAGED, "crop", "blur"]
    ax = Figure().add_subplot()
    # Of each layer its panel on the page and that in the image of both.
    readout_figures.draw_readouts(ax, **drawn["draw_readouts"][-1])
    dots = ax.lines[3]  # of each run the ticks of the untrained network, then its dots
    expected = [last["readouts"]["projector"][name] for name in operations]
    assert dots.get_xdata().tolist() == expected
    assert [label.get_text() for label in ax.get_yticklabels()] == operations
    spread = drawn["draw_spread"][0]["profiles"]
    assert [profile.last.size for profile in spread] == [128, 128]
    assert spread[0].last[0] == pytest.approx(1.4)
    ax = Figure().add_subplot()
    features.draw_concentrations(ax, **drawn["draw_concentrations"][0])
    assert ax.get_yscale() == "log"
    assert ax.lines[3].get_ydata().tolist() == last["concentration"]
    assert len(set(ax.lines[2].get_ydata().tolist())) == 1, "InfoNCE has one value"
    assert ax.lines[1].get_ydata()[0] < ax.lines[3].get_ydata()[0], "first, then last"
