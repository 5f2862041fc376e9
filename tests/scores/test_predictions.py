import math

import numpy as np
import pytest

from aninfonce_jax.scores.predictions import predict

FIRST = [400.0] * 3 + [15.0] * 8 + [250.0] * 9
SECOND = [400.0] * 3 + [250.0] * 8 + [15.0] * 9


@pytest.mark.parametrize(
    ("members", "groups", "words"),
    [
        (
            [FIRST, SECOND],
            (tuple(range(3)), tuple(range(3, 11)), tuple(range(11, 20))),
            "no member tells factors 1–3, 4–11 and 12–20 apart: they are found up to a rotation "
            "within each group",
        ),
        (
            # Neither member tells all factors apart; both together do.
            [[5.0, 5.0, 1.0], [2.0, 3.0, 3.0]],
            ((0,), (1,), (2,)),
            "every two factors differ in some member: each is found up to order and sign",
        ),
        (
            [[5.0, 1.0, 5.0, 2.0]],
            ((0, 2), (1,), (3,)),
            "no member tells factors 1+3 apart: they are found up to a rotation within them; every "
            "other factor up to order and sign",
        ),
    ],
)
def test_factors_are_told_apart_by_some_member(members, groups, words):
    found = predict(members)
    assert found.groups == groups
    assert found.words == words
    values = found.as_concentration
    for one in range(len(values)):
        for other in range(len(values)):
            together = any({one, other} <= set(group) for group in groups)
            assert (values[one] == values[other]) == together
    assert (values > 0).all()


def test_what_became_of_it():
    found = predict([np.array([5.0, 5.0, 1.0, 1.0])])
    assert found.outcome(0.99).startswith("as predicted: 99.0% of the map")
    assert found.outcome(0.7).startswith("not as predicted: 70.0%")
    assert "(50% would by chance)" in found.outcome(0.7)
    assert "not known" in found.outcome(None)
    assert "not known" in found.outcome(math.nan)


def test_members_of_unequal_dimension_are_refused():
    with pytest.raises(ValueError, match=r"of one length; got \(2,\), \(3,\)"):
        predict([[1.0, 2.0], [1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match="got none"):
        predict([])
