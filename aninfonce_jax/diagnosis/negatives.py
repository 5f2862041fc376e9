"""Whether negatives are near enough, and enough of them, for the Λ of the pairs.

Training learns from that part of an anchor's softmax, over its positive and N negatives, which
does not fall on the positive. If positives and negatives do not overlap, it is nearly nothing: the
loss is near zero, and encoders that differ much have the same one.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from aninfonce_jax.diagnosis.findings import LEVEL, Evidence, Finding

FloatArray = npt.NDArray[np.float64]

NEGATIVES = "negatives"
# Share of the softmax that has fallen on the positives.
_SATURATED = 0.9
# By how many nats the loss of a trained encoder may exceed the best one.
SPARE_LOSS = 0.01
_MOST_ROWS = 2000
_WORTH_ROWS = 1000
_CHUNK = 500
_TABLE = (64, 256, 1024, 4096, 16_384, 65_536)


def check_negatives(
    anchors: FloatArray, positives: FloatArray, scale: FloatArray, negatives: int
) -> Finding:
    """Asks whether so many negatives leave anything to learn.

    Args:
      anchors: [n, d].
      positives: [n, d].
      scale: √Λ, [d].
      negatives: that each anchor of a batch is contrasted with.
    """
    log_mean, own, beaten = _log_mean_of_negatives(anchors, positives, scale)
    counts = sorted({*_TABLE, negatives})
    assured = assured_r2(anchors, positives, scale, counts)
    table = [
        {
            "negatives": count,
            "left_to_learn": float(_left(log_mean, own, count).mean()),
            "loss": float(_losses(log_mean, own, count).mean()),
            "assured_r2": assured[count],
        }
        for count in counts
    ]
    left = _left(log_mean, own, negatives)
    error = float(left.std(ddof=1) / np.sqrt(len(left)))
    reach = float(stats.norm.isf(LEVEL / 2)) * error
    saturation = float(1 - left.mean())
    evidence = Evidence(
        f"softmax already on the positives, with {negatives} negatives",
        saturation,
        (max(saturation - reach, 0.0), min(saturation + reach, 1.0)),
        _SATURATED,
    )
    enough = next((int(row["negatives"]) for row in table if row["left_to_learn"] >= 0.5), None)
    hint = (
        f"with {enough} negatives half of it would be left."
        if enough is not None
        else f"even {_TABLE[-1]} negatives would leave less than half."
    )
    details: dict[str, Any] = {
        "overlap": float(beaten.mean()),
        "in_training": negatives,
        "by_negatives": table,
        "spare_loss": SPARE_LOSS,
        "distances": _distances(anchors, positives, scale),
    }
    return Finding(
        NEGATIVES,
        "positives and negatives overlap, so that the batch has something to teach",
        (evidence,),
        "Positives are so much nearer than negatives that the loss hardly tells encoders apart; "
        f"{hint} Take larger batches (the chunked or sharded losses), hard negatives, or stronger "
        "augmentations, which lower Λ.",
        details=details,
    )


def assured_r2(
    anchors: FloatArray, positives: FloatArray, scale: FloatArray, counts: Sequence[int]
) -> dict[int, float]:
    """Returns by the number of negatives the R² that a loss near its best still assures.

    Each factor is worth what the loss rises if it is left out of the score. An encoder whose loss
    is `SPARE_LOSS` above the best may have given up the cheapest factors for it; what it must
    have kept is the mean R² that is assured. It is no forecast of a training run: that may find
    more, and stop earlier.

    Args:
      anchors: [n, d].
      positives: [n, d].
      scale: √Λ, [d].
      counts: numbers of negatives.
    """
    u, v = anchors[:_WORTH_ROWS], positives[:_WORTH_ROWS]
    d = u.shape[1]
    whole, whole_own, _ = _log_mean_of_negatives(u, v, scale)
    worth = {count: np.empty(d) for count in counts}
    for k in range(d):
        without = np.where(np.arange(d) == k, 0.0, scale)
        log_mean, own, _ = _log_mean_of_negatives(u, v, without)
        for count in counts:
            rise = _losses(log_mean, own, count) - _losses(whole, whole_own, count)
            worth[count][k] = max(float(rise.mean()), 0.0)
    return {count: _kept(worth[count]) for count in counts}


def _kept(worth: FloatArray) -> float:
    """Returns the share of factors that is kept if `SPARE_LOSS` is spent on the cheapest."""
    spare, lost = SPARE_LOSS, 0.0
    for value in np.sort(worth):
        share = 1.0 if value <= spare else spare / value
        lost += share
        spare -= share * value
    return float(1 - lost / len(worth))


def _distances(
    anchors: FloatArray, positives: FloatArray, scale: FloatArray
) -> dict[str, list[float]]:
    """Returns shares of positives and negatives by their distance in Λ's measure."""
    u, v = (x[:_WORTH_ROWS] * scale for x in (anchors, positives))
    near = np.linalg.norm(u - v, axis=1)
    far = np.linalg.norm(u - np.roll(u, 1, axis=0), axis=1)
    edges = np.linspace(0, float(max(near.max(), far.max())), 41)

    def shares(x: FloatArray) -> list[float]:
        return (np.histogram(x, edges)[0] / len(x)).tolist()

    return {"edges": edges.tolist(), "positives": shares(near), "negatives": shares(far)}


def _losses(log_mean: FloatArray, own: FloatArray, negatives: int) -> FloatArray:
    """The loss of each anchor with so many negatives, [rows]."""
    return np.logaddexp(0.0, log_mean + np.log(negatives) - own)


def _left(log_mean: FloatArray, own: FloatArray, negatives: int) -> FloatArray:
    """The share of the softmax that does not fall on the positive, [rows]."""
    return 1 / (1 + np.exp(np.clip(own - log_mean - np.log(negatives), -700, 700)))


def _log_mean_of_negatives(
    anchors: FloatArray, positives: FloatArray, scale: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns log mean exp(score) of other anchors, the positive's score, and how many beat it.

    From means over the other anchors the sum of any number of negatives follows.
    """
    u, v = (x[:_MOST_ROWS] * scale for x in (anchors, positives))
    own = -0.5 * np.sum((u - v) ** 2, axis=1)
    squares = np.sum(u**2, axis=1)
    log_mean, beaten = np.empty(len(u)), np.empty(len(u))
    for start in range(0, len(u), _CHUNK):
        rows = slice(start, start + _CHUNK)
        scores = u[rows] @ u.T - 0.5 * (squares[rows, None] + squares[None, :])
        scores[np.arange(len(scores)), np.arange(start, start + len(scores))] = -np.inf
        peak = scores.max(axis=1)
        total = np.sum(np.exp(scores - peak[:, None]), axis=1)
        log_mean[rows] = peak + np.log(total / (len(u) - 1))
        beaten[rows] = np.sum(scores > own[rows, None], axis=1) / (len(u) - 1)
    return log_mean, own, beaten
