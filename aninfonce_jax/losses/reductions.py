"""What becomes of a row of scores, whole or a tile at a time: one number for all its keys.

    logsumexp    log Σ exp(score)
    softplus     Σ log(1 + exp(score)), of which a sigmoid loss is made
    same label   Σ score over the keys with the row's label

A score of -∞ is that of a key that does not count. A row without any key, or whose keys all score
-∞, has log-sum-exp -∞, sums of 0, and gradient zero. NaN is not hidden.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from aninfonce_jax.types import Array

Reduction = Literal["logsumexp", "softplus", "same label"]


class Partial(NamedTuple):
    """A number for each row which can still take more keys.

    Attributes:
      best: the largest score so far, [rows], without gradient; -∞ for no score. For "same label",
        the number of keys with the row's label.
      total: the sum so far, [rows]; for "logsumexp", Σ exp(score - best).
    """

    best: Array
    total: Array


def empty(reduction: Reduction, like: Array) -> Partial:
    """Returns the partial result over no keys, with as many rows as `like` [rows]."""
    none = 0.0 if reduction == "same label" else -jnp.inf
    return Partial(jnp.full_like(like, none), jnp.zeros_like(like))


def parts(reduction: Reduction, scores: Array, same: Array | None) -> tuple[Partial, Array]:
    """Reduces scores [rows, keys].

    Args:
      reduction: to what.
      scores: -∞ where a key does not count.
      same: whether row and key have the same label, [rows, keys], where that matters.

    Returns:
      The partial result, and its derivative by every score, [rows, keys]; for "logsumexp", times
      the total.
    """
    if reduction == "logsumexp":
        return softmax_parts(scores)
    if reduction == "softplus":
        best = lax.stop_gradient(jnp.max(scores, axis=-1))
        return Partial(best, jnp.sum(jax.nn.softplus(scores), axis=-1)), jax.nn.sigmoid(scores)
    counted = _counted(scores, same)
    count = jnp.sum(counted.astype(scores.dtype), axis=-1)
    total = jnp.sum(jnp.where(counted, scores, 0), axis=-1)
    return Partial(count, total), counted.astype(scores.dtype)


def softmax_parts(scores: Array) -> tuple[Partial, Array]:
    """Returns the log-sum-exp of each row of scores [rows, keys], and the numerators."""
    best = lax.stop_gradient(jnp.max(scores, axis=-1))
    numerators = jnp.exp(scores - finite_or_zero(best)[:, None])
    return Partial(best, jnp.sum(numerators, axis=-1)), numerators


def merge(reduction: Reduction, a: Partial, b: Partial) -> Partial:
    """Returns the partial result over the keys of both."""
    if reduction == "logsumexp":
        return merge_logsumexp(a, b)
    best = a.best + b.best if reduction == "same label" else jnp.maximum(a.best, b.best)
    return Partial(best, a.total + b.total)


def merge_logsumexp(a: Partial, b: Partial) -> Partial:
    """Returns the log-sum-exp over the keys of both."""
    best = jnp.maximum(a.best, b.best)
    shift = finite_or_zero(best)
    return Partial(best, a.total * jnp.exp(a.best - shift) + b.total * jnp.exp(b.best - shift))


def value(reduction: Reduction, partial: Partial) -> Array:
    """Returns the number [rows] that `partial` stands for."""
    return logsumexp(partial) if reduction == "logsumexp" else partial.total


def logsumexp(partial: Partial) -> Array:
    """Returns the log-sum-exp [rows] that `partial` stands for."""
    return partial.best + jnp.log(partial.total)


def row_weights(reduction: Reduction, total: Array, cotangent: Array) -> Array:
    """Returns what the derivatives that `parts` gives are to be multiplied with, [rows]."""
    if reduction != "logsumexp":
        return cotangent
    return jnp.where(total == 0, 0, cotangent / jnp.where(total == 0, 1, total))


def derivative(
    reduction: Reduction, scores: Array, same: Array | None, result: Array, cotangent: Array
) -> Array:
    """Returns the derivative by every score [rows, keys], from the result over all keys.

    Args:
      reduction: to what.
      scores: of a row with some of its keys.
      same: as in `parts`.
      result: of each row over all its keys, [rows]; +∞ gives a log-sum-exp no gradient.
      cotangent: of `result`, [rows].
    """
    if reduction == "logsumexp":
        return jnp.exp(scores - result[:, None]) * cotangent[:, None]
    if reduction == "softplus":
        return jax.nn.sigmoid(scores) * cotangent[:, None]
    return jnp.where(_counted(scores, same), cotangent[:, None], 0)


def _counted(scores: Array, same: Array | None) -> Array:
    assert same is not None
    return same & (scores > -jnp.inf)


def finite_or_zero(x: Array) -> Array:
    """Replaces -∞ by zero, so that -∞ minus it stays -∞; NaN stays NaN."""
    return jnp.where(x == -jnp.inf, 0, x)
