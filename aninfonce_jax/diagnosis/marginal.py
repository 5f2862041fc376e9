"""Checks of the anchors alone: uniform on the sphere, its support, folds, collapse."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from aninfonce_jax.diagnosis.findings import LEVEL, POWER, Evidence, Finding, histogram
from aninfonce_jax.scores import monitors

FloatArray = npt.NDArray[np.float64]

UNIFORM, SUPPORT, INJECTIVE, COLLAPSE = "uniform", "support", "injective", "collapse"
INDEPENDENT = "independent"
# √d · |mean|; a factor that is folded away has 0.8.
_MEAN_TOLERANCE = 0.25
# Relative standard deviation of the variances along the principal axes.
_VARIANCE_TOLERANCE = 0.25
# Distance of distribution functions.
_PROJECTION_TOLERANCE = 0.1
_EMPTY_TOLERANCE = 0.02
_NORM_TOLERANCE = 0.01
_FOLD_TOLERANCE = 0.5
# Which outputs are near zero, in standard deviations of a uniform one.
_NEAR_ZERO = 0.5
# With fewer than this share of the outputs near zero that a fold has, it is an offset.
_OFFSET_SHARE = 0.5
# As a share of an output's variance.
_TOLD_TOLERANCE = 0.5
# The share of pairs that say nothing new.
_REPEATED_TOLERANCE = 0.01
# As a share of the spread that a uniform dimension has, and as a share of the rank.
_DEAD_TOLERANCE = 0.9
_RANK_TOLERANCE = 0.5
_RANDOM_DIRECTIONS = 10
# Added to the system, as a share of a regressor's mean square.
_RIDGE = 1e-10


def check_uniform(anchors: FloatArray, names: list[str]) -> Finding:
    """Asks whether anchors are uniform: their mean, their axes, and one dimension at a time."""
    apart, shown = _projections(anchors, names)
    evidence = (_rayleigh(anchors), _bingham(anchors), apart)
    d = anchors.shape[1]
    return Finding(
        UNIFORM,
        "anchors are uniform on the sphere",
        evidence,
        "Some inputs are far more common than others, or the encoder has not spread them yet. "
        "Balance the data, train longer or with more negatives; objective.spreading=3 spreads them "
        "early in training. The theorem needs it; R² often survives mild deviations.",
        is_cause=True,
        details={
            # On a uniform sphere all scaled means are 0, and all scaled squares 1.
            "scaled_means": (np.sqrt(d) * anchors.mean(axis=0)).tolist(),
            "scaled_squares": (d * np.mean(anchors**2, axis=0)).tolist(),
            "principal_variances": (d * np.linalg.eigvalsh(np.cov(anchors.T))[::-1]).tolist(),
            "projection": shown,
        },
    )


def _rayleigh(u: FloatArray) -> Evidence:
    """The mean (Rayleigh, 1919): n d ‖mean‖² is χ² with d degrees of freedom."""
    n, d = u.shape
    statistic = float(n * d * np.sum(u.mean(axis=0) ** 2))
    return _chi_squared("length of the mean, times √d", statistic, d, n, _MEAN_TOLERANCE)


def _bingham(u: FloatArray) -> Evidence:
    """The second moments (Bingham, 1974), for what has no mean but prefers an axis."""
    n, d = u.shape
    moments = u.T @ u / n
    excess = d * float(np.sum(moments**2)) - 1
    freedom = (d - 1) * (d + 2) // 2
    name = "spread of the variances along axes"
    return _chi_squared(
        name, n * (d + 2) / 2 * excess, freedom, n * (d + 2) / 2, _VARIANCE_TOLERANCE
    )


def _chi_squared(
    name: str, statistic: float, freedom: int, weight: float, tolerance: float
) -> Evidence:
    """Evidence of a statistic that is χ² with non-centrality weight · effect²."""
    share = LEVEL / 3  # three tests make the check
    critical = stats.chi2.isf(share, freedom)

    def centrality(probability: float) -> float:
        """Returns the non-centrality under which the statistic is so rarely exceeded."""
        return _solved(lambda c: float(stats.ncx2.sf(statistic, freedom, c)) - probability)

    low, high = centrality(share / 2), centrality(1 - share / 2)
    needed = _solved(lambda c: float(stats.ncx2.sf(critical, freedom, c)) - POWER)
    return Evidence(
        name,
        float(np.sqrt(max(statistic - freedom, 0.0) / weight)),
        (float(np.sqrt(low / weight)), float(np.sqrt(high / weight))),
        tolerance,
        statistic,
        float(stats.chi2.sf(statistic, freedom)),
        float(np.sqrt(needed / weight)),
    )


def _solved(f: Callable[[float], float]) -> float:
    """Returns the zero of a rising function of a number from 0 on, 0 if it starts above."""
    if f(1e-9) >= 0:
        return 0.0
    end = 1.0
    while f(end) < 0 and end < 1e12:
        end *= 4
    return float(optimize.brentq(f, 1e-9, end, xtol=1e-6, rtol=1e-6)) if f(end) >= 0 else end


def _projections(u: FloatArray, names: list[str]) -> tuple[Evidence, dict[str, Any]]:
    """Each dimension, and a few random directions, by Kolmogorov and Smirnov's distance.

    Projections onto random directions tell any two distributions on the sphere apart
    (Cuesta-Albertos, Cuevas and Fraiman, 2009).

    Returns:
      The evidence, and the distribution along the worst direction beside that of uniform anchors.
    """
    n, d = u.shape
    random = np.random.default_rng(0).normal(size=(_RANDOM_DIRECTIONS, d))
    random /= np.linalg.norm(random, axis=1, keepdims=True)
    projected = np.concatenate([u, u @ random.T], axis=1)
    ranks = np.sort(_projected_cdf(projected, d), axis=0)
    steps = np.arange(n + 1)[:, None] / n
    distances = np.maximum(np.max(steps[1:] - ranks, axis=0), np.max(ranks - steps[:-1], axis=0))
    m = len(distances)
    worst = int(np.argmax(distances))
    reach = float(np.sqrt(np.log(2 * m * 3 / LEVEL) / (2 * n)))
    effect = float(distances[worst])
    label = names[worst] if worst < d else "a random direction"
    shown: dict[str, Any] = {"where": label, **histogram(projected[:, worst])}
    shown["expected"] = np.diff(_projected_cdf(np.array(shown["edges"]), d)).tolist()
    evidence = Evidence(
        f"distance from uniform ({label})",
        effect,
        (max(effect - reach, 0.0), min(effect + reach, 1.0)),
        _PROJECTION_TOLERANCE,
        effect,
        min(1.0, m * float(stats.kstwo.sf(effect, n))),
        reach + float(np.sqrt(np.log(1 / (1 - POWER)) / (2 * n))),
    )
    return evidence, shown


def _projected_cdf(x: FloatArray, dim: int) -> FloatArray:
    """The distribution function of one coordinate of a uniform unit vector."""
    half = (dim - 1) / 2
    return stats.beta.cdf(np.clip((1 + x) / 2, 0, 1), half, half)


def check_support(embeddings: FloatArray, anchors: FloatArray, names: list[str]) -> Finding:
    """Asks whether embeddings are on a sphere, and reach all of it.

    Args:
      embeddings: as they came, [n, d].
      anchors: the same at length one.
      names: of the dimensions.
    """
    norms = np.linalg.norm(embeddings, axis=1)
    varied = float(norms.std() / norms.mean())
    error = varied / np.sqrt(2 * len(norms))
    length = Evidence(
        "relative spread of the lengths",
        varied,
        (max(varied - 2 * error, 0.0), varied + 2 * error),
        _NORM_TOLERANCE,
    )
    n, d = anchors.shape
    ends = np.concatenate([anchors.max(axis=0), -anchors.min(axis=0)])
    empty = 1 - _projected_cdf(ends, d)
    worst = int(np.argmax(empty))
    # Where a share e of the sphere is empty, n uniform points miss it with (1 - e)^n.
    reach = float(np.log(2 * d / LEVEL) / n)
    effect = float(empty[worst])
    end = "negative" if worst >= d else "positive"
    gap = Evidence(
        f"share of the sphere left empty ({end} end of {names[worst % d]})",
        effect,
        (max(effect - reach, 0.0), effect),
        _EMPTY_TOLERANCE,
        effect,
        float(min(1.0, 2 * d * (1 - effect) ** n)),
        reach,
    )
    return Finding(
        SUPPORT,
        "embeddings lie on a sphere and reach every part of it",
        (gap, length),
        "If lengths vary, normalise the encoder's output; the other checks took directions only. "
        "If a part is empty, the data lack these inputs or the encoder does not reach them: see "
        "'injective'.",
        is_cause=True,
        details={"lengths": [float(norms.min()), float(norms.mean()), float(norms.max())]},
    )


def check_injective(anchors: FloatArray, names: list[str]) -> Finding:
    """Asks whether a factor was folded: an output of one sign, or one that the others determine.

    On the sphere the size of a coordinate follows from the others; an encoder that gives up a
    factor's sign covers one hemisphere, and √d · |mean| along it is 0.8. Its output is then a
    function of the squares of the others, where a factor's sign would be news. Other ways of
    mapping two inputs onto one point can't be seen in embeddings.

    Inputs that are more common on one side give an output one sign, too, but hardly so near zero:
    there, a fold has no neighbours on the other side. So what is not seen near zero is refuted as
    evenness, and not as a fold.
    """
    n, d = anchors.shape
    even, odd = anchors[0::2], anchors[1::2]
    # The direction is that of one half of the anchors, and is tested on the other.
    pole = even.mean(axis=0)
    along = odd @ pole
    shares = np.append(np.mean(anchors > 0, axis=0), np.mean(along > 0))
    counts = np.append(np.full(d, n), len(odd))
    m = d + 1
    p_values = [
        float(stats.binomtest(round(share * count), int(count)).pvalue)
        for share, count in zip(shares, counts, strict=True)
    ]
    z = float(stats.norm.isf(LEVEL / (2 * m)))
    # A share's error is at most 0.5 / √n, and the effect is twice the share's distance from ½.
    effects, reaches = np.abs(2 * shares - 1), z / np.sqrt(counts)
    projected = [*anchors.T, along / max(np.linalg.norm(pole), 1e-300)]
    near = [_near_zero(x, d) for x in projected]
    lows = np.maximum(effects - reaches, 0.0)
    # At most so many of the inputs are folded as near zero are without a neighbour across it.
    for k, few in enumerate(near):
        if few is not None:
            uneven = abs(2 * float(np.mean(few > 0)) - 1)
            lows[k] = min(lows[k], max(uneven - z / np.sqrt(len(few)), 0.0))
    # By what a fold is certain of; where none is, by what is the most uneven.
    worst = int(np.lexsort((effects - reaches, lows))[-1])
    label = names[worst] if worst < d else "direction of the mean"
    power = float(stats.norm.ppf(POWER) / np.sqrt(n))
    sign = Evidence(
        f"folded share ({label})",
        float(effects[worst]),
        (float(lows[worst]), float(min(effects[worst] + reaches[worst], 1.0))),
        _FOLD_TOLERANCE,
        float(shares[worst]),
        min(1.0, m * min(p_values)),
        float(z / np.sqrt(n)) + power,
    )
    told, explained = _told_by_others(even, odd, lows[:d], names)
    return Finding(
        INJECTIVE,
        "no factor is folded: outputs take both signs alike, and none follows from the others",
        (sign, told),
        _one_sided_advice(near[worst], float(lows[worst])),
        is_cause=True,
        details={
            "scaled_means": (np.sqrt(d) * anchors.mean(axis=0)).tolist(),
            "positive_shares": shares[:d].tolist(),
            "told_by_others": explained.tolist(),
        },
    )


def _near_zero(projected: FloatArray, dim: int) -> FloatArray | None:
    """Returns what is near zero of anchors along a direction [n], as many as a fold has there.

    None if there are far fewer, so that nothing tells how the two sides meet.
    """
    near = _NEAR_ZERO / np.sqrt(dim)
    found = projected[np.abs(projected) < near]
    expected = float(2 * _projected_cdf(np.array(near), dim) - 1)
    return found if len(found) >= _OFFSET_SHARE * expected * len(projected) else None


def _one_sided_advice(near: FloatArray | None, certain: float) -> str:
    """Tells a fold from an offset, and both from inputs that are more common on one side.

    Args:
      near: anchors near zero along the direction that has one sign the most; None for an offset.
      certain: the smallest share that is folded.
    """
    if near is None:
        first = (
            "Outputs keep to one side and away from the middle, so it is an offset rather than a "
            "fold: all inputs have something in common, such as a narrow subject, or the encoder "
            "has not spread them yet. Take inputs that differ more; train longer, with more "
            "negatives or objective.spreading=3. If the encoder is finished, subtract the mean of "
            "its outputs, normalise, and diagnose again."
        )
    elif certain <= _FOLD_TOLERANCE:
        first = (
            "Outputs have one sign more often, but hardly near zero, so few inputs can be folded: "
            "inputs are more common on one side. See 'uniform'."
        )
    else:
        first = (
            "If an output has one sign, the encoder covers one side of the sphere only, and a "
            "factor's sign is lost; it rarely finds back by itself. Train again with "
            "objective.spreading=3 (an.spreading_penalty), and with objective.keeping=0.3 "
            "(an.keeping_penalty) if inputs have about as many dimensions as there are factors. If "
            "the factors themselves are one-sided, it is no fold."
        )
    return (
        f"{first} Outputs of both signs that follow from the others are more than there are "
        "factors: take fewer (encoder.dim)."
    )


def _told_by_others(
    fitted: FloatArray, held_out: FloatArray, folded: FloatArray, names: list[str]
) -> tuple[Evidence, FloatArray]:
    """How much of each output the others and their squares tell, on held-out anchors.

    If anchors are uniform they tell nothing. It is no test, but an interval against a limit: a
    correlation that is refuted though tiny would be no fold.

    Of an output that has mostly one sign, the others tell most by its size, which follows from
    theirs on any sphere: there it counts as far as the output is certainly folded.

    Args:
      fitted: anchors to fit on, [n, d].
      held_out: anchors to predict, [n, d].
      folded: the share of each output that is certainly folded, [d].
      names: of the dimensions.

    Returns:
      Evidence of the worst, and the explained share of every output, [d].
    """
    n, d = held_out.shape
    correlations = np.zeros(d)
    one, other = (_with_squares(x) for x in (fitted, held_out))
    products = one.T @ one
    # Outputs that are copies of each other share their weight.
    system = products + _RIDGE * np.trace(products) / len(products) * np.eye(len(products))
    for k in range(d):
        others = np.delete(np.arange(2 * d + 1), [k, d + k])
        weights = np.linalg.solve(system[np.ix_(others, others)], products[others, k])
        predicted = other[:, others] @ weights
        if predicted.std() > 0 and held_out[:, k].std() > 0:
            correlations[k] = np.corrcoef(predicted, held_out[:, k])[0, 1]
    z = float(stats.norm.isf(LEVEL / (2 * d)))
    # Fisher's transformation, whose error is the same for every correlation.
    scores, error = np.arctanh(np.clip(correlations, -1 + 1e-12, 1 - 1e-12)), 1 / np.sqrt(n - 3)
    lows, highs = (np.tanh(np.maximum(scores + sign * z * error, 0.0)) ** 2 for sign in (-1, 1))
    explained = np.maximum(correlations, 0.0) ** 2
    by_size = np.array([_squared_correlation(np.abs(x), x) for x in held_out.T])
    lows = np.where(by_size >= explained, np.minimum(lows, folded), lows)
    worst = int(np.lexsort((scores, lows))[-1])
    evidence = Evidence(
        f"share of an output that the others tell ({names[worst]})",
        float(explained[worst]),
        (float(lows[worst]), float(highs[worst])),
        _TOLD_TOLERANCE,
    )
    return evidence, explained


def _squared_correlation(x: FloatArray, y: FloatArray) -> float:
    return float(np.corrcoef(x, y)[0, 1] ** 2) if x.std() > 0 and y.std() > 0 else 0.0


def _with_squares(x: FloatArray) -> FloatArray:
    return np.concatenate([x, x**2, np.ones((len(x), 1))], axis=1)


def first_of_each(anchors: FloatArray, positives: FloatArray) -> npt.NDArray[np.intp]:
    """Returns the rows [kept] whose anchor and whose positive are in no row before."""
    of_one, of_other = (np.unique(x, axis=0, return_index=True)[1] for x in (anchors, positives))
    return np.intersect1d(of_one, of_other)


def check_independent(pairs: int, different: int, *, left_out: bool) -> Finding:
    """Tells that views are repeated exactly. It is for pairs of which some are.

    Args:
      pairs: how many there are.
      different: of them, those that have no view of one before.
      left_out: whether the other checks were made without the rest.
    """
    share = 1 - different / pairs
    rest = (
        "The other checks took the first pair of each."
        if left_out
        else "The other checks took them all, for too few would be left: do not believe their "
        "p-values."
    )
    evidence = Evidence(
        "share of pairs with a view that another has too",
        share,
        (share, share),
        _REPEATED_TOLERANCE,
    )
    return Finding(
        INDEPENDENT,
        "pairs are independent: no view comes twice",
        (evidence,),
        "Repeated inputs count as if they were many, and every test takes chance for evidence: "
        "pass one pair per input. If inputs do differ, the encoder maps several onto one point, or "
        f"its numbers are too coarse. {rest}",
        is_cause=True,
        details={"pairs": pairs, "different": different},
    )


def check_collapse(anchors: FloatArray, names: list[str]) -> Finding:
    """Asks whether every dimension is used."""
    n, d = anchors.shape
    scores = monitors.collapse_scores(anchors)
    spread = scores["spread"]
    worst = int(np.argmin(spread))
    centred = anchors[:, worst] - anchors[:, worst].mean()
    variance = float(np.mean(centred**2))
    fourth = float(np.mean(centred**4))
    # By the delta method: the error of a standard deviation over itself.
    relative = np.sqrt(max(fourth / variance**2 - 1, 0.0) / (4 * n)) if variance > 0 else 0.0
    z = float(stats.norm.isf(LEVEL / (2 * d)))
    low, high = (float(1 - spread[worst] * (1 + sign * z * relative)) for sign in (1, -1))
    dead = Evidence(
        f"missing spread ({names[worst]})",
        float(max(1 - spread[worst], 0.0)),
        (max(low, 0.0), high),
        _DEAD_TOLERANCE,
    )
    rank = scores["effective_rank"]
    ends = scores["effective_rank_interval"] or [rank, rank]
    lost = Evidence(
        "share of the rank that is lost",
        1 - rank / d,
        (max(1 - ends[1] / d, 0.0), 1 - ends[0] / d),
        _RANK_TOLERANCE,
    )
    evidence = (dead, lost) if dead.effect > lost.effect else (lost, dead)
    return Finding(
        COLLAPSE,
        "every dimension is used",
        evidence,
        "Dead or doubled dimensions: fewer may do (encoder.dim), or training collapsed: lower the "
        "learning rate, take more negatives.",
        is_cause=True,
        details={"spread": spread.tolist(), "effective_rank": rank},
    )
