"""How much of the latents the features hold: R², MCC, the recovered map.

Runs on the host, in float64 whatever comes in. Latents are [samples, dim] and features
[samples, feature_dim], row by row from the same observations.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from aninfonce_jax.scores import checked, intervals
from aninfonce_jax.scores.checked import FloatArray

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

    Example:
      >>> latents = np.random.default_rng(0).normal(size=(200, 2))
      >>> rotated = latents @ np.array([[0.6, 0.8], [-0.8, 0.6]])
      >>> round(float(an.linear_r2(latents, rotated)), 3)
      1.0
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

    Example:
      >>> latents = np.random.default_rng(0).normal(size=(200, 2))
      >>> kept = latents[:, :1]  # the second factor is lost
      >>> np.asarray(an.linear_r2_per_factor(latents, kept)).round(1) + 0.0
      array([1., 0.])
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
    z, h = checked.samples(latents, features)
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

    Example:
      >>> latents = np.random.default_rng(0).normal(size=(200, 2))
      >>> an.recovered_map(latents, latents[:, ::-1]).shape
      (2, 2)
    """
    z, h = checked.samples(latents, features)
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

    Example:
      >>> latents = np.random.default_rng(0).normal(size=(200, 2))
      >>> round(float(an.mcc(latents, -latents[:, ::-1])), 3)  # order and signs do not count
      1.0
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
    z, h = checked.samples(latents, features)
    correlations = _absolute_correlations(z, h, method)
    rows, columns = optimize.linear_sum_assignment(correlations, maximize=True)
    score = float(correlations[rows, columns].sum() / len(correlations))
    interval = intervals.mcc_interval(
        z[:, rows], h[:, columns], method=method, factors=len(correlations)
    )
    return score, interval


# --- Shared pieces ---


def _least_squares(inputs: FloatArray, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns slope [inputs, targets] and intercept [targets] of the best linear map."""
    input_mean, target_mean = inputs.mean(axis=0), targets.mean(axis=0)
    # lstsq takes the smallest of many solutions, so constant or repeated inputs are fine. But it
    # mistakes a column that is tiny beside another for a constant: so all get the same scale.
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
    z, h = checked.samples(latents, features)
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
