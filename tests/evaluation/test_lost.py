import numpy as np
import pytest

from aninfonce_jax.evaluation.lost import find_lost_factor

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
