"""How much of the latents the features hold: R², MCC, the recovered map, Λ̂ against Λ.

Runs on the host, in float64 whatever comes in. Latents are [samples, dim] and features
[samples, feature_dim], row by row from the same observations.
"""

import dataclasses
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from aninfonce_jax.evaluation import intervals

FloatArray = npt.NDArray[np.float64]

CORRELATIONS: tuple[Literal["pearson"], Literal["spearman"]] = ("pearson", "spearman")


# --- Linear readout ---


def linear_r2(
    latents: npt.ArrayLike,
    features: npt.ArrayLike,
    *,
    holdout: bool = True,
    seed: int | None = 0,
) -> float:
    """Returns the R² of a linear map from features to latents, the mean over factors.

    Args:
      latents: [samples, dim].
      features: [samples, feature_dim].
      holdout: whether to fit on one half of the samples and score on the other.
        Otherwise the map is fitted and scored on the same points, which flatters it.
      seed: of the random halves. They are random because samples often come sorted, by class
        or by a factor, and a map that is fitted on one end of the data says little about the
        other. The same seed gives the same halves. None: the first half and the second, as
        the samples come.

    Raises:
      TypeError: what is not real numbers, or a seed that is no int.
      ValueError: shapes that do not fit, values that are not finite, or too few samples.
    """
    return float(linear_r2_per_factor(latents, features, holdout=holdout, seed=seed).mean())


def linear_r2_per_factor(
    latents: npt.ArrayLike,
    features: npt.ArrayLike,
    *,
    holdout: bool = True,
    seed: int | None = 0,
) -> FloatArray:
    """Returns the R² of a linear map from features to each latent factor, [dim].

    R² is 1 - Σ(error²) / Σ((latent - its mean)²) over the scored samples; below zero
    where the map does worse than that mean. A factor that is constant there has nothing
    to explain and counts as 0.

    Args and Raises: as `linear_r2`.
    """
    z, predictions = linear_readout(latents, features, holdout=holdout, seed=seed)
    error = np.sum((z - predictions) ** 2, axis=0)
    spread = np.sum((z - z.mean(axis=0)) ** 2, axis=0)
    constant = _is_constant(z)
    return np.where(constant, 0.0, 1 - error / np.where(constant, 1.0, spread))


def linear_readout(
    latents: npt.ArrayLike,
    features: npt.ArrayLike,
    *,
    holdout: bool = True,
    seed: int | None = 0,
) -> tuple[FloatArray, FloatArray]:
    """Returns what `linear_r2` scores: latents, and what a linear map makes of the features.

    Args and Raises: as `linear_r2`.

    Returns:
      Latents and predictions of the samples that are scored, [scored, dim] each.
    """
    z, h = _checked_samples(latents, features)
    z, h = _scaled(z)[0], _scaled(h)[0]  # R² depends on the scale of neither
    everything = np.arange(len(z))
    fitted, scored = _halves(len(z), seed) if holdout else (everything, everything)
    needed = h.shape[1] + 2
    available = len(fitted)
    if available < needed:
        raise ValueError(
            f"a linear map from {h.shape[1]} features needs at least {needed} samples to be "
            f"fitted on, got {available} ({len(z)} in all, holdout={holdout}); pass more samples"
        )
    slope, intercept = _least_squares(h[fitted], z[fitted])
    return z[scored], h[scored] @ slope + intercept


def recovered_map(latents: npt.ArrayLike, features: npt.ArrayLike) -> FloatArray:
    """Returns A [feature_dim, dim] with features ≈ latents @ A.T + c, by least squares.

    Raises:
      ValueError: shapes that do not fit, values that are not finite, or too few samples.
    """
    z, h = _checked_samples(latents, features)
    if len(z) < z.shape[1] + 2:
        raise ValueError(
            f"a linear map from {z.shape[1]} latents needs at least {z.shape[1] + 2} samples, "
            f"got {len(z)}; pass more samples"
        )
    z, z_exponents = _scaled(z)
    h, h_exponents = _scaled(h)
    slope = _least_squares(z, h)[0]
    return np.ldexp(slope, h_exponents[None, :] - z_exponents[:, None]).T


# --- Factor by factor ---


def mcc(
    latents: npt.ArrayLike,
    features: npt.ArrayLike,
    method: Literal["pearson", "spearman"] = "pearson",
) -> float:
    """Returns the mean correlation coefficient of latents and their matched features.

    Each factor is matched with one feature so that the sum of absolute correlations is
    largest. 1 means equal up to order, signs and scales (any monotonic map under
    "spearman"). A constant column correlates with nothing: it counts as 0. Factors left
    without a feature, if there are fewer features than factors, count as 0 too.

    Args:
      latents: [samples, dim].
      features: [samples, feature_dim].
      method: "pearson", or "spearman" for the correlation of ranks.

    Raises:
      ValueError: shapes that do not fit, values that are not finite, fewer than two
        samples, or an unknown method.
    """
    return mcc_with_interval(latents, features, method)[0]


def mcc_with_interval(
    latents: npt.ArrayLike,
    features: npt.ArrayLike,
    method: Literal["pearson", "spearman"] = "pearson",
) -> tuple[float, list[float]]:
    """Returns `mcc` and its interval over the samples; see `intervals.mcc_interval`.

    Args and Raises: as `mcc`.
    """
    z, h = _checked_samples(latents, features)
    correlations = _absolute_correlations(z, h, method)
    rows, columns = optimize.linear_sum_assignment(correlations, maximize=True)
    score = float(correlations[rows, columns].sum() / len(correlations))
    interval = intervals.mcc_interval(
        z[:, rows], h[:, columns], method=method, factors=len(correlations)
    )
    return score, interval


def match_factors(
    latents: npt.ArrayLike,
    features: npt.ArrayLike,
    method: Literal["pearson", "spearman"] = "pearson",
) -> npt.NDArray[np.intp]:
    """Returns for each latent factor the index of the feature that `mcc` matches, [dim].

    `features[:, match_factors(latents, features)]` is in the order of the latents.

    Raises:
      ValueError: as `mcc`, and if there are fewer features than factors.
    """
    correlations = _absolute_correlations(latents, features, method)
    factors, count = correlations.shape
    if count < factors:
        raise ValueError(
            f"every factor needs a feature of its own, got {factors} factors and {count} features"
        )
    return optimize.linear_sum_assignment(correlations, maximize=True)[1]


# --- Concentrations ---


def match_concentration(true: npt.ArrayLike, learned: npt.ArrayLike) -> FloatArray:
    """Returns the learned Λ̂ in the order of the true factors, [dim].

    Theory fixes Λ̂ up to a permutation, so the i-th largest learned value is taken for
    the i-th largest true one. Among equal true values the larger learned one comes
    first.

    Raises:
      ValueError: shapes that do not fit, or values that are not positive and finite.
    """
    wanted = _checked_concentration("true", true)
    found = _checked_concentration("learned", learned)
    _check_same_length(wanted, found)
    matched = np.empty_like(found)
    matched[np.argsort(-wanted, kind="stable")] = -np.sort(-found)
    return matched


def concentration_error(true: npt.ArrayLike, learned: npt.ArrayLike) -> float:
    """Returns the largest relative error of Λ̂, with both sorted (see `match_concentration`)."""
    return float(np.max(np.abs(match_concentration(true, learned) / np.asarray(true) - 1)))


def content_mask(concentration: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Returns which factors are content, [dim]: Λ above the midpoint of its extremes.

    Where all Λ are equal, every factor is content.
    """
    values = _checked_concentration("concentration", concentration)
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
    """
    a = _checked_square(matrix)
    values = _checked_concentration("concentration", concentration)
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
        found = _checked_concentration("learned", learned)
        _check_same_length(values, found)
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
    values = _checked_concentration("true", true)
    found = _checked_concentration("learned", learned)
    _check_same_length(values, found)
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


# --- Shared pieces ---


def _least_squares(inputs: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns slope [inputs, targets] and intercept [targets] of the best linear map."""
    input_mean, target_mean = inputs.mean(axis=0), targets.mean(axis=0)
    # lstsq takes the smallest of many solutions, so constant or repeated inputs are fine. It
    # takes a column for constant that is tiny beside another, so they are brought to one scale.
    centred, exponents = _scaled(np.where(_is_constant(inputs), 0.0, inputs - input_mean))
    slope = np.linalg.lstsq(centred, targets - target_mean, rcond=None)[0]
    slope = np.ldexp(slope, -exponents[:, None])
    return slope, target_mean - input_mean @ slope


def _scaled(x: FloatArray) -> tuple[FloatArray, npt.NDArray[np.intp]]:
    """Returns columns with entries below 1, and the powers of 2 that they were divided by.

    So neither 1e200 nor 1e-200 leaves the range of float64 when squared, and nothing is rounded.
    """
    exponents = np.frexp(np.max(np.abs(x), axis=0))[1]
    return np.ldexp(x, -exponents[None, :]), exponents


def _absolute_correlations(
    latents: npt.ArrayLike, features: npt.ArrayLike, method: str
) -> FloatArray:
    """Returns |correlation| of every factor with every feature, [dim, feature_dim]."""
    if method not in CORRELATIONS:
        raise ValueError(
            f"method must be one of {', '.join(map(repr, CORRELATIONS))}, got {method!r}"
        )
    z, h = _checked_samples(latents, features)
    constant_z, constant_h = _is_constant(z), _is_constant(h)
    if method == "spearman":
        z, h = stats.rankdata(z, axis=0), stats.rankdata(h, axis=0)
    correlations = np.abs(_standardized(z, constant_z).T @ _standardized(h, constant_h))
    return np.minimum(correlations, 1.0)


def _standardized(x: FloatArray, constant: npt.NDArray[np.bool_]) -> FloatArray:
    """Centres columns and scales them to unit length; constant ones become zero."""
    x = _scaled(x)[0]
    x = x - x.mean(axis=0)
    return np.where(constant, 0.0, x / np.where(constant, 1.0, np.linalg.norm(x, axis=0)))


def _is_constant(x: FloatArray) -> npt.NDArray[np.bool_]:
    return x.max(axis=0) == x.min(axis=0)


def _halves(samples: int, seed: int | None) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Returns which samples to fit on and which to score on."""
    order = np.arange(samples)
    if seed is not None:
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
            raise TypeError(f"seed must be an int or None, got {type(seed).__name__}")
        if seed < 0:
            raise ValueError(f"seed must be at least 0, got {seed}")
        # Raw generator output, which every version of NumPy gives alike.
        draws = np.random.Philox(np.random.SeedSequence(int(seed))).random_raw(samples)
        order = np.argsort(draws, kind="stable")
    return order[: samples // 2], order[samples // 2 :]


# --- Checks ---


def _checked_samples(
    latents: npt.ArrayLike, features: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    z, h = _real("latents", latents), _real("features", features)
    for name, x in (("latents", z), ("features", h)):
        if x.ndim != 2:
            raise ValueError(
                f"{name} must have shape [samples, dim], got {x.shape}; for a single column "
                f"pass {name}[:, None]"
            )
        if x.shape[1] == 0:
            raise ValueError(f"{name} must have at least one column, got shape {x.shape}")
        if not np.isfinite(x).all():
            raise ValueError(
                f"{name} must be finite, got {np.count_nonzero(~np.isfinite(x))} NaN or infinite "
                f"of {x.size} values"
            )
    if len(z) != len(h):
        raise ValueError(
            f"latents and features must have the same number of rows, got {len(z)} and {len(h)}"
        )
    if len(z) < 2:
        raise ValueError(f"at least 2 samples are needed, got {len(z)}")
    return z, h


def _real(name: str, values: npt.ArrayLike) -> FloatArray:
    """Returns `values` in float64."""
    try:
        given = np.asarray(values)
        # Types of other libraries, such as bfloat16, are of kind V and convert by themselves.
        if given.dtype.kind not in "biufV":
            raise TypeError(f"dtype {given.dtype}")
        return given.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{name} must be an array of real numbers, got {error}") from error


def _checked_concentration(name: str, values: npt.ArrayLike) -> FloatArray:
    x = _real(name, values)
    if x.ndim != 1 or x.size == 0:
        raise ValueError(f"{name} must be a vector of concentrations [dim], got shape {x.shape}")
    wrong = x[~(np.isfinite(x) & (x > 0))]
    if wrong.size:
        raise ValueError(f"{name} must be positive and finite, got {wrong[0]}")
    return x


def _check_same_length(true: FloatArray, learned: FloatArray) -> None:
    if len(true) != len(learned):
        raise ValueError(
            f"true and learned concentrations must have the same length, got {len(true)} and "
            f"{len(learned)}"
        )


def _checked_square(matrix: npt.ArrayLike) -> FloatArray:
    a = _real("the map", matrix)
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError(f"the map must be square [dim, dim], got shape {a.shape}")
    if not np.isfinite(a).all():
        raise ValueError("the map must be finite, got NaN or infinite entries")
    # Nothing that is measured of a map depends on its scale, but squares have to exist.
    return np.ldexp(a, -np.frexp(np.max(np.abs(a), initial=0.0))[1])
