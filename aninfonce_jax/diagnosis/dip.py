"""The dip test of unimodality, from its definition (Hartigan and Hartigan, 1985).

The dip of a sample is the largest distance between its distribution function and that of the
nearest unimodal distribution: one that is convex up to a mode and concave after it, with a jump at
the mode if need be: values that repeat there are no second mode. Written
from the paper's section 3: within an interval that shrinks towards the mode, the greatest
convex minorant from the left and the least concave majorant from the right are followed as long
as they are further apart than either is from the sample.
"""

import itertools
import math

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

# Upper quantiles of √n · dip of n uniform numbers, by 10,000 samples of 2,000:
# python benchmarks/diagnose.py dip. Uniform samples are the hardest unimodal ones.
_QUANTILES = ((0.5, 0.3744), (0.1, 0.4979), (0.01, 0.6311))


def dip_statistic(sample: npt.ArrayLike) -> float:
    """Returns the dip of numbers [n], from 1 / (2n) to ¼."""
    values, counts = np.unique(np.asarray(sample, np.float64), return_counts=True)
    total = counts.sum()
    upper = np.cumsum(counts) / total
    lower = upper - counts / total
    first, last = 0, len(values) - 1
    largest = 1 / float(total)
    while first < last:
        x = values[first : last + 1]
        low, high = lower[first : last + 1], upper[first : last + 1]
        minorant = _hull(x, low)
        majorant = _hull(x, -high)
        convex = np.interp(x, x[minorant], low[minorant])
        concave = np.interp(x, x[majorant], high[majorant])
        at_minorant = (concave - convex)[minorant]
        at_majorant = (concave - convex)[majorant]
        if at_minorant.max() > at_majorant.max():
            begin = int(minorant[np.argmax(at_minorant)])
            end = int(majorant[np.searchsorted(majorant, begin)])
        else:
            end = int(majorant[np.argmax(at_majorant)])
            begin = int(minorant[np.searchsorted(minorant, end, side="right") - 1])
        if max(at_minorant.max(), at_majorant.max()) <= largest:
            break
        left = float(np.max((high - convex)[:begin], initial=0.0))
        right = float(np.max((concave - low)[end + 1 :], initial=0.0))
        largest = max(largest, left, right)
        if (begin, end) == (0, last - first):
            break
        first, last = first + begin, first + end
    return largest / 2


def dip_p_value(dip: float, samples: int) -> float:
    """Returns how often so many uniform numbers have so large a dip, at the most.

    Between the quantiles that were simulated, and beyond them, the logarithm of the
    probability is a line in the squared dip, as it is for distances of distribution functions.
    """
    square = samples * dip**2
    points = [(value**2, math.log(share)) for share, value in _QUANTILES]
    pairs = list(itertools.pairwise(points))
    (x0, y0), (x1, y1) = next((pair for pair in pairs if square <= pair[1][0]), pairs[-1])
    return math.exp(min(y0 + (square - x0) * (y1 - y0) / (x1 - x0), 0.0))


def _hull(x: FloatArray, y: FloatArray) -> npt.NDArray[np.intp]:
    """Returns the corners of the greatest convex function below points with rising x."""
    corners: list[int] = []
    xs, ys = x.tolist(), y.tolist()
    for i in range(len(xs)):
        while len(corners) > 1:
            a, b = corners[-2], corners[-1]
            if (ys[b] - ys[a]) * (xs[i] - xs[b]) < (ys[i] - ys[b]) * (xs[b] - xs[a]):
                break
            corners.pop()
        corners.append(i)
    return np.array(corners, np.intp)
