"""95 % intervals of scores: how far another test set of the same size might move them.

The network, and the readout that was fitted to it, are held fixed: what varies is which
examples it is tested on. How far another seed moves a score is another question, which
only several runs can answer (`over_seeds`).

* Accuracies over independent examples get Wilson's interval: it keeps its promise for few
  examples and near 0 and 1, and stays inside them, where mean ± 1.96 errors does not; that
  of Clopper and Pearson is wider than it need be.
* Accuracies over several views of each image get an interval over images, because views of
  one image are right or wrong together (`clustered_accuracy`).
* Smooth scores (R², MCC, effective rank) get the infinitesimal jackknife: the sum of what
  each example contributes to the score, squared, is the variance that a bootstrap over
  examples tends to with ever more draws (Efron, 1982). It needs no draws: it costs one pass,
  and the same data always have the same interval. For the effective rank a bootstrap would
  be wrong besides: repeated examples span fewer directions.
* The held-out loss gets Student's interval over batches.

Everything is NumPy in float64. An interval is a list [low, high], as JSON holds it.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats

FloatArray = npt.NDArray[np.float64]
Interval = list[float]

CONFIDENCE = 0.95
# With fewer seeds, Student's interval of their mean is too wide to be of use.
_SEEDS_FOR_STUDENT = 4


# --- Accuracies ---


def wilson(accuracy: float, examples: float) -> Interval:
    """Wilson's interval for a share of independent examples.

    Args:
      accuracy: the share of correct answers.
      examples: how many there are; see `effective_examples` where they weigh differently.
    """
    z = _quantile(math.inf)
    middle = (accuracy + z**2 / (2 * examples)) / (1 + z**2 / examples)
    spread = accuracy * (1 - accuracy) / examples + z**2 / (4 * examples**2)
    half = z * math.sqrt(spread) / (1 + z**2 / examples)
    # Rounding must not put the accuracy itself outside.
    return [min(max(middle - half, 0.0), accuracy), max(min(middle + half, 1.0), accuracy)]


def effective_examples(labels: npt.ArrayLike) -> float:
    """How many equally weighted examples a mean over classes is worth (Kish, 1965).

    An accuracy that weighs classes equally weighs examples of rare classes more. This is
    their number if all classes are equally frequent, and smaller otherwise.

    Args:
      labels: class numbers from 0 on, [samples].
    """
    counts = np.bincount(np.asarray(labels))
    counts = counts[counts > 0]
    return float(len(counts) ** 2 / np.sum(1 / counts))


def clustered_accuracy(correct: npt.ArrayLike) -> Interval:
    """The interval of an accuracy over images of which each was answered several times.

    One image all right and one all wrong are added before the mean and its error are taken,
    as Bonett and Price (2012) do for pairs: without them the interval would have no width
    where all images fared alike.

    Args:
      correct: the share of right answers of each image, [images].
    """
    shares = np.asarray(correct, np.float64)
    low, high = mean_interval(np.concatenate([shares, [0.0, 1.0]])) or (0.0, 1.0)
    estimate = float(shares.mean())
    return [min(max(low, 0.0), estimate), max(min(high, 1.0), estimate)]


# --- Smooth scores ---


def r2_intervals(
    targets: npt.ArrayLike, predictions: npt.ArrayLike, groups: npt.ArrayLike
) -> list[Interval]:
    """Intervals of means of R² over groups of factors.

    Args:
      targets: [samples, dim], the samples that the R² was scored on.
      predictions: [samples, dim].
      groups: [groups, dim], which factors belong to each group; a row of a single factor
        gives the interval of that factor's R².
    """
    z, p = np.asarray(targets, np.float64), np.asarray(predictions, np.float64)
    member = np.asarray(groups, np.float64)
    squared = (z - z.mean(axis=0)) ** 2
    spread = squared.mean(axis=0)
    constant = spread == 0
    spread = np.where(constant, 1.0, spread)
    errors = (z - p) ** 2
    unexplained = errors.mean(axis=0) / spread
    influence = np.where(constant, 0.0, (unexplained * squared - errors) / spread)
    score = np.where(constant, 0.0, 1 - unexplained)
    weights = member.T / member.sum(axis=1)
    return [
        _below_one(float(mean), own)
        for mean, own in zip(score @ weights, (influence @ weights).T, strict=True)
    ]


def mcc_interval(
    latents: npt.ArrayLike, features: npt.ArrayLike, *, method: str, factors: int
) -> Interval:
    """The interval of a mean correlation coefficient, with factors and features matched.

    Which feature belongs to which factor, and with which sign, is held fixed.

    Args:
      latents: [samples, pairs], the factors that have a feature.
      features: [samples, pairs], the feature of each.
      method: "pearson" or "spearman".
      factors: how many there are; those without a feature count as 0.
    """
    z, h = np.asarray(latents, np.float64), np.asarray(features, np.float64)
    if method == "spearman":
        z, h = ((stats.rankdata(x, axis=0) - 0.5) / len(x) for x in (z, h))
    u, v = _standardized(z), _standardized(h)
    correlations = np.mean(u * v, axis=0)
    if method == "pearson":
        influence = u * v - correlations * (u**2 + v**2) / 2
    else:
        influence = u * v + _rank_influence(u, v) + _rank_influence(v, u)
        influence -= influence.mean(axis=0)
    signs = np.sign(correlations)
    return _below_one(float(signs @ correlations) / factors, influence @ signs / factors)


def _rank_influence(x: FloatArray, y: FloatArray) -> FloatArray:
    """What an example contributes to a rank correlation by lifting the ranks above its own.

    Args:
      x: standardised ranks, [samples, columns].
      y: those that they are correlated with, [samples, columns].
    """
    order = np.argsort(x, axis=0, kind="stable")
    above = np.cumsum(np.take_along_axis(y, order, axis=0)[::-1], axis=0)[::-1] / len(x)
    result = np.empty_like(above)
    np.put_along_axis(result, order, above, axis=0)
    # A rank is a share of the examples; standardised, the shares from 0 to 1 spread by 1/√12.
    return result * math.sqrt(12)


def effective_rank(centred: npt.ArrayLike) -> tuple[float, Interval]:
    """The effective rank of `monitors.collapse_scores`, and its interval.

    The interval is for features of so many examples. The effective rank of many more is
    larger, unless these are many times the number of features already.

    Args:
      centred: features of mean zero that are not all zero, [samples, feature_dim].
    """
    x = np.asarray(centred, np.float64)
    # The smaller of the two products has the same eigenvalues but for zeros.
    if x.shape[1] > x.shape[0]:
        squares, axes = np.linalg.eigh(x @ x.T)
        projections = axes**2 * squares
    else:
        squares, axes = np.linalg.eigh(x.T @ x)
        projections = (x @ axes) ** 2
    kept = squares > squares[-1] * np.finfo(np.float64).eps * len(squares)
    values = np.sqrt(squares[kept])
    shares = values / values.sum()
    entropy = -np.sum(shares * np.log(shares))
    # By the chain rule: the entropy depends on the singular values, these on an example's weight.
    slopes = -(np.log(shares) + entropy) / values.sum() / (2 * values)
    influence = (len(x) * projections[:, kept] - squares[kept]) @ slopes
    half = _quantile(len(x) - 1) * _standard_error(influence)
    rank = math.exp(entropy)
    return rank, [rank * math.exp(-half), rank * math.exp(half)]


def mean_interval(values: npt.ArrayLike) -> Interval | None:
    """Student's interval for the mean of independent values [n]; None for fewer than two."""
    x = np.asarray(values, np.float64)
    if len(x) < 2 or not np.isfinite(x).all():
        return None
    half = _quantile(len(x) - 1) * _standard_error(x - x.mean())
    return [float(x.mean()) - half, float(x.mean()) + half]


# --- Several runs, and what may be said of two ---


def over_seeds(values: Sequence[float], intervals: Sequence[Interval | None]) -> Interval | None:
    """The interval of a mean over runs that differ in nothing but their seed.

    With four seeds and more it is Student's interval of the mean. With two or three that
    would be useless (for two seeds, 25 times their distance over two), so it reaches from
    the lowest end of the runs' own intervals to the highest. With one it is that run's own.

    Args:
      values: the score of each run.
      intervals: its interval over test examples; None where there is none.
    """
    if len(values) >= _SEEDS_FOR_STUDENT:
        return mean_interval(values)
    own = [interval for interval in intervals if interval is not None]
    if len(own) < len(values) or not own:
        return None
    return [min(low for low, _ in own), max(high for _, high in own)]


def is_above(one: Interval | None, other: Interval | None) -> bool:
    """Whether one interval lies wholly above another; False if one is unknown.

    For scores on the same test examples this is stricter than it need be: their difference
    varies less than they do. It can only err on the side of saying nothing.
    """
    return one is not None and other is not None and one[0] > other[1]


# --- Shared pieces ---


def _below_one(estimate: float, influence: FloatArray) -> Interval:
    """An interval from what each example contributes, for a score of at most 1.

    It is symmetric in the logarithm of what is missing to 1, so that it ends below 1 and
    is as lopsided near it as the score's own scatter.
    """
    missing = 1 - estimate
    reach = _quantile(len(influence) - 1) * _standard_error(influence)
    if reach >= missing:  # so few examples, or a score of 1 but for rounding: plainly symmetric
        return [estimate - reach, max(estimate, min(estimate + reach, 1.0))]
    half = reach / missing
    return [1 - missing * math.exp(half), 1 - missing * math.exp(-half)]


def _standard_error(influence: FloatArray) -> float:
    return float(np.sqrt(np.sum(influence**2) / (len(influence) - 1) / len(influence)))


def _standardized(x: FloatArray) -> FloatArray:
    """Centres columns and scales them to a spread of one; constant ones become zero."""
    # By powers of two first, which round nothing: the square of 1e200 is not finite.
    x = np.ldexp(x, -np.frexp(np.max(np.abs(x), axis=0))[1][None, :])
    x = x - x.mean(axis=0)
    spread = np.sqrt(np.mean(x**2, axis=0))
    return np.where(spread > 0, x / np.where(spread > 0, spread, 1.0), 0.0)


def _quantile(freedom: float) -> float:
    """How many standard errors the interval reaches to either side."""
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))
