import json
import re
import shutil

import pytest
from image_workdirs import make_image_workdir
from matplotlib.figure import Figure
from page_outline import Outline

from aninfonce_jax.evaluation import (
    image_charts,
    image_figures,
    image_report,
    report,
    table,
    workdir,
)
from aninfonce_jax.workdir import read_saved, write_config

CHARTS = {"readouts", "strengths", "accuracy", "loss", "concentration", "rank", "spread"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("images")
    return [
        make_image_workdir(
            base / "info", "infonce", backbone=(0.552, 0.571), projector=(0.533, 0.518)
        ),
        make_image_workdir(base / "an"),
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
        for features in table.FEATURES:
            shares = last["readouts"][features]
            assert [label, *(f"{100 * shares[key]:.1f} ±0.4" for key in table.READOUTS)] in rows
    before = last["untrained"]["readouts"]["backbone"]
    row = ["before training", *(f"{100 * before[key]:.1f} ±0.4" for key in table.READOUTS)]
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
    assert [
        "InfoNCE",
        f"{100 * last['knn_accuracy']:.1f}% ±0.4",
        f"{100 * last['probe_accuracy']:.1f}% ±0.4",
        f"{last['effective_rank_backbone']:.1f}",
        f"{last['effective_rank_projector']:.1f}",
        f"{last['loss']:.3f} ±0.004",
        "2,000",
        "20 min 34 s",
        "1,024",
        "3.1%",
    ] in Outline(text).rows
    assert "could not be read" not in text
    assert "latent factor" not in text


def test_every_figure_is_named_and_says_what_good_looks_like(image_page, text):
    figures = re.findall(r'<figure id="(\w+)">(.*?)</figure>', text, re.DOTALL)
    assert {name for name, _ in figures} == CHARTS
    for name, figure in figures:
        assert "<strong>Good:</strong>" in figure, name
        labels = re.findall(r'role="img" aria-label="([^"]*)"', figure)
        assert len(labels) == figure.count("<svg") == 2
        assert all("InfoNCE" in label for label in labels)
    files = {path.name for path in (image_page.parent / "figures").iterdir()}
    assert files == {f"{name}.{kind}" for name in CHARTS for kind in ("png", "svg")}


def test_the_page_stands_alone_and_follows_the_colour_scheme(text):
    assert "http" not in text
    assert not re.findall(r"<(?:script|link|iframe|img)\b", text)
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(ids) == len(set(ids))
    used = set(re.findall(r"url\(#([^)]*)\)", text)) | set(re.findall(r'href="#([^"]*)"', text))
    assert used <= set(ids)
    drawings = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
    assert not re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", drawings)
    defined = set(re.findall(r"--([a-z0-9-]+): #[0-9a-f]+", text))
    assert set(re.findall(r"var\(--([a-z0-9-]+)\)", text)) - {"key"} <= defined


def test_missing_pieces_are_shown_as_missing(tmp_path):
    folder = make_image_workdir(tmp_path / "<b>", data="tfds:mnist", evals=1)
    steps = [{"step": step, "split": split} for step, split in ((10, "train"), (20, "eval"))]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in steps))
    (folder / "eval.json").write_text(
        json.dumps({"step": 20, "readouts": {"backbone": 3}, "untrained": [], "concentration": "?"})
    )
    page = report.write_report([folder], tmp_path / "out").read_text(encoding="utf-8")
    rows = Outline(page).rows
    assert rows.count(["AnInfoNCE", *["–"] * 9]) == 2
    assert ["AnInfoNCE", *["–"] * 5, "20 of 2,000", "–", "–", "–"] in rows
    assert page.count("no data yet") == 4 + 2 + 2 + 2 + 2  # both layouts of the last two
    assert "no loss was recorded" in page
    assert "no readouts were recorded yet" in page
    assert "The paper" not in page
    assert "nan" not in page.lower()
    assert "&lt;b&gt;" in page


def test_with_few_images_a_few_points_are_no_loss(tmp_path):
    folders = [
        make_image_workdir(tmp_path / "a", "infonce", backbone=(0.5, 0.6), margin=0.069),
        make_image_workdir(tmp_path / "b", backbone=(0.465, 0.6), margin=0.069),
    ]
    page = report.write_report(folders, tmp_path / "out").read_text(encoding="utf-8")
    said = page[page.index("<h1>") : page.index("<h2>")]
    assert "Compared with InfoNCE, AnInfoNCE cannot be told from it at the projector" in said
    assert "it cannot be told from it at the backbone" in said
    assert not re.search(r"(loses|gains|better by|worse by) ", said)
    assert 'class="best"' not in page


def test_warnings_of_image_runs_stand_on_top(tmp_path):
    folder = make_image_workdir(tmp_path / "a", warnings=["The embeddings have collapsed."])
    page = report.write_report([folder], tmp_path / "out").read_text(encoding="utf-8")
    assert "<strong>AnInfoNCE:</strong> The embeddings have collapsed." in page
    assert page.index("have collapsed") < page.index("<h1>")


def test_a_mix_of_image_and_synthetic_runs_is_refused(folders, fake_workdir, tmp_path):
    synthetic = fake_workdir(tmp_path / "sphere", evals=1)
    message = r"not both: got info and an on images and sphere on synthetic data; report"
    with pytest.raises(report.ReportError, match=message) as error:
        report.write_report([folders[0], synthetic, folders[1]], tmp_path / "out")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_an_empty_data_name_is_a_synthetic_run(fake_workdir, tmp_path):
    folder = fake_workdir(tmp_path / "a", evals=1)
    write_config(folder, read_saved(folder).values | {"data": {"name": ""}}, "")
    assert workdir.read_workdir(folder).dataset == ""


def test_networks_that_began_differently_have_rows_of_their_own(folders, tmp_path):
    other = make_image_workdir(tmp_path / "b", "aninfonce_no_l2")
    last = json.loads((other / "eval.json").read_text())
    last["untrained"]["readouts"]["backbone"]["classes"] = 0.123
    (other / "eval.json").write_text(json.dumps(last))
    runs = [workdir.read_workdir(folder) for folder in (*folders, other)]
    parts = image_report.readout_parts(runs, report.run_labels(runs))
    assert [row.label for row in parts[0].rows][3:] == [
        "InfoNCE, before training",
        "AnInfoNCE, before training",
        "AnInfoNCE, no ℓ2 norm, before training",
    ]
    assert [row.label for row in parts[1].rows][3:] == ["before training"]
    assert parts[0].rows[-1].cells[0].text == "12.3"


def test_unreadable_images_are_said(folders):
    run = workdir.read_workdir(folders[1])
    run.train[-1]["unreadable_images"] = 1234
    assert image_report.image_context([run], ["AnInfoNCE"])["unreadable"] == ["AnInfoNCE 1,234"]
    run.train[-1]["unreadable_images"] = 0
    run.final["unreadable_images"] = 7  # in evaluation alone
    assert image_report.image_context([run], ["AnInfoNCE"])["unreadable"] == ["AnInfoNCE 7"]


def test_readouts_of_what_training_never_did_are_said(folders, tmp_path):
    folder = shutil.copytree(folders[1], tmp_path / "an")
    last = json.loads((folder / "eval.json").read_text())
    (folder / "eval.json").write_text(json.dumps(last | {"never_applied": ["crop", "blur"]}))
    page = report.write_report([folder], tmp_path / "out").read_text(encoding="utf-8")
    assert "Training never applied crop and blur" in page
    assert "Training never applied" not in report.write_report(
        [folders[1]], tmp_path / "other"
    ).read_text(encoding="utf-8")


def test_dots_and_profiles_are_where_the_files_say(folders):
    runs = [
        image_charts.image_run(workdir.read_workdir(folder), folder.name, f"run-{index + 1}")
        for index, folder in enumerate(folders)
    ]
    last = json.loads((folders[1] / "eval.json").read_text())
    ax = Figure().add_subplot()
    image_figures.draw_readouts(ax, runs, "projector")
    dots = ax.lines[3]  # of each run the ticks of the untrained network, then its dots
    expected = [last["readouts"]["projector"][name] for name in image_figures.AUGMENTATIONS]
    assert dots.get_xdata().tolist() == expected
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == list(image_figures.AUGMENTATIONS)
    ax = Figure().add_subplot()
    image_figures.draw_spread(ax, runs)
    assert all(len(line.get_ydata()) == 128 for line in ax.get_lines())
    assert ax.get_lines()[0].get_ydata()[0] == pytest.approx(1.4)
    ax.clear()
    image_figures.draw_profile(ax, runs)
    assert ax.get_yscale() == "log"
    assert ax.lines[3].get_ydata().tolist() == last["concentration"]
    assert len(set(ax.lines[2].get_ydata().tolist())) == 1, "InfoNCE has one value"
    assert ax.lines[1].get_ydata()[0] < ax.lines[3].get_ydata()[0], "first, then last"


def test_a_run_beyond_the_colours_is_drawn_differently():
    assert [image_figures.is_repeat(index) for index in (0, 4, 5, 9)] == [False, False, True, True]
