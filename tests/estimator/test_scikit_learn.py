"""Scikit-learn's own checks, all of them; what is expected to fail is named, with the reason."""

import numpy as np
import pytest

import aninfonce_jax as an

pytest.importorskip("sklearn", minversion="1.6")

from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

X = np.random.default_rng(0).normal(size=(40, 3))


def small(**changes):
    """An estimator that makes pairs of one array, as the checks have only one."""
    settings = {"dim": 2, "steps": 1, "batch_size": 4, "optimizer": "adam"}
    return an.AnInfoNCE(pairs=an.pairs.time_lagged, **(settings | changes))


# Name of a check -> why it can't pass. None, of an estimator with a rule that makes pairs. Without
# one `fit(X)` is refused, as a pair takes two views, and no check that fits could even begin.
EXPECTED_FAILURES: dict[str, str] = {}


@pytest.mark.slow
@parametrize_with_checks([small()], expected_failed_checks=lambda _: EXPECTED_FAILURES)
@pytest.mark.filterwarnings("ignore")
def test_conventions(estimator, check):
    check(estimator)


def test_parameters_can_be_read_set_and_cloned():
    model = small(seed=4)
    copy = clone(model)
    assert copy is not model
    assert copy.get_params() == model.get_params()
    assert copy.set_params(dim=5).dim == 5
    assert "dim=2" in repr(model)


def test_a_pipeline_and_named_columns():
    pipeline = make_pipeline(StandardScaler(), small()).fit(X)
    assert pipeline.transform(X).shape == (40, 2)
    assert list(pipeline.get_feature_names_out()) == ["aninfonce0", "aninfonce1"]
    pandas = pytest.importorskip("pandas")
    frame = pipeline.set_output(transform="pandas").transform(X)
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["aninfonce0", "aninfonce1"]
