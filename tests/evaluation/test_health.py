import dataclasses
import math

import numpy as np
import pytest

from aninfonce_jax.config_schema import Config
from aninfonce_jax.evaluation import health


def config_of(batch_size=1000, **objective):
    config = Config()
    return dataclasses.replace(
        config,
        train=dataclasses.replace(config.train, batch_size=batch_size),
        objective=dataclasses.replace(config.objective, **objective),
    )


def spread_out(dim=4):
    return np.random.default_rng(0).standard_normal((500, dim))


@pytest.mark.parametrize(
    ("objective", "chance"),
    [
        ({"negatives": "anchors"}, math.log(1000)),
        ({"negatives": "both"}, math.log(1999)),
        ({"negatives": "both", "hardness": 2.0}, math.log(1999)),
        ({"kind": "lp", "negatives": "anchors"}, math.log(1000)),
        ({"kind": "lp", "negatives": "anchors", "reduction": "logmeanexp"}, 0.0),
    ],
)
def test_the_loss_of_chance(objective, chance):
    config = config_of(**objective)
    assert health.chance_loss(config.objective, 1000) == pytest.approx(chance)
    for loss in (chance, chance + 3, chance - 0.01, math.nan):
        (problem,) = health.find_problems(config, spread_out(), loss=loss)
        assert "is no better than that of chance" in problem
    assert health.find_problems(config, spread_out(), loss=chance - 0.2) == []


def test_a_warm_temperature_is_no_chance():
    """At τ = 100 a perfect network gains 0.02 at most."""
    warm = config_of(kind="infonce", temperature=100.0)
    chance = math.log(1000)
    assert health.find_problems(warm, spread_out(), loss=chance - 0.01) == []
    assert health.find_problems(warm, spread_out(), loss=chance - 1e-6) != []


def test_where_nothing_can_be_gained_nothing_is_missed():
    config, chance = config_of(), math.log(1000)
    assert health.find_problems(config, spread_out(), loss=chance, loss_floor=chance - 0.05) == []
    assert health.find_problems(config, spread_out(), loss=chance, loss_floor=chance - 3) != []


def test_supervised_runs_are_judged_by_r2():
    config = config_of(kind="supervised")
    assert health.find_problems(config, spread_out(), loss=9.0, r2=0.5) == []
    (problem,) = health.find_problems(config, spread_out(), loss=1.0, r2=-0.003)
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
    (problem,) = health.find_problems(config_of(), embeddings, loss=1.0)
    assert expected in problem


def test_an_offset_is_no_collapse_where_distances_count():
    config = config_of(kind="lp")
    assert health.find_problems(config, 1 + 1e-3 * spread_out(), loss=1.0) == []
    assert health.find_problems(config_of(), spread_out(1), loss=1.0) == []
