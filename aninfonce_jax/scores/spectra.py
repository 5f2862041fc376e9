"""Scores of embeddings by their spectrum, without labels: RankMe, α-ReQ, LiDAR.

They were proposed to choose among encoders without a downstream task. They compare runs of one
kind on the same inputs; none of them says that a factor was found. Intervals are by the
infinitesimal jackknife, what a bootstrap tends to (`scores/intervals.py`).
"""

import numpy as np
import numpy.typing as npt
from scipy import linalg

from aninfonce_jax.scores import checked, intervals
from aninfonce_jax.scores.estimates import Estimate, FloatArray, interval_about
from aninfonce_jax.scores.labelled import checked_features

# What is added to the covariance within objects, relative to its mean variance.
_REGULAR = 1e-4
# Beyond it sampling bends the spectrum: eigenvalues of index i need this many times i samples.
_SAMPLES_PER_INDEX = 10


def rankme(features: npt.ArrayLike) -> Estimate:
    """Returns RankMe (Garrido et al., 2023): the effective rank of uncentred embeddings.

    exp of the entropy of the singular values' shares, from 1 to min(samples, feature_dim).

    Assumes many more samples than features (with n samples it is at most n), and that a common
    offset of the embeddings counts as a direction, and a large one as a collapse;
    `collapse_scores` centres first.

    Args:
      features: [samples, feature_dim].

    Raises:
      ValueError: shapes that do not fit, values that are not finite, or all zero.

    Example:
      >>> features = np.random.default_rng(0).normal(size=(500, 8))
      >>> an.rankme(features).value > 7.5
      True
    """
    x = checked.near_one(checked_features("features", features, np.float64))
    if len(x) < 2:
        raise ValueError("at least 2 samples are needed, got 1")
    if not x.any():
        raise ValueError("features must not all be zero; the encoder may have collapsed")
    rank, interval = intervals.effective_rank(x)
    warnings = _sample_warnings(len(x), x.shape[1])
    centre = float(np.linalg.norm(x.mean(axis=0)) / np.sqrt(np.mean(np.sum(x**2, axis=1))))
    if centre > 0.5:
        warnings.append(
            f"the mean embedding has {centre:.2f} of the typical length: RankMe takes such an "
            "offset for a collapse; centre the embeddings, or compare the effective rank"
        )
    return Estimate("RankMe", rank, interval, None, tuple(warnings))


def alpha_req(features: npt.ArrayLike, *, first: int = 1, last: int | None = None) -> Estimate:
    """Returns α of α-ReQ (Agrawal et al., 2022): how fast the eigenspectrum decays.

    The slope of log eigenvalue against log index of the covariance, with its sign turned:
    eigenvalues ∝ index^(-α). Near 1 was found to go with good representations; near 0 is a
    flat spectrum, far above 1 a collapse onto few directions.

    Assumes a power law. Where the slopes of both halves of the range differ much, there is
    none, and a warning says so: an embedding of independent factors on the sphere, for one, has
    a flat spectrum by right.

    Args:
      features: [samples, feature_dim].
      first: index of the first eigenvalue that counts, from 1.
      last: index of the last; None for all that are positive and that so many samples can tell.

    Raises:
      ValueError: shapes that do not fit, values that are not finite, or fewer than 3 eigenvalues.

    Example:
      >>> features = np.random.default_rng(0).normal(size=(500, 32)) / np.arange(1, 33)
      >>> 1.5 < an.alpha_req(features).value < 2.5  # variances fall as the rank to the power -2
      True
    """
    x = checked.near_one(checked_features("features", features, np.float64))
    centred = x - x.mean(axis=0)
    values, axes = np.linalg.eigh(centred.T @ centred / len(x))
    values, axes = values[::-1], axes[:, ::-1]
    positive = int(np.sum(values > values[0] * np.finfo(np.float64).eps * len(values)))
    told = min(positive, max(len(x) // _SAMPLES_PER_INDEX, 3))
    end = told if last is None else min(last, positive)
    if first < 1 or end - first < 2:
        raise ValueError(
            f"a slope needs at least 3 eigenvalues, got indices {first} to {end} ({positive} are "
            "positive); pass more samples or features, or an earlier `first`"
        )
    index = np.arange(first, end + 1)
    kept = slice(first - 1, end)
    weights = _slope_weights(index)
    logs = np.log(values[kept])
    alpha = -float(weights @ logs)
    influence = -(((centred @ axes[:, kept]) ** 2 / values[kept]) - 1) @ weights
    error = float(np.sqrt(np.mean(influence**2) / (len(x) - 1)))
    warnings = _sample_warnings(len(x), end)
    middle = len(index) // 2
    if middle >= 3:
        early = -float(_slope_weights(index[:middle]) @ logs[:middle])
        late = -float(_slope_weights(index[middle:]) @ logs[middle:])
        if max(abs(early - alpha), abs(late - alpha)) > 0.5 * max(abs(alpha), 0.5):
            warnings.append(
                f"no power law: the first half of the spectrum has α = {early:.2f}, the second "
                f"{late:.2f}"
            )
    return Estimate(
        "α-ReQ", alpha, interval_about(alpha, error, high=np.inf), None, tuple(warnings)
    )


def lidar(embeddings: npt.ArrayLike) -> Estimate:
    """Returns LiDAR (Thilak et al., 2024): the rank that tells objects apart.

    exp of the entropy of the eigenvalues' shares of Σw^(-½) Σb Σw^(-½), with Σb the covariance
    of the objects' means and Σw that of the views about them, made regular by 1e-4 of its mean
    variance. So directions that vary only between views of one object do not count.

    Assumes several views of each object, alike in number, and that what differs between views
    is noise: for AnInfoNCE, whose style factors are to be kept, low values are no fault.

    Args:
      embeddings: [objects, views, feature_dim].

    Raises:
      ValueError: another shape, fewer than 2 objects or views, or values that are not finite.

    Example:
      >>> objects = np.random.default_rng(0).normal(size=(200, 1, 4)) * [1, 1, 0, 0]
      >>> views = objects + 0.1 * np.random.default_rng(1).normal(size=(200, 3, 4))
      >>> 1.9 < an.lidar(views).value < 2.3  # two directions tell objects apart
      True
    """
    x = checked.real("embeddings", embeddings)
    if x.ndim != 3 or x.shape[0] < 2 or x.shape[1] < 2 or x.shape[2] < 1:
        raise ValueError(
            "embeddings must have shape [objects, views, feature_dim] with at least 2 objects and "
            f"views, got {x.shape}; np.stack((view1, view2), axis=1) makes it of pairs"
        )
    if not np.isfinite(x).all():
        raise ValueError("embeddings must be finite, got NaN or infinite values")
    x = checked.near_one(x)
    objects, views, dim = x.shape
    means = x.mean(axis=1)
    centred = means - means.mean(axis=0)
    within = x - means[:, None, :]
    between = centred.T @ centred / (objects - 1)
    inside = np.einsum("oqi,oqj->ij", within, within) / (objects * (views - 1))
    if np.trace(inside) < np.finfo(np.float64).eps * np.trace(between):
        raise ValueError(
            "views of one object must differ, but they are the same; LiDAR has no scale"
        )
    inside += np.eye(dim) * max(_REGULAR * np.trace(inside) / dim, np.finfo(np.float64).tiny)
    values, axes = linalg.eigh(between, inside)  # axesᵀ inside axes = 1
    kept = values > max(values[-1], 0.0) * np.finfo(np.float64).eps * dim
    if not kept.any():
        raise ValueError("all objects have the same mean embedding; the encoder has collapsed")
    values, axes = values[kept], axes[:, kept]
    shares = values / values.sum()
    entropy = -float(np.sum(shares * np.log(shares)))
    # By the chain rule: the entropy depends on the eigenvalues, and these on an object's weight.
    slopes = -(np.log(shares) + entropy) / values.sum()
    own_within = np.sum((within @ axes) ** 2, axis=1) / (views - 1)
    influence = ((centred @ axes) ** 2 - values * own_within) @ slopes
    error = float(np.sqrt(np.mean((influence - influence.mean()) ** 2) / (objects - 1)))
    rank = float(np.exp(entropy))
    half = 1.96 * error
    interval = [rank * float(np.exp(-half)), rank * float(np.exp(half))]
    return Estimate("LiDAR", rank, interval, None, tuple(_sample_warnings(objects, dim)))


def _slope_weights(index: npt.NDArray[np.intp]) -> FloatArray:
    """What each log eigenvalue contributes to the slope of a line by least squares."""
    logs = np.log(index) - np.mean(np.log(index))
    return logs / np.sum(logs**2)


def _sample_warnings(samples: int, dim: int) -> list[str]:
    if samples >= _SAMPLES_PER_INDEX * dim:
        return []
    return [
        f"{samples} samples for {dim} directions: sampling bends the spectrum; pass at least "
        f"{_SAMPLES_PER_INDEX * dim}, or compare runs at the same number"
    ]
