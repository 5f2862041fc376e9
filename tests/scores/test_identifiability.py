"""The metrics against published values, cases with a known answer, and bad input."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from aninfonce_jax.scores import identifiability as idf

REFERENCE = np.load(pathlib.Path(__file__).parents[1] / "losses" / "reference_values.npz")


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def rotation(seed: int, dim: int) -> np.ndarray:
    return stats.ortho_group.rvs(dim, random_state=seed) if dim > 1 else np.ones((1, 1))


# --- Published values ---


@pytest.mark.parametrize("kind", ["perm", "rot"])
def test_metrics_match_published_values(kind: str) -> None:
    latents = REFERENCE[f"case1/metric_{kind}_latents"]
    features = REFERENCE[f"case1/metric_{kind}_reconstruction"]
    r2 = idf.linear_r2(latents, features, holdout=False)
    np.testing.assert_allclose(r2, REFERENCE[f"case1/metric_{kind}_linear_r2"], atol=1e-6)
    mcc = idf.mcc(latents, features)
    np.testing.assert_allclose(mcc, REFERENCE[f"case1/metric_{kind}_mcc"], atol=1e-6)


# --- Linear readout ---


@settings(deadline=None, max_examples=20, derandomize=True)
@given(dim=st.integers(1, 5), extra=st.integers(0, 3), scale=st.floats(1e-3, 1e3))
def test_r2_is_one_for_any_linear_map(dim: int, extra: int, scale: float) -> None:
    latents = normal(0, 64, dim)
    features = scale * latents @ normal(1, dim, dim + extra) + 5.0
    np.testing.assert_allclose(idf.linear_r2_per_factor(latents, features), 1.0, atol=1e-6)


def test_r2_tells_factors_apart_and_averages_them() -> None:
    latents = normal(0, 4000, 3)
    noise = normal(1, 4000, 3)
    features = np.stack([latents[:, 0], latents[:, 1] + noise[:, 1], noise[:, 2]], axis=1)
    per_factor = idf.linear_r2_per_factor(latents, features)
    np.testing.assert_allclose(per_factor, [1.0, 0.5, 0.0], atol=0.05)
    assert idf.linear_r2(latents, features) == per_factor.mean()
    assert isinstance(idf.linear_r2(latents, features), float)


def test_holdout_fits_one_half_and_scores_the_other() -> None:
    latents, features = normal(0, 40, 1), normal(1, 40, 10)
    slope = np.linalg.lstsq(np.c_[features[:20], np.ones(20)], latents[:20], rcond=None)[0]
    error = latents[20:] - np.c_[features[20:], np.ones(20)] @ slope
    expected = 1 - np.sum(error**2) / np.sum((latents[20:] - latents[20:].mean()) ** 2)
    np.testing.assert_allclose(idf.linear_r2(latents, features, seed=None), expected)
    # Ten features of pure noise explain points that they were fitted on, and no others.
    assert idf.linear_r2(latents, features) < 0 < idf.linear_r2(latents, features, holdout=False)


def test_sorted_samples_score_like_shuffled_ones() -> None:
    """Samples that come sorted by a factor would be fitted on one end, scored on the other."""
    latents = normal(0, 2000, 2)
    features = np.stack([np.tanh(2 * latents[:, 0]), latents[:, 1]], axis=1)
    order = np.argsort(latents[:, 0])
    shuffled, in_order = (
        idf.linear_r2_per_factor(latents[rows], features[rows]) for rows in (slice(None), order)
    )
    np.testing.assert_allclose(in_order, shuffled, atol=0.02)
    assert idf.linear_r2(latents[order], features[order], seed=None) < 0


def test_halves_depend_on_the_seed_alone() -> None:
    latents, features = normal(0, 40, 1), normal(1, 40, 3)
    r2 = {seed: idf.linear_r2(latents, features, seed=seed) for seed in (0, 1, None)}
    assert len(set(r2.values())) == 3
    assert idf.linear_r2(latents, features) == r2[0]
    assert idf.linear_r2(latents, features, seed=np.int64(1)) == r2[1]
    # Another half now would change the scores of old runs.
    np.testing.assert_array_equal(idf._halves(7, 0)[0], [0, 3, 5])
    with pytest.raises(TypeError, match="seed must be an int or None, got float"):
        idf.linear_r2(latents, features, seed=0.5)
    with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
        idf.linear_r2(latents, features, seed=-1)


SCALES = (1e200, 1e307, 1e-200, 1e-305, np.array([1e200, 1.0, 1e-200]))


@pytest.mark.parametrize("scale", SCALES, ids=str)
def test_scores_do_not_depend_on_the_scale_of_columns(scale: object) -> None:
    latents = normal(0, 100, 3)
    features = latents @ normal(1, 3, 3) + 0.3 * normal(2, 100, 3)
    for score in (idf.mcc, idf.linear_r2):
        expected = score(latents, features)
        np.testing.assert_allclose(score(latents, features * scale), expected, rtol=1e-9)
        np.testing.assert_allclose(score(latents * scale, features), expected, rtol=1e-9)
        np.testing.assert_allclose(score(latents * scale, features * scale), expected, rtol=1e-9)
    np.testing.assert_allclose(idf.mcc(latents, latents * scale), 1.0)


def test_a_map_is_recovered_at_any_scale() -> None:
    latents, matrix = normal(0, 30, 3), normal(1, 3, 3)
    found = idf.recovered_map(1e200 * latents, 1e-100 * latents @ matrix.T)
    np.testing.assert_allclose(found * 1e300, matrix, rtol=1e-9)


def test_integers_and_constant_columns_are_fine() -> None:
    latents = (10 * normal(0, 100, 3)).astype(int)
    np.testing.assert_allclose(idf.mcc(latents, -latents.astype(np.int8)), 1.0)
    features = np.c_[latents[:, :2], np.full(100, 1e200)]
    np.testing.assert_allclose(idf.mcc(latents, features), 2 / 3)


@pytest.mark.parametrize("score", [idf.mcc, idf.linear_r2, idf.recovered_map])
@pytest.mark.parametrize(
    "bad",
    ["text", None, 1j * np.ones((9, 2)), [[1.0, 2.0], [3.0]]],
    ids=["text", "nothing", "complex", "ragged"],
)
def test_what_is_not_real_numbers_is_refused(bad: object, score: object) -> None:
    with pytest.raises(TypeError, match="latents must be an array of real numbers, got"):
        score(bad, normal(0, 9, 2))


def test_r2_survives_constant_and_repeated_columns() -> None:
    latents = normal(0, 50, 2)
    features = np.concatenate([latents, latents, np.ones((50, 1))], axis=1)
    np.testing.assert_allclose(idf.linear_r2(latents, features), 1.0, atol=1e-9)
    latents[:, 1] = 3.0
    np.testing.assert_allclose(idf.linear_r2_per_factor(latents, features), [1.0, 0.0], atol=1e-9)


def test_recovered_map_is_the_linear_map() -> None:
    latents, matrix = normal(0, 30, 3), normal(1, 4, 3)
    features = latents @ matrix.T + np.arange(4.0)
    np.testing.assert_allclose(idf.recovered_map(latents, features), matrix, atol=1e-9)


def test_jax_arrays_of_any_precision_are_taken() -> None:
    latents = jax.random.normal(jax.random.key(0), (50, 2))
    for dtype in (jnp.float32, jnp.bfloat16):
        features = -latents.astype(dtype)
        assert idf.linear_r2(latents, features) > 0.999
        assert idf.mcc(latents, features) > 0.999


# --- Factor by factor ---


@settings(deadline=None, max_examples=20, derandomize=True)
@given(dim=st.integers(1, 6), seed=st.integers(0, 1000))
def test_matching_inverts_any_permutation_with_signs_and_scales(dim: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    latents = rng.normal(size=(200, dim))
    order = rng.permutation(dim)
    features = latents[:, order] * rng.choice([-3.0, 0.5], dim) + 1.0
    np.testing.assert_allclose(idf.mcc(latents, features), 1.0)


def test_spearman_sees_through_monotonic_maps() -> None:
    latents = normal(0, 500, 3)
    features = np.exp(2 * latents[:, ::-1])
    np.testing.assert_allclose(idf.mcc(latents, features, method="spearman"), 1.0)
    assert idf.mcc(latents, features, method="pearson") < 0.8


@pytest.mark.parametrize("method", ["pearson", "spearman"])
def test_correlations_agree_with_scipy(method: str) -> None:
    latents = normal(0, 100, 1)
    features = latents + normal(1, 100, 1)
    correlate = {"pearson": stats.pearsonr, "spearman": stats.spearmanr}[method]
    expected = correlate(latents[:, 0], features[:, 0]).statistic
    np.testing.assert_allclose(idf.mcc(latents, features, method=method), expected)


def test_the_assignment_is_optimal_and_not_greedy() -> None:
    # Correlations of about [[.79, .61], [.75, .05]]: greedy would take .79 and .05.
    basis = np.linalg.qr(normal(0, 50, 4) - normal(0, 50, 4).mean(axis=0))[0]
    features = basis[:, :2]
    first = 0.79 * features[:, 0] + 0.61 * features[:, 1]
    second = 0.75 * features[:, 0] + 0.05 * features[:, 1] + 0.66 * basis[:, 2]
    latents = np.stack([first, second], axis=1)
    correlations = np.abs(np.corrcoef(latents.T, features.T)[:2, 2:])
    np.testing.assert_allclose(correlations, [[0.79, 0.61], [0.75, 0.05]], atol=0.02)
    best = (correlations[0, 1] + correlations[1, 0]) / 2
    np.testing.assert_allclose(idf.mcc(latents, features), best)


@pytest.mark.parametrize("method", ["pearson", "spearman"])
def test_a_constant_column_counts_as_zero(method: str) -> None:
    latents = normal(0, 100, 2)
    features = latents.copy()
    features[:, 1] = 0.1
    np.testing.assert_allclose(idf.mcc(latents, features, method=method), 0.5)


def test_missing_features_count_as_zero_and_surplus_ones_are_ignored() -> None:
    latents = normal(0, 100, 2)
    np.testing.assert_allclose(idf.mcc(latents, latents[:, :1]), 0.5)
    surplus = np.concatenate([normal(1, 100, 3), latents], axis=1)
    np.testing.assert_allclose(idf.mcc(latents, surplus), 1.0)


# --- Bad input ---

GOOD = normal(0, 20, 3)
BROKEN = np.where(np.arange(60).reshape(20, 3) == 7, np.nan, GOOD)


@pytest.mark.parametrize(
    ("latents", "features", "message"),
    [
        (GOOD[:, 0], GOOD, r"latents must have shape \[samples, dim\], got \(20,\); .*\[:, None\]"),
        (GOOD, GOOD[:, 0], r"features must have shape \[samples, dim\], got \(20,\)"),
        (GOOD, GOOD[:19], "same number of rows, got 20 and 19"),
        (BROKEN, GOOD, "latents must be finite, got 1 NaN or infinite of 60 values"),
        (GOOD, np.inf * GOOD, "features must be finite, got 60 NaN or infinite of 60 values"),
        (GOOD, GOOD[:, :0], r"features must have at least one column, got shape \(20, 0\)"),
        (GOOD[:1], GOOD[:1], "at least 2 samples are needed, got 1"),
    ],
)
def test_samples_that_do_not_fit_are_refused(
    latents: np.ndarray, features: np.ndarray, message: str
) -> None:
    for metric in (idf.linear_r2, idf.mcc, idf.recovered_map):
        with pytest.raises(ValueError, match=message):
            metric(latents, features)


def test_too_few_samples_for_a_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"from 3 features needs at least 5 .* got 4 \(8 in all"):
        idf.linear_r2(GOOD[:8], GOOD[:8])
    assert idf.linear_r2(GOOD[:8], GOOD[:8], holdout=False) > 0.99
    with pytest.raises(ValueError, match="from 3 latents needs at least 5 samples, got 4"):
        idf.recovered_map(GOOD[:4], GOOD[:4])


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ValueError, match="one of 'pearson', 'spearman', got 'kendall'"):
        idf.mcc(GOOD, GOOD, method="kendall")
