"""What may be said of rows and keys: weights, masks and labels; and other forms of Λ."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from aninfonce_jax.losses import checks
from aninfonce_jax.types import Array

SAME_LABEL = ("positive", "left out")


class Bank(NamedTuple):
    """Explicit negatives, of which more is known than their vectors.

    Attributes:
      vectors: [keys, dim].
      labels: integers [keys]; what becomes of an anchor and a key with the same label is said by
        the loss's `same_label`. None: keys have no labels.
      mask: bool [keys]; False: the key does not count. None: all do.

    Example:
      >>> bank = an.Bank(jax.random.normal(jax.random.key(0), (32, 4)))
      >>> an.infonce_loss(jnp.eye(4), jnp.eye(4), temperature=0.1, negatives=bank).per_anchor.shape
      (4,)
    """

    vectors: ArrayLike
    labels: ArrayLike | None = None
    mask: ArrayLike | None = None


class PerAnchor(NamedTuple):
    """A Λ for each anchor: score(a, b) = -½ (a - b)ᵀ Λₐ (a - b), Λₐ diagonal.

    Attributes:
      first: the diagonals of Λ of the first view's anchors, positive, [batch, dim].
      second: those of the second view's, where both views are anchors; else None.

    Example:
      >>> each = an.PerAnchor(jnp.ones((4, 4)), jnp.ones((4, 4)))  # of both views' anchors
      >>> an.aninfonce_loss(jnp.eye(4), jnp.eye(4), each).per_anchor.shape
      (8,)
    """

    first: ArrayLike
    second: ArrayLike | None = None

    def of_anchors(self, anchors: Array) -> Array:
        """Returns the diagonals of Λ of all anchors [anchors, dim], checked."""
        count, dim = anchors.shape
        parts = [x for x in self if x is not None]
        diagonals = jnp.concatenate([checks.diagonals(x, dim, anchors.dtype) for x in parts])
        if diagonals.shape[0] != count:
            raise ValueError(
                f"concentration must have a row for each of the {count} anchors, got "
                f"{diagonals.shape[0]}; pass an.PerAnchor(first, second) where both views are "
                f"anchors, and an.PerAnchor(first) where the first is"
            )
        return diagonals


class Factored(NamedTuple):
    """A full matrix Λ = L Lᵀ.

    Attributes:
      factor: L, [dim, rank]: for any L, Λ has no negative eigenvalue.

    Example:
      >>> an.aninfonce_loss(jnp.eye(4), jnp.eye(4), an.Factored(jnp.eye(4))).per_anchor.shape
      (8,)
    """

    factor: ArrayLike


class RowFacts(NamedTuple):
    """What is known of each positive pair, checked.

    Attributes:
      weights: how much it counts in a mean, [batch], or None where all count alike.
      mask: whether it counts at all, bool [batch], or None where all do.
      labels: int32 [batch], or None.
      same_label: what becomes of anchors and keys with the same label.
    """

    weights: Array | None = None
    mask: Array | None = None
    labels: Array | None = None
    same_label: str = "positive"


def checked_facts(
    weights: ArrayLike | None,
    mask: ArrayLike | None,
    labels: ArrayLike | None,
    same_label: str,
    views: Array,
) -> RowFacts:
    """Returns what a user says of the rows of `views` [batch, dim].

    Raises:
      TypeError: entries of another type than is asked for.
      ValueError: another length than that of the batch, a concrete weight that is negative or not
        finite, a label beyond int32, or an unknown `same_label`.
    """
    if not isinstance(same_label, str) or same_label not in SAME_LABEL:
        raise ValueError(
            f"same_label must be one of {', '.join(map(repr, SAME_LABEL))}, got "
            f"{checks.shown(same_label)}"
        )
    rows = views.shape[0]
    checked = checked_weights("weights", weights, rows)
    return RowFacts(
        weights=None if checked is None else checked.astype(views.dtype),
        mask=checked_mask("mask", mask, rows),
        labels=checked_labels("labels", labels, rows),
        same_label=same_label,
    )


def checked_weights(name: str, value: ArrayLike | None, rows: int) -> Array | None:
    """Returns numbers [rows] of at least 0, or None."""
    if value is None:
        return None
    x = checks.as_array(name, value)
    if not jnp.issubdtype(x.dtype, jnp.floating) and not jnp.issubdtype(x.dtype, jnp.integer):
        raise TypeError(f"{name} must be real numbers, got dtype {x.dtype}; use mask for bool")
    if not isinstance(x, jax.core.Tracer):
        concrete = np.asarray(x, np.float64)
        wrong = concrete[~(np.isfinite(concrete) & (concrete >= 0))]
        if wrong.size:
            raise ValueError(f"{name} must be finite and at least 0, got {wrong[0]}")
    return _of_length(name, x, rows)


def checked_mask(name: str, value: ArrayLike | None, rows: int) -> Array | None:
    """Returns bool [rows], or None."""
    if value is None:
        return None
    x = checks.as_array(name, value)
    if x.dtype != jnp.bool_:
        raise TypeError(
            f"{name} must be True where a row counts and False where it does not, got dtype "
            f"{x.dtype}; convert it with {name}.astype(bool)"
        )
    return _of_length(name, x, rows)


def checked_labels(name: str, value: ArrayLike | None, rows: int) -> Array | None:
    """Returns int32 [rows], or None."""
    if value is None:
        return None
    if not isinstance(value, jax.Array):
        # jax would cut them off to 32 bits without a word.
        wide = np.asarray(value)
        if wide.dtype.kind in "iu" and wide.size and not _in_int32(wide):
            raise ValueError(
                f"{name} must fit into 32 bits, got {wide.min()} to {wide.max()}; number them "
                f"anew, for example by np.unique(labels, return_inverse=True)[1]"
            )
    x = checks.as_array(name, value)
    if not jnp.issubdtype(x.dtype, jnp.integer):
        raise TypeError(f"{name} must be integers, got dtype {x.dtype}")
    return _of_length(name, x, rows).astype(jnp.int32)


def _in_int32(x: np.ndarray) -> bool:
    limits = np.iinfo(np.int32)
    return bool(limits.min <= x.min() and x.max() <= limits.max)


def _of_length(name: str, x: Array, rows: int) -> Array:
    if x.shape != (rows,):
        raise ValueError(
            f"{name} must have one entry for each of the {rows} rows, got shape {x.shape}"
        )
    return x
