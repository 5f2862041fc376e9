"""Who is contrasted with whom: anchors, their positives, and the keys of their negatives."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from aninfonce_jax.compat import varying_axes
from aninfonce_jax.losses import checks, rows_with_bank, similarity
from aninfonce_jax.losses.given import Bank, RowFacts, checked_facts, checked_labels, checked_mask
from aninfonce_jax.losses.plan import AxisName, axis_size
from aninfonce_jax.losses.rows_with_bank import Known
from aninfonce_jax.types import Array

NEGATIVES = ("both", "anchors", "cross")


class Keys(NamedTuple):
    """Keys that some of the anchors are contrasted with, all of this device.

    An anchor is not contrasted with a key of its own number. Where nothing is said of labels, that
    is itself and its own positive: numbers go from 0 to `batch - 1` on the first device, once for
    each view, and continue on the next one.

    Attributes:
      vectors: [keys, dim]; a bank is kept as the user gave it.
      prepare: makes some rows of `vectors` ready to be scored.
      seen_by: which of the pairing's anchors are contrasted with them.
      each_other: whether they are those anchors.
      left_out: how many keys of all devices have an anchor's number; None where labels say it.
      anchors: what is known of those anchors.
      known: what is known of the keys.
    """

    vectors: Array
    prepare: Callable[[Array], Array]
    seen_by: slice
    each_other: bool
    left_out: int | None
    anchors: Known
    known: Known


class Pairing(NamedTuple):
    """Anchors, their positives, and the keys of their negatives, all of this device.

    Attributes:
      anchors: [anchors, dim], ready to be scored.
      positives: [anchors, dim], ready to be scored.
      keys: sets of keys, of which an anchor may see several.
      real: whether an anchor counts, bool [anchors], or None where all do.
      weights: how much an anchor counts, [anchors], or None where all count alike; zero where it
        is not real.
      axis_name: the mapped axis that all of it is spread over, or None.
    """

    anchors: Array
    positives: Array
    keys: tuple[Keys, ...]
    real: Array | None
    weights: Array | None
    axis_name: AxisName | None

    @property
    def devices(self) -> int:
        """How many devices all of it is spread over."""
        return 1 if self.axis_name is None else axis_size(self.axis_name)

    @property
    def negatives_per_anchor(self) -> int | None:
        """How many negatives an anchor has, on all devices; None where that differs."""
        total = 0
        for keys in self.keys:
            if keys.known.real is not None or keys.left_out is None:
                return None
            # An anchor may see only some of the sets; every anchor sees the same number of keys.
            if not keys.seen_by.start:
                total += self.devices * keys.vectors.shape[0] - keys.left_out
        return total

    def origin(self) -> Array:
        """Returns a point [dim] amid the anchors and keys of all devices."""
        means = [
            _mean(keys.vectors, keys.known.real)
            if keys.each_other
            else rows_with_bank.mean(keys.prepare, keys.vectors, keys.known.real)
            for keys in self.keys
        ]
        mean_anchor = _mean(self.anchors, self.real)
        return similarity.common_origin(
            mean_anchor, jnp.mean(jnp.stack(means), axis=0), self.axis_name
        )


def pair(
    view1: ArrayLike,
    view2: ArrayLike,
    negatives: Any,
    normalize: bool,
    axis_name: AxisName | None,
    facts: dict[str, Any] | None = None,
) -> Pairing:
    """Returns who is contrasted with whom.

    Args:
      view1: as for the losses, like what follows.
      view2: [batch, dim].
      negatives: a name, an array, a `Bank`, or a name and one of the latter two.
      normalize: whether embeddings are scaled to unit length.
      axis_name: the mapped axis, or None.
      facts: the losses' `weights`, `mask`, `labels` and `same_label`.

    Raises:
      TypeError: embeddings that are not floating point.
      ValueError: shapes that do not fit, a batch without negatives, an unknown `negatives`, or
        arrays that are not spread over the axis as they should be.
    """
    first, second = _checked_views(view1, view2, axis_name)
    dtype = first.dtype
    normalize = checks.flag("normalize", normalize)
    known = checked_facts(**facts, views=first) if facts else RowFacts()

    def prepare(x: Array) -> Array:
        x = x.astype(dtype)
        return similarity.unit_norm(x) if normalize else x

    name, bank = name_and_bank(negatives)
    if known.mask is not None:
        # Whatever fills such rows, NaN too, must reach nothing.
        first, second = (jnp.where(known.mask[:, None], x, 0) for x in (first, second))
    first, second = prepare(first), prepare(second)
    keys = _keys_of_batch(name, first, second, known, axis_name)
    if bank is not None:
        keys += (_keys_of_bank(bank, first, name in ("both", "cross"), prepare, known, axis_name),)
    if name in ("both", "cross"):
        first, second = jnp.concatenate([first, second]), jnp.concatenate([second, first])
        known = known._replace(weights=_twice(known.weights), mask=_twice(known.mask))
    pairing = Pairing(first, second, keys, known.mask, _weights(known, dtype), axis_name)
    if pairing.negatives_per_anchor == 0:
        raise ValueError(
            "views must hold at least 2 rows, got a batch of 1: it has no negatives; "
            "raise the batch size or pass negatives as an array"
        )
    return pairing


def _keys_of_batch(
    name: str | None, first: Array, second: Array, facts: RowFacts, axis_name: AxisName | None
) -> tuple[Keys, ...]:
    """Returns the keys that are rows of the batch, as `negatives` names them."""
    if name is None:
        return ()
    pairs = first.shape[0]
    everyone = slice(None)
    known = _known_in_batch(facts, pairs, axis_name)
    labelled = facts.labels is not None and facts.same_label == "left out"
    left_out = None if labelled else 1
    if name == "anchors":
        return (Keys(first, _as_it_is, everyone, True, left_out, known, known),)
    if name == "cross":
        seen_by = slice(0, pairs), slice(pairs, 2 * pairs)
        return tuple(
            Keys(other, _as_it_is, rows, False, left_out, known, known)
            for rows, other in zip(seen_by, (second, first), strict=True)
        )
    points = jnp.concatenate([first, second])
    known = Known(*(_twice(x) for x in known))
    return (Keys(points, _as_it_is, everyone, True, left_out and 2, known, known),)


def _known_in_batch(facts: RowFacts, pairs: int, axis_name: AxisName | None) -> Known:
    first = 0 if axis_name is None else pairs * lax.axis_index(axis_name)
    number = first + lax.iota(jnp.int32, pairs)
    if facts.labels is None or facts.same_label == "positive":
        return Known(number, facts.labels, facts.mask)
    return Known(facts.labels, None, facts.mask)


def _keys_of_bank(
    bank: Bank,
    views: Array,
    both: bool,
    prepare: Callable[[Array], Array],
    facts: RowFacts,
    axis_name: AxisName | None,
) -> Keys:
    """Returns explicit negatives, in a dtype of their own."""
    vectors = checks.embeddings("negatives", bank.vectors)
    checks.check_not_explicit("negatives", vectors)
    if vectors.shape[1] != views.shape[1]:
        raise ValueError(
            f"negatives must have shape [keys, {views.shape[1]}] like the views, got "
            f"{vectors.shape}"
        )
    if axis_name is not None:
        _check_spread("negatives", vectors, axis_name)
    labels = checked_labels("labels of negatives", bank.labels, vectors.shape[0])
    real = checked_mask("mask of negatives", bank.mask, vectors.shape[0])
    if labels is not None and facts.labels is None:
        raise ValueError("negatives have labels, and the views have none; pass labels to the loss")
    anchor_labels = _twice(facts.labels) if both else facts.labels
    if labels is None or facts.same_label == "positive":
        anchors, known = Known(label=anchor_labels), Known(label=labels, real=real)
        return Keys(vectors, prepare, slice(None), False, 0, anchors, known)
    known = Known(number=labels, real=real)
    return Keys(vectors, prepare, slice(None), False, None, Known(number=anchor_labels), known)


def name_and_bank(negatives: Any) -> tuple[str | None, Bank | None]:
    """Returns which rows of the batch are negatives, and which others, of what a user gave."""
    name, bank = None, negatives
    if isinstance(negatives, str) or negatives is None:
        name, bank = negatives, None
    elif type(negatives) is tuple and len(negatives) == 2 and isinstance(negatives[0], str):
        name, bank = negatives
    known = name in NEGATIVES or (name is None and bank is not None)
    if not known or isinstance(bank, str):
        raise ValueError(
            f"negatives must be one of {', '.join(map(repr, NEGATIVES))}, an array [keys, dim], "
            f"an an.Bank, or a pair of a name and an array or Bank, got {checks.shown(negatives)}"
        )
    return name, bank if bank is None or isinstance(bank, Bank) else Bank(bank)


def _as_it_is(x: Array) -> Array:
    return x


def _twice(x: Array | None) -> Array | None:
    return None if x is None else jnp.concatenate([x, x])


def _weights(facts: RowFacts, dtype: Any) -> Array | None:
    if facts.mask is None:
        return facts.weights
    weights = jnp.ones(facts.mask.shape, dtype) if facts.weights is None else facts.weights
    return jnp.where(facts.mask, weights, 0)


def _mean(x: Array, real: Array | None) -> Array:
    if real is None:
        return jnp.mean(x, axis=0)
    # Rows that are not real are zero.
    return jnp.sum(x, axis=0) / jnp.maximum(jnp.sum(real.astype(x.dtype)), 1)


# --- Checks of the arrays ---


def _checked_views(
    view1: ArrayLike, view2: ArrayLike, axis_name: AxisName | None
) -> tuple[Array, Array]:
    """Returns both views in the dtype of the computation."""
    first = checks.embeddings("view1", view1)
    second = checks.embeddings("view2", view2)
    for name, view in (("view1", first), ("view2", second)):
        checks.check_not_explicit(name, view)
    if first.shape != second.shape:
        raise ValueError(
            f"view1 and view2 must have the same shape [batch, dim], got {first.shape} and "
            f"{second.shape}; row i of view2 is the positive of row i of view1"
        )
    if axis_name is not None:
        spread = [sorted(varying_axes(view)) for view in (first, second)]
        if spread[0] != spread[1]:
            raise ValueError(
                f"view1 and view2 must be spread over the same axes, got {spread[0]} and "
                f"{spread[1]}; give both the same in_specs"
            )
        _check_spread("view1 and view2", first, axis_name)
    wide = jnp.float64 in (first.dtype, second.dtype)
    dtype = jnp.float64 if wide else jnp.float32
    return first.astype(dtype), second.astype(dtype)


def _check_spread(name: str, x: Array, axis_name: AxisName) -> None:
    """Refuses rows that every device has alike, for they would count once for each."""
    # Where axes are not checked, as under pmap, nothing is known of any array.
    checked = varying_axes(lax.axis_index(axis_name))
    alike = sorted(checked - varying_axes(x))
    if alike:
        raise ValueError(
            f"{name} must be spread over axis_name={axis_name!r}, got the same rows on every "
            f"device along {alike}; give in_specs that spread them, so that each row counts once"
        )
