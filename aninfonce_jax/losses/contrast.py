"""Contrastive losses on plain arrays: AnInfoNCE, InfoNCE and the Lp family.

Every loss takes three steps: the views become queries, keys and positive scores
(`similarity.py`); one masked log-sum-exp goes over the negatives of each anchor; the two
numbers per anchor become a `LossOutput`. The log-sum-exp is the only part that sees all
pairs, so whatever is done for scale is done there: in `scale.py` for any keys, in
`stream.py` for many of them, and in `symmetric.py` (one device) and `mutual.py` (several, or
kernels) where anchors are each other's keys.

The positive is kept out of that log-sum-exp and joins afterwards, computed from the
difference of its two embeddings. So a loss near zero keeps its relative precision.

Views may be float16, bfloat16, float32 (all computed in float32) or float64. Reverse
mode may be nested, and forward mode taken over reverse (`jax.hessian`). Only forward
mode of a loss itself (`jax.jvp`, `jax.jacfwd`) raises JAX's error for `custom_vjp`.
"""

import functools
import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from aninfonce_jax.losses import checks, mutual, scale, similarity, stream, symmetric, tiles
from aninfonce_jax.losses.scale import AxisName, Strategy
from aninfonce_jax.losses.similarity import Factors
from aninfonce_jax.losses.tiles import Keys, Points, Queries, varying_axes
from aninfonce_jax.types import Array, LossOutput, PyTree

NEGATIVES = ("both", "anchors")
REDUCTIONS = ("logsumexp", "logmeanexp")

# A positive must win by more than this many units of rounding error to count as picked.
_TIE_ULPS = 8


def aninfonce_loss(
    view1: ArrayLike,
    view2: ArrayLike,
    concentration: ArrayLike,
    *,
    negatives: str | ArrayLike = "both",
    normalize: bool = True,
    hardness: float = 0.0,
    axis_name: AxisName | None = None,
    strategy: Strategy = "auto",
    chunk_size: int | None = None,
    precision: lax.Precision = lax.Precision.HIGHEST,
) -> LossOutput:
    """AnInfoNCE: contrasts pairs by score(a, b) = -½ (a - b)ᵀ Λ (a - b).

    In float32 a loss is off by less than 1e-6 · (1 + max aᵀΛa), for Λ from 1e-4 to 1e4.

    On several devices, inside `jax.shard_map` or `jax.pmap` with `axis_name`, each device
    passes its own rows, equally many. Anchors are contrasted with the keys of all devices,
    and `loss` is the mean over all anchors, the same number on every device. About its
    gradient:

    - Taken inside the mapped function, with respect to replicated parameters: average it
      over the axis, `lax.pmean(grads, axis_name)`. That is right under `pmap` and under
      `shard_map` with `check_vma` on or off. Do not `psum` it.
    - Taken inside, with respect to this device's own embeddings: under `pmap` and
      `check_vma=False` it is that of the sum over devices, the number of devices times
      the gradient of the mean; under `check_vma=True` it is that of the mean.
    - Taken from outside, of a function that contains the `shard_map`: right as it is.

    Args:
      view1: embeddings of the first views, [batch, dim].
      view2: embeddings of the second views, [batch, dim]; row i is the positive of row
        i of `view1`.
      concentration: the diagonal of Λ in natural units, positive, [dim] or a scalar.
      negatives: where the negatives of an anchor come from. "both": both views are
        anchors, and negatives are the 2 (batch - 1) other points of both views.
        "anchors": the first view's rows are anchors, and negatives are its other
        rows, which is the form the theory is exact for. An array [keys, dim]: the
        first view's rows are anchors, and every row of the array is a negative. On
        several devices each passes its share of the array.
      normalize: whether embeddings are first scaled to unit length.
      hardness: β ≥ 0. Negatives count in proportion to exp(β · score), so that those
        nearest to the anchor count most, at twice the cost; 0: all alike.
      axis_name: the mapped axis, or axes, that the batch is spread over; None: the
        batch is all here. Arrays that are sharded under plain `jit` count as here: the
        compiler spreads the work, for which "auto" then leaves the kernels alone.
      strategy: how the scores are computed; values and gradients are the same.
        "dense": all at once. "chunked": a tile at a time, in memory linear in the
        batch; faster than dense where it can use that anchors are each other's keys, on
        one device, else at one matrix product more. "pallas": as chunked, fused, for TPU.
        With `axis_name`, "gather": every device receives all keys. "ring": keys travel
        from device to device, and memory depends on the device's own rows alone. "auto"
        chooses by size and platform; without `axis_name`, and with several devices around,
        it can't know that arrays will be on one of them, and leaves the kernels to "pallas".
      chunk_size: side of a tile of scores, but for the kernels, whose tiles suit the
        TPU's memory. None chooses, and a device's scores are then kept rather than
        computed again where all of them take 16 MiB or less.
      precision: of the matrix products, where the platform has a choice. `DEFAULT` rounds
        the operands to bfloat16 on TPU: faster, and off by up to Λ/256 in a score.

    Returns:
      The loss and its parts; `per_anchor` holds this device's anchors, all else is of all
      devices. Metrics, all scalars:

      - `accuracy`: share of anchors that score their positive above every negative; a
        tie, up to rounding, is a miss.
      - `score`: log K - loss, where K counts the keys of an anchor (its positive and
        its negatives); 0 at chance, comparable between batch sizes.
      - `nonfinite`: 1.0 if an embedding, a parameter or the loss is NaN or infinite.
      - `nonpositive`: 1.0 if some Λ is not positive, which can only be under tracing;
        a concrete Λ raises.
      - `strategy_<name>`: 1.0, with the strategy that was used.

    Raises:
      TypeError: embeddings that are not floating point.
      ValueError: shapes that do not fit, a batch without negatives, a concrete Λ that
        is not positive and finite, an unknown `negatives` or `strategy`, an axis that is
        not mapped, views spread differently, or a strategy that needs an axis without one.
    """
    how = _checked_how(axis_name, strategy, chunk_size, precision, hardness)
    layout = _lay_out(view1, view2, negatives, normalize, axis_name)
    weights = checks.concentration(concentration, layout.anchors.shape[1], layout.anchors.dtype)
    return _anisotropic_output(layout, weights, "logsumexp", how)


def infonce_loss(
    view1: ArrayLike,
    view2: ArrayLike,
    *,
    temperature: ArrayLike = 1.0,
    negatives: str | ArrayLike = "both",
    normalize: bool = True,
    hardness: float = 0.0,
    axis_name: AxisName | None = None,
    strategy: Strategy = "auto",
    chunk_size: int | None = None,
    precision: lax.Precision = lax.Precision.HIGHEST,
) -> LossOutput:
    """InfoNCE: contrasts pairs by score(a, b) = aᵀb / τ.

    Args:
      view1: embeddings of the first views, [batch, dim].
      view2: embeddings of the second views, [batch, dim].
      temperature: τ, a positive scalar.
      negatives: as in `aninfonce_loss`.
      normalize: whether embeddings are first scaled to unit length.
      hardness: as in `aninfonce_loss`, like everything after it.
      axis_name: the mapped axis that the batch is spread over, or None.
      strategy: how the scores are computed.
      chunk_size: side of a tile of scores; None chooses.
      precision: of the matrix products, where the platform has a choice.

    Returns:
      The loss and its parts, with the metrics of `aninfonce_loss`.

    Raises:
      TypeError, ValueError: as `aninfonce_loss`, with τ in the place of Λ.
    """
    how = _checked_how(axis_name, strategy, chunk_size, precision, hardness)
    layout = _lay_out(view1, view2, negatives, normalize, axis_name)
    tau = checks.temperature(temperature, layout.anchors.dtype)
    factors = similarity.dot_product_factors(
        layout.anchors, layout.positives, layout.origin(), tau, normalized=normalize
    )
    return _assemble(_contrast(layout, factors, how), layout, tau, "logsumexp", how)


def lp_loss(
    view1: ArrayLike,
    view2: ArrayLike,
    *,
    p: float,
    temperature: ArrayLike = 1.0,
    negatives: str | ArrayLike = "anchors",
    reduction: Literal["logsumexp", "logmeanexp"] = "logsumexp",
    normalize: bool = False,
) -> LossOutput:
    """The Lp loss: contrasts pairs by score(a, b) = -‖a - b‖_p^p / τ, on one device.

    p = 2 is a matrix product, with the precision of `aninfonce_loss` at Λ = 2 / τ.
    Other p cost dim operations per pair outside of matrix products, but no
    [anchors, keys, dim] array.

    Args:
      view1: embeddings of the first views, [batch, dim].
      view2: embeddings of the second views, [batch, dim].
      p: the exponent, a positive Python number.
      temperature: τ, a positive scalar.
      negatives: as in `aninfonce_loss`.
      reduction: "logsumexp" over the positive and the negatives, or "logmeanexp" over
        the negatives alone, without the positive.
      normalize: whether embeddings are first scaled to unit length.

    Returns:
      The loss and its parts, with the metrics of `aninfonce_loss`. Under "logmeanexp"
      K is 1, for the mean has already divided by the number of keys: score = -loss,
      which again is 0 at chance.

    Raises:
      TypeError, ValueError: as `infonce_loss`, and for an impossible `p` or an unknown
        `reduction`.
    """
    exponent = checks.exponent(p)
    if reduction not in REDUCTIONS:
        raise ValueError(
            f"reduction must be one of {', '.join(map(repr, REDUCTIONS))}, got {reduction!r}"
        )
    layout = _lay_out(view1, view2, negatives, normalize, None)
    tau = checks.temperature(temperature, layout.anchors.dtype)
    if exponent == 2:
        weights = jnp.broadcast_to(2 / tau, layout.anchors.shape[1:])
        return _anisotropic_output(layout, weights, reduction, _How())

    keys = layout.prepare(layout.keys)
    scores = similarity.lp_matrix(layout.anchors, keys, exponent, tau)
    positive = similarity.lp(layout.anchors, layout.positives, exponent, tau)
    scores = tiles.mask(scores, *layout.numbers())
    best = lax.stop_gradient(jnp.max(scores, axis=-1))
    contrast = _Contrast(
        positive=positive,
        negatives=jax.nn.logsumexp(scores, axis=-1),
        best_negative=best,
        offset=jnp.zeros_like(tau),
        # Nothing cancels in a distance, so a score is as wrong as it is large.
        rounding=_TIE_ULPS * jnp.finfo(best.dtype).eps * jnp.abs(lax.stop_gradient(positive)),
        strategy="dense",
    )
    return _assemble(contrast, layout, tau, reduction, _How())


# --- Step 1: who is contrasted with whom ---


class _Layout(NamedTuple):
    """Anchors [anchors, dim], their positives, and keys [keys, dim], all of this device.

    Explicit negatives are as the user gave them; `prepare` makes keys of some of their rows.

    `batch` states which keys are no negatives of an anchor: where it is set, rows count
    modulo `batch`, on from the device before, and a key is left out for the anchor of its
    own number. That is the anchor itself and, with both views among the keys, its positive.
    """

    anchors: Array
    positives: Array
    keys: Array
    prepare: Callable[[Array], Array]
    batch: int | None
    axis_name: AxisName | None

    @property
    def devices(self) -> int:
        return 1 if self.axis_name is None else scale.axis_size(self.axis_name)

    @property
    def negatives_per_anchor(self) -> int:
        keys = self.keys.shape[0]
        left_out = 0 if self.batch is None else keys // self.batch
        return self.devices * keys - left_out

    def origin(self) -> Array:
        """Returns a point [dim] amid the anchors and keys of all devices."""
        if self.batch is None:
            mean_key = stream.mean(self.prepare, self.keys)
        else:
            mean_key = jnp.mean(self.keys, axis=0)
        return similarity.common_origin(self.anchors, mean_key, self.axis_name)

    def numbers(self) -> tuple[Array | None, Array | None]:
        """Returns the numbers of anchors [anchors] and keys [keys], equal where left out."""
        if self.batch is None:
            return None, None
        first = 0 if self.axis_name is None else self.batch * lax.axis_index(self.axis_name)
        anchors, keys = (
            first + lax.iota(jnp.int32, rows.shape[0]) % self.batch
            for rows in (self.anchors, self.keys)
        )
        return anchors, keys


def _lay_out(
    view1: ArrayLike,
    view2: ArrayLike,
    negatives: str | ArrayLike,
    normalize: bool,
    axis_name: AxisName | None,
) -> _Layout:
    first, second = _checked_views(view1, view2, axis_name)
    dtype = first.dtype
    normalize = checks.flag("normalize", normalize)

    def prepare(x: Array) -> Array:
        x = x.astype(dtype)
        return similarity.unit_norm(x) if normalize else x

    if negatives is not None and not isinstance(negatives, str):
        bank = _checked_bank(negatives, first, axis_name)
        return _Layout(prepare(first), prepare(second), bank, prepare, None, axis_name)
    if negatives not in NEGATIVES:
        raise ValueError(
            f"negatives must be one of {', '.join(map(repr, NEGATIVES))} or an array "
            f"[keys, dim], got {negatives!r}"
        )
    batch = first.shape[0]
    first, second = prepare(first), prepare(second)
    if negatives == "anchors":
        layout = _Layout(first, second, first, lambda x: x, batch, axis_name)
    else:
        points = jnp.concatenate([first, second])
        positives = jnp.concatenate([second, first])
        layout = _Layout(points, positives, points, lambda x: x, batch, axis_name)
    if layout.negatives_per_anchor == 0:
        raise ValueError(
            "views must hold at least 2 rows, got a batch of 1: it has no negatives; "
            "raise the batch size or pass negatives as an array"
        )
    return layout


# --- Step 2: one log-sum-exp over the negatives of each anchor ---


class _Contrast(NamedTuple):
    """What a loss needs to know of each anchor, [anchors] each, in units of the score.

    Attributes:
      positive: score of the positive, without `offset`, like the next two.
      negatives: log-sum-exp of the scores of the negatives.
      best_negative: the largest score of a negative, without gradient.
      offset: what all scores have in common, a scalar.
      rounding: a bound on the error of positive and best negative.
      strategy: what computed them.
    """

    positive: Array
    negatives: Array
    best_negative: Array
    offset: Array
    rounding: Array
    strategy: str


class _How(NamedTuple):
    """How a log-sum-exp is to be computed; see `aninfonce_loss`."""

    axis_name: AxisName | None = None
    strategy: Strategy = "auto"
    chunk_size: int | None = None
    precision: lax.Precision = lax.Precision.HIGHEST
    hardness: float = 0.0

    def mean(self, x: Array) -> Array:
        """Returns the mean over this device's values and over devices."""
        mean = jnp.mean(x)
        return mean if self.axis_name is None else lax.pmean(mean, self.axis_name)

    def max(self, x: Array) -> Array:
        """Returns the maximum over this device's values and over devices, without gradient."""
        largest = lax.stop_gradient(jnp.max(x))
        return largest if self.axis_name is None else lax.pmax(largest, self.axis_name)


def _checked_how(
    axis_name: AxisName | None,
    strategy: Strategy,
    chunk_size: int | None,
    precision: lax.Precision,
    hardness: float,
) -> _How:
    if chunk_size is not None:
        chunk_size = checks.whole_number("chunk_size", chunk_size, "an int or None")
    return _How(
        axis_name=axis_name,
        strategy=strategy,
        chunk_size=chunk_size,
        precision=checks.precision(precision),
        hardness=checks.hardness(hardness),
    )


def _contrast(layout: _Layout, factors: Factors, how: _How) -> _Contrast:
    anchor_numbers, key_numbers = layout.numbers()
    alone, in_batch = how.axis_name is None, layout.batch is not None
    plan = scale.make_plan(
        *(layout.anchors.shape[0], *layout.keys.shape),
        axis_name=how.axis_name,
        strategy=how.strategy,
        chunk_size=how.chunk_size,
        precision=how.precision,
        wide=factors.queries.dtype == jnp.float64,
        symmetric=alone and in_batch,
        kernels=scale.kernels_fit(factors.queries),
    )

    def make_keys(sharpness: float, rows: Array, parameters: PyTree) -> Keys:
        vectors, bias = factors.of_keys(layout.prepare(rows), parameters)
        return Keys(vectors, sharpness * bias, None)

    at_once = alone and plan.tile == "dense"
    # Anchors that are each other's keys have one matrix of scores, which is symmetric.
    symmetrical = in_batch and not at_once
    halved = symmetrical and alone and plan.tile == "chunked"
    streamed = not in_batch and alone and not at_once

    def logsumexp(sharpness: float) -> tuple[Array, Array, Array]:
        """Log-sum-exp and maximum over the negatives of `sharpness` times the score.

        The third is the largest length of a key's vector.
        """
        make = functools.partial(make_keys, sharpness)
        queries = sharpness * factors.queries
        if streamed:
            return stream.logsumexp(plan, make, queries, layout.keys, factors.parameters)
        keys = make(layout.keys, factors.parameters)._replace(number=key_numbers)
        longest = jnp.max(similarity.lengths(keys.vectors))
        if symmetrical:
            assert anchor_numbers is not None
            assert keys.bias is not None
            points = Points(math.sqrt(sharpness) * factors.root, keys.bias, anchor_numbers)
            if halved:
                return *symmetric.logsumexp(points, plan.chunk_size, plan.precision), longest
            return *mutual.logsumexp(plan, points), longest
        return *scale.masked_logsumexp(plan, Queries(queries, anchor_numbers), keys), longest

    if how.hardness:
        # The mean of exp(score) under weights exp(β score), times the number of negatives.
        harder, best, longest = logsumexp(1 + how.hardness)
        negatives = harder - logsumexp(how.hardness)[0] + math.log(layout.negatives_per_anchor)
        best = best / (1 + how.hardness)
    else:
        negatives, best, longest = logsumexp(1.0)
    if not symmetrical:
        negatives = negatives + factors.query_bias
        best = best + factors.query_bias
    magnitude = factors.own_reach + how.max(factors.reach) * how.max(longest)
    return _Contrast(
        positive=factors.positive,
        negatives=negatives,
        best_negative=lax.stop_gradient(best),
        offset=factors.offset,
        rounding=_TIE_ULPS * jnp.finfo(best.dtype).eps * magnitude,
        strategy=plan.strategy,
    )


# --- Step 3: the output ---


def _anisotropic_output(layout: _Layout, weights: Array, reduction: str, how: _How) -> LossOutput:
    factors = similarity.anisotropic_factors(
        layout.anchors, layout.positives, layout.origin(), weights
    )
    return _assemble(_contrast(layout, factors, how), layout, weights, reduction, how)


def _assemble(
    contrast: _Contrast, layout: _Layout, parameter: Array, reduction: str, how: _How
) -> LossOutput:
    gap = contrast.negatives - contrast.positive
    if reduction == "logsumexp":
        # -s⁺ + log(exp s⁺ + Σ exp s⁻), written so that it can approach zero.
        per_anchor = jax.nn.softplus(gap)
        keys_per_anchor = layout.negatives_per_anchor + 1
    else:
        per_anchor = gap - math.log(layout.negatives_per_anchor)
        keys_per_anchor = 1
    loss = how.mean(per_anchor)
    alignment = -(how.mean(contrast.positive) + contrast.offset)
    picked = contrast.positive > contrast.best_negative + contrast.rounding
    checked = (layout.anchors, layout.positives, layout.keys, parameter, loss)
    bad = jnp.stack([jnp.any(~jnp.isfinite(x)) for x in checked])
    metrics = {
        "accuracy": how.mean(picked.astype(loss.dtype)),
        "score": math.log(keys_per_anchor) - loss,
        "nonfinite": how.max(bad.astype(loss.dtype)),
        "nonpositive": how.max((parameter <= 0).astype(loss.dtype)),
        f"strategy_{contrast.strategy}": jnp.ones((), loss.dtype),
    }
    return LossOutput(
        loss=loss,
        per_anchor=per_anchor,
        alignment=alignment,
        uniformity=loss - alignment,
        metrics=jax.tree.map(lax.stop_gradient, metrics),
    )


# --- Checks of the arrays ---


def _checked_views(
    view1: ArrayLike, view2: ArrayLike, axis_name: AxisName | None
) -> tuple[Array, Array]:
    """Returns both views in the dtype of the computation."""
    first = checks.embeddings("view1", view1)
    second = checks.embeddings("view2", view2)
    if first.shape != second.shape:
        raise ValueError(
            f"view1 and view2 must have the same shape [batch, dim], got {first.shape} and "
            f"{second.shape}; row i of view2 is the positive of row i of view1"
        )
    if axis_name is not None:
        scale.axis_size(axis_name)  # raises where the axis is not mapped
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
