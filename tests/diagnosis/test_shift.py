import numpy as np
import pytest
from sphere_pairs import uniform, unit

from aninfonce_jax.diagnosis.shift import check_shift, tell_apart


def test_false_alarms_are_few():
    """Of 100 draws at 5 % more than 11 would be as rare as 1 %."""
    found = [check_shift(uniform(i, 200, 4), uniform(1000 + i, 300, 4)) for i in range(100)]
    assert sum(finding.is_alarm for finding in found) <= 11


@pytest.mark.parametrize("change", [[0.5, 0, 0, 0], [0, 0, 0, 0]])
def test_a_moved_set_and_a_stretched_one_are_told(change):
    other = unit(uniform(1, 2000, 4) * ([1, 1, 1, 1] if any(change) else [2, 1, 1, 1]) + change)
    found = check_shift(uniform(0, 2000, 4), other)
    assert found.verdict == "violated"
    assert found.details["held_out"] == [1000, 1000]


def test_sets_that_share_nothing():
    u = np.abs(uniform(0, 400, 3))
    found = check_shift(u, -u)
    assert found.details["area_under_curve"] == pytest.approx(1.0)


def test_accuracy_is_that_of_the_best_threshold_on_inputs_not_learned_from():
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(4000, 3)), rng.normal([2, 0, 0], size=(2000, 3))
    accuracy, count = tell_apart(one, other)
    assert accuracy == pytest.approx(0.841, abs=0.02)  # Φ(1)
    assert count == 3000
    few = [tell_apart(rng.normal(size=(40, 8)), rng.normal(size=(40, 8)))[0] for _ in range(50)]
    assert np.mean(few) == pytest.approx(0.5, abs=0.05)  # what was learned by heart does not count
