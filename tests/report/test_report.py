import json
import math
import re

import pytest
from page_outline import Outline

from aninfonce_jax.report import groups, report, times, wording
from aninfonce_jax.report import runs as runs_lib
from aninfonce_jax.scores import registry
from aninfonce_jax.workdir import read_saved, write_config


def rewrite_rows(folder, change):
    """Applies `change` to every row of metrics.jsonl; rows for which it returns None go."""
    path = folder / "metrics.jsonl"
    rows = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows if row is not None))


def table_of(page, name):
    """The rows of one table, by their first cell."""
    own = page[page.index(f'aria-label="Table of {name}"') :]
    return {row[0]: row[1:] for row in Outline(own[: own.index("</table>")]).rows}


def bold(page):
    return re.findall(r'<td class="best">([^<]*)<', page)


def test_the_best_of_a_column_is_bold_if_its_interval_parts(contrast, fake_workdir, tmp_path):
    page = contrast[1].read_text()
    r2 = [json.loads((folder / "eval.json").read_text())["r2"] for folder in contrast[0]]
    assert f"{r2[0]:.3f}" in bold(page)
    assert f"{r2[1]:.3f}" not in bold(page)
    assert "0.680" not in bold(page)  # the same MCC in both runs
    alike = [
        fake_workdir(tmp_path / "a", content=0.60, style=0.60, margin=0.02),
        fake_workdir(tmp_path / "b", "infonce", content=0.63, style=0.63, margin=0.02),
    ]
    page = report.write_report(alike, tmp_path / "out").read_text()
    assert bold(page) == []
    assert "Which of them recovered more, these numbers do not tell" in page
    for folder in alike:  # as runs of before there were intervals
        last = json.loads((folder / "eval.json").read_text())
        del last["intervals"]
        (folder / "eval.json").write_text(json.dumps(last))
    page = report.write_report(alike, tmp_path / "out").read_text()
    assert bold(page) == []
    assert "their intervals are not recorded" in page


def test_seeds_are_averaged_and_widths_are_not(fake_workdir, tmp_path):
    folders = [
        fake_workdir(tmp_path / f"{size}-{seed}", style=style, seed=seed, batch_size=size)
        for size, style in ((500, 0.5), (1000, 0.9))
        for seed in (0, 1)
    ]
    page = report.write_report(folders, tmp_path / "out").read_text()
    rows = table_of(page, "what was recovered")
    assert "AnInfoNCE (seed 0, batch_size 500)" in rows
    assert rows["AnInfoNCE (batch_size 500), mean of 2 runs"][2].startswith("0.49")
    assert rows["AnInfoNCE (batch_size 1000), mean of 2 runs"][2].startswith("0.89")
    assert "AnInfoNCE (batch_size 1000) recovered 5 of the 10 factors in each of 2 runs" in page
    assert (
        "The gap between AnInfoNCE (batch_size 1000) and AnInfoNCE (batch_size 500) is widest in "
        "the style factors: 40.0"
    ) in page


def test_a_seed_counts_once(fake_workdir, tmp_path, capsys):
    """Four copies of one run would have an interval over seeds of no width."""
    folders = [
        fake_workdir(tmp_path / name, seed=seed)
        for name, seed in zip("abcde", (0, 0, 0, 0, 1), strict=True)
    ]
    page = report.write_report(folders, tmp_path / "out").read_text()
    rows = table_of(page, "what was recovered")
    assert [row for row in rows if "mean of" in row] == ["AnInfoNCE (a), mean of 2 runs"]
    err = capsys.readouterr().err
    for name in "bcd":
        line = f"{name} has the seed and the settings of a: they are not averaged"
        assert f"warning: {line}\n" in err
        assert f"{line}." in page


def test_a_run_that_has_come_less_far_is_not_averaged(fake_workdir, tmp_path):
    folders = [fake_workdir(tmp_path / str(seed), seed=seed, evals=4) for seed in (0, 1)]
    (folders[1] / "eval.json").unlink()
    rewrite_rows(folders[1], lambda row: row if row["step"] <= 1500 else None)
    page = report.write_report(folders, tmp_path / "out").read_text()
    assert "mean of" not in page


def test_warnings_stand_on_top(fake_workdir, tmp_path, contrast):
    warned = fake_workdir(tmp_path / "a", warnings=["The loss ended at <chance>.", 5])
    other = fake_workdir(tmp_path / "b", "infonce")
    text = report.write_report([warned, other], tmp_path / "out").read_text()
    box = re.search(r'<div class="warnings".*?</div>', text, re.DOTALL)
    assert text.index(box[0]) < text.index("<h1>")
    assert re.findall(r"<li>(.*?)</li>", box[0]) == [
        "<strong>AnInfoNCE:</strong> The loss ended at &lt;chance&gt;."
    ]
    assert 'class="warnings"' not in contrast[1].read_text()


def test_a_run_of_nulls_is_shown_as_missing(fake_workdir, tmp_path):
    empty = fake_workdir(tmp_path / "a")
    rewrite_rows(empty, lambda row: {"step": row["step"], "split": row["split"], "r2": None})
    nulls = {"step": 3000, "r2": None, "map": [[None]], "concentration_true": [None]}
    (empty / "eval.json").write_text(json.dumps(nulls))
    partial = fake_workdir(tmp_path / "b", "supervised")
    (partial / "eval.json").unlink()
    page = report.write_report([empty, partial], tmp_path / "out").read_text()
    rows = table_of(page, "what was recovered")
    assert rows["AnInfoNCE"] == ["–"] * 5
    assert rows["Supervised"][2] == "0.994"
    assert table_of(page, "training")["AnInfoNCE"] == ["–", "–", "3,000", "–"]
    assert "For AnInfoNCE no R² was recorded" in page
    for text in ("no loss", "no R² by factor", "no learned Λ", "no map"):
        assert f"{text} was recorded" in page
    assert "nan" not in page.lower()


def test_one_run_with_one_evaluation_and_a_hostile_name(fake_workdir, tmp_path):
    folder = fake_workdir(tmp_path / "<b>run&", evals=1)
    values = read_saved(folder).values | {"name": "<script>alert(1)</script>"}
    command = "python -m aninfonce_jax.main --config=configs/quickstart.py"
    write_config(folder, values, command)
    page = report.write_report([folder], tmp_path / "out").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "from &lt;b&gt;run&amp;." in page
    assert f">{command}</pre>" in page
    assert "1,234,567" in page
    assert "Bold:" not in page
    assert page.count('<use xlink:href="#m') > 10, "a single evaluation must show as a point"


def test_runs_of_one_objective_are_told_apart_by_what_differs(fake_workdir, tmp_path):
    def labels(*folders):
        return groups.run_labels([runs_lib.read_workdir(folder) for folder in folders])

    a = fake_workdir(tmp_path / "a")
    b = fake_workdir(tmp_path / "b", seed=1)
    c = fake_workdir(tmp_path / "c", batch_size=500)
    d = fake_workdir(tmp_path / "d")
    e = fake_workdir(tmp_path / "other" / "a")
    f = fake_workdir(tmp_path / "f", "infonce", seed=3)
    assert labels(a, b, f) == ["AnInfoNCE (seed 0)", "AnInfoNCE (seed 1)", "InfoNCE"]
    assert labels(a, c) == ["AnInfoNCE (batch_size 1000)", "AnInfoNCE (batch_size 500)"]
    assert labels(a, d) == ["AnInfoNCE (a)", "AnInfoNCE (d)"]
    assert labels(a, e) == ["AnInfoNCE (a) #1", "AnInfoNCE (a) #2"]


def test_settings_flag_differences_and_the_page_warns_of_unfair_ones(
    fake_workdir, contrast, tmp_path
):
    page = contrast[1].read_text()
    rows = {row[0]: row[1:] for row in Outline(page).rows}
    assert rows["objective.kind ≠"] == ["aninfonce", "infonce"]
    assert rows["train.steps"] == ["3000", "3000"]
    assert rows["config hash"] == [read_saved(folder).hash for folder in contrast[0]]
    assert "differ in more than objective and seed" not in page
    runs = [
        runs_lib.read_workdir(contrast[0][0]),
        runs_lib.read_workdir(
            fake_workdir(tmp_path / "b", "infonce", seed=5, batch_size=500, steps=1500)
        ),
    ]
    assert groups.unequal_settings(runs) == ["train.steps", "train.batch_size"]


def test_an_unfinished_run_says_how_far_it_got(fake_workdir, tmp_path):
    folder = fake_workdir(tmp_path / "a", evals=4)
    (folder / "eval.json").unlink()
    rewrite_rows(folder, lambda row: row if row["step"] <= 1500 else None)
    assert wording.format_steps(runs_lib.read_workdir(folder)) == "1,500 of 3,000"


def spent(**seconds):
    """What an evaluation says of a run that spent these seconds."""
    all_phases = {phase: float(seconds.get(phase, 0.0)) for phase in registry.PHASES}
    named = {registry.phase_key(phase): own for phase, own in all_phases.items()}
    return named | {registry.WALL_SECONDS: sum(all_phases.values())}


def amend_evaluation(folder, **entries):
    path = folder / "eval.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def test_the_page_says_where_the_time_went_and_how_full_the_devices_were(fake_workdir, tmp_path):
    folders = [fake_workdir(tmp_path / kind, kind) for kind in ("aninfonce", "infonce")]
    amend_evaluation(
        folders[0],
        **spent(steps=60, compile=20, evaluation=10, repeated=10),
        **{registry.PEAK_MEMORY: 3 * 2**30},
    )
    page = report.write_report(folders, tmp_path / "out").read_text()
    figure = page[page.index('<figure id="time">') :]
    figure = figure[: figure.index("<figcaption>")]
    assert "60.0% of 1 min 40 s in training steps" in figure
    assert [figure.count(f">{name}<") for name in ("training steps", "steps done again")] == [1, 1]
    assert ">waiting for data<" not in figure  # nothing feeds it
    assert "no times were recorded" in figure  # of the other
    rows = table_of(page, "training")
    assert rows["AnInfoNCE"][-1] == "3.0 GiB"
    assert rows["InfoNCE"][-1] == registry.MISSING


@pytest.mark.parametrize(
    "damage",
    [{"seconds_steps": None}, {"seconds_away": -1.0}, dict(spent()), {"seconds_input": "1"}],
)
def test_times_that_make_no_sense_are_not_drawn(damage):
    sound = spent(steps=3, compile=1)
    assert times.time_shares(sound)["steps"] == 0.75
    assert times.time_shares(sound | damage) == {}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(math.nan, "–"), (42.4, "42 s"), (119.6, "2 min 0 s"), (3600 * 15 + 125, "15 h 2 min")],
)
def test_durations(seconds, text):
    assert wording.format_duration(seconds) == text
