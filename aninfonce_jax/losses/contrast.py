"""Contrastive losses on plain arrays: AnInfoNCE, InfoNCE and the Lp family.

Every loss takes three steps: the views become queries, keys and positive scores
(`similarity.py`); one masked log-sum-exp goes over the negatives of each anchor; the
two numbers per anchor become a `LossOutput`. The log-sum-exp is the only part that
sees all pairs, so whatever is done for scale is done there.

The positive is kept out of that log-sum-exp and joins afterwards, computed from the
difference of its two embeddings. So a loss near zero keeps its relative precision.

Views may be float16, bfloat16, float32 (all computed in float32) or float64. Reverse
mode may be nested, and forward mode taken over reverse (`jax.hessian`). Only forward
mode of a loss itself (`jax.jvp`, `jax.jacfwd`) raises JAX's error for `custom_vjp`.
"""

import functools
import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from aninfonce_jax.losses import similarity
from aninfonce_jax.losses.similarity import Factors
from aninfonce_jax.types import Array, LossOutput

NEGATIVES = ("both", "anchors")
REDUCTIONS = ("logsumexp", "logmeanexp")

# Queries, keys and their bias, then the softmax's numerators and denominators.
_Residuals = tuple[Array, Array, Array | None, Array, Array]

# A positive must win by more than this many units of rounding error to count as picked.
_TIE_ULPS = 8


def aninfonce_loss(
    view1: ArrayLike,
    view2: ArrayLike,
    concentration: ArrayLike,
    *,
    negatives: str | ArrayLike = "both",
    normalize: bool = True,
) -> LossOutput:
    """AnInfoNCE: contrasts pairs by score(a, b) = -½ (a - b)ᵀ Λ (a - b).

    In float32 a loss is off by less than 1e-6 · (1 + max aᵀΛa), for Λ from 1e-4 to 1e4.

    Args:
      view1: embeddings of the first views, [batch, dim].
      view2: embeddings of the second views, [batch, dim]; row i is the positive of row
        i of `view1`.
      concentration: the diagonal of Λ in natural units, positive, [dim] or a scalar.
      negatives: where the negatives of an anchor come from. "both": both views are
        anchors, and negatives are the 2 (batch - 1) other points of both views.
        "anchors": the first view's rows are anchors, and negatives are its other
        rows, which is the form the theory is exact for. An array [keys, dim]: the
        first view's rows are anchors, and every row of the array is a negative.
      normalize: whether embeddings are first scaled to unit length.

    Returns:
      The loss and its parts. Metrics, all scalars:

      - `accuracy`: share of anchors that score their positive above every negative; a
        tie, up to rounding, is a miss.
      - `score`: log K - loss, where K counts the keys of an anchor (its positive and
        its negatives); 0 at chance, comparable between batch sizes.
      - `nonfinite`: 1.0 if an embedding, a parameter or the loss is NaN or infinite.
      - `nonpositive`: 1.0 if some Λ is not positive, which can only be under tracing;
        a concrete Λ raises.

    Raises:
      TypeError: embeddings that are not floating point.
      ValueError: shapes that do not fit, a batch without negatives, a concrete Λ that
        is not positive and finite, or an unknown `negatives`.
    """
    layout = _lay_out(view1, view2, negatives, normalize)
    dim = layout.anchors.shape[1]
    weights = similarity.checked_concentration(concentration, dim, layout.anchors.dtype)
    return _anisotropic_output(layout, weights, "logsumexp")


def infonce_loss(
    view1: ArrayLike,
    view2: ArrayLike,
    *,
    temperature: ArrayLike = 1.0,
    negatives: str | ArrayLike = "both",
    normalize: bool = True,
) -> LossOutput:
    """InfoNCE: contrasts pairs by score(a, b) = aᵀb / τ.

    Args:
      view1: embeddings of the first views, [batch, dim].
      view2: embeddings of the second views, [batch, dim].
      temperature: τ, a positive scalar.
      negatives: as in `aninfonce_loss`.
      normalize: whether embeddings are first scaled to unit length.

    Returns:
      The loss and its parts, with the metrics of `aninfonce_loss`.

    Raises:
      TypeError, ValueError: as `aninfonce_loss`, with τ in the place of Λ.
    """
    layout = _lay_out(view1, view2, negatives, normalize)
    tau = similarity.checked_temperature(temperature, layout.anchors.dtype)
    factors = similarity.dot_product_factors(layout.anchors, layout.keys, tau)
    positive = similarity.dot_product(layout.anchors, layout.positives, tau)
    return _assemble(_contrast(layout, positive, factors), layout, tau, "logsumexp")


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
    """The Lp loss: contrasts pairs by score(a, b) = -‖a - b‖_p^p / τ.

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
    exponent = similarity.checked_exponent(p)
    if reduction not in REDUCTIONS:
        raise ValueError(
            f"reduction must be one of {', '.join(map(repr, REDUCTIONS))}, got {reduction!r}"
        )
    layout = _lay_out(view1, view2, negatives, normalize)
    tau = similarity.checked_temperature(temperature, layout.anchors.dtype)
    if exponent == 2:
        weights = jnp.broadcast_to(2 / tau, layout.anchors.shape[1:])
        return _anisotropic_output(layout, weights, reduction)

    scores = similarity.lp_matrix(layout.anchors, layout.keys, exponent, tau)
    positive = similarity.lp(layout.anchors, layout.positives, exponent, tau)
    scores = _mask(scores, layout.batch)
    best = lax.stop_gradient(jnp.max(scores, axis=-1))
    contrast = _Contrast(
        positive=positive,
        negatives=jax.nn.logsumexp(scores, axis=-1),
        best_negative=best,
        rounding=_TIE_ULPS * jnp.finfo(best.dtype).eps * jnp.max(jnp.abs(positive)),
    )
    return _assemble(contrast, layout, tau, reduction)


# --- Step 1: who is contrasted with whom ---


class _Layout(NamedTuple):
    """Anchors [anchors, dim], their positives, and keys [keys, dim] to contrast with.

    `batch` states which keys are no negatives of an anchor: where it is set, key j is
    left out for anchor i if i ≡ j modulo `batch`. That is the anchor itself and, with
    both views among the keys, its positive.
    """

    anchors: Array
    positives: Array
    keys: Array
    batch: int | None

    @property
    def negatives_per_anchor(self) -> int:
        keys = self.keys.shape[0]
        return keys if self.batch is None else keys - keys // self.batch


def _lay_out(
    view1: ArrayLike, view2: ArrayLike, negatives: str | ArrayLike, normalize: bool
) -> _Layout:
    first, second = _checked_views(view1, view2)
    prepare = similarity.unit_norm if normalize else lambda x: x
    if not isinstance(negatives, str):
        bank = _checked_bank(negatives, first)
        return _Layout(prepare(first), prepare(second), prepare(bank), batch=None)
    if negatives not in NEGATIVES:
        raise ValueError(
            f"negatives must be one of {', '.join(map(repr, NEGATIVES))} or an array "
            f"[keys, dim], got {negatives!r}"
        )
    batch = first.shape[0]
    if batch == 1:
        raise ValueError(
            "views must hold at least 2 rows, got a batch of 1: it has no negatives; "
            "raise the batch size or pass negatives as an array"
        )
    first, second = prepare(first), prepare(second)
    if negatives == "anchors":
        return _Layout(first, second, first, batch)
    points = jnp.concatenate([first, second])
    return _Layout(points, jnp.concatenate([second, first]), points, batch)


# --- Step 2: one log-sum-exp over the negatives of each anchor ---


class _Contrast(NamedTuple):
    """What a loss needs to know of each anchor, [anchors] each, in units of the score.

    Attributes:
      positive: score of the positive.
      negatives: log-sum-exp of the scores of the negatives.
      best_negative: the largest score of a negative, without gradient.
      rounding: a bound on the error of these, scalar.
    """

    positive: Array
    negatives: Array
    best_negative: Array
    rounding: Array


def _contrast(layout: _Layout, positive: Array, factors: Factors) -> _Contrast:
    negatives, best = _masked_logsumexp(
        layout.batch, factors.queries, factors.keys, factors.key_bias
    )
    if factors.query_bias is not None:
        negatives = negatives + factors.query_bias
        best = best + factors.query_bias
    magnitude = jnp.sqrt(
        jnp.max(jnp.sum(factors.queries**2, axis=-1)) * jnp.max(jnp.sum(factors.keys**2, axis=-1))
    )
    return _Contrast(
        positive=positive,
        negatives=negatives,
        best_negative=lax.stop_gradient(best),
        rounding=lax.stop_gradient(_TIE_ULPS * jnp.finfo(best.dtype).eps * magnitude),
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _masked_logsumexp(
    batch: int | None, queries: Array, keys: Array, key_bias: Array | None
) -> tuple[Array, Array]:
    """Row-wise log-sum-exp, and maximum, of <query, key> + bias over unmasked keys.

    Args:
      batch: key j is masked in row i if i ≡ j modulo `batch`; None masks nothing.
      queries: [anchors, dim].
      keys: [keys, dim].
      key_bias: [keys] or None.

    Returns:
      The log-sum-exp, [anchors], and the maximum, [anchors], which has no gradient.
    """
    return _masked_logsumexp_forward(batch, queries, keys, key_bias)[0]


def _masked_logsumexp_forward(
    batch: int | None, queries: Array, keys: Array, key_bias: Array | None
) -> tuple[tuple[Array, Array], _Residuals]:
    # HIGHEST: accelerators would otherwise round float32 operands to bfloat16, an error
    # of about Λ/256 in every score.
    scores = jnp.matmul(queries, keys.T, precision=lax.Precision.HIGHEST)
    if key_bias is not None:
        scores = scores + key_bias[None, :]
    scores = _mask(scores, batch)
    best = lax.stop_gradient(jnp.max(scores, axis=-1))
    numerators = jnp.exp(scores - best[:, None])
    total = jnp.sum(numerators, axis=-1)
    return (best + jnp.log(total), best), (queries, keys, key_bias, numerators, total)


def _masked_logsumexp_backward(
    batch: int | None, residuals: _Residuals, cotangents: tuple[Array, Array]
) -> tuple[Array, Array, Array | None]:
    # Saving the numerators leaves two matrix products for the backward pass and no
    # elementwise pass over [anchors, keys]: the denominators scale rows, which the
    # small factors can carry.
    del batch
    queries, keys, key_bias, numerators, total = residuals
    weights = (cotangents[0] / total)[:, None]
    matmul = functools.partial(jnp.matmul, precision=lax.Precision.HIGHEST)
    d_queries = matmul(numerators, keys) * weights
    if key_bias is None:
        return d_queries, matmul(numerators.T, queries * weights), None
    # The bias is the weight of a constant feature: its gradient costs one more column.
    d_keys = matmul(numerators.T, jnp.concatenate([queries * weights, weights], axis=1))
    return d_queries, d_keys[:, :-1], d_keys[:, -1]


_masked_logsumexp.defvjp(_masked_logsumexp_forward, _masked_logsumexp_backward)


def _mask(scores: Array, batch: int | None) -> Array:
    """Sets the scores [anchors, keys] of keys that are no negatives to -∞."""
    if batch is None:
        return scores
    anchor = lax.broadcasted_iota(jnp.int32, (scores.shape[0], 1), 0) % batch
    key = lax.broadcasted_iota(jnp.int32, (1, scores.shape[1]), 1) % batch
    return jnp.where(anchor == key, -jnp.inf, scores)


# --- Step 3: the output ---


def _anisotropic_output(layout: _Layout, weights: Array, reduction: str) -> LossOutput:
    factors = similarity.anisotropic_factors(layout.anchors, layout.keys, weights)
    positive = similarity.anisotropic(layout.anchors, layout.positives, weights)
    return _assemble(_contrast(layout, positive, factors), layout, weights, reduction)


def _assemble(contrast: _Contrast, layout: _Layout, parameter: Array, reduction: str) -> LossOutput:
    gap = contrast.negatives - contrast.positive
    if reduction == "logsumexp":
        # -s⁺ + log(exp s⁺ + Σ exp s⁻), written so that it can approach zero.
        per_anchor = jax.nn.softplus(gap)
        keys_per_anchor = layout.negatives_per_anchor + 1
    else:
        per_anchor = gap - math.log(layout.negatives_per_anchor)
        keys_per_anchor = 1
    loss = jnp.mean(per_anchor)
    alignment = -jnp.mean(contrast.positive)
    picked = contrast.positive > contrast.best_negative + contrast.rounding
    checked = (layout.anchors, layout.positives, layout.keys, parameter, loss)
    finite = jnp.stack([jnp.all(jnp.isfinite(x)) for x in checked])
    metrics = {
        "accuracy": jnp.mean(picked, dtype=loss.dtype),
        "score": math.log(keys_per_anchor) - loss,
        "nonfinite": (~jnp.all(finite)).astype(loss.dtype),
        "nonpositive": jnp.any(parameter <= 0).astype(loss.dtype),
    }
    return LossOutput(
        loss=loss,
        per_anchor=per_anchor,
        alignment=alignment,
        uniformity=loss - alignment,
        metrics=jax.tree.map(lax.stop_gradient, metrics),
    )


# --- Checks of the arrays ---


def _checked_views(view1: ArrayLike, view2: ArrayLike) -> tuple[Array, Array]:
    """Returns both views in the dtype of the computation."""
    first, second = jnp.asarray(view1), jnp.asarray(view2)
    for name, view in (("view1", first), ("view2", second)):
        _check_embeddings(name, view)
    if first.shape != second.shape:
        raise ValueError(
            f"view1 and view2 must have the same shape [batch, dim], got {first.shape} and "
            f"{second.shape}; row i of view2 is the positive of row i of view1"
        )
    wide = jnp.float64 in (first.dtype, second.dtype)
    dtype = jnp.float64 if wide else jnp.float32
    return first.astype(dtype), second.astype(dtype)


def _checked_bank(negatives: ArrayLike, views: Array) -> Array:
    """Returns explicit negatives in the dtype of the views."""
    bank = jnp.asarray(negatives)
    _check_embeddings("negatives", bank)
    if bank.shape[1] != views.shape[1]:
        raise ValueError(
            f"negatives must have shape [keys, {views.shape[1]}] like the views, got {bank.shape}"
        )
    return bank.astype(views.dtype)


def _check_embeddings(name: str, x: Array) -> None:
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(
            f"{name} must be floating point, got dtype {x.dtype}; convert it with "
            f"{name}.astype(jnp.float32)"
        )
    if x.ndim != 2:
        raise ValueError(
            f"{name} must have shape [batch, dim], got {x.shape}; flatten its other axes"
        )
    if 0 in x.shape:
        raise ValueError(f"{name} must not be empty, got shape {x.shape}")
