import numpy as np
import pytest
from sphere_pairs import uniform, unit

from aninfonce_jax.diagnosis import marginal

NAMES = [f"dimension {k}" for k in range(4)]
U = uniform(0, 2000, 4)


def test_uniform_anchors_break_nothing():
    for check in (marginal.check_uniform, marginal.check_injective, marginal.check_collapse):
        assert check(U, NAMES).verdict == "holds"
    assert marginal.check_support(U, U, NAMES).verdict == "holds"


def test_false_alarms_are_few():
    """Of 120 draws at 5 % more than 13 would be as rare as 1 %."""
    draws = [uniform(seed, 300, 4) for seed in range(120)]
    for check in (marginal.check_uniform, marginal.check_injective):
        assert sum(check(u, NAMES).is_alarm for u in draws) <= 13
    assert sum(marginal.check_support(u, u, NAMES).is_alarm for u in draws) <= 13


def test_a_mean_is_seen_by_its_size():
    shifted = unit(U + np.array([0.4, 0, 0, 0]))
    found = marginal.check_uniform(shifted, NAMES)
    assert found.verdict == "violated"
    mean = found.evidence[0]
    assert mean.effect == pytest.approx(2 * np.linalg.norm(shifted.mean(axis=0)), abs=0.02)
    assert mean.interval[0] < mean.effect < mean.interval[1]


def test_an_axis_without_a_mean_is_seen():
    found = marginal.check_uniform(unit(U * [3, 1, 1, 1]), NAMES)
    assert found.evidence[0].p_value > 0.01
    assert found.evidence[1].verdict(0.01) == "violated"


def test_a_fold_has_its_known_mean():
    """√d · E|z_k| is 0.85 in four dimensions, and √(2/π) = 0.80 in many."""
    folded = U * np.where(U[:, 2:3] < 0, [1, 1, -1, 1], 1)
    found = marginal.check_injective(folded, NAMES)
    assert found.verdict == "violated"
    assert found.evidence[0].name == "folded share (dimension 2)"
    assert found.evidence[0].effect == 1.0
    assert found.details["scaled_means"][2] == pytest.approx(0.85, abs=0.03)


def test_a_fold_off_the_axes_is_seen():
    folded = U * np.where(U.sum(axis=1, keepdims=True) < 0, -1, 1)
    found = marginal.check_injective(folded, NAMES)
    assert found.verdict == "violated"
    assert found.evidence[0].name == "folded share (direction of the mean)"


def test_dead_and_doubled_dimensions():
    dead = unit(U * [1, 1, 1, 1e-3])
    found = marginal.check_collapse(dead, NAMES)
    assert found.verdict == "violated"
    assert any("dimension 3" in item.name for item in found.evidence)
    doubled = unit(np.repeat(U[:, :1], 4, axis=1) + 0.01 * U)
    assert marginal.check_collapse(doubled, NAMES).verdict == "violated"


def test_support():
    found = marginal.check_support(U * np.linspace(1, 2, 2000)[:, None], U, NAMES)
    assert found.verdict == "violated"
    assert found.evidence[1].effect == pytest.approx(0.19, abs=0.01)
    cap = U[U[:, 1] < 0.5]
    found = marginal.check_support(cap, cap, NAMES)
    assert found.verdict == "violated"
    assert found.evidence[0].name.endswith("(positive end of dimension 1)")
    # The part of the sphere beyond 0.5 in four dimensions: ⅓ - √3/(4π).
    assert found.evidence[0].effect == pytest.approx(1 / 3 - np.sqrt(3) / (4 * np.pi), abs=0.005)


def test_an_offset_is_told_from_a_fold():
    folded = np.concatenate([U[:, :3], np.abs(U[:, 3:])], axis=1)
    offset = unit(0.3 * U + [0.0, 0.0, 0.0, 1.0])
    for anchors, is_offset in ((folded, False), (offset, True)):
        found = marginal.check_injective(anchors, NAMES)
        assert found.verdict == "violated"
        assert ("offset rather than a fold" in found.advice) is is_offset


def test_inputs_that_are_more_common_on_one_side_are_no_fold():
    """Weights of exp(2 u): most inputs are on one side, but near zero nearly as many on both."""
    anchors = uniform(1, 6000, 4)
    kept = np.random.default_rng(0).random(6000) < np.exp(2 * (anchors[:, 0] - 1))
    tilted = anchors[kept]
    found = marginal.check_injective(tilted, NAMES)
    assert (found.verdict, found.is_alarm) == ("doubtful", True)
    assert "See 'uniform'" in found.advice
    assert marginal.check_uniform(tilted, NAMES).verdict == "violated"


def test_an_output_that_follows_from_another_is_seen_beside_a_tilt():
    anchors = uniform(1, 6000, 3)
    kept = np.random.default_rng(0).random(6000) < np.exp(2 * (anchors[:, 0] - 1))
    tilted = anchors[kept]
    doubled = unit(np.concatenate([tilted, tilted[:, 1:2]], axis=1))
    (_, told) = marginal.check_injective(doubled, NAMES).evidence
    assert told.name.endswith(("(dimension 1)", "(dimension 3)"))
    assert told.interval[0] > 0.9
