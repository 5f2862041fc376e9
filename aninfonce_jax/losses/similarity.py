"""How alike two embeddings are: anisotropic, scaled dot product, and Lp.

Each similarity comes in two forms. The paired form scores row i of one array against
row i of another, [batch]; it is computed from differences where the definition has
them, so a positive pair is scored to full relative precision. The other form scores
every anchor against every key: as the factors of one matrix product where the algebra
allows it, so that no [anchors, keys, dim] array exists.

Arrays are float32 or float64 here; callers convert.
"""

import math
import numbers
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from aninfonce_jax.types import Array, PyTree

_SMALLEST_ROOTED = 1e-30


class KeyFactors(NamedTuple):
    """What scores need of keys.

    Attributes:
      vectors: [keys, dim].
      bias: [keys], or None where the similarity has none.
    """

    vectors: Array
    bias: Array | None = None


class Factors(NamedTuple):
    """Scores as a matrix product.

    score(i, j) = <queries[i], vectors[j]> + bias[j] + query_bias[i]

    with the vectors and bias of `of_keys(keys, parameters)`, which works row by row, so that
    keys need not all be made ready at once.

    Within a softmax row `query_bias` is constant and cancels, so it never enters the
    [anchors, keys] matrix; it only puts a log-sum-exp back into the units of the score.

    Attributes:
      queries: [anchors, dim].
      of_keys: a function of keys [keys, dim] and `parameters`, and of nothing else.
      parameters: what `of_keys` depends on.
      query_bias: [anchors], or None where the similarity has none.
      root: [anchors, dim], of which <root[i], root[j]> = <queries[i], vectors[j]> where the
        anchors are the keys.
    """

    queries: Array
    of_keys: Callable[[Array, PyTree], KeyFactors]
    parameters: PyTree
    query_bias: Array | None
    root: Array


def unit_norm(x: Array) -> Array:
    """Scales every row of `x` [batch, dim] to unit length; a zero row stays zero.

    Rows are first divided by their largest entry, so that neither 1e-30 nor 1e30
    leaves the range of float32 when squared. The gradient is finite everywhere.
    """
    # The result does not depend on the scale of a row, hence neither does its gradient.
    largest = lax.stop_gradient(jnp.max(jnp.abs(x), axis=-1, keepdims=True))
    x = x / jnp.where(largest == 0, 1, largest)
    squared = jnp.sum(x * x, axis=-1, keepdims=True)
    return x / jnp.sqrt(jnp.where(squared == 0, 1, squared))


def anisotropic(a: Array, b: Array, concentration: Array) -> Array:
    """Returns -½ (a - b)ᵀ Λ (a - b) per row, [batch].

    Args:
      a: [batch, dim].
      b: [batch, dim].
      concentration: the diagonal of Λ, [dim].
    """
    difference = a - b
    return -0.5 * jnp.sum(difference * difference * concentration[None, :], axis=-1)


def anisotropic_factors(
    anchors: Array,
    mean_key: Array,
    concentration: Array,
    axis_name: str | tuple[str, ...] | None = None,
) -> Factors:
    """Factors of -½ (a - b)ᵀ Λ (a - b) = (Λa)ᵀb - ½ bᵀΛb - ½ aᵀΛa.

    The three terms cancel for nearby points: a score near zero carries an absolute
    error of a few units in the last place of aᵀΛa, not of itself. Points are therefore
    measured from their common mean, which changes no score and makes aᵀΛa as small as
    a translation can.

    Args:
      anchors: [anchors, dim].
      mean_key: the mean of the keys, [dim].
      concentration: the diagonal of Λ, [dim].
      axis_name: mapped axis whose devices score each other's keys, and so must measure
        them from the same origin.
    """
    origin = (jnp.mean(anchors, axis=0) + mean_key) / 2
    # Scores are invariant to the origin, so the gradient through it is zero.
    origin = lax.stop_gradient(origin)
    if axis_name is not None:
        origin = lax.pmean(origin, axis_name)
    anchors = anchors - origin[None, :]
    queries = anchors * concentration[None, :]
    return Factors(
        queries=queries,
        of_keys=_anisotropic_keys,
        parameters=(concentration, origin),
        query_bias=-0.5 * jnp.sum(queries * anchors, axis=-1),
        root=anchors * _root(concentration)[None, :],
    )


def _root(x: Array) -> Array:
    """Returns √x, such that √x √x has the derivative 1 even where x is as small as zero."""
    # Less is zero to a TPU, and to any score.
    smallest = jnp.where((x >= 0) & (x < _SMALLEST_ROOTED), _SMALLEST_ROOTED, x)
    return jnp.sqrt(x + lax.stop_gradient(smallest - x))


def _anisotropic_keys(keys: Array, parameters: tuple[Array, Array]) -> KeyFactors:
    concentration, origin = parameters
    keys = keys - origin[None, :]
    scaled = keys * concentration[None, :]
    return KeyFactors(keys, -0.5 * jnp.sum(scaled * keys, axis=-1))


def dot_product(a: Array, b: Array, temperature: Array) -> Array:
    """Returns aᵀb / τ per row of `a` and `b` [batch, dim], [batch]."""
    return jnp.sum(a * b, axis=-1) / temperature


def dot_product_factors(anchors: Array, temperature: Array) -> Factors:
    """Factors of aᵀb / τ for `anchors` [anchors, dim]."""
    return Factors(
        queries=anchors / temperature,
        of_keys=lambda keys, _: KeyFactors(keys),
        parameters=(),
        query_bias=None,
        root=anchors / jnp.sqrt(temperature),
    )


def lp(a: Array, b: Array, p: float, temperature: Array) -> Array:
    """Returns -‖a - b‖_p^p / τ per row of `a` and `b` [batch, dim], [batch]."""
    return -jnp.sum(_absolute_power(a - b, p), axis=-1) / temperature


def lp_matrix(anchors: Array, keys: Array, p: float, temperature: Array) -> Array:
    """Returns -‖a - b‖_p^p / τ for every anchor and key, [anchors, keys].

    Sums over one dimension after another, so that neither this nor its gradient holds
    more than a few [anchors, keys] arrays. For p = 2 use `anisotropic_factors` with
    Λ = 2 / τ, which is a matrix product.
    """

    # Without the checkpoint, differences of every dimension would be kept for backward.
    @jax.checkpoint
    def add_dimension(total: Array, coordinates: tuple[Array, Array]) -> tuple[Array, None]:
        a, b = coordinates
        return total + _absolute_power(a[:, None] - b[None, :], p), None

    zeros = jnp.zeros((anchors.shape[0], keys.shape[0]), anchors.dtype)
    distances, _ = lax.scan(add_dimension, zeros, (anchors.T, keys.T))
    return -distances / temperature


def _absolute_power(x: Array, p: float) -> Array:
    """Returns |x|^p, with gradient zero at x = 0 for every p."""
    if p == 1:
        return x * lax.stop_gradient(jnp.sign(x))  # unlike that of abs, its gradient is 0 at 0
    if p == int(p):
        return lax.integer_pow(x if p % 2 == 0 else jnp.abs(x), int(p))
    # |x|^(p - 1) is infinite at zero for p < 1: keep zero out of the power altogether.
    nonzero = x != 0
    return jnp.where(nonzero, jnp.power(jnp.abs(jnp.where(nonzero, x, 1)), p), 0)


# --- Parameters of the similarities ---


def checked_concentration(concentration: ArrayLike, dim: int, dtype: DTypeLike) -> Array:
    """Returns Λ as a [dim] array; a scalar is repeated.

    Raises:
      TypeError: Λ is not a real number.
      ValueError: Λ has another shape, or is concrete and not positive and finite.
    """
    value = _checked_positive("concentration", concentration, dtype)
    if value.shape not in ((), (dim,)):
        raise ValueError(
            f"concentration must be a scalar or have shape ({dim},), one Λ per embedding "
            f"dimension, got shape {value.shape}"
        )
    return jnp.broadcast_to(value, (dim,))


def checked_temperature(temperature: ArrayLike, dtype: DTypeLike) -> Array:
    """Returns τ as a scalar array.

    Raises:
      TypeError: τ is not a real number.
      ValueError: τ is not a scalar, or is concrete and not positive and finite.
    """
    value = _checked_positive("temperature", temperature, dtype)
    if value.shape != ():
        raise ValueError(f"temperature must be a scalar, got shape {value.shape}")
    return value


def checked_exponent(p: float) -> float:
    """Returns the exponent p of an Lp distance as a Python float.

    Raises:
      TypeError: p is not a Python number; the compiled loss depends on its value.
      ValueError: p is not positive and finite.
    """
    if isinstance(p, bool) or not isinstance(p, numbers.Real):
        raise TypeError(f"p must be a Python number, got {type(p).__name__}")
    if not 0 < p < math.inf:
        raise ValueError(f"p must be positive and finite, got {p}")
    return float(p)


def _checked_positive(name: str, value: ArrayLike, dtype: DTypeLike) -> Array:
    # A traced value is not known yet: the losses report it in their metrics instead.
    if not isinstance(value, jax.core.Tracer):
        concrete = np.asarray(value)
        if not (jnp.issubdtype(concrete.dtype, jnp.floating) or concrete.dtype.kind in "iu"):
            raise TypeError(f"{name} must be real numbers, got dtype {concrete.dtype}")
        wrong = concrete[~(np.isfinite(concrete) & (concrete > 0))]
        if wrong.size:
            raise ValueError(
                f"{name} must be positive and finite, got {wrong.flat[0]}; pass it in natural "
                f"units, for example the softplus or exp of a free parameter"
            )
    return jnp.asarray(value).astype(dtype)
