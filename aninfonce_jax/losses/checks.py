"""Checks of what a user passes to the losses: expected, received, what to do, in one line."""

import math
import numbers
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike, DTypeLike

from aninfonce_jax.types import Array

_LONGEST_SHOWN = 60


def shown(value: Any) -> str:
    """Returns a value for a message: on one line, and not too long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def as_array(name: str, value: ArrayLike) -> Array:
    """Returns `value` as an array, in the dtype that JAX gives it.

    Raises:
      TypeError: what is no array of numbers, such as a string or rows of unequal length.
    """
    try:
        # A number beyond float32 becomes infinite, of which old versions of jax also warn.
        with np.errstate(over="ignore"):
            return jnp.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"{name} must be an array of numbers, got a {type(value).__name__} that can't be "
            f"made one; rows of unequal length, masked arrays, strings and None can't"
        ) from error


def embeddings(name: str, value: ArrayLike) -> Array:
    """Returns embeddings [batch, dim].

    Raises:
      TypeError: what is not floating point.
      ValueError: another shape, or no entries.
    """
    x = as_array(name, value)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(
            f"{name} must be floating point, got dtype {x.dtype}; convert it with "
            f"{name}.astype(jnp.float32)"
        )
    if x.ndim != 2:
        raise ValueError(
            f"{name} must have shape [batch, dim], got {x.shape}; flatten its other axes"
        )
    if 0 in x.shape:
        raise ValueError(f"{name} must not be empty, got shape {x.shape}")
    return x


def check_not_explicit(name: str, x: Array) -> None:
    """Refuses an array that is spread over explicit axes of a mesh.

    Raises:
      ValueError: it is.
    """
    # A type tells of explicit axes only, not of others or of those of a mapped function.
    spec = jax.typeof(x).sharding.spec
    if any(axis is not None for axis in spec):
        raise ValueError(
            f"{name} must not be spread over explicit axes of a mesh, got {spec}: every product "
            f"of such rows with each other is an error to JAX; use an.over_mesh, or make the mesh "
            f"with axis_types=(jax.sharding.AxisType.Auto,)"
        )


def whole_number(name: str, value: Any, kind: str = "an int") -> int:
    """Returns a number of at least 1 as a Python int; NumPy's integers are fine.

    Raises:
      TypeError: what is no whole number.
      ValueError: a number below 1.
    """
    if isinstance(value, bool | np.bool_ | jax.core.Tracer) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be {kind}, got {type(value).__name__}")
    try:
        number = operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} must be {kind}, got {type(value).__name__}") from error
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {number}")
    return number


def flag(name: str, value: Any) -> bool:
    """Returns True or False.

    Raises:
      TypeError: anything else.
    """
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {type(value).__name__}")
    return bool(value)


def precision(value: Any) -> lax.Precision:
    """Returns the precision of matrix products, of which `value` may also be the name.

    Raises:
      ValueError: what is none.
    """
    names = ", ".join(member.name for member in lax.Precision)
    message = f"precision must be a jax.lax.Precision, {names}, got {shown(value)}"
    if not (value is None or isinstance(value, str | lax.Precision)):
        raise ValueError(message)
    try:
        return lax.Precision(value)
    except ValueError as error:
        raise ValueError(message) from error


# --- Parameters of the losses ---


def concentration(value: ArrayLike, dim: int, dtype: DTypeLike) -> Array:
    """Returns Λ as a [dim] array; a scalar is repeated.

    Raises:
      TypeError: Λ is not a real number.
      ValueError: Λ has another shape, or is concrete and not positive in `dtype`.
    """
    shape = np.shape(_real("concentration", value))
    if shape == (dim, dim):
        raise ValueError(
            f"concentration must be the diagonal of Λ, a scalar or an array of shape ({dim},), "
            f"got a matrix of shape {shape}; pass jnp.diag of it, or an.Factored(L) for a full "
            f"Λ = L Lᵀ, or an.PerAnchor"
        )
    if shape not in ((), (dim,)):
        raise ValueError(
            f"concentration must be a scalar or have shape ({dim},), one Λ per embedding "
            f"dimension, got shape {shape}"
        )
    return jnp.broadcast_to(_positive("concentration", value, dtype), (dim,))


def diagonals(value: ArrayLike, dim: int, dtype: DTypeLike) -> Array:
    """Returns a Λ for each anchor as an array [anchors, dim].

    Raises:
      TypeError: Λ is not a real number.
      ValueError: Λ has another shape, or is concrete and not positive in `dtype`.
    """
    shape = np.shape(_real("concentration", value))
    if len(shape) != 2 or shape[1] != dim:
        raise ValueError(
            f"concentration of each anchor must have shape [batch, {dim}], got shape {shape}"
        )
    return _positive("concentration", value, dtype)


def factor(value: ArrayLike, dim: int, dtype: DTypeLike) -> Array:
    """Returns L [dim, rank] of Λ = L Lᵀ.

    Raises:
      TypeError: L is not of real numbers.
      ValueError: L has another shape, or is concrete and not finite.
    """
    array = _real("factor", value)
    if len(array.shape) != 2 or array.shape[0] != dim or 0 in array.shape:
        raise ValueError(
            f"factor must be L of Λ = L Lᵀ, of shape [{dim}, rank], got shape {array.shape}"
        )
    if not isinstance(array, jax.core.Tracer) and not np.all(np.isfinite(np.asarray(array))):
        raise ValueError("factor must be finite, got NaN or infinite entries")
    return jnp.asarray(array).astype(dtype)


def real_scalar(name: str, value: ArrayLike, dtype: DTypeLike) -> Array:
    """Returns a number of either sign as a scalar array.

    Raises:
      TypeError: no real number.
      ValueError: no scalar, or concrete and not finite.
    """
    array = _real(name, value)
    if np.shape(array) != ():
        raise ValueError(f"{name} must be a scalar, got shape {np.shape(array)}")
    if not isinstance(array, jax.core.Tracer) and not np.isfinite(np.asarray(array)):
        raise ValueError(f"{name} must be finite, got {array}")
    return jnp.asarray(array).astype(dtype)


def temperature(value: ArrayLike, dtype: DTypeLike) -> Array:
    """Returns τ as a scalar array.

    Raises:
      TypeError: τ is not a real number.
      ValueError: τ is not a scalar, or is concrete and not positive in `dtype`.
    """
    shape = np.shape(_real("temperature", value))
    if shape != ():
        raise ValueError(f"temperature must be a scalar, got shape {shape}")
    return _positive("temperature", value, dtype)


def exponent(p: Any) -> float:
    """Returns the exponent p of an Lp distance as a Python float.

    Raises:
      TypeError: p is not a Python number; the compiled loss depends on its value.
      ValueError: p is not positive, or out of the range of float32.
    """
    number = _python_number("p", p)
    if not 0 < number < math.inf:
        raise ValueError(f"p must be positive and finite, got {p}")
    _check_range("p", np.asarray(number), jnp.float32)
    return number


def hardness(value: Any) -> float:
    """Returns how much more the nearest negatives count, as a Python float.

    Raises:
      TypeError: no Python number; the compiled loss depends on its value.
      ValueError: below 0, or out of the range of float32.
    """
    number = _python_number("hardness", value)
    if not 0 <= number < math.inf:
        raise ValueError(f"hardness must be at least 0 and finite, got {value}")
    # One that rounds to zero does what it should: next to nothing.
    _check_range("hardness", np.asarray(1 + number), jnp.float32)
    return number


def debias(value: Any) -> float:
    """Returns the share of negatives that are taken for false ones, as a Python float.

    Raises:
      TypeError: no Python number; the compiled loss depends on its value.
      ValueError: not from 0 to below 1.
    """
    number = _python_number("debias", value)
    if not 0 <= number < 1:
        raise ValueError(f"debias is a share of the negatives, from 0 to below 1, got {value}")
    return number


def _python_number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a Python number, got {type(value).__name__}")
    try:
        return float(value)
    except OverflowError as error:
        raise ValueError(f"{name} must be finite, got a number beyond 1e308") from error


def _real(name: str, value: ArrayLike) -> Any:
    """Returns `value`, traced or as a NumPy array, of some type of real numbers."""
    array: Any = value
    # np.asarray of a traced value would fail, and of another's array may copy it.
    if not isinstance(value, jax.Array | np.ndarray):
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise TypeError(f"{name} must be real numbers, got rows of unequal length") from error
    if not (jnp.issubdtype(array.dtype, jnp.floating) or array.dtype.kind in "iu"):
        raise TypeError(f"{name} must be real numbers, got dtype {array.dtype}")
    return array


def _positive(name: str, value: ArrayLike, dtype: DTypeLike) -> Array:
    # A traced value is not known yet: the losses report it in their metrics instead.
    if not isinstance(value, jax.core.Tracer):
        concrete = np.asarray(value)
        wrong = concrete[~(np.isfinite(concrete) & (concrete > 0))]
        if wrong.size:
            raise ValueError(
                f"{name} must be positive and finite, got {wrong.flat[0]}; pass it in natural "
                f"units, for example the softplus or exp of a free parameter"
            )
        _check_range(name, concrete, dtype)
        value = concrete
    return jnp.asarray(value).astype(dtype)


def _check_range(name: str, positive: np.ndarray, dtype: DTypeLike) -> None:
    """Refuses what is zero or infinite in `dtype`, or so small that a device may take it for 0."""
    limits = jnp.finfo(dtype)
    smallest, largest = float(limits.tiny), float(limits.max)
    wide = positive.astype(np.float64)
    outside = positive[(wide < smallest) | (wide > largest)]
    if outside.size:
        raise ValueError(
            f"{name} must lie between {smallest:.1e} and {largest:.1e}, the range of "
            f"{limits.dtype} in which it is used, got {outside.flat[0]}"
        )
