"""The names under which `eval.json` and sweeps keep scores: others read them, so they stay."""

from aninfonce_jax.scores import registry

KEYS = """
concentration_error knn_accuracy loss loss_floor mcc_pearson mcc_spearman operation_accuracy
operation_accuracy_last overlap overlap_true probe_accuracy probe_accuracy_last r2 r2_content
r2_kernel r2_shifted r2_style retrieval retrieval_style shift_accuracy spread_median spread_min
views_kurtosis views_many_modes views_not_normal views_skewness views_width views_width_ratio
"""


def test_no_score_is_renamed_in_passing():
    found = {own.key for own in vars(registry).values() if isinstance(own, registry.Score)}
    assert found == set(KEYS.split())
