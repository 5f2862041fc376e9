"""Every objective that a run can have is one that reports know."""

import inspect

import pytest

import aninfonce_jax as an
from aninfonce_jax.config import kinds
from aninfonce_jax.scores.objectives import OBJECTIVES, ObjectiveWords, objective

CLASSES = {
    name: own
    for name, own in vars(an.objectives).items()
    if inspect.isclass(own) and not inspect.isabstract(own)
}


def test_every_kind_of_the_config_is_listed_once():
    given = kinds.ObjectiveKind.__args__
    assert sorted(own.kind for own in OBJECTIVES) == sorted(given)
    of_classes = {config().kind for config in kinds.ObjectiveConfig.__args__}
    assert of_classes == set(given)


def test_every_class_is_listed():
    assert {own.made_by for own in OBJECTIVES} == set(CLASSES)


@pytest.mark.parametrize("own", OBJECTIVES, ids=lambda own: own.kind)
def test_everything_is_said_of_each(own):
    assert objective(own.kind) is own
    assert objective(own.made_by).made_by == own.made_by
    assert own.label
    assert own.meaning.endswith(".")
    for sentence in (own.meaning_for_latents, own.exception):
        assert not sentence or sentence.endswith(".")


def test_labels_are_told_apart():
    assert len({own.label for own in OBJECTIVES}) == len(OBJECTIVES)


def test_an_objective_of_ones_own_goes_by_its_class():
    assert objective("MyLoss") == ObjectiveWords("MyLoss", "MyLoss", "MyLoss")
    assert objective(None).label == "unknown objective"


def test_one_concentration_for_all_outputs_is_infonces():
    listed = {own.made_by for own in OBJECTIVES if own.has_one_concentration}
    assert listed == {x for x, own in CLASSES.items() if issubclass(own, an.objectives.InfoNCE)}
