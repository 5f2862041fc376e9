import numpy as np
import pytest

from aninfonce_jax.diagnosis.findings import Diagnosis, Evidence, Finding, strongest


def finding(*evidence):
    return Finding("shape", "it is so", evidence, "Do something.")


@pytest.mark.parametrize(
    ("interval", "p_value", "detectable", "verdict", "alarm"),
    [
        ((0.3, 0.5), 0.001, 0.1, "violated", True),
        ((0.1, 0.5), 0.001, 0.1, "doubtful", True),
        ((0.0, 0.1), 0.4, 0.1, "holds", False),
        ((0.0, 0.9), 0.4, 0.5, "doubtful", False),
        ((0.3, 0.5), None, None, "violated", True),
        ((0.15, 0.5), None, None, "doubtful", True),
        ((0.05, 0.5), None, None, "holds", False),
    ],
)
def test_the_rules(interval, p_value, detectable, verdict, alarm):
    evidence = Evidence("size", 0.4, interval, 0.2, 1.0, p_value, detectable)
    assert finding(evidence).verdict == verdict
    assert finding(evidence).is_alarm is alarm


def test_two_tests_share_the_level():
    weak = Evidence("size", 0.4, (0.3, 0.5), 0.2, 1.0, 0.03, 0.1)
    assert finding(weak).verdict == "violated"
    none = Evidence("size", 0.0, (0.0, 0.1), 0.2, 1.0, 0.9, 0.1)
    assert finding(weak, none).verdict == "holds"
    assert finding(weak, none).p_value == pytest.approx(0.06)


def test_the_strongest_is_adjusted_for_all():
    found = strongest("bend", np.array([0.1, -0.5]), np.array([0.1, 0.1]), 0.2, ["a", "b"])
    assert found.name == "bend (b)"
    assert found.effect == 0.5
    # Of two at 5 %, each is at 2.5 %: 2.2414 standard errors.
    assert found.interval == pytest.approx((0.5 - 0.22414, 0.5 + 0.22414), abs=1e-5)
    assert found.p_value == pytest.approx(2 * 5.733e-7, rel=1e-3)
    assert found.detectable == pytest.approx(0.1 * (2.2414 + 0.8416), abs=1e-4)


def test_the_text_says_what_to_do_only_where_something_is_wrong():
    bad = finding(Evidence("size", 0.4, (0.3, 0.5), 0.2, 1.0, 1e-9, 0.1))
    assert str(bad).splitlines() == [
        "VIOLATED  shape: it is so",
        "          size: 0.4 [0.3, 0.5], harmless up to 0.2; p < 0.0001; "
        "0.1 would be seen in 80% of",
        "              cases",
        "          → Do something.",
    ]
    good = finding(Evidence("size", 0.0, (0.0, 0.1), 0.2, 1.0, 0.9, 0.1))
    assert "→" not in str(good)
    small = finding(Evidence("size", 0.1, (0.05, 0.15), 0.2, 1.0, 1e-9, 0.1))
    assert small.verdict == "doubtful"
    assert "→ Nothing: it is there" in str(small)
    blind = finding(Evidence("size", 0.0, (0.0, 0.9), 0.2, 1.0, 0.9, 0.5))
    assert "too few pairs" in str(blind)


@pytest.mark.parametrize(
    ("broken", "causes", "begin_with"),
    [("ab", "a", "a"), ("ab", "b", None), ("a", "a", None), ("", "", None)],
)
def test_where_to_begin_is_said_where_one_violation_may_cause_others(broken, causes, begin_with):
    bad, good = (Evidence("size", 0.4, (low, 0.5), 0.2) for low in (0.3, 0.0))
    findings = tuple(
        Finding(name, "", (bad if name in broken else good,), "", is_cause=name in causes)
        for name in "ab"
    )
    found = Diagnosis(findings, 100, 2, np.ones(2))
    assert found.begin_with == begin_with
    assert ("Begin with" in str(found)) is (begin_with is not None)
