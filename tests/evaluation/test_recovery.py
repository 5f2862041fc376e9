import numpy as np
import pytest

from aninfonce_jax.evaluation.recovery import map_scores, recovery_findings, retrieval_findings

TRUTH = np.array([25.0, 25.0, 5.0, 5.0])


def test_recovery_scores_tell_content_from_style():
    latents = np.random.default_rng(0).normal(size=(500, 4))
    features = latents @ np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    scores = recovery_findings(latents, features, TRUTH).scores
    assert scores["r2_content"] == pytest.approx(1.0)
    assert scores["r2_style"] == pytest.approx(1.0)
    lost = latents * [1, 1, 0, 0] + np.random.default_rng(2).normal(size=(500, 4)) * [0, 0, 1, 1]
    findings = recovery_findings(latents, lost, TRUTH)
    scores = findings.scores
    assert scores["r2_content"] == pytest.approx(1.0)
    assert abs(scores["r2_style"]) < 0.1
    assert scores["r2"] == pytest.approx(np.mean(scores["r2_per_factor"]))
    assert set(findings.intervals) == set(scores)
    for name in ("r2", "r2_content", "r2_style", "mcc_pearson", "mcc_spearman"):
        low, high = findings.intervals[name]
        assert low <= scores[name] <= high, name
    assert len(findings.intervals["r2_per_factor"]) == 4


@pytest.mark.parametrize("truth", [np.full(3, 5.0), None])
def test_equal_or_unknown_concentrations_have_no_style(truth):
    latents = np.random.default_rng(0).normal(size=(100, 3))
    scores = recovery_findings(latents, latents, truth).scores
    assert "r2_style" not in scores
    assert "r2_content" not in scores


def test_without_as_many_outputs_as_factors_nothing_is_compared():
    latents = np.random.default_rng(0).normal(size=(100, 4))
    features = np.concatenate([latents, latents], axis=1)
    assert map_scores(latents, features, TRUTH, np.ones(8), TRUTH) == {
        "concentration_true": TRUTH.tolist()
    }


def test_retrieval_tells_content_from_style():
    latents = np.random.default_rng(0).normal(size=(500, 4))
    found = retrieval_findings(latents, latents * [1, 1, 0, 0], TRUTH)
    assert set(found.scores) == set(found.intervals) == {"retrieval", "retrieval_style"}
    assert found.scores["retrieval_style"] < 0.2 < 0.4 < found.scores["retrieval"]
    for truth in (np.full(4, 5.0), None):
        assert retrieval_findings(latents, latents, truth).scores == {"retrieval": 1}
