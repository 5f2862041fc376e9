"""Whether two sets of embeddings come from one distribution: a held-out classifier."""

import numpy as np
import numpy.typing as npt
from scipy import stats

from aninfonce_jax.diagnosis.findings import POWER, Evidence, Finding

FloatArray = npt.NDArray[np.float64]

SHIFT = "domain shift"
# Twice the distance of the area under the curve from ½.
_TOLERANCE = 0.2
_PENALTY = 1e-2


def check_shift(anchors: FloatArray, reference: FloatArray, name: str = "") -> Finding:
    """Asks whether a classifier tells anchors from a reference, better than by chance.

    A linear discriminant on the coordinates and their squares is fitted to one half of each
    set; its scores of the other halves are compared by Mann and Whitney's test.

    Args:
      anchors: [n, d].
      reference: [m, d].
      name: of the reference, where there are several.
    """
    scores, _ = _held_out_scores(anchors, reference)
    n, m = map(len, scores)
    ranks = stats.rankdata(np.concatenate(scores))
    area = float((ranks[n:].sum() - m * (m + 1) / 2) / (n * m))
    # How often each score is beaten by, and beats, those of the other set (DeLong et al., 1988).
    beaten = 1 - np.searchsorted(np.sort(scores[1]), scores[0]) / m
    beats = np.searchsorted(np.sort(scores[0]), scores[1]) / n
    error = float(np.sqrt(beaten.var(ddof=1) / n + beats.var(ddof=1) / m))
    # The larger of what chance and the scores themselves give.
    by_chance = max(float(np.sqrt((n + m + 1) / (12 * n * m))), error)
    effect = 2 * area - 1
    reach = 2 * float(stats.norm.ppf(0.975)) * error
    evidence = Evidence(
        "advantage of a classifier over chance, 2·AUC - 1",
        effect,
        (max(effect - reach, -1.0), min(effect + reach, 1.0)),
        _TOLERANCE,
        area,
        float(stats.norm.sf((area - 0.5) / by_chance)),
        2 * by_chance * float(stats.norm.isf(0.05) + stats.norm.ppf(POWER)),
    )
    return Finding(
        f"{SHIFT}: {name}" if name else SHIFT,
        "both sets of inputs come from one distribution",
        (evidence,),
        "A classifier tells the sets apart, so scores on the one say little of the other. Evaluate "
        "on inputs made as those of training were (augmented, if they were), or train on both.",
        details={
            "area_under_curve": area,
            "held_out": [n, m],
            "scores": _score_histograms(*scores),
        },
    )


def tell_apart(one: FloatArray, other: FloatArray) -> tuple[float, int]:
    """Returns the held-out accuracy of the classifier of `check_shift`, and on how many inputs.

    Both sets count alike, however many inputs they have.

    Args:
      one: [n, d].
      other: [m, d].
    """
    scores, threshold = _held_out_scores(one, other)
    right = (np.mean(scores[0] < threshold), np.mean(scores[1] > threshold))
    return float(np.mean(right)), sum(map(len, scores))


def _held_out_scores(anchors: FloatArray, reference: FloatArray) -> tuple[list[FloatArray], float]:
    """Returns a classifier's scores of half of each set, and the threshold that it would use.

    Both are learned from the other halves; those of the reference are the larger ones.
    """
    rng = np.random.default_rng(0)
    one, other = (x[rng.permutation(len(x))] for x in (anchors, reference))
    halves = [(x[: len(x) // 2], x[len(x) // 2 :]) for x in (one, other)]
    direction = _discriminant(halves[0][0], halves[1][0])
    middle = [float((_expanded(seen) @ direction).mean()) for seen, _ in halves]
    scores = [_expanded(held_out) @ direction for _, held_out in halves]
    return scores, (middle[0] + middle[1]) / 2


def _expanded(x: FloatArray) -> FloatArray:
    return np.concatenate([x, x**2], axis=1)


def _discriminant(one: FloatArray, other: FloatArray) -> FloatArray:
    a, b = _expanded(one), _expanded(other)
    within = np.cov(a.T) / 2 + np.cov(b.T) / 2
    scale = np.sqrt(np.maximum(np.diag(within), 1e-300))
    correlations = within / np.outer(scale, scale) + _PENALTY * np.eye(len(scale))
    return np.linalg.solve(correlations, (b.mean(axis=0) - a.mean(axis=0)) / scale) / scale


def _score_histograms(anchors: FloatArray, reference: FloatArray) -> dict[str, list[float]]:
    """Returns shares of both sets between the same edges, in standard deviations of all."""
    both = np.concatenate([anchors, reference])
    spread = max(float(both.std()), 1e-300)
    one, other = ((x - both.mean()) / spread for x in (anchors, reference))
    edges = np.linspace(-3, 3, 31)

    def shares(x: FloatArray) -> list[float]:
        return (np.histogram(np.clip(x, -3, 3), edges)[0] / len(x)).tolist()

    return {"edges": edges.tolist(), "anchors": shares(one), "reference": shares(other)}
