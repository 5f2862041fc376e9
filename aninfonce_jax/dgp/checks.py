"""Checks of the parameters of distributions, made where they are concrete.

Distributions are pytrees: JAX builds them again, through their constructors, with
tracers or placeholders for leaves. Those are let through; numbers are checked.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.dgp.errors import ProcessError
from aninfonce_jax.dgp.spaces import Space, Sphere
from aninfonce_jax.types import Array

# What a user may give for a parameter of a distribution.
ArrayLike = Array | np.ndarray | Sequence[float] | float


def concrete(value: object) -> np.ndarray | None:
    """Returns the numbers in `value`, or None if there are none to look at."""
    if isinstance(value, jax.core.Tracer):
        return None
    if isinstance(value, jax.Array):
        return np.asarray(value) if value.is_fully_addressable else None
    if isinstance(value, int | float | list | tuple | np.ndarray | np.generic):
        return np.asarray(value, np.float64)
    return None


def positive(name: str, value: ArrayLike, max_ndim: int = 1) -> ArrayLike:
    """Returns `value`, as an array if it is made of numbers, after checking them.

    Raises:
      ValueError: a number is not positive and finite, or there are too many axes.
    """
    numbers = concrete(value)
    if numbers is None:
        return value
    if numbers.ndim > max_ndim or numbers.size == 0:
        expected = "a number" if max_ndim == 0 else "one value per factor, [dim]"
        raise ProcessError(f"{name} must be {expected}, got shape {numbers.shape}.")
    bad = ~(np.isfinite(numbers) & (numbers > 0))
    if bad.any():
        where = f" at index {int(np.argmax(bad))}" if numbers.ndim else ""
        first = numbers[bad].flat[0]
        raise ProcessError(f"{name} must be positive and finite, got {first:g}{where}.")
    return value if isinstance(value, jax.Array) else numbers


def per_factor(name: str, value: ArrayLike, dim: int) -> None:
    """Checks that `value` [dim] has one entry per factor.

    Raises:
      ValueError: it has another shape.
    """
    if not hasattr(value, "shape") and concrete(value) is None:
        return
    shape = np.shape(value)
    if shape != (dim,):
        raise ProcessError(f"{name} must have one value per factor, [{dim}], got shape {shape}.")


def sphere(space: Space, what: str) -> Sphere:
    """Returns `space` if it is a sphere.

    Raises:
      ValueError: it is not.
    """
    if not isinstance(space, Sphere):
        raise ProcessError(f"{what} is defined on a sphere, got {space}.")
    return space


def as_dtype(value: ArrayLike, like: Array) -> Array:
    """Returns `value` as an array of the dtype of `like`."""
    return jnp.asarray(value, like.dtype)
