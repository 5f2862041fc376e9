"""Who is contrasted with whom: anchors, their positives, and the keys of their negatives."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from aninfonce_jax.compat import varying_axes
from aninfonce_jax.losses import checks, rows_with_bank, similarity
from aninfonce_jax.losses.plan import AxisName, axis_size
from aninfonce_jax.types import Array

NEGATIVES = ("both", "anchors")


class Pairing(NamedTuple):
    """Anchors [anchors, dim], their positives, and keys [keys, dim], all of this device.

    A bank of negatives is kept as the user gave it, and `prepare` makes keys of some of its rows.

    Where anchors are each other's keys, not every key is a negative: an anchor is not contrasted
    with itself nor, with both views among the keys, with its own positive. Anchor and key then
    have the same number. Numbers go from 0 to `pairs - 1` on the first device, once for each view,
    and continue on the next one.

    Attributes:
      anchors: [anchors, dim], ready to be scored.
      positives: [anchors, dim], ready to be scored.
      keys: [keys, dim].
      prepare: makes some rows of `keys` ready to be scored.
      pairs: positive pairs on this device where anchors are each other's keys; None with a bank.
      axis_name: the mapped axis that all of it is spread over, or None.
    """

    anchors: Array
    positives: Array
    keys: Array
    prepare: Callable[[Array], Array]
    pairs: int | None
    axis_name: AxisName | None

    @property
    def negatives_per_anchor(self) -> int:
        """How many negatives an anchor has, on all devices."""
        devices = 1 if self.axis_name is None else axis_size(self.axis_name)
        keys = self.keys.shape[0]
        left_out = 0 if self.pairs is None else keys // self.pairs
        return devices * keys - left_out

    def origin(self) -> Array:
        """Returns a point [dim] amid the anchors and keys of all devices."""
        if self.pairs is None:
            mean_key = rows_with_bank.mean(self.prepare, self.keys)
        else:
            mean_key = jnp.mean(self.keys, axis=0)
        return similarity.common_origin(self.anchors, mean_key, self.axis_name)

    def numbers(self) -> tuple[Array | None, Array | None]:
        """Returns the numbers of anchors [anchors] and keys [keys], equal where left out."""
        if self.pairs is None:
            return None, None
        first = 0 if self.axis_name is None else self.pairs * lax.axis_index(self.axis_name)
        anchors, keys = (
            first + lax.iota(jnp.int32, points.shape[0]) % self.pairs
            for points in (self.anchors, self.keys)
        )
        return anchors, keys


def pair(
    view1: ArrayLike,
    view2: ArrayLike,
    negatives: str | ArrayLike,
    normalize: bool,
    axis_name: AxisName | None,
) -> Pairing:
    """Returns who is contrasted with whom; the arguments are those of the losses.

    Raises:
      TypeError: embeddings that are not floating point.
      ValueError: shapes that do not fit, a batch without negatives, an unknown `negatives`, or
        arrays that are not spread over the axis as they should be.
    """
    first, second = _checked_views(view1, view2, axis_name)
    dtype = first.dtype
    normalize = checks.flag("normalize", normalize)

    def prepare(x: Array) -> Array:
        x = x.astype(dtype)
        return similarity.unit_norm(x) if normalize else x

    if negatives is not None and not isinstance(negatives, str):
        bank = _checked_bank(negatives, first, axis_name)
        return Pairing(prepare(first), prepare(second), bank, prepare, None, axis_name)
    if negatives not in NEGATIVES:
        raise ValueError(
            f"negatives must be one of {', '.join(map(repr, NEGATIVES))} or an array "
            f"[keys, dim], got {checks.shown(negatives)}"
        )
    pairs = first.shape[0]
    first, second = prepare(first), prepare(second)
    if negatives == "anchors":
        pairing = Pairing(first, second, first, lambda x: x, pairs, axis_name)
    else:
        points = jnp.concatenate([first, second])
        positives = jnp.concatenate([second, first])
        pairing = Pairing(points, positives, points, lambda x: x, pairs, axis_name)
    if pairing.negatives_per_anchor == 0:
        raise ValueError(
            "views must hold at least 2 rows, got a batch of 1: it has no negatives; "
            "raise the batch size or pass negatives as an array"
        )
    return pairing


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


def _checked_bank(negatives: ArrayLike, views: Array, axis_name: AxisName | None) -> Array:
    """Returns explicit negatives, in a dtype of their own."""
    bank = checks.embeddings("negatives", negatives)
    checks.check_not_explicit("negatives", bank)
    if bank.shape[1] != views.shape[1]:
        raise ValueError(
            f"negatives must have shape [keys, {views.shape[1]}] like the views, got {bank.shape}"
        )
    if axis_name is not None:
        _check_spread("negatives", bank, axis_name)
    return bank


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
