import json

import numpy as np
import pytest

from aninfonce_jax.scores import estimates
from aninfonce_jax.scores.estimates import Estimate


def test_the_text_has_value_interval_and_warnings():
    text = str(Estimate("MIG", 0.5, [0.4, 0.6], None, ("too few samples",)))
    assert text == "MIG 0.500 [0.400, 0.600]\n  ! too few samples"


def test_an_estimate_is_json():
    estimate = Estimate("MIG", 0.5, [0.4, 0.6], np.array([0.25, 0.75]), ("few",))
    assert json.loads(json.dumps(estimate.to_dict()))["per_factor"] == [0.25, 0.75]


def test_the_bootstrap_error_of_a_mean():
    x = np.random.default_rng(0).normal(size=500)
    (error,) = estimates.bootstrap_errors(
        lambda w: np.array([w @ x / w.sum()]), 500, draws=2000, seed=1
    )
    assert error == pytest.approx(x.std() / np.sqrt(500), rel=0.06)


def test_few_draws_are_refused_and_none_give_no_interval():
    with pytest.raises(ValueError, match="at least 20, got 5"):
        estimates.bootstrap_errors(lambda w: w[:1], 9, draws=5, seed=0)
    assert estimates.bootstrap_errors(lambda w: w[:1], 9, draws=0, seed=0) is None
    assert estimates.interval_about(0.5, None) is None


def test_an_interval_stays_in_its_range():
    assert estimates.interval_about(0.99, 0.1, low=0.0) == [pytest.approx(0.794, abs=1e-3), 1.0]
    assert estimates.interval_about(0.01, 0.1, low=0.0)[0] == 0.0


def test_warnings_name_what_does_not_hold():
    z = np.random.default_rng(0).normal(size=(400, 3))
    assert estimates.axis_warnings(z, 3, [1.0, 2.0, 3.0]) == []
    (repeated,) = estimates.axis_warnings(z, 3, [5.0, 5.0, 3.0])
    assert repeated.startswith("1 values of Λ repeat")
    (few,) = estimates.axis_warnings(z, 2, None)
    assert few.startswith("2 features for 3 factors")
    (dependent,) = estimates.factor_warnings(z @ [[1, 0, 0.8], [0, 1, 0], [0, 0, 1]])
    assert dependent.startswith("factors 0 and 2 correlate")
    (constant,) = estimates.factor_warnings(z * [1, 0, 1])
    assert constant == "constant factors count as 0: [1]"
    with pytest.raises(ValueError, match="one value per factor"):
        estimates.axis_warnings(z, 3, [1.0, 2.0])


def test_rows_that_do_not_fit():
    with pytest.raises(ValueError, match="got 20 and 19"):
        estimates.checked_samples(np.zeros((20, 2)), np.zeros((19, 2)))
    with pytest.raises(ValueError, match="at least 10 samples"):
        estimates.checked_samples(np.zeros((5, 2)), np.zeros((5, 2)))
