"""Traces that a lost factor leaves in embeddings: told by their moments, without the truth.

Outputs of an encoder that found every factor surround the origin evenly, vary alike in all
directions, and tell nothing of each other. Where a factor is lost its output is empty, doubles
another one, or holds a function of the others. Such a function is found also if it is mixed into
several outputs: third and fourth moments, which vanish for independent outputs, point at it, and
then it is read off the directions across.
"""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from aninfonce_jax.scores import checked

FloatArray = npt.NDArray[np.float64]

ONE_SIDED, EMPTY, TOLD, BUNCHED, UNREAD = "one-sided", "empty", "told", "bunched", "unread"
# What encoders that found every factor stay well below; measured in docs/synthetic.md.
LIMITS = {ONE_SIDED: 0.3, EMPTY: 0.75, TOLD: 0.2, BUNCHED: 0.1, UNREAD: 0.8}
# Directions with less than this share of the mean variance are empty, and hold no function.
_LIVE = 1e-2
# Outputs with a correlation above this carry the same.
_SAME = 0.9
_HIGHEST_DEGREE = 3
# A readout has at most one coefficient for so many samples.
_SAMPLES_PER_COEFFICIENT = 16
# Samples of which all pairs are taken: 32 MB.
_PAIRED = 2048
_RIDGE = 1e-6
# As in `an.spreading_penalty`.
_SHARPNESS = 2.0


class LostTrace(NamedTuple):
    """One thing that embeddings show where a factor was lost.

    Attributes:
      name: of what is looked for.
      value: how much of it there is: about 0 where every factor was found.
      limit: above this a factor looks lost.
      words: what the value says.

    Example:
      >>> both_ends = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
      >>> trace = an.lost_factor_traces(both_ends)[0]
      >>> trace.name, trace.value, trace.found
      ('one-sided', 0.0, False)
    """

    name: str
    value: float
    limit: float
    words: str

    @property
    def found(self) -> bool:
        """Whether there is so much of it that a factor looks lost."""
        return self.value > self.limit


def lost_factor_traces(
    embeddings: npt.ArrayLike,
    observations: npt.ArrayLike | None = None,
    *,
    on_sphere: bool = True,
) -> list[LostTrace]:
    """Returns how much embeddings look as if a factor was lost; the truth is not needed.

    Each trace is near 0 for an encoder with one output for each factor that found all of them:
    the mean of the embeddings (a factor whose sign was given up), directions that hold next to
    nothing (of two outputs that carry the same, their difference), a direction that follows from
    those across it by squares, products and products of three, and embeddings closer to each other
    than those spread evenly. With as many outputs as factors a trace above its limit means a lost
    factor; with more outputs than factors there must be some, so it may mean just that.

    Not every loss leaves a trace: what took the place of a factor may be a wilder function of the
    others. With observations that have about as many dimensions as there are factors, and no
    noise, it is also asked which direction of them is told worst by the embeddings.

    Args:
      embeddings: of anchors, [samples, dim], at least two of each; some thousands tell most.
      observations: what was embedded, [samples, ...]; None: that is not asked.
      on_sphere: whether the directions of embeddings are all that counts.

    Returns:
      The traces that can be computed of so many samples.

    Raises:
      ValueError: shapes that do not fit, values that are not finite, or embeddings of length zero.

    Example:
      >>> factors = np.random.default_rng(0).normal(size=(2000, 3))
      >>> [trace.name for trace in an.lost_factor_traces(factors) if trace.found]
      []
      >>> factors[:, 2] = np.abs(factors[:, 2])  # an encoder that loses a sign
      >>> [trace.name for trace in an.lost_factor_traces(factors) if trace.found]
      ['one-sided', 'told', 'bunched']
    """
    points = _checked("embeddings", embeddings)
    if points.ndim != 2 or points.shape[1] < 2:
        raise ValueError(
            f"embeddings must have shape [samples, dim] with two dimensions or more, got "
            f"{points.shape}"
        )
    seen = None if observations is None else _checked("observations", observations)
    if seen is not None and (seen.ndim < 2 or len(seen) != len(points)):
        raise ValueError(
            f"observations must have shape [samples, ...] with the {len(points)} rows of the "
            f"embeddings, got {seen.shape}"
        )
    return list(_traces(points, seen, on_sphere=on_sphere))


def _checked(name: str, values: npt.ArrayLike) -> FloatArray:
    x = checked.real(name, values)
    if x.ndim < 2 or len(x) < 2 or not np.isfinite(x).all():
        raise ValueError(
            f"{name} must be finite, with two samples or more, got shape {x.shape} with "
            f"{np.count_nonzero(~np.isfinite(x))} values that are not finite"
        )
    return x


def _traces(points: FloatArray, seen: FloatArray | None, *, on_sphere: bool) -> Iterator[LostTrace]:
    if on_sphere:
        lengths = np.linalg.norm(points, axis=1, keepdims=True)
        if not np.all(lengths > 0):
            raise ValueError("embeddings on a sphere must not be zero, got one of length 0")
        points = points / lengths
        yield _one_sided(points)
    else:
        # Off the sphere each output has a scale of its own, which means nothing.
        spread = points.std(axis=0)
        points = (points - points.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    white, variances = whitened(points, _LIVE)
    yield _empty(points, variances)
    # On a sphere factors are found in any direction; off it each is an output.
    suspects = _suspects(white) if on_sphere else np.eye(points.shape[1])
    if (
        white.shape[1] >= 2
        and (told := _told(white if on_sphere else points, suspects)) is not None
    ):
        words = f"{told:.2f} of the variance of one direction follows from the others"
        yield LostTrace(TOLD, told, LIMITS[TOLD], words)
    if on_sphere:
        yield _bunched(points)
    if seen is not None and (unread := _unread(white, seen.reshape(len(seen), -1))) is not None:
        words = f"the embeddings leave {unread:.2f} of one direction of the observations untold"
        yield LostTrace(UNREAD, unread, LIMITS[UNREAD], words)


def _one_sided(points: FloatArray) -> LostTrace:
    """How far the mean is from zero: √d · ‖mean‖ is 0.8 if one output keeps to one side."""
    n, dim = points.shape
    mean = points.mean(axis=0)
    # Of a uniform sample it is not quite zero.
    value = math.sqrt(max(dim * float(mean @ mean) - dim / n, 0.0))
    return LostTrace(
        ONE_SIDED,
        value,
        LIMITS[ONE_SIDED],
        f"the embeddings lie to one side of the sphere, most of all by output "
        f"{int(np.argmax(np.abs(mean))) + 1} (√d times the length of their mean is {value:.2f})",
    )


def _empty(points: FloatArray, variances: FloatArray) -> LostTrace:
    """How little the direction that varies least varies, beside an even share."""
    value = float(1 - variances.min())
    words = f"a direction of the embeddings is empty to {100 * value:.0f} %"
    spread = points.std(axis=0)
    live = np.flatnonzero(spread > 1e-6 * spread.max())
    if len(live) >= 2:
        alike = np.abs(np.corrcoef(points[:, live].T)) - np.eye(len(live))
        one, other = sorted(np.unravel_index(np.argmax(alike), alike.shape))
        if alike[one, other] > _SAME:
            words += f": outputs {live[one] + 1} and {live[other] + 1} carry the same"
    return LostTrace(EMPTY, value, LIMITS[EMPTY], words)


def _bunched(points: FloatArray) -> LostTrace:
    """How much closer pairs are than those of a uniform sample, by the spreading penalty."""
    some, nu = points[:_PAIRED], points.shape[1] / 2 - 1
    n, sharpness = len(some), 2 * _SHARPNESS
    total = np.sum(np.exp(sharpness * (some @ some.T - 1))) - n
    # The mean of exp(κ cos) over the sphere, with a Bessel function.
    uniform = (
        special.gammaln(nu + 1)
        + nu * math.log(2 / sharpness)
        + math.log(special.ive(nu, sharpness))
    )
    value = math.log(max(float(total), np.finfo(float).tiny) / (n * (n - 1))) - float(uniform)
    words = f"the embeddings are bunched: pairs are closer than evenly spread ones ({value:.2f})"
    return LostTrace(BUNCHED, value, LIMITS[BUNCHED], words)


def _told(points: FloatArray, suspects: Iterable[FloatArray]) -> float | None:
    """Which share of one direction follows from those across it; None of too few samples."""
    dim = points.shape[1]
    degree = _degree(dim - 1, len(points))
    if degree is None:
        return None
    shares = []
    for direction in suspects:
        basis = np.linalg.qr(np.column_stack([direction, np.eye(dim)]))[0]
        turned = points @ basis
        shares.append(1 - untold(monomials(turned[:, 1:], degree), turned[:, :1])[0, 0])
    return float(max(shares))


def _suspects(white: FloatArray) -> Iterator[FloatArray]:
    """Yields the directions with the largest third and fourth moments across.

    The moments E[(w·y) y⊗y] and E[(w·y) y⊗y⊗y] vanish, or are the same for every w, where all
    outputs are independent. Their squared sizes are quadratic forms in w, of matrices that need
    powers of the scalar products of pairs only.
    """
    some = white[:_PAIRED]
    products = some @ some.T
    np.fill_diagonal(products, 0.0)  # a sample tells nothing by its product with itself
    squares = products * products
    for powers in (squares, squares * products):
        yield np.linalg.eigh(some.T @ (powers @ some))[1][:, -1]


def _unread(white: FloatArray, seen: FloatArray) -> float | None:
    """Which share of the worst-told direction of observations a readout leaves untold."""
    degree = _degree(white.shape[1], len(white))
    if degree is None or seen.shape[1] > len(seen) // (2 * _SAMPLES_PER_COEFFICIENT):
        return None
    # Directions of observations that are rounding are not told by anything.
    directions, _ = whitened(seen, _LIVE)
    left = untold(monomials(white, degree), directions)
    return float(np.linalg.eigvalsh(left)[-1])


def whitened(x: FloatArray, least: float) -> tuple[FloatArray, FloatArray]:
    """Returns samples with the unit matrix for covariance, and all variances over their mean.

    Directions with less than the share `least` of the mean variance are left out.
    """
    centred = x - x.mean(axis=0)
    variances, axes = np.linalg.eigh(centred.T @ centred / len(x))
    mean = max(float(variances.mean()), np.finfo(float).tiny)
    live = variances > least * mean
    return centred @ axes[:, live] / np.sqrt(variances[live]), variances / mean


def _degree(dim: int, samples: int) -> int | None:
    """Returns how high products may be for a readout to be fitted on half of the samples."""
    for degree in range(_HIGHEST_DEGREE, 1, -1):
        if math.comb(dim + degree, degree) * _SAMPLES_PER_COEFFICIENT <= samples:
            return degree
    return None


def monomials(x: FloatArray, degree: int) -> FloatArray:
    """Returns all products of up to `degree` columns, [samples, products]."""
    dim = x.shape[1]
    parts, last = [x], np.arange(dim)
    for _ in range(degree - 1):
        # A product goes on with its last column or a later one, so that each is made once.
        grown = [parts[-1][:, last <= k] * x[:, k : k + 1] for k in range(dim)]
        last = np.repeat(np.arange(dim), [part.shape[1] for part in grown])
        parts.append(np.concatenate(grown, axis=1))
    return np.concatenate(parts, axis=1)


def untold(readers: FloatArray, targets: FloatArray) -> FloatArray:
    """Returns the covariance of what a linear readout, fitted on one half, leaves of the other.

    Targets are of variance one, so that 1 means that nothing is told.
    """
    half = len(readers) // 2
    mean, scale = readers[:half].mean(axis=0), readers[:half].std(axis=0)
    readers = (readers - mean) / np.where(scale > 0, scale, 1.0)
    centre = targets[:half].mean(axis=0)
    square = readers[:half].T @ readers[:half] / half + _RIDGE * np.eye(readers.shape[1])
    across = readers[:half].T @ (targets[:half] - centre) / half
    left = targets[half:] - centre - readers[half:] @ np.linalg.solve(square, across)
    return left.T @ left / len(left)
