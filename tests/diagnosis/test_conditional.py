import numpy as np
import pytest
from sphere_pairs import pairs, positives, uniform, unit

from aninfonce_jax.diagnosis import conditional
from aninfonce_jax.diagnosis.score_matching import fit_concentration

NAMES = ["a", "b", "c"]
CHECKS = [
    conditional.check_pairing,
    conditional.check_shape,
    conditional.check_modes,
    conditional.check_centre,
    conditional.check_axes,
    conditional.check_constant,
]


def fit_of(u, v):
    return fit_concentration(u, v)


def test_false_alarms_are_few():
    """Of 60 draws at 5 % more than 8 would be as rare as 1 %."""
    alarms = np.zeros(len(CHECKS))
    for seed in range(60):
        fit = fit_of(*pairs(seed, 500))
        alarms += [check(fit, NAMES).is_alarm for check in CHECKS]
    assert alarms.max() <= 8


def test_views_that_share_little_of_an_output_are_seen():
    u = uniform(0, 2000, 3)
    v = positives(1, u, np.array([8.0, 6.0, 0.0]))
    found = conditional.check_pairing(fit_of(u, v), NAMES)
    assert found.verdict == "violated"
    assert "(c)" in found.evidence[0].name
    few = conditional.check_pairing(fit_of(u[:150], v[:150]), NAMES)
    assert few.verdict == "doubtful"
    assert not few.is_alarm
    # Where they share much, as few pairs are enough to say so.
    enough = conditional.check_pairing(fit_of(*pairs(0, 150)), NAMES)
    assert enough.verdict == "holds"
    assert enough.details["shared"] == pytest.approx(
        [np.corrcoef(a, b)[0, 1] for a, b in zip(*(x.T for x in pairs(0, 150)), strict=True)]
    )


def test_two_modes_are_seen():
    u = uniform(0, 3000, 3)
    sign = np.random.default_rng(1).choice([-1, 1], (3000, 1))
    v = unit(u + sign * [0, 0.9, 0] + 0.1 * np.random.default_rng(2).normal(size=u.shape))
    found = conditional.check_modes(fit_of(u, v), NAMES)
    assert found.verdict == "violated"
    assert found.evidence[0].name == "dip (b)"


def test_heavy_tails_and_skewness_are_seen():
    u = uniform(0, 3000, 3)
    rng = np.random.default_rng(1)
    heavy = unit(u + 0.1 * rng.standard_t(2, u.shape))
    assert conditional.check_shape(fit_of(u, heavy), NAMES).is_alarm
    skewed = unit(u + 0.3 * (rng.exponential(size=u.shape) - 1) * [0, 0, 1])
    found = conditional.check_shape(fit_of(u, skewed), NAMES)
    assert found.is_alarm


def test_a_shifted_view_is_seen():
    u, v = pairs(0, 3000)
    found = conditional.check_centre(fit_of(u, unit(v + np.array([0.4, 0, 0]))), NAMES)
    assert found.verdict == "violated"
    assert "(a, " in found.evidence[0].name


def test_wrong_axes_are_seen_and_only_those():
    u, v = pairs(0, 4000, (12.0, 3.0, 3.0))
    turn = np.eye(3)
    turn[:2, :2] = np.array([[1, -1], [1, 1]]) / np.sqrt(2)
    found = conditional.check_axes(fit_of(u @ turn, v @ turn), NAMES)
    assert found.verdict == "violated"
    assert "(a and b)" in found.evidence[0].name
    # Factors with one Λ may be rotated among themselves.
    turn = turn[np.ix_([2, 0, 1], [2, 0, 1])]
    assert not conditional.check_axes(fit_of(u @ turn, v @ turn), NAMES).is_alarm


def test_a_concentration_that_changes_is_seen():
    u = uniform(0, 4000, 3)
    v = positives(1, u, np.where(u[:, :1] > 0, 12.0, 3.0) * np.ones(3))
    found = conditional.check_constant(fit_of(u, v), NAMES)
    assert found.verdict == "violated"
    assert "anchor's a)" in found.evidence[0].name


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "holds"), (3.0, "violated")])
def test_a_learned_concentration_is_compared(factor, verdict):
    fit = fit_of(*pairs(0, 4000))
    found = conditional.check_learned(fit, factor * np.array([8.0, 6.0, 4.0]), NAMES)
    assert found.verdict == verdict
