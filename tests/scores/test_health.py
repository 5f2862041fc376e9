import math

import numpy as np
import pytest

from aninfonce_jax.objectives.contrastive import AnInfoNCE, InfoNCE, LpLoss
from aninfonce_jax.objectives.supervised import Supervised
from aninfonce_jax.scores import health

BATCH = 1000


def problems(objective, embeddings, **scores):
    return health.find_problems(objective, BATCH, embeddings, **scores)


def spread_out(dim=4):
    return np.random.default_rng(0).standard_normal((500, dim))


@pytest.mark.parametrize(
    ("objective", "chance"),
    [
        (AnInfoNCE(negatives="anchors"), math.log(1000)),
        (AnInfoNCE(negatives="both"), math.log(1999)),
        (InfoNCE(negatives="both", hardness=2.0), math.log(1999)),
        (LpLoss(negatives="anchors"), math.log(1000)),
        (LpLoss(negatives="anchors", reduction="logmeanexp"), 0.0),
    ],
)
def test_the_loss_of_chance(objective, chance):
    assert objective.chance(BATCH) == pytest.approx(chance)
    for loss in (chance, chance + 3, chance - 0.01, math.nan):
        (problem,) = problems(objective, spread_out(), loss=loss)
        assert "is no better than that of chance" in problem
    assert problems(objective, spread_out(), loss=chance - 0.2) == []
    assert problems(objective, spread_out(), loss=None) == [], "nothing is known of it"


def test_a_warm_temperature_is_no_chance():
    """At τ = 100 a perfect network gains 0.02 at most."""
    warm = InfoNCE(temperature=100.0)
    chance = math.log(1000)
    assert problems(warm, spread_out(), loss=chance - 0.01) == []
    assert problems(warm, spread_out(), loss=chance - 1e-6) != []


def test_a_temperature_at_which_every_gain_is_rounded_away():
    hot = InfoNCE(temperature=1e6)
    for loss in (math.log(1000), math.log(1000) - 1e-6, None):
        (problem,) = problems(hot, spread_out(), loss=loss)
        assert problem.endswith("nothing is learned; lower the temperature")


def test_where_nothing_can_be_gained_nothing_is_missed():
    objective, chance = AnInfoNCE(), math.log(1000)
    assert problems(objective, spread_out(), loss=chance, loss_floor=chance - 0.05) == []
    assert problems(objective, spread_out(), loss=chance, loss_floor=chance - 3) != []


def test_supervised_runs_are_judged_by_r2():
    objective = Supervised()
    assert problems(objective, spread_out(), loss=9.0, r2=0.5) == []
    (problem,) = problems(objective, spread_out(), loss=1.0, r2=-0.003)
    assert problem.startswith("R² is -0.003: the network has learned nothing yet")


@pytest.mark.parametrize(
    ("embeddings", "expected"),
    [
        (np.ones((500, 4)), "they are the same for every input"),
        (1 + 1e-4 * spread_out(), "they are the same for every input"),
        (spread_out(1) * np.ones((1, 4)), "effective rank 1.00 of 4"),
        (np.full((500, 4), np.nan), "the embeddings are not finite"),
    ],
    ids=["constant", "one direction on the sphere", "a line", "not finite"],
)
def test_collapsed_embeddings(embeddings, expected):
    (problem,) = problems(AnInfoNCE(), embeddings, loss=1.0)
    assert expected in problem


def test_an_offset_is_no_collapse_where_distances_count():
    objective = LpLoss()
    assert problems(objective, 1 + 1e-3 * spread_out(), loss=1.0) == []
    assert problems(AnInfoNCE(), spread_out(1), loss=1.0) == []
