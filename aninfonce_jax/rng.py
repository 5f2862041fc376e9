"""Randomness: one seed, named streams, and a key per step.

No key is ever carried along and split again. A key is a function of (seed, name,
step), so that a resumed run, a run on another mesh, or a test that wants step 4711
gets exactly the key that the original run had there.
"""

import zlib

import jax

from aninfonce_jax.types import Array


def stream(seed: int, name: str) -> Array:
    """Returns the root key of the stream called `name`."""
    return jax.random.fold_in(jax.random.key(seed), zlib.crc32(name.encode()))


def at_step(root: Array, step: Array | int) -> Array:
    """Returns the key of one step of a stream."""
    return jax.random.fold_in(root, step)
