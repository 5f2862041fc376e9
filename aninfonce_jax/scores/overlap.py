"""How far the similarities of positives and of negatives overlap, by histograms of both.

Where they do not overlap, a few negatives tell every positive, and a loss that contrasts them
has little left to teach (Fig. 8 of the paper).
"""

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from aninfonce_jax.scores import intervals
from aninfonce_jax.scores.intervals import Interval
from aninfonce_jax.types import Array

BINS = 100
# Edges of the histograms' bins, over all values that a cosine can take.
EDGES = np.linspace(-1, 1, BINS + 1)


def count_similarities(first: Array, second: Array) -> Array:
    """Returns histograms of the cosines of positives and of negatives; may be traced.

    Args:
      first: [n, dim].
      second: those of their positives, [n, dim]. All others of them are negatives.

    Returns:
      How many cosines lie between each two `EDGES`, [2, BINS]: of positives, then of negatives.
      One that is not finite is not counted.
    """
    cosines = _directions(first) @ _directions(second).T
    bins = jnp.clip(jnp.floor((cosines + 1) / 2 * BINS), 0, BINS - 1)
    # What is beyond the last bin is dropped.
    bins = jnp.where(jnp.isfinite(cosines), bins, BINS).astype(jnp.int32)
    of_all, of_positives = (
        jnp.bincount(own.ravel(), length=BINS) for own in (bins, jnp.diagonal(bins))
    )
    return jnp.stack([of_positives, of_all - of_positives])


def _directions(x: Array) -> Array:
    lengths = jnp.linalg.norm(x, axis=1, keepdims=True)
    # Not by the smallest number of its type: with jax 0.7 zeros became NaN by that.
    return x / jnp.maximum(lengths, 1e-12)


def overlap(counts: npt.ArrayLike) -> tuple[float, Interval | None]:
    """Returns the overlap of positives and negatives, and its interval over batches.

    It is the share of positives below a threshold and the share of negatives above it, added, at
    the threshold that makes them smallest: 0 if one can part them, 1 if they are alike. Where the
    two densities cross once, that is the area under both. It does not fall with the number of
    samples, as the area under two rugged histograms does.

    Args:
      counts: of each batch, [batches, 2, bins], as `count_similarities` returns them.

    Returns:
      NaN and None where there is nothing to compare.
    """
    every = np.asarray(counts, np.float64)
    found = _overlap(every.sum(axis=0))
    if not np.isfinite(found) or len(every) < 2:
        return found, None
    # The jackknife: the overlap of all batches but one, for each of them.
    without = np.array([_overlap(every.sum(axis=0) - own) for own in every])
    low, high = intervals.mean_interval(len(every) * found - (len(every) - 1) * without) or (0, 1)
    half = (high - low) / 2
    return found, [max(found - half, 0.0), min(found + half, 1.0)]


def _overlap(counts: npt.NDArray[np.float64]) -> float:
    if not counts.sum(axis=1).all():
        return float("nan")
    positives, negatives = np.cumsum(counts / counts.sum(axis=1, keepdims=True), axis=1)
    return float(1 - max(np.max(negatives - positives), 0.0))
