"""How much of each factor a readout finds in all features together: linear, kernel, trees.

Explicitness in the sense of Eastwood et al. (2023, DCI-ES): what a readout of growing capacity
adds tells whether a factor is there but bent, or is lost. A readout is fitted on one half of
the samples and scored on the other.
"""

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from scipy.spatial import distance

from aninfonce_jax.scores import intervals
from aninfonce_jax.scores.estimates import (
    Estimate,
    FloatArray,
    checked_samples,
    factor_warnings,
    halves,
    standardised,
)
from aninfonce_jax.scores.trees import fit_trees

Readout = Literal["linear", "kernel", "trees"]
READOUTS: tuple[Readout, ...] = get_args(Readout)

FEWEST_SAMPLES = 40
# Points that the kernel is spanned by; with fewer samples to fit on, ridge regression is exact.
LANDMARKS = 512
# Rows whose kernel is held at a time.
CHUNK = 2048
# Widths of the kernel, as multiples of the median distance of two samples.
BANDWIDTHS = (0.5, 1.0, 2.0, 4.0)
PENALTIES = tuple(10.0**power for power in range(-8, 2))
# One in so many of the rows to fit on is set aside to choose among them.
_SET_ASIDE = 5
_NEGLIGIBLE = 1e-10


def explicitness(
    latents: npt.ArrayLike,
    features: npt.ArrayLike,
    *,
    readout: Readout = "kernel",
    seed: int = 0,
) -> Estimate:
    """Returns the held-out R² of a readout from features to latents, the mean over factors.

    "linear" is ridge regression; "kernel" is ridge regression with a Gaussian kernel (Saunders
    et al., 1998) on at most 512 landmarks (Williams and Seeger, 2001), so that memory stays
    bounded; "trees" is gradient boosting (Friedman, 2001). Penalty, bandwidth and number of
    trees are chosen on a fifth of the half that is fitted on. Features are standardised first.

    Assumes that samples are independent: with several of one object, what is fitted has seen
    what is scored. A low score of one readout means that *it* did not find the factor. The
    interval holds the readout fixed and moves the scored samples (`scores/intervals.py`).

    Args:
      latents: [samples, dim].
      features: [samples, feature_dim].
      readout: "linear", "kernel" or "trees".
      seed: of the halves and the landmarks.

    Raises:
      ValueError: shapes that do not fit, values that are not finite, fewer than 40 samples, or
        an unknown readout.

    Example:
      >>> latents = np.random.default_rng(0).normal(size=(200, 2))
      >>> bent = latents**3
      >>> kernel = an.explicitness(latents, bent, readout="kernel").value
      >>> kernel > an.explicitness(latents, bent, readout="linear").value
      True
    """
    z, h = checked_samples(latents, features)
    targets, predictions = read_out(z, h, readout=readout, seed=seed)
    warnings = factor_warnings(z)
    fitted = len(z) - len(targets)
    if fitted < 10 * h.shape[1]:
        warnings.append(
            f"{fitted} samples to fit {h.shape[1]} features on: a readout of more samples would "
            "find more"
        )
    return r2_estimate(f"explicitness ({readout})", targets, predictions, tuple(warnings))


def r2_estimate(
    name: str, targets: FloatArray, predictions: FloatArray, warnings: tuple[str, ...] = ()
) -> Estimate:
    """Returns the mean R² over factors, both [scored, dim]; a constant factor counts as 0."""
    spread = np.sum((targets - targets.mean(axis=0)) ** 2, axis=0)
    error = np.sum((targets - predictions) ** 2, axis=0)
    r2 = np.where(spread > 0, 1 - error / np.where(spread > 0, spread, 1.0), 0.0)
    (interval,) = intervals.r2_intervals(targets, predictions, np.ones((1, targets.shape[1])))
    return Estimate(name, float(r2.mean()), interval, r2, warnings)


def read_out(
    latents: FloatArray, features: FloatArray, *, readout: Readout, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Returns latents of the scored half, and what the readout makes of its features."""
    if readout not in READOUTS:
        raise ValueError(f"readout must be one of {', '.join(READOUTS)}, got {readout!r}")
    if len(latents) < FEWEST_SAMPLES:
        raise ValueError(f"a readout needs at least {FEWEST_SAMPLES} samples, got {len(latents)}")
    fitted, scored = halves(len(latents), seed)
    h = standardised(features, features[fitted])
    z = standardised(latents, latents[fitted])
    if readout == "trees":
        columns = [fit_trees(h[fitted], column)(h[scored]) for column in z[fitted].T]
        return z[scored], np.stack(columns, axis=1)
    if readout == "linear":
        return z[scored], _ridge(h[fitted], z[fitted], h[scored])[0]
    return z[scored], _kernel_ridge(h[fitted], z[fitted], h[scored], seed)


def _kernel_ridge(
    fitted: FloatArray, targets: FloatArray, scored: FloatArray, seed: int
) -> FloatArray:
    rng = np.random.default_rng(seed)
    landmarks = fitted[rng.permutation(len(fitted))[:LANDMARKS]]
    squares = distance.cdist(landmarks, landmarks, "sqeuclidean")
    typical = float(np.median(squares[squares > 0])) if (squares > 0).any() else 1.0
    best, best_error = np.zeros((len(scored), targets.shape[1])), np.inf
    for bandwidth in BANDWIDTHS:
        scale = 2 * bandwidth**2 * typical
        values, axes = np.linalg.eigh(np.exp(-squares / scale))
        kept = values > _NEGLIGIBLE * values[-1]
        whiten = axes[:, kept] / np.sqrt(values[kept])
        inputs, others = (_kernel_map(x, landmarks, scale, whiten) for x in (fitted, scored))
        predictions, error = _ridge(inputs, targets, others)
        if error < best_error:
            best, best_error = predictions, error
    return best


def _kernel_map(
    rows: FloatArray, landmarks: FloatArray, scale: float, whiten: FloatArray
) -> FloatArray:
    """Returns features whose inner products are the kernel's, [rows, kept]."""
    parts = [
        np.exp(-distance.cdist(rows[i : i + CHUNK], landmarks, "sqeuclidean") / scale) @ whiten
        for i in range(0, len(rows), CHUNK)
    ]
    return np.concatenate(parts)


def _ridge(inputs: FloatArray, targets: FloatArray, others: FloatArray) -> tuple[FloatArray, float]:
    """Returns predictions for others, and the error on rows set aside of the best penalty."""
    kept = len(inputs) - len(inputs) // _SET_ASIDE
    paths = _ridge_path(inputs[:kept], targets[:kept], inputs[kept:], PENALTIES)
    errors = [float(np.mean((targets[kept:] - guess) ** 2)) for guess in paths]
    best = int(np.argmin(errors))
    return _ridge_path(inputs, targets, others, (PENALTIES[best],))[0], errors[best]


def _ridge_path(
    inputs: FloatArray,
    targets: FloatArray,
    others: FloatArray,
    penalties: tuple[float, ...],
) -> list[FloatArray]:
    mean, target_mean = inputs.mean(axis=0), targets.mean(axis=0)
    centred = inputs - mean
    values, axes = np.linalg.eigh(centred.T @ centred / len(inputs))
    values = np.maximum(values, 0.0)
    moment = axes.T @ (centred.T @ (targets - target_mean)) / len(inputs)
    turned = (others - mean) @ axes
    return [turned @ (moment / (values + p)[:, None]) + target_mean for p in penalties]
