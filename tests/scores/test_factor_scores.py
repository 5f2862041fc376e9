import json

import numpy as np
import pytest

from aninfonce_jax.scores.factor_scores import factor_scores
from aninfonce_jax.scores.identifiability import linear_r2, mcc


def test_all_scores_with_their_warnings_once():
    z = np.random.default_rng(0).normal(size=(300, 2))
    found = factor_scores(z, z @ [[1.0, 0.5], [-0.5, 1.0]], concentration=[5.0, 5.0], draws=20)
    assert found["R²"].value == linear_r2(z, z @ [[1.0, 0.5], [-0.5, 1.0]])
    assert found["MCC (pearson)"].value == mcc(z, z @ [[1.0, 0.5], [-0.5, 1.0]])
    assert "repeat" in found["MCC (pearson)"].warnings[0]
    assert found["R²"].warnings == ()
    assert str(found).count("repeat others") == 1
    assert all(estimate.interval is not None for estimate in found.estimates)
    assert set(json.loads(json.dumps(found.to_dict()))) == {e.name for e in found.estimates}
    with pytest.raises(KeyError, match="no score 'R3'"):
        found["R3"]
