"""How alike two embeddings are: anisotropic, scaled dot product, and Lp.

Each similarity comes in two forms. The paired form scores row i of one array against
row i of another, [batch]; it is computed from differences where the definition has
them, so a positive pair is scored to full relative precision. The other form scores
every anchor against every key: as the factors of one matrix product where the algebra
allows it, so that no [anchors, keys, dim] array exists.

Arrays are float32 or float64 here; callers convert.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from aninfonce_jax.losses.powers import absolute_power
from aninfonce_jax.losses.tiles import Points
from aninfonce_jax.types import Array, PyTree

# Near the smallest number that all devices tell from zero.
_SMALLEST_ROOTED = 1e-37


class Factors(NamedTuple):
    """Scores as a matrix product.

    score(i, j) = <queries[i], vectors[j]> + bias[j] + query_bias[i] + offset

    with the vectors and bias of `of_keys(keys, parameters)`, which works row by row, so that
    keys need not all be made ready at once.

    Within a softmax row `query_bias` and `offset` are constant and cancel, so they never enter
    the [anchors, keys] matrix. The bias puts a log-sum-exp back into the units of the score.
    The offset is common to all scores, and far larger than their differences where embeddings
    lie close together: only what is reported in units of the score contains it.

    Attributes:
      queries: [anchors, dim].
      of_keys: a function of keys [keys, dim] and `parameters`, and of nothing else.
      parameters: what `of_keys` depends on.
      query_bias: [anchors]; where the anchors are the keys, it is their `bias`.
      root: [anchors, dim], of which <root[i], root[j]> = <queries[i], vectors[j]> where the
        anchors are the keys; None where scores are not symmetric.
      positive: the score of each anchor's positive without `offset`, [anchors].
      offset: a scalar.
      reach: a bound on the rounding of a score, in units of the last place, is this times the
        length of the key's vector, a scalar without gradient.
      own_reach: what the anchor's bias and positive add to that bound, [anchors].
    """

    queries: Array
    of_keys: Callable[[Array, PyTree], Points]
    parameters: PyTree
    query_bias: Array
    root: Array | None
    positive: Array
    offset: Array
    reach: Array
    own_reach: Array


def unit_norm(x: Array) -> Array:
    """Scales every row of `x` [batch, dim] to unit length; a zero row stays zero.

    Rows are first divided by their largest entry, so that neither 1e-30 nor 1e30
    leaves the range of float32 when squared. The gradient is finite everywhere.
    """
    # The result does not depend on the scale of a row, hence neither does its gradient.
    largest = lax.stop_gradient(_largest(x))
    x = x / largest
    squared = jnp.sum(x * x, axis=-1, keepdims=True)
    return x / jnp.sqrt(jnp.where(squared == 0, 1, squared))


def lengths(x: Array) -> Array:
    """Returns the length of every row of `x` [rows, dim], whatever its scale, no gradient."""
    x = lax.stop_gradient(x)
    largest = _largest(x)
    return largest[:, 0] * jnp.sqrt(jnp.sum((x / largest) ** 2, axis=-1))


def _largest(x: Array) -> Array:
    """Returns the largest magnitude in every row [rows, 1], or 1 where all are zero."""
    largest = jnp.max(jnp.abs(x), axis=-1, keepdims=True)
    return jnp.where(largest == 0, 1, largest)


def anisotropic(a: Array, b: Array, concentration: Array) -> Array:
    """Returns -½ (a - b)ᵀ Λ (a - b) per row, [batch].

    Args:
      a: [batch, dim].
      b: [batch, dim].
      concentration: the diagonal of Λ, [dim].
    """
    difference = a - b
    return -0.5 * jnp.sum(difference * difference * concentration[None, :], axis=-1)


def common_origin(
    mean_anchor: Array, mean_key: Array, axis_name: str | tuple[str, ...] | None = None
) -> Array:
    """Returns a point [dim] amid anchors and keys, to measure all of them from.

    No loss depends on it, so it has no gradient; but the nearer it is, the smaller are the
    numbers that cancel in a score.

    Args:
      mean_anchor: the mean of the anchors, [dim].
      mean_key: the mean of the keys, [dim].
      axis_name: mapped axis whose devices score each other's keys, and so must measure
        them from the same origin.
    """
    origin = lax.stop_gradient((mean_anchor + mean_key) / 2)
    return origin if axis_name is None else lax.pmean(origin, axis_name)


def anisotropic_factors(
    anchors: Array, positives: Array, origin: Array, concentration: Array
) -> Factors:
    """Factors of -½ (a - b)ᵀ Λ (a - b) = (Λa)ᵀb - ½ bᵀΛb - ½ aᵀΛa.

    The three terms cancel for nearby points: a score near zero carries an absolute
    error of a few units in the last place of aᵀΛa, not of itself. Points are therefore
    measured from their common mean, which changes no score and makes aᵀΛa as small as
    a translation can.

    Args:
      anchors: [anchors, dim].
      positives: [anchors, dim].
      origin: from `common_origin`, [dim].
      concentration: the diagonal of Λ, [dim].
    """
    positive = anisotropic(anchors, positives, concentration)
    return _factors(anchors, positive, _anisotropic_keys, (concentration, origin))


def per_anchor_factors(
    anchors: Array, positives: Array, origin: Array, concentration: Array
) -> Factors:
    """Factors of -½ (a - b)ᵀ Λₐ (a - b), where each anchor has its own diagonal Λₐ.

    With points measured from the origin, queries [Λₐa, -½ Λₐ] and keys [b, b²] it is a product of
    twice the width. Scores are not symmetric, so anchors that are each other's keys have no root.

    Args:
      anchors: [anchors, dim].
      positives: [anchors, dim].
      origin: from `common_origin`, [dim].
      concentration: the diagonals of all Λₐ, [anchors, dim].
    """
    centred = anchors - origin[None, :]
    queries = jnp.concatenate([concentration * centred, -0.5 * concentration], axis=1)
    bias = -0.5 * jnp.sum(concentration * centred**2, axis=-1)
    positive = -0.5 * jnp.sum(concentration * (anchors - positives) ** 2, axis=-1)
    return Factors(
        queries=queries,
        of_keys=_squared_keys,
        parameters=(origin,),
        query_bias=bias,
        root=None,
        positive=positive,
        offset=jnp.zeros((), positive.dtype),
        reach=jnp.max(lengths(queries)),
        own_reach=jnp.abs(lax.stop_gradient(bias)),
    )


def _squared_keys(keys: Array, parameters: tuple[Array]) -> Points:
    (origin,) = parameters
    keys = keys - origin[None, :]
    return Points(jnp.concatenate([keys, keys**2], axis=1), jnp.zeros_like(keys[:, 0]))


def factored_factors(anchors: Array, positives: Array, origin: Array, factor: Array) -> Factors:
    """Factors of -½ (a - b)ᵀ L Lᵀ (a - b): those of Λ = 1, of points times L.

    Args:
      anchors: [anchors, dim].
      positives: [anchors, dim].
      origin: from `common_origin`, [dim].
      factor: L, [dim, rank].
    """
    parameters = factor, origin
    points, bias, *_ = _factored_keys(anchors, parameters)
    positive = -0.5 * jnp.sum(_times(anchors - positives, factor) ** 2, axis=-1)
    return Factors(
        queries=points,
        of_keys=_factored_keys,
        parameters=parameters,
        query_bias=bias,
        root=points,
        positive=positive,
        offset=jnp.zeros((), positive.dtype),
        reach=jnp.max(lengths(points)),
        own_reach=jnp.abs(lax.stop_gradient(bias)),
    )


def _factored_keys(keys: Array, parameters: tuple[Array, Array]) -> Points:
    factor, origin = parameters
    points = _times(keys - origin[None, :], factor)
    return Points(points, -0.5 * jnp.sum(points**2, axis=-1))


def _times(points: Array, factor: Array) -> Array:
    return jnp.matmul(points, factor, precision=lax.Precision.HIGHEST)


def _factors(
    anchors: Array,
    positive: Array,
    of_keys: Callable[[Array, PyTree], Points],
    parameters: tuple[Array, Array],
) -> Factors:
    """Factors of scores that treat anchors and keys alike, aᵀΛb + bias(a) + bias(b)."""
    centred, bias, *_ = of_keys(anchors, parameters)
    concentration = parameters[0]
    queries = centred * concentration[None, :]
    return Factors(
        queries=queries,
        of_keys=of_keys,
        parameters=parameters,
        query_bias=bias,
        root=centred * _root(concentration)[None, :],
        positive=positive,
        offset=jnp.zeros((), positive.dtype),
        reach=jnp.max(lengths(queries)),
        own_reach=jnp.abs(lax.stop_gradient(bias)),
    )


def _root(x: Array) -> Array:
    """Returns √x, such that √x √x has the derivative 1 even where x is as small as zero."""
    # A TPU takes smaller numbers for zero.
    smallest = jnp.where((x >= 0) & (x < _SMALLEST_ROOTED), _SMALLEST_ROOTED, x)
    return jnp.sqrt(x + lax.stop_gradient(smallest - x))


def _anisotropic_keys(keys: Array, parameters: tuple[Array, Array]) -> Points:
    concentration, origin = parameters
    keys = keys - origin[None, :]
    scaled = keys * concentration[None, :]
    return Points(keys, -0.5 * jnp.sum(scaled * keys, axis=-1))


def dot_product_factors(
    anchors: Array, positives: Array, origin: Array, temperature: Array, *, normalized: bool
) -> Factors:
    """Factors of aᵀb / τ.

    Where embeddings lie close together, all scores are nearly |a|² / τ, and float32 would hold
    little of what tells them apart. So that part is left to `offset`. For unit vectors

        aᵀb = 1 - ½ |a - b|²

    and the rest is the anisotropic score with Λ = 1 / τ. For others, with a = o + a', b = o + b',

        aᵀb = oᵀo + oᵀa' + oᵀb' + a'ᵀb'

    Args:
      anchors: [anchors, dim].
      positives: [anchors, dim].
      origin: from `common_origin`, [dim].
      temperature: τ, a scalar.
      normalized: whether all rows, keys included, come from `unit_norm`.
    """
    inverse = jnp.broadcast_to(1 / temperature, origin.shape)
    parameters = inverse, origin
    if normalized:
        positive = anisotropic(anchors, positives, inverse)
        positive += (_missing_length(anchors) + _missing_length(positives)) / temperature
        factors = _factors(anchors, positive, _unit_keys, parameters)
        return factors._replace(offset=1 / temperature)
    centred, other = anchors - origin[None, :], positives - origin[None, :]
    positive = jnp.sum(anchors * other + origin[None, :] * centred, axis=-1) / temperature
    factors = _factors(anchors, positive, _dot_product_keys, parameters)
    # The products with the origin may cancel, but each of them was rounded.
    origin_reach = lengths((inverse * origin)[None, :])[0]
    return factors._replace(
        offset=jnp.sum(origin * origin) / temperature,
        reach=factors.reach + origin_reach,
        own_reach=origin_reach * lengths(centred)
        + (origin_reach + lengths(factors.queries)) * lengths(other),
    )


def _unit_keys(keys: Array, parameters: tuple[Array, Array]) -> Points:
    vectors, bias, *_ = _anisotropic_keys(keys, parameters)
    inverse, _ = parameters
    return Points(vectors, bias + _missing_length(keys) * inverse[0])


def _missing_length(x: Array) -> Array:
    """Returns ½ |x|² - ½ [rows] of rows from `unit_norm`: 0, and -½ where a row is zero."""
    # Rows of length one are left out: what they miss is nothing but rounding.
    zero = jnp.all(x == 0, axis=-1)
    return jnp.where(zero, 0.5 * jnp.sum(x * x, axis=-1) - 0.5, 0)


def _dot_product_keys(keys: Array, parameters: tuple[Array, Array]) -> Points:
    inverse, origin = parameters
    keys = keys - origin[None, :]
    return Points(keys, jnp.sum(keys * (origin * inverse)[None, :], axis=-1))


def lp(a: Array, b: Array, p: float, temperature: Array) -> Array:
    """Returns -‖a - b‖_p^p / τ per row of `a` and `b` [batch, dim], [batch]."""
    return -jnp.sum(absolute_power(a - b, p), axis=-1) / temperature


def lp_factors(anchors: Array, positives: Array, p: float, temperature: Array) -> Factors:
    """Returns what `powers.lp_matrix` scores: no factors of a product, but of the same shape.

    A query is an anchor with 1 / τ as one coordinate more. For p = 2 use `anisotropic_factors`
    with Λ = 2 / τ, which is a matrix product.

    Args:
      anchors: [anchors, dim].
      positives: [anchors, dim].
      p: the exponent.
      temperature: τ, a scalar.
    """
    inverse = jnp.broadcast_to(1 / temperature, anchors[:, :1].shape)
    positive = lp(anchors, positives, p, temperature)
    return Factors(
        queries=jnp.concatenate([anchors, inverse], axis=1),
        of_keys=_plain_keys,
        parameters=(),
        query_bias=jnp.zeros_like(positive),
        root=None,
        positive=positive,
        offset=jnp.zeros((), positive.dtype),
        # Nothing cancels in a distance, so a score is as wrong as it is large.
        reach=jnp.zeros((), positive.dtype),
        own_reach=jnp.abs(lax.stop_gradient(positive)),
    )


def _plain_keys(keys: Array, parameters: PyTree) -> Points:
    del parameters
    return Points(keys, jnp.zeros_like(keys[:, 0]))


def logit_factors(anchors: Array, positives: Array, temperature: Array, shift: Array) -> Factors:
    """Factors of aᵀb / τ + shift as it is: no part of it is common to all scores and cancels.

    Args:
      anchors: [anchors, dim].
      positives: [anchors, dim].
      temperature: τ, a scalar.
      shift: a scalar.
    """
    queries = anchors / temperature
    positive = jnp.sum(queries * positives, axis=-1) + shift
    return Factors(
        queries=queries,
        of_keys=_shifted_keys,
        parameters=(shift,),
        query_bias=jnp.zeros_like(positive),
        root=None,
        positive=positive,
        offset=jnp.zeros((), positive.dtype),
        reach=jnp.max(lengths(queries)),
        own_reach=jnp.abs(lax.stop_gradient(positive)),
    )


def _shifted_keys(keys: Array, parameters: tuple[Array]) -> Points:
    (shift,) = parameters
    return Points(keys, jnp.broadcast_to(shift, keys[:, 0].shape))
