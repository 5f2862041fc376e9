"""Λ̂ against Λ and the structure of maps: cases with a known answer, and bad input."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from aninfonce_jax.scores import concentration


def rotation(seed: int, dim: int) -> np.ndarray:
    return stats.ortho_group.rvs(dim, random_state=seed)


# --- Concentrations ---


def test_concentrations_are_matched_by_rank() -> None:
    true, learned = [5.0, 25.0, 10.0], [24.0, 11.0, 5.5]
    np.testing.assert_array_equal(
        concentration.match_concentration(true, learned), [5.5, 24.0, 11.0]
    )
    np.testing.assert_allclose(concentration.concentration_error(true, learned), 0.1)
    assert concentration.concentration_error(true, true[::-1]) == 0.0


def test_concentrations_are_matched_by_what_their_features_recover() -> None:
    # Features 0 and 1 mix the factors of Λ = 25, 3 is the factor of 10, 2 that of 5.
    true = [25.0, 10.0, 25.0, 5.0]
    matrix = np.zeros((4, 4))
    matrix[np.ix_([0, 1], [0, 2])] = rotation(0, 2)
    matrix[3, 1], matrix[2, 3] = -1.0, 1.0
    np.testing.assert_array_equal(
        concentration.recovered_concentration(true, [24.0, 26.0, 5.5, 11.0], matrix),
        [26.0, 11.0, 24.0, 5.5],
    )
    swapped = concentration.recovered_concentration(true, [25.0, 5.0, 25.0, 10.0], matrix)
    np.testing.assert_array_equal(swapped, [25.0, 10.0, 5.0, 25.0])
    assert concentration.concentration_error(true, swapped) == 0.0  # sorting does not see it


def test_content_is_above_the_midpoint() -> None:
    np.testing.assert_array_equal(
        concentration.content_mask([25.0, 5.0, 16.0]), [True, False, True]
    )
    np.testing.assert_array_equal(concentration.content_mask(jnp.full(3, 7.0)), [True] * 3)


# --- Block-orthogonality ---

BLOCKED = np.array([25.0, 5.0, 25.0, 5.0, 5.0])


def blocked_map(content: np.ndarray, style: np.ndarray) -> np.ndarray:
    """A map of the factors of `BLOCKED` with the given blocks, features shuffled."""
    matrix = np.zeros((5, 5))
    matrix[np.ix_([4, 1], [0, 2])] = content
    matrix[np.ix_([0, 2, 3], [1, 3, 4])] = style
    return matrix


@pytest.mark.parametrize("learned", [None, [5.1, 24.0, 4.9, 5.0, 26.0]])
def test_a_block_orthogonal_map_is_recognised(learned: list[float] | None) -> None:
    matrix = blocked_map(2 * rotation(0, 2), 0.5 * rotation(1, 3))
    found = concentration.block_orthogonality(matrix, BLOCKED, learned)
    np.testing.assert_allclose(found.inside, 1.0)
    np.testing.assert_allclose(found.deviations, 0.0, atol=1e-12)
    np.testing.assert_array_equal(found.sizes, [2, 3])
    assert set(found.feature_order[:2]) == {1, 4}


def test_leaks_and_shears_are_measured() -> None:
    matrix = blocked_map(np.array([[1.0, 0.0], [1.0, 0.0]]), np.eye(3))
    found = concentration.block_orthogonality(matrix, BLOCKED)
    np.testing.assert_allclose(found.deviations, [np.sqrt(1 / 2), 0.0], atol=1e-12)
    matrix[4, 1] = 2.0  # from a style factor to a content feature
    leaking = concentration.block_orthogonality(matrix, BLOCKED, learned=[5, 25, 5, 5, 25])
    np.testing.assert_allclose(leaking.inside, 5 / 9)
    np.testing.assert_allclose(leaking.expected_inside, (4 + 9) / 25)


def test_a_lost_block_and_distinct_concentrations() -> None:
    lost = concentration.block_orthogonality(blocked_map(np.eye(2), np.zeros((3, 3))), BLOCKED)
    np.testing.assert_allclose(lost.deviations, [0.0, 1.0])
    assert concentration.block_orthogonality(np.zeros((5, 5)), BLOCKED).inside == 0.0
    permutation = concentration.block_orthogonality(-np.eye(3)[[2, 0, 1]], [3.0, 2.0, 1.0])
    np.testing.assert_array_equal(permutation.sizes, [1, 1, 1])
    assert permutation.inside == 1.0
    np.testing.assert_array_equal(permutation.feature_order, [1, 2, 0])


def test_a_map_is_measured_at_any_scale() -> None:
    matrix = np.random.default_rng(1).normal(size=(3, 3))
    expected = concentration.block_orthogonality(matrix, [9.0, 9.0, 1.0])
    for scale in (1e200, 1e-200):
        measured = concentration.block_orthogonality(scale * matrix, [9.0, 9.0, 1.0])
        np.testing.assert_allclose(measured.inside, expected.inside)
        np.testing.assert_allclose(measured.deviations, expected.deviations)


# --- Bad input ---


@pytest.mark.parametrize(
    ("true", "learned", "message"),
    [
        ([1.0, 2.0], [1.0], "must have the same length, got 2 and 1"),
        ([1.0, 0.0], [1.0, 1.0], r"true must be positive and finite, got 0\.0"),
        ([1.0, 1.0], [np.nan, 1.0], "learned must be positive and finite, got nan"),
        (1.0, [1.0], r"true must be a vector of concentrations \[dim\], got shape \(\)"),
    ],
)
def test_impossible_concentrations_are_refused(true: object, learned: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        concentration.concentration_error(true, learned)


@pytest.mark.parametrize(
    ("matrix", "learned", "message"),
    [
        (np.eye(3)[:2], None, r"must be square \[dim, dim\], got shape \(2, 3\)"),
        (np.eye(2), None, r"got shape \(2, 2\) and 3 concentrations"),
        (np.nan * np.eye(3), None, "must be finite"),
        (np.eye(3), [1.0], "must have the same length, got 3 and 1"),
    ],
)
def test_impossible_maps_are_refused(matrix: np.ndarray, learned: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        concentration.block_orthogonality(matrix, [1.0, 2.0, 3.0], learned)
