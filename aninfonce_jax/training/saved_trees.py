"""Trees of arrays as a checkpoint holds them: copies, names, layouts, and the way back."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.placement import Placement
from aninfonce_jax.training import checksums
from aninfonce_jax.types import PyTree


class CheckpointError(RuntimeError):
    """A checkpoint can't be restored, or written; the message is one line for the user."""


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def snapshot(leaf: Any) -> Any:
    """Returns a copy of a leaf that no donation can touch, on the host where possible."""
    if isinstance(leaf, jax.Array) and _is_key(leaf):
        leaf = jax.random.key_data(leaf)
    # np.asarray would be a view of the device's buffer on CPU.
    return np.array(leaf, copy=True) if checksums.is_visible(leaf) else jnp.copy(leaf)


def as_stored(leaf: Any, placement: Placement) -> jax.ShapeDtypeStruct:
    """Returns what is stored for a leaf of the target, and where it shall be put."""
    sharding = getattr(leaf, "sharding", None) or placement.whole
    stored = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
    return jax.ShapeDtypeStruct(stored.shape, stored.dtype, sharding=sharding)


def as_target(array: jax.Array, leaf: Any) -> jax.Array:
    """Returns what the target asks for: a typed key where the stored numbers are one."""
    if not _is_key(leaf):
        return array
    impl = jax.random.key_impl(jnp.empty((), leaf.dtype))  # not defined on abstract keys
    return jax.random.wrap_key_data(array, impl=impl)


def named_leaves(tree: PyTree) -> Iterable[tuple[str, Any]]:
    """Returns every leaf with its path."""
    return ((jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree.leaves_with_path(tree))


def layout_of(tree: PyTree) -> dict[str, str]:
    """Returns dtype and shape of every leaf by its path, as in `float32[10, 3]`."""
    return {name: f"{leaf.dtype}{list(leaf.shape)}" for name, leaf in named_leaves(tree)}


def check_layout(saved: Mapping[str, str], asked: Mapping[str, str], step: int) -> None:
    """Raises if the target asks for other arrays: a mistake of the caller, not damage."""
    for name in [*asked, *saved]:
        has, wants = saved.get(name, "nothing"), asked.get(name, "nothing")
        if has != wants:
            raise CheckpointError(
                f"the checkpoint of step {step} holds {has} at {name}, but {wants} was expected: "
                "was it written with another model or optimiser?"
            )
