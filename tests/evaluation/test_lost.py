from types import SimpleNamespace

import jax
import numpy as np
import pytest

from aninfonce_jax.evaluation.lost import find_lost_factor
from aninfonce_jax.evaluation.runner import _lost_factor
from aninfonce_jax.sources.source import Known, Latents

UNIFORM = np.random.default_rng(0).normal(size=(4096, 6))
UNIT = UNIFORM / np.linalg.norm(UNIFORM, axis=1, keepdims=True)


def with_output(values):
    return np.column_stack([values, UNIT[:, 1:]])


def test_an_encoder_that_found_every_factor_is_not_accused():
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    for embeddings in (UNIT, UNIFORM, UNIT @ rotation, UNIT.astype(np.float32)):
        assert find_lost_factor(embeddings) is None


@pytest.mark.parametrize(
    ("embeddings", "said"),
    [
        # A hemisphere: the size of the factor is there, its sign is not.
        (with_output(np.abs(UNIT[:, 0])), "folded share (output 1) is 1.00"),
        # A square of another factor, centred: both signs are there, but nothing new.
        (with_output(3 * (UNIT[:, 1] ** 2 - 1 / 6)), "that the others tell (output 1) is 0."),
    ],
)
def test_a_lost_factor_is_told_without_the_truth(embeddings, said):
    found = find_lost_factor(embeddings)
    assert "a factor looks lost: " in found
    assert said in found
    assert "objective.spreading" in found


@pytest.mark.parametrize(
    "embeddings",
    [UNIT[:, :1], UNIT[:20], np.zeros((4096, 6)), with_output(np.abs(UNIT[:, 0]))[:40]],
)
def test_where_nothing_can_be_known_nothing_is_said(embeddings):
    assert find_lost_factor(embeddings) is None


@pytest.mark.parametrize(("factors", "warnings"), [(6, 1), (5, 0), (7, 0)])
def test_outputs_are_held_against_factors_only_if_there_are_as_many(factors, warnings):
    def draw(key, count):
        latents = jax.random.normal(key, (count, factors))
        return latents, latents

    source = SimpleNamespace(known=Known(latents=Latents(draw)))
    objective = SimpleNamespace(compares_directions=True)
    experiment = SimpleNamespace(source=source, objective=objective)
    assert len(_lost_factor(experiment, with_output(np.abs(UNIT[:, 0])))) == warnings
