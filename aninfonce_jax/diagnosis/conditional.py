"""Checks of p(v|u): what views share, its shape, centre and axes, and whether Λ is constant.

All but the dip test and that of what views share are tests by Stein's identity
(`score_matching.py`) against the theorem's density on the sphere itself. Residuals of a wide
conditional on a sphere are not normal even if every assumption holds; these tests know that.

The functions that are tested with are damped for large residuals: powers up to the fourth are so
heavy-tailed that a test of thousands of pairs would raise too many false alarms.
"""

import numpy as np
import numpy.typing as npt
from scipy import stats

from aninfonce_jax.diagnosis.dip import dip_p_value, dip_statistic
from aninfonce_jax.diagnosis.findings import LEVEL, POWER, Evidence, Finding, histogram, strongest
from aninfonce_jax.diagnosis.score_matching import (
    Fit,
    errors_about,
    fit_concentration,
    missing_products,
    missing_terms,
)

FloatArray = npt.NDArray[np.float64]

PAIRING, SHAPE, MODES, CENTRE, AXES, CONSTANT, LEARNED = (
    "pairing", "shape", "one mode", "centre", "axes", "constant Λ", "learned Λ",
)  # fmt: skip
# What figures show: so many pairs of dimensions, groups of anchors, and these quantiles.
_SHOWN_PRODUCTS = 10
_GROUPS = 5
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
# One less the correlation of an output's two views.
_UNSHARED_TOLERANCE = 0.9
# Skewness and excess kurtosis of a residual; a Laplace distribution has a kurtosis of 3.
_SKEWNESS_TOLERANCE = 0.75
_KURTOSIS_TOLERANCE = 1.5
# How often each of both counts among the tests: with once, 5.7 % of 1,400 draws of sound pairs were
# alarms, python benchmarks/diagnose.py alarms --checks=shape.
_MOMENTS_COUNTED = 1.5
# Distance of distribution functions.
_DIP_TOLERANCE = 0.01
# In standard deviations of a residual, per standard deviation of the anchor.
_CENTRE_TOLERANCE = 0.3
# Weight of a product of two dimensions in the exponent, over the roots of their Λ.
_AXES_TOLERANCE = 0.25
# Relative change of Λ per standard deviation of the anchor, and of Λ̂ from the fitted Λ.
_CHANGE_TOLERANCE = 0.4
_LEARNED_TOLERANCE = 0.25


def check_pairing(fit: Fit, names: list[str]) -> Finding:
    """Asks whether the two views of a pair have something of every output in common.

    Views that have nothing in common fit the density with Λ = 0, where every other check holds.
    Tested is that the correlation is at least what is harmless, by Fisher's transformation.
    """
    n, m = fit.anchors.shape
    u, v = _standardised(fit.anchors), _standardised(fit.positives)
    shared = np.mean(u * v, axis=0)
    least = float(np.arctanh(1 - _UNSHARED_TOLERANCE))
    scores = np.arctanh(np.clip(shared, -1 + 1e-12, 1 - 1e-12))
    worst, error = int(np.argmin(scores)), 1 / np.sqrt(n - 3)
    reach = float(stats.norm.isf(LEVEL / (2 * m))) * error
    low, high = (float(1 - np.tanh(scores[worst] + side * reach)) for side in (1, -1))
    needed = float(stats.norm.isf(LEVEL / m) + stats.norm.ppf(POWER)) * error
    evidence = Evidence(
        f"what the two views do not share, 1 - correlation ({names[worst]})",
        float(1 - shared[worst]),
        (low, high),
        _UNSHARED_TOLERANCE,
        statistic=float(shared[worst]),
        p_value=min(1.0, m * float(stats.norm.cdf((scores[worst] - least) / error))),
        # Where the interval excludes harm, no more pairs are needed to see it.
        detectable=None if high < _UNSHARED_TOLERANCE else float(1 - np.tanh(least - needed)),
    )
    return Finding(
        PAIRING,
        "the two views of a pair have something of every output in common",
        (evidence,),
        "If it is so for all outputs, the rows of the views do not belong together: was one of "
        "them shuffled or sorted? If for some, views share nothing of these, so that no loss "
        "on pairs can find what they hold: take milder augmentations, or fewer outputs.",
        is_cause=True,
        details={"shared": shared.tolist()},
    )


def check_shape(fit: Fit, names: list[str]) -> Finding:
    """Asks whether residuals are as skewed and as peaked as the density makes them."""
    s = fit.scale
    x = s * fit.residuals
    damp = np.exp(-(x**2) / 8)
    skew = missing_terms(fit, s * damp * (x**2 - 1) / 2, s**2 * damp * x * (1 - (x**2 - 1) / 8))
    kurtosis = missing_terms(
        fit,
        s * damp * (x**3 - 3 * x) / 6,
        s**2 * damp * ((x**2 - 1) / 2 - (x**4 - 3 * x**2) / 24),
    )
    evidence = tuple(
        strongest(
            f"{moment} that Λ does not explain", *found, tolerance, names,
            counted=_MOMENTS_COUNTED,
        )
        for moment, found, tolerance in (
            ("skewness", skew, _SKEWNESS_TOLERANCE),
            ("excess kurtosis", kurtosis, _KURTOSIS_TOLERANCE),
        )
    )  # fmt: skip
    return Finding(
        SHAPE,
        "positives follow exp(-½ (v - u)ᵀΛ(v - u)), dimension by dimension",
        evidence,
        "The score of the loss has another shape than the conditional. Try the Lp loss with an "
        "exponent that fits (1 for heavy tails), change the augmentation that makes the skewed "
        "dimension, or add dimensions so that each can be simpler.",
        details={
            "skewness": skew[0].tolist(),
            "skewness_errors": skew[1].tolist(),
            "excess_kurtosis": kurtosis[0].tolist(),
            "excess_kurtosis_errors": kurtosis[1].tolist(),
            "quantiles": list(_QUANTILES),
            "residual_quantiles": np.quantile(x, _QUANTILES, axis=0).T.tolist(),
        },
    )


def check_modes(fit: Fit, names: list[str], most: int = 4000) -> Finding:
    """Asks whether residuals in the tangent space have one mode, by Hartigans' dip test."""
    u, v = fit.anchors[:most], fit.positives[:most]
    tangent = v - np.sum(u * v, axis=1, keepdims=True) * u
    n, m = tangent.shape
    dips = np.array([dip_statistic(column) for column in tangent.T])
    worst = int(np.argmax(dips))
    p_value = min(1.0, m * dip_p_value(float(dips[worst]), n))
    # As far as the sample's distribution function is from the truth at the most (Massart, 1990).
    reach = float(np.sqrt(np.log(2 * m / LEVEL) / (2 * n)))
    effect = float(dips[worst])
    evidence = Evidence(
        f"dip ({names[worst]})",
        effect,
        (max(effect - reach, 0.0), effect + reach),
        _DIP_TOLERANCE,
        statistic=float(np.sqrt(n) * effect),
        p_value=p_value,
    )
    return Finding(
        MODES,
        "the positives of an anchor have one mode in every dimension",
        (evidence,),
        "An augmentation is on or off (grey, flip) and shows as two modes. Draw its strength from "
        "a continuous range, or leave it out.",
        details={
            "dips": dips.tolist(),
            "worst": {"where": names[worst], **histogram(fit.scale[worst] * tangent[:, worst])},
        },
    )


def check_centre(fit: Fit, names: list[str]) -> Finding:
    """Asks whether the mode is the anchor, wherever it is."""
    s = fit.scale
    none = np.zeros_like(fit.anchors)
    moved = []
    for weight in (np.ones(len(none)), *_standardised(fit.anchors).T):
        moved.append(missing_terms(fit, np.broadcast_to(s, none.shape) * weight[:, None], none))
    labels = [f"{name}, everywhere" for name in names]
    labels += [f"{name}, with the anchor's {other}" for other in names for name in names]
    effects, errors = (np.concatenate(parts) for parts in zip(*moved, strict=True))
    name = "shift of the mode, in standard deviations"
    evidence = strongest(name, effects, errors, _CENTRE_TOLERANCE, labels)
    return Finding(
        CENTRE,
        "the positives of an anchor centre on it",
        (evidence,),
        "The two views differ by more than noise: are they made alike? A view that is always "
        "transformed (one clean, one augmented) shifts; augment both.",
        details={"everywhere": moved[0][0].tolist(), "everywhere_errors": moved[0][1].tolist()},
    )


def check_axes(fit: Fit, names: list[str]) -> Finding:
    """Asks whether Λ is diagonal in the dimensions of the embedding."""
    d = fit.anchors.shape[1]
    found = [missing_products(fit, k) for k in range(d - 1)]
    scales = np.concatenate([fit.scale[k] * fit.scale[k + 1 :] for k in range(d - 1)])
    effects, errors = (np.concatenate(parts) / scales for parts in zip(*found, strict=True))
    labels = [f"{names[k]} and {names[j]}" for k in range(d) for j in range(k + 1, d)]
    largest = np.argsort(-np.abs(effects))[:_SHOWN_PRODUCTS]
    return Finding(
        AXES,
        "Λ is diagonal: what changes between views changes along the dimensions",
        (strongest("coupling Λᵢⱼ / √(ΛᵢΛⱼ)", effects, errors, _AXES_TOLERANCE, labels),),
        "The space may be right and its axes wrong: R² is not touched, MCC is. Train with "
        "AnInfoNCE (InfoNCE does not fix axes), longer, or with a rotation (encoder.rotation).",
        details={
            "largest": [
                {"where": labels[k], "effect": float(effects[k]), "error": float(errors[k])}
                for k in largest
            ]
        },
    )


def check_constant(fit: Fit, names: list[str]) -> Finding:
    """Asks whether Λ is the same for all anchors."""
    s = fit.scale
    x = s * fit.residuals
    damp = np.exp(-(x**2) / 8)
    first, second = -s * x * damp, -(s**2) * damp * (1 - x**2 / 4)
    sides, sizes = _standardised(fit.anchors), _standardised(np.abs(fit.anchors))
    weights = np.concatenate([sides, sizes], axis=1)
    found = [missing_terms(fit, w[:, None] * first, w[:, None] * second) for w in weights.T]
    of_anchor = [*names, *(f"|{name}|" for name in names)]
    labels = [f"{name}, with the anchor's {other}" for other in of_anchor for name in names]
    effects, errors = (np.concatenate(parts) for parts in zip(*found, strict=True))
    name = "relative change of Λ per standard deviation of the anchor"
    evidence = strongest(name, effects, errors, _CHANGE_TOLERANCE, labels)
    along, changed = divmod(int(np.argmax(np.abs(effects) / errors)), len(names))
    return Finding(
        CONSTANT,
        "one Λ for all anchors",
        (evidence,),
        "Some inputs vary more between views than others. Make augmentations equally strong for "
        "all inputs, split the data and train an ensemble with a Λ̂ each, or let Λ̂ go: the "
        "theorem does not cover these pairs.",
        details={
            "along": of_anchor[along],
            "where": names[changed],
            "groups": _by_group(fit, weights[:, along], changed),
        },
    )


def _by_group(fit: Fit, position: FloatArray, dimension: int) -> list[dict[str, float]]:
    """Returns Λ of one dimension fitted to groups of anchors of equal size, along `position`."""
    d = fit.anchors.shape[1]
    count = min(_GROUPS, len(position) // (10 * d))
    parts = np.array_split(np.argsort(position), max(count, 1))
    found = []
    for rows in parts:
        own = fit_concentration(fit.anchors[rows], fit.positives[rows])
        found.append(
            {
                "position": float(position[rows].mean()),
                "concentration": float(own.concentration[dimension]),
                "error": float(own.errors[dimension]),
            }
        )
    return found


def check_learned(fit: Fit, learned: FloatArray, names: list[str]) -> Finding:
    """Asks whether a learned Λ̂ is the one that fits the pairs."""
    # Relative to Λ̂, which is given: a ratio to the fitted Λ would be skewed by its error.
    errors = errors_about(fit, learned)
    name = "relative difference of the Λ that fits from Λ̂"
    evidence = strongest(
        name, fit.concentration / learned - 1, errors / learned, _LEARNED_TOLERANCE, names
    )
    return Finding(
        LEARNED,
        "the Λ̂ of training is the Λ of its pairs",
        (evidence,),
        "Training has not ended, or another assumption keeps Λ̂ from its value. A Λ̂ several times "
        "too large goes with a folded factor.",
        details={
            "fitted": fit.concentration.tolist(),
            "errors": errors.tolist(),
            "learned": learned.tolist(),
        },
    )


def _standardised(x: FloatArray) -> FloatArray:
    spread = x.std(axis=0)
    return (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
