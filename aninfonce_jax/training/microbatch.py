"""Gradient caching: as many negatives as wanted, whatever the encoder's activations take."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.losses import checks
from aninfonce_jax.types import Array, PyTree


def microbatched(
    encode: Callable[..., Any], microbatches: int, *, has_aux: bool = False
) -> Callable[..., Any]:
    """Returns `encode` with the memory of one micro-batch, and the same gradients.

    The batch is encoded micro-batch by micro-batch and only the embeddings are kept; a loss
    then contrasts all of them. In the backward pass each micro-batch is encoded once more,
    to turn the gradient of its embeddings into one of the parameters, which are summed. So
    activations of one micro-batch are alive at a time, at the price of a second forward
    pass. Differentiate as usual: nothing else is to be done.

        encode = an.microbatched(lambda params, x: model.apply(params, x), 8)

        def loss(params, x1, x2):
            return an.aninfonce_loss(encode(params, x1), encode(params, x2), ...).loss

    Where an encoder treats each row by itself, value and gradient are those of the whole
    batch. Two kinds of layer do not:

    - BatchNorm takes its statistics from the micro-batch: loss and gradient are exactly
      those of an encoder that normalises so, not of one that sees the whole batch. Return
      updated running statistics as auxiliary output; their mean over micro-batches comes
      back. What is not floating point, like a counter, comes back from the last one.
    - Dropout needs noise of its own for each micro-batch: pass `key`, and `encode` is called
      with a key of its own for each, the same one in both passes.

    Args:
      encode: a function of (params, inputs) or, where a key is passed, (params, inputs,
        key). Inputs are an array, or a tree of arrays, [batch, ...]; so are embeddings.
      microbatches: how many; must divide the batch. Micro-batch j takes the rows j,
        j + microbatches, ..., so that a batch split over devices stays where it is.
      has_aux: whether `encode` returns (embeddings, aux), aux being a tree of arrays that
        do not grow with the batch.

    Returns:
      A function of (params, inputs, key=None) that returns what `encode` does.

    Raises:
      TypeError: an `encode` that can't be called, a number of micro-batches that is no int or,
        when called, inputs that are not arrays.
      ValueError: a number of micro-batches below 1 or, when called, inputs or embeddings that
        do not have the same number of rows each, or rows that it does not divide.

    Example:
      >>> encode = an.microbatched(lambda params, x: x @ params, microbatches=4)
      >>> encode(jnp.eye(3), jnp.ones((8, 3))).shape
      (8, 3)
    """
    if not callable(encode):
        raise TypeError(f"encode must be a function, got {type(encode).__name__}")
    microbatches = checks.whole_number("microbatches", microbatches)
    has_aux = checks.flag("has_aux", has_aux)

    def split(x: Array) -> Array:
        return jnp.moveaxis(x.reshape(-1, microbatches, *x.shape[1:]), 1, 0)

    def join(x: Array) -> Array:
        if x.ndim < 2:  # that of the micro-batches and that of their rows
            raise ValueError("embeddings must be arrays [batch, ...], got a scalar among them")
        return jnp.moveaxis(x, 0, 1).reshape(-1, *x.shape[2:])

    def summarize(x: Array) -> Array:
        return jnp.mean(x, axis=0) if jnp.issubdtype(x.dtype, jnp.floating) else x[-1]

    def encode_all(params: PyTree, inputs: PyTree, key: Array | None = None) -> Any:
        _check_inputs(inputs, microbatches)

        # Without the checkpoint every micro-batch's activations would wait for the
        # backward pass, as if there were no micro-batches.
        @jax.checkpoint
        def one(inputs: PyTree, index: Array) -> Any:
            if key is None:
                return encode(params, inputs)
            return encode(params, inputs, jax.random.fold_in(key, index))

        outputs = jax.lax.map(
            lambda part: one(*part), (jax.tree.map(split, inputs), jnp.arange(microbatches))
        )
        if not has_aux:
            return jax.tree.map(join, outputs)
        if not isinstance(outputs, tuple) or len(outputs) != 2:
            raise TypeError(
                f"with has_aux=True encode must return (embeddings, aux), got "
                f"{type(outputs).__name__}"
            )
        embeddings, aux = outputs
        return jax.tree.map(join, embeddings), jax.tree.map(summarize, aux)

    return encode_all


def _check_inputs(inputs: PyTree, microbatches: int) -> None:
    """Refuses inputs that can't be cut into `microbatches` parts."""
    leaves = jax.tree.leaves(inputs)
    if not leaves:
        raise ValueError("inputs must hold at least one array [batch, ...], got none")
    for leaf in leaves:
        if not isinstance(leaf, jax.Array | np.ndarray):
            raise TypeError(
                f"inputs must be arrays [batch, ...], or a tree of them, got a "
                f"{type(leaf).__name__} among them; make an array of a list with jnp.asarray"
            )
        if leaf.ndim == 0:
            raise ValueError("inputs must be arrays [batch, ...], got a scalar among them")
    rows = sorted({leaf.shape[0] for leaf in leaves})
    if len(rows) > 1:
        raise ValueError(
            f"inputs must all have the same number of rows, got arrays with "
            f"{' and '.join(map(str, rows))}"
        )
    if rows[0] == 0:
        raise ValueError("inputs must have at least one row, got none")
    if rows[0] % microbatches:
        raise ValueError(f"microbatches={microbatches} must divide the batch, got {rows[0]} rows")
