import json
import re

import hypothesis
import numpy as np
from hypothesis import strategies as st

from aninfonce_jax.report import groups, summary
from aninfonce_jax.report import runs as runs_lib
from aninfonce_jax.scores.objectives import objective


def summarize(runs):
    return summary.summarize(groups.compare(runs, ["run-1"] * len(runs)))


def summary_of(*folders):
    return " ".join(summarize([runs_lib.read_workdir(folder) for folder in folders]))


def test_summary_of_the_contrast(contrast):
    an, info = (json.loads((folder / "eval.json").read_text()) for folder in contrast[0])
    said = summary_of(*contrast[0])
    assert said == (
        "AnInfoNCE recovered all 10 factors: its output explains "
        f"{100 * an['r2_content']:.1f}% (±0.1) of the variation in the content factors and "
        f"{100 * an['r2_style']:.1f}% (±0.1) in the style factors. "
        "InfoNCE recovered 5 of the 10 factors: its output explains "
        f"{100 * info['r2_content']:.1f}% (±0.1) of the variation in the content factors and "
        f"{100 * info['r2_style']:.1f}% (±0.1) in the style factors. "
        "The gap between AnInfoNCE and InfoNCE is widest in the style factors: "
        f"{100 * (an['r2_style'] - info['r2_style']):.1f} percentage points."
    )
    page = contrast[1].read_text()
    assert all(sentence in page for sentence in re.split(r"(?<=[.]) (?=[AIT])", said))


def test_summary_of_one_good_run(fake_workdir, tmp_path):
    said = summary_of(fake_workdir(tmp_path / "a"))
    assert said.startswith("AnInfoNCE recovered all 10 factors: ")
    assert "Its loss ended 0.030 ±0.001 above that of a perfect encoder." in said
    assert re.search(r"The concentrations that it learned are off by at most 1\.\d%\.", said)


def test_summary_of_a_bad_run_does_not_praise_it(fake_workdir, tmp_path):
    said = summary_of(fake_workdir(tmp_path / "a", content=0.4, style=-0.2))
    assert said.startswith("AnInfoNCE recovered none of the 10 factors: its output explains 39.")
    assert "and 0.0% in the style factors" in said


def test_summary_does_not_make_up_a_winner(fake_workdir, tmp_path):
    said = summary_of(
        fake_workdir(tmp_path / "a", content=0.5, style=0.5),
        fake_workdir(tmp_path / "b", "infonce", content=0.505, style=0.5),
    )
    assert "There is no notable difference: the mean R² is 0.498 ±0.001 (AnInfoNCE) and" in said
    assert "gap" not in said


def test_a_difference_within_the_intervals_is_none(fake_workdir, tmp_path):
    said = summary_of(
        fake_workdir(tmp_path / "a", content=0.5, style=0.5, margin=0.04),
        fake_workdir(tmp_path / "b", "infonce", content=0.57, style=0.57, margin=0.04),
    )
    assert re.search(
        r"Which of them recovered more, these numbers do not tell: the mean R² is 0\.498 ±0\.040 "
        r"\(AnInfoNCE\) and 0\.568 ±0\.040 \(InfoNCE\), and their intervals overlap\.$",
        said,
    )


def test_a_loss_within_its_interval_of_the_floor_is_not_above_it(fake_workdir, tmp_path):
    said = summary_of(fake_workdir(tmp_path / "a", margin=0.05))
    assert "cannot be told from that of a perfect encoder: the difference is 0.030 ±0.05" in said


def test_factors_that_may_or_may_not_be_recovered_are_said(fake_workdir, tmp_path):
    said = summary_of(fake_workdir(tmp_path / "a", style=0.91, margin=0.02))
    assert "all 10 factors (5 of them within its interval of the limit): its output" in said


def test_summary_when_infonce_wins_on_content(fake_workdir, tmp_path):
    said = summary_of(
        fake_workdir(tmp_path / "a", content=0.3, style=0.95),
        fake_workdir(tmp_path / "b", "infonce", content=0.95, style=0.9),
    )
    assert "The gap between InfoNCE and AnInfoNCE is widest in the content factors" in said


def test_summary_when_two_objectives_part_everywhere_alike(fake_workdir, tmp_path):
    said = summary_of(
        fake_workdir(tmp_path / "a", content=0.95, style=0.95),
        fake_workdir(tmp_path / "b", "infonce", content=0.5, style=0.5),
    )
    assert said.endswith(
        "AnInfoNCE recovered more than InfoNCE: the mean R² is 0.948 ±0.001 against 0.498 ±0.001."
    )


def test_summary_leaves_the_upper_bound_out_of_the_contrast(fake_workdir, tmp_path):
    said = summary_of(
        fake_workdir(tmp_path / "s", "supervised", content=0.9999, style=0.9999),
        fake_workdir(tmp_path / "a"),
        fake_workdir(tmp_path / "b", "infonce", style=0.1),
    )
    assert "Supervised recovered all 10 factors" in said
    assert "The gap between AnInfoNCE and InfoNCE is widest in the style factors" in said


def test_summary_over_seeds_and_of_equal_concentrations(fake_workdir, tmp_path):
    seeds = [
        fake_workdir(tmp_path / f"seed{seed}", style=style, seed=seed)
        for seed, style in enumerate((0.99, 0.99, 0.5))
    ]
    assert summary_of(*seeds[:2]).startswith("AnInfoNCE recovered all 10 factors in each of 2 runs")
    assert "between 5 and 10 of the 10 factors in its 3 runs: on average" in summary_of(*seeds)
    equal = [
        fake_workdir(tmp_path / "a", true=[7.0] * 4, style=0.97),
        fake_workdir(tmp_path / "b", "lp", true=[7.0] * 4, style=0.2),
    ]
    said = summary_of(*equal)
    assert "all 4 factors: its output explains 96." in said
    assert "content" not in said
    assert "AnInfoNCE recovered more than Lp contrast: the mean R² is 0.96" in said


@hypothesis.settings(deadline=None, max_examples=30, derandomize=True)
@hypothesis.given(
    r2=st.lists(st.floats(-1, 1), min_size=1, max_size=12),
    loss=st.one_of(st.none(), st.floats(-5, 20)),
)
def test_summary_counts_what_the_numbers_say(r2, loss):
    final = {"r2": float(np.mean(r2)), "r2_per_factor": r2, "loss": loss, "loss_floor": 4.0}
    run = runs_lib.WorkDir(
        name="a", objective=objective("aninfonce"), config={}, config_hash="", command="",
        train=[], evals=[final], final=final,
    )  # fmt: skip
    said = " ".join(summarize([run]))
    count = sum(value >= runs_lib.RECOVERED_R2 for value in r2)
    words = {len(r2): f"all {len(r2)} factors", 0: f"none of the {len(r2)} factors"}
    assert words.get(count, f"{count} of the {len(r2)} factors") in said
    assert ("explains 100.0%" in said) == (final["r2"] == 1.0)
    assert ("Its loss" in said) == (loss is not None)
    assert ("below that of a perfect encoder" in said) == (loss is not None and loss < 4.0)
