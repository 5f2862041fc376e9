import json

import hypothesis
import pytest
from hypothesis import strategies as st

from aninfonce_jax.report import groups, summary
from aninfonce_jax.report import runs as runs_lib
from aninfonce_jax.scores.objectives import objective


def summarize(runs):
    return summary.summarize(groups.compare(runs, ["run-1"] * len(runs)))


def summary_of(*folders):
    return summarize([runs_lib.read_workdir(folder) for folder in folders])


def test_the_paper_s_contrast_in_words(fake_image_workdir, tmp_path):
    sentences = summary_of(
        fake_image_workdir(
            tmp_path / "info", "infonce", backbone=(0.909, 0.577), projector=(0.898, 0.518)
        ),
        fake_image_workdir(tmp_path / "an", backbone=(0.884, 0.805), projector=(0.854, 0.69)),
    )
    assert sentences == [
        "InfoNCE: a linear readout tells the class correctly 90.9% (±0.4) of the time at the "
        "backbone and 89.8% (±0.4) at the projector, and whether an augmentation was applied "
        "57.7% (±0.4) of the time at the backbone and 51.8% (±0.4) at the projector.",
        "AnInfoNCE: a linear readout tells the class correctly 88.4% (±0.4) of the time at the "
        "backbone and 85.4% (±0.4) at the projector, and whether an augmentation was applied "
        "80.5% (±0.4) of the time at the backbone and 69.0% (±0.4) at the projector.",
        "Guessing is right 10.0% of the time for the class and 50% for an augmentation. Before "
        "training, the backbone gave 30.1% for the class and 68.3% for the augmentations.",
        "Compared with InfoNCE, AnInfoNCE reads the augmentations better by 17.2 points at the "
        "projector and loses 4.4 points of class accuracy; it reads the augmentations better by "
        "22.8 points at the backbone and loses 2.5 points of class accuracy.",
    ]


@pytest.mark.parametrize(
    ("projector", "words"),
    [
        ((0.40, 0.50), "worse by 12.0 points at the projector and loses 6.0 points"),
        ((0.51, 0.50), "worse by 12.0 points at the projector and gains 5.0 points"),
        ((0.465, 0.625), "about as well at the projector and has about the same class accuracy;"),
    ],
)
def test_the_opposite_is_said_if_the_numbers_say_so(fake_image_workdir, tmp_path, projector, words):
    contrast = summary_of(
        fake_image_workdir(tmp_path / "a", "infonce", margin=0.001),
        fake_image_workdir(tmp_path / "b", "aninfonce_no_l2", projector=projector, margin=0.001),
    )[-1]
    start = "Compared with InfoNCE, AnInfoNCE without ℓ2 norm reads the augmentations "
    assert contrast.startswith(start + words)


def test_seeds_are_averaged_and_without_infonce_the_first_objective_is_the_measure(
    fake_image_workdir, tmp_path
):
    sentences = summary_of(
        fake_image_workdir(tmp_path / "a", backbone=(0.5, 0.6), untrained=False),
        fake_image_workdir(tmp_path / "b", backbone=(0.6, 0.8), seed=1, untrained=False),
        fake_image_workdir(tmp_path / "c", "aninfonce_no_l2", untrained=False),
    )
    assert sentences[0].startswith(
        "AnInfoNCE: a linear readout, on average over 2 runs, tells the class correctly 55.0% (±"
    )
    assert "Compared with AnInfoNCE, AnInfoNCE without ℓ2 norm " in sentences[-1]
    assert not any("Before training" in sentence for sentence in sentences)


def test_without_readouts_the_neighbours_speak_and_then_nobody(fake_image_workdir, tmp_path):
    folder = fake_image_workdir(tmp_path / "a", evals=1)
    (folder / "eval.json").unlink()
    first = summary_of(folder)[0]
    assert first.startswith("AnInfoNCE: no readouts were recorded yet; the nearest neighbours")
    (folder / "eval.json").write_text(json.dumps({"step": 1, "readouts": None}))
    assert summary_of(folder) == [
        "AnInfoNCE: no readouts were recorded yet, so this page cannot say what it kept."
    ]


@hypothesis.settings(deadline=None, max_examples=30, derandomize=True)
@hypothesis.given(own=st.floats(0, 1), other=st.floats(0, 1))
def test_the_sign_of_a_difference_is_that_of_its_words(own, other):
    def run(kind, average):
        found = {"readouts": {"projector": {"average": [average - 0.02, average + 0.02]}}}
        final = {"readouts": {"projector": {"average": average}}, "intervals": found}
        return runs_lib.WorkDir(
            name=kind, objective=objective(kind), config={}, config_hash="", command="",
            train=[], evals=[final], final=final,
        )  # fmt: skip

    contrast = summarize([run("infonce", other), run("aninfonce", own)])[-1]
    gap = 100 * own - 100 * other
    if abs(abs(gap) - 4) > 1e-6:
        assert ("better by" in contrast) == (gap > 4)
        assert ("worse by" in contrast) == (gap < -4)
        assert ("cannot be told" in contrast) == (abs(gap) < 4)
    assert "class" not in contrast
