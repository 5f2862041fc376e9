import numpy as np
import pytest
from scipy import optimize, stats

from aninfonce_jax.diagnosis.dip import dip_p_value, dip_statistic


def by_definition(sample):
    """The nearest function that is convex up to a mode and concave after it: linear programs."""
    x, counts = np.unique(sample, return_counts=True)
    n = len(x)
    upper = np.cumsum(counts) / len(sample)
    lower = upper - counts / len(sample)
    best = 1.0
    for mode in range(n):
        # Values up to the mode from the left, from the mode on, and the distance.
        left, right = np.arange(mode + 1), mode + 1 + np.arange(n - mode)
        rows, ends = [], []

        def below(entries, end, rows=rows, ends=ends):
            row = np.zeros(n + 2)
            for index, value in entries:
                row[index] += value
            rows.append(row)
            ends.append(end)

        for values, first in ((left, 0), (right, mode)):
            for j, index in enumerate(values):
                i = first + j
                at_jump = i == mode
                for level, use in (
                    (lower[i], values is left or not at_jump),
                    (upper[i], values is right or not at_jump),
                ):
                    if use:
                        below([(index, 1), (n + 1, -1)], level)
                        below([(index, -1), (n + 1, -1)], -level)
                if j:
                    below([(values[j - 1], 1), (index, -1)], 0)
            sign = 1 if values is left else -1
            for j in range(1, len(values) - 1):
                before = x[first + j] - x[first + j - 1]
                after = x[first + j + 1] - x[first + j]
                below(
                    [
                        (values[j], sign * (1 / before + 1 / after)),
                        (values[j - 1], -sign / before),
                        (values[j + 1], -sign / after),
                    ],
                    0,
                )
        below([(left[-1], 1), (right[0], -1)], 0)
        goal = np.append(np.zeros(n + 1), 1.0)
        solved = optimize.linprog(goal, np.array(rows), ends, bounds=[(0, 1)] * (n + 2))
        best = min(best, solved.fun)
    return best


@pytest.mark.parametrize("seed", range(4))
def test_the_dip_is_its_definition(seed):
    rng = np.random.default_rng(seed)
    for sample in (
        rng.normal(size=9),
        rng.uniform(size=8),
        np.concatenate([rng.normal(size=5), 5 + rng.normal(size=5)]),
        np.round(rng.normal(size=12)),
        np.concatenate([rng.normal(size=7), [rng.normal()] * 5]),
    ):
        # One step of the sample's distribution function is no evidence of anything.
        expected = max(by_definition(sample), 1 / (2 * len(sample)))
        assert dip_statistic(sample) == pytest.approx(expected, abs=1e-7)


def test_extremes():
    assert dip_statistic(np.linspace(0, 1, 50)) == pytest.approx(1 / 100)
    assert dip_statistic([0.0] * 50 + [1.0] * 50) == pytest.approx(0.25)
    assert dip_statistic(np.zeros(10)) == pytest.approx(1 / 20)


def test_values_that_repeat_at_the_mode_are_no_second_one():
    rest = np.random.default_rng(0).normal(size=400)
    at_mode, beside = (np.concatenate([rest, np.full(100, place)]) for place in (0.0, 2.0))
    assert dip_p_value(dip_statistic(at_mode), 500) > 0.5
    assert dip_p_value(dip_statistic(beside), 500) < 1e-4


def test_order_sign_scale_and_offset_do_not_matter():
    x = np.random.default_rng(0).normal(size=200) ** 3
    expected = dip_statistic(x)
    assert dip_statistic(-7 * x[::-1] + 3) == pytest.approx(expected)


def test_p_values_of_uniform_samples_are_uniform():
    rng = np.random.default_rng(0)
    p = [dip_p_value(dip_statistic(rng.uniform(size=400)), 400) for _ in range(300)]
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.035)
    assert np.mean(np.array(p) < 0.5) == pytest.approx(0.5, abs=0.12)


def test_one_mode_and_two():
    rng = np.random.default_rng(0)
    one = rng.normal(size=1000)
    two = one + 4 * rng.integers(0, 2, 1000)
    assert dip_p_value(dip_statistic(one), 1000) > 0.3
    assert dip_p_value(dip_statistic(two), 1000) < 1e-4
    heavy = stats.t.rvs(2, size=1000, random_state=0)
    assert dip_p_value(dip_statistic(heavy), 1000) > 0.3
