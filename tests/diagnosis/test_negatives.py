import numpy as np
import pytest
from sphere_pairs import pairs, uniform

from aninfonce_jax.diagnosis.negatives import check_negatives


def by_loops(u, v, concentration):
    """The share of the softmax over all other anchors that is not on the positive."""
    left = []
    for i in range(len(u)):
        own = np.exp(-0.5 * np.sum(concentration * (u[i] - v[i]) ** 2))
        others = sum(
            np.exp(-0.5 * np.sum(concentration * (u[i] - u[j]) ** 2))
            for j in range(len(u))
            if j != i
        )
        left.append(others / (own + others))
    return np.mean(left)


def test_as_loops():
    u, v = pairs(0, 40)
    concentration = np.array([8.0, 6.0, 4.0])
    found = check_negatives(u, v, np.sqrt(concentration), 39)
    assert 1 - found.evidence[0].effect == pytest.approx(by_loops(u, v, concentration))


def test_more_negatives_leave_more_to_learn():
    found = check_negatives(*pairs(0, 500), np.sqrt([8.0, 6.0, 4.0]), 100)
    left = [row["left_to_learn"] for row in found.details["by_negatives"]]
    assert left == sorted(left)
    assert found.verdict == "holds"


def test_positives_that_are_far_nearer_than_any_negative():
    u = uniform(0, 500, 10)
    found = check_negatives(u, u, np.full(10, np.sqrt(2000.0)), 255)
    assert found.verdict == "violated"
    assert found.details["overlap"] == 0
    assert "even 65536 negatives" in found.advice
