"""Standard draws for a batch: the numbers of `jax.random`, made as one long row.

XLA unrolls the generator over a short last axis on CPUs, which takes seconds to compile for
ten factors. The generator counts elements in row order, so the numbers are the same.
"""

import math

import jax
import jax.numpy as jnp

from aninfonce_jax.types import Array


def normal(key: Array, shape: tuple[int, ...], dtype: jnp.dtype | type = float) -> Array:
    """Returns `jax.random.normal(key, shape, dtype)`."""
    return jax.random.normal(key, (math.prod(shape),), dtype).reshape(shape)


def uniform(key: Array, shape: tuple[int, ...], dtype: jnp.dtype | type = float) -> Array:
    """Returns `jax.random.uniform(key, shape, dtype)`."""
    return jax.random.uniform(key, (math.prod(shape),), dtype).reshape(shape)
