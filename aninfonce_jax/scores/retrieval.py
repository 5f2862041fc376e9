"""Whether what is nearest by its features is near in the factors that made it."""

import numpy as np
import numpy.typing as npt

from aninfonce_jax.scores import checked, intervals
from aninfonce_jax.scores.intervals import Interval

FloatArray = npt.NDArray[np.float64]

# Distances that are held at a time: 128 MB.
_MOST_DISTANCES = 2**24


def retrieval(
    latents: npt.ArrayLike, features: npt.ArrayLike, factors: npt.ArrayLike | None = None
) -> tuple[float, Interval | None]:
    """Returns how near to a query in some factors the example is that its features find.

    The first half of the samples are queries, the others are searched for the one whose features
    are nearest. Its squared distance from the query in the chosen factors is set against that of
    an example at random (0) and of the one that all true factors would find (1).

    Args:
      latents: true factors, [samples, dim].
      features: [samples, feature_dim].
      factors: which of them the distance is taken in, bool [dim]; None: all.

    Returns:
      The score, and its interval over queries. It is below 0 where features find what is farther
      than at random, and NaN where the truth finds nothing nearer than that.
    """
    z, h = checked.samples(latents, features)
    chosen = slice(None) if factors is None else np.asarray(factors, bool)
    half = len(z) // 2
    own, others = z[:half, chosen], z[half:, chosen]

    def distances(found: npt.NDArray[np.intp]) -> FloatArray:
        squares: FloatArray = ((own - others[found]) ** 2).sum(axis=1)
        return squares

    # The mean squared distance of a query from all examples, by their mean and their variance.
    at_random = ((own - others.mean(axis=0)) ** 2).sum(axis=1) + others.var(axis=0).sum()
    chance = float(at_random.mean())
    best = float(distances(_nearest(z[:half], z[half:])).mean())
    if not best < chance:
        return float("nan"), None
    gained = (chance - distances(_nearest(h[:half], h[half:]))) / (chance - best)
    return float(gained.mean()), intervals.mean_interval(gained)


def _nearest(queries: FloatArray, bank: FloatArray) -> npt.NDArray[np.intp]:
    """Returns which row of the bank is nearest to each query, [queries]."""
    squares = (bank**2).sum(axis=1)
    rows = max(1, _MOST_DISTANCES // len(bank))
    # The query's own square is the same for all of its distances.
    return np.concatenate(
        [
            np.argmin(squares - 2 * queries[start : start + rows] @ bank.T, axis=1)
            for start in range(0, len(queries), rows)
        ]
    )
