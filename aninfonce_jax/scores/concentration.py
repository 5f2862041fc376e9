"""Λ̂ against Λ, and the recovered map against what Λ allows of it.

Runs on the host, in float64 whatever comes in. Concentrations are [dim], maps [dim, dim],
features by latents.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
from scipy import optimize

from aninfonce_jax.scores import checked
from aninfonce_jax.scores.checked import FloatArray


def match_concentration(true: npt.ArrayLike, learned: npt.ArrayLike) -> FloatArray:
    """Returns the learned Λ̂ in the order of the true factors, [dim].

    Theory fixes Λ̂ up to a permutation, so the i-th largest learned value is taken for
    the i-th largest true one. Among equal true values the larger learned one comes
    first.

    Raises:
      ValueError: shapes that do not fit, or values that are not positive and finite.
    """
    wanted = checked.concentration("true", true)
    found = checked.concentration("learned", learned)
    checked.same_length(wanted, found)
    matched = np.empty_like(found)
    matched[np.argsort(-wanted, kind="stable")] = -np.sort(-found)
    return matched


def concentration_error(true: npt.ArrayLike, learned: npt.ArrayLike) -> float:
    """Returns the largest relative error of Λ̂, with both sorted (see `match_concentration`).

    Example:
      >>> round(an.concentration_error([25.0, 5.0], [5.1, 25.0]), 3)
      0.02
    """
    return float(np.max(np.abs(match_concentration(true, learned) / np.asarray(true) - 1)))


def content_mask(concentration: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Returns which factors are content, [dim]: Λ above the midpoint of its extremes.

    Where all Λ are equal, every factor is content.
    """
    values = checked.concentration("concentration", concentration)
    low, high = values.min(), values.max()
    if np.isclose(low, high):
        return np.ones(values.shape, dtype=bool)
    return values > (low + high) / 2


@dataclasses.dataclass(frozen=True)
class BlockOrthogonality:
    """How far a map is what the theory allows: orthogonal within blocks of equal Λ.

    Attributes:
      inside: share of the map's squared entries that lie inside the blocks, 0 to 1;
        1: no factor leaks into a feature of another block.
      expected_inside: that share for a map with no structure at all, to compare with.
      deviations: per block, in order of falling Λ, how far it is from a multiple of an
        orthogonal matrix: ‖BᵀB / s - I‖ / √k in the Frobenius norm with the best scale
        s, for a block of k factors, [blocks]. 0: orthogonal; √((k - 1) / k): rank one;
        1: zero.
      sizes: factors per block, [blocks].
      feature_order: the features, ordered so that the i-th belongs to the same block
        as the factor of the i-th largest Λ, [dim].
    """

    inside: float
    expected_inside: float
    deviations: FloatArray
    sizes: npt.NDArray[np.intp]
    feature_order: npt.NDArray[np.intp]


def block_orthogonality(
    matrix: npt.ArrayLike,
    concentration: npt.ArrayLike,
    learned: npt.ArrayLike | None = None,
) -> BlockOrthogonality:
    """Measures how block-orthogonal a map from latents to features is.

    Args:
      matrix: the map A [dim, dim], features by latents, from `recovered_map`.
      concentration: the true Λ, [dim]; factors with (nearly) equal Λ form a block.
      learned: Λ̂, [dim], if there is one: features then join blocks by its order, the
        largest values the block of the largest Λ. Otherwise they are assigned such
        that most of the squared map lies inside the blocks, which is the choice that
        flatters the map most.

    Raises:
      ValueError: shapes that do not fit, values that are not finite, or Λ not positive.

    Example:
      >>> swapped = np.eye(4)[[1, 0, 3, 2]]  # factors of equal Λ may be mixed
      >>> an.block_orthogonality(swapped, [25.0, 25.0, 5.0, 5.0]).inside
      1.0
    """
    a = checked.square_map(matrix)
    values = checked.concentration("concentration", concentration)
    if values.shape != a.shape[:1]:
        raise ValueError(
            f"the map must have one column per concentration, got shape {a.shape} and "
            f"{len(values)} concentrations"
        )
    factor_order = np.argsort(-values, kind="stable")
    blocks = _blocks_of_equal_values(values[factor_order])
    if learned is None:
        feature_order = _features_by_energy(a[:, factor_order], blocks)
    else:
        found = checked.concentration("learned", learned)
        checked.same_length(values, found)
        feature_order = np.argsort(-found, kind="stable")
    ordered = a[np.ix_(feature_order, factor_order)]
    inside = sum(float(np.sum(ordered[block, block] ** 2)) for block in blocks)
    total = float(np.sum(ordered**2))
    sizes = np.array([block.stop - block.start for block in blocks], dtype=np.intp)
    return BlockOrthogonality(
        inside=inside / total if total > 0 else 0.0,
        expected_inside=float(np.sum(sizes**2) / len(values) ** 2),
        deviations=np.array([_deviation_from_orthogonal(ordered[b, b]) for b in blocks]),
        sizes=sizes,
        feature_order=feature_order,
    )


def recovered_concentration(
    true: npt.ArrayLike, learned: npt.ArrayLike, matrix: npt.ArrayLike
) -> FloatArray:
    """Returns Λ̂ in the order of the true factors, by what each feature recovers, [dim].

    Unlike `match_concentration` it does not forgive a Λ̂ that sits on a feature of another
    factor. Factors of equal Λ are only found up to a rotation among them, so a feature is
    assigned to a block of equal Λ, by where most of the squared map lies; within a block
    the larger Λ̂ comes first.

    Args:
      true: Λ, [dim].
      learned: Λ̂ of each feature, [dim].
      matrix: the map [dim, dim], features by latents, from `recovered_map`.

    Raises:
      ValueError: shapes that do not fit, or values that are not positive and finite.
    """
    values = checked.concentration("true", true)
    found = checked.concentration("learned", learned)
    checked.same_length(values, found)
    by_block = found[block_orthogonality(matrix, values).feature_order]
    factor_order = np.argsort(-values, kind="stable")
    for block in _blocks_of_equal_values(values[factor_order]):
        by_block[block] = -np.sort(-by_block[block])
    matched = np.empty_like(found)
    matched[factor_order] = by_block
    return matched


def _blocks_of_equal_values(descending: FloatArray) -> list[slice]:
    starts = [0]
    for i in range(1, len(descending)):
        # Compared with the first of the block, so that a slow drift does not chain.
        if not np.isclose(descending[i], descending[starts[-1]]):
            starts.append(i)
    return [slice(a, b) for a, b in zip(starts, [*starts[1:], len(descending)], strict=True)]


def _features_by_energy(matrix: FloatArray, blocks: list[slice]) -> npt.NDArray[np.intp]:
    """Orders features so that the squared map inside the blocks is largest."""
    # Every place within a block gains the same, so one assignment finds the optimum.
    gains = np.concatenate(
        [
            np.repeat(np.sum(matrix[:, block] ** 2, axis=1)[None], block.stop - block.start, axis=0)
            for block in blocks
        ]
    )
    return optimize.linear_sum_assignment(gains, maximize=True)[1]


def _deviation_from_orthogonal(block: FloatArray) -> float:
    gram = block.T @ block
    if not gram.any():
        return 1.0
    best_scale = np.sum(gram**2) / np.trace(gram)
    return float(np.linalg.norm(gram / best_scale - np.eye(len(gram))) / np.sqrt(len(gram)))
