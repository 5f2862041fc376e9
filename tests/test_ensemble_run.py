"""Ensembles through the whole pipeline: on processes, on images, and in the report."""

import functools
import json

import jax
import numpy as np
import pytest

from aninfonce_jax import build, runs, workdir
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.placement import Placement
from aninfonce_jax.report.report import write_report

PLACEMENT = Placement.local(1)
MEMBERS = ({"layout": "bimodal"}, {"layout": "linear"})
TWO = {
    "source__kind": "processes",
    "source__members": MEMBERS,
    "objective__kind": "ensemble",
    "objective__members": ({"kind": "aninfonce"}, {"kind": "aninfonce"}),
}
ONE = TWO | {"source__members": MEMBERS[:1], "objective__members": ({"kind": "aninfonce"},)}


def train(config, folder):
    experiment = build.build_experiment(config)
    result = runs.train(experiment, folder, placement=PLACEMENT, progress="plain")
    return result, workdir.read_metrics(folder / workdir.METRICS_FILE)


def test_an_ensemble_of_one_trains_as_its_member_alone(small_config, tmp_path):
    alone, rows = train(small_config(), tmp_path / "alone")
    single, others = train(small_config(**ONE), tmp_path / "single")
    # One call gives the same to the last bit: tests/objectives/test_ensemble.py. Two programs of
    # several steps may round differently.
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7)
    jax.tree.map(close, alone.state.params["encoder"], single.state.params["encoder"])
    close(
        alone.state.params["objective"]["concentration"],
        single.state.params["objective"]["member_1"]["concentration"],
    )
    for key in ("loss", "r2", "concentration"):
        found, expected = ([row[key] for row in x if key in row] for x in (others, rows))
        assert len(found) == len(expected) > 0
        close(found, expected)
    close(single.scores["concentration_error"], alone.scores["concentration_error"])


@pytest.fixture(scope="module")
def ensemble(small_config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ensemble") / "run"
    train(small_config(**TWO), folder)
    return folder


def test_each_member_is_logged_and_scored(ensemble):
    rows = workdir.read_metrics(ensemble / workdir.METRICS_FILE)
    last = [row for row in rows if row["split"] == "train"][-1]
    assert last["loss"] == pytest.approx(last["member_1_loss"] + last["member_2_loss"], rel=1e-5)
    scores = json.loads((ensemble / workdir.EVAL_FILE).read_text())
    assert np.shape(scores["member_concentrations"]) == (2, 4)
    assert scores["member_concentrations_true"] == [[25, 25, 5, 5], [25, 55 / 3, 35 / 3, 5]]
    assert len(scores["member_concentration_errors"]) == 2
    assert scores["prediction"].startswith("every two factors differ in some member")
    assert "concentration_true" not in scores


def test_the_report_draws_every_member(ensemble, tmp_path):
    page = write_report(ensemble, tmp_path).read_text()
    assert "Members of the ensemble" in page
    assert "every two factors differ in some member" in page
    assert (tmp_path / "figures" / "member_losses.svg").exists()
    assert (tmp_path / "figures" / "member_concentrations.svg").exists()


def test_the_prediction_is_printed_before_and_checked_after(small_config, tmp_path, capfd):
    train(small_config(**TWO, train__steps=4), tmp_path / "run")
    lines = "".join(capfd.readouterr()).splitlines()
    (before,) = [i for i, line in enumerate(lines) if "predicted by the Λ of the members" in line]
    (after,) = [i for i, line in enumerate(lines) if "as predicted: " in line]
    assert before < after


@pytest.fixture
def two_families(image_config):
    return image_config(
        source__kind="image_ensemble",
        source__members=({"augment": "crop_only"}, {"augment": "jitter_only"}),
        objective__kind="ensemble",
        objective__members=({"kind": "aninfonce"}, {"kind": "infonce"}),
    )


def test_images_are_augmented_by_each_members_family(two_families):
    source = build.build_source(two_families)
    specs = [member.spec for member in source.members]
    assert specs[0] != specs[1]
    assert source.whole.spec not in specs
    fed = source.fed(8)
    shapes = jax.eval_shape(lambda fed: source.pairs(jax.random.key(0), fed, 8), fed)
    assert [own.view2.shape for own in shapes.members] == [(8, 16, 16, 3)] * 2


@pytest.mark.slow  # readouts compile for long
def test_images_of_two_families_train_one_encoder(two_families, tmp_path):
    experiment = build.build_experiment(two_families)
    scores = runs.train(experiment, tmp_path / "run", placement=PLACEMENT, progress="off").scores
    learned = np.array(scores["member_concentrations"], float)
    assert np.isfinite(learned[0]).all()
    assert np.isnan(learned[1]).all()  # InfoNCE at a fixed temperature learns none
    assert (np.diff(learned[0]) <= 0).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"objective__members": ({"kind": "aninfonce"},)},
            "an ensemble has as many members in source.members as in objective.members, and at "
            "least one; got 2 and 1",
        ),
        (
            {"source__members": (MEMBERS[0], {"layout": "explicit", "values": (1.0, 2.0, 3.0)})},
            "source.members.1.values needs one Λ for each of source.dim=4 factors, got 3",
        ),
        (
            {"objective__weights": (1.0,)},
            "objective.weights has one for each of the 2 members, or none; got 1",
        ),
        (
            {"objective__kind": "aninfonce"},
            "objective.kind='aninfonce' with source.kind='processes': the members of an ensemble "
            "have their pairs from source.kind='processes' or 'image_ensemble' and their losses "
            "from objective.kind='ensemble'; set both or neither",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(small_config, changes, message):
    given = {**TWO, **changes}
    if given["objective__kind"] != "ensemble":
        del given["objective__members"]
    with pytest.raises(ConfigError) as caught:
        small_config(**given)
    assert str(caught.value) == message
