"""Contrastive losses on plain arrays: AnInfoNCE, InfoNCE and the Lp family.

Every loss takes three steps. It is settled who is contrasted with whom (`pairing.py`), and how two
embeddings are scored (`similarity.py`). One log-sum-exp goes over the negatives of each anchor:
that is the only part that sees all pairs, so whatever is done for scale is done there, as a plan
says that is made beforehand (`plan.py`). The two numbers per anchor, of its positive and of its
negatives, become a `LossOutput`.

The positive is kept out of that log-sum-exp and joins afterwards, computed from the
difference of its two embeddings. So a loss near zero keeps its relative precision.

Views may be float16, bfloat16, float32 (all computed in float32) or float64. Reverse
mode may be nested, and forward mode taken over reverse (`jax.hessian`). Only forward
mode of a loss itself (`jax.jvp`, `jax.jacfwd`) raises JAX's error for `custom_vjp`.
"""

from typing import Any, Literal

import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from aninfonce_jax.losses import checks, plan, similarity
from aninfonce_jax.losses.given import Bank, Factored, PerAnchor
from aninfonce_jax.losses.negatives import contrast_negatives
from aninfonce_jax.losses.output import REDUCTIONS, assemble
from aninfonce_jax.losses.pairing import NEGATIVES, Pairing, pair
from aninfonce_jax.losses.plan import AxisName, Strategy
from aninfonce_jax.losses.similarity import Factors
from aninfonce_jax.types import Array, LossOutput

__all__ = ["NEGATIVES", "REDUCTIONS", "aninfonce_loss", "infonce_loss", "lp_loss"]


def aninfonce_loss(
    view1: ArrayLike,
    view2: ArrayLike,
    concentration: ArrayLike | PerAnchor | Factored,
    *,
    negatives: str | ArrayLike | Bank | tuple[str, ArrayLike | Bank] = "both",
    reduction: Literal["logsumexp", "logmeanexp"] = "logsumexp",
    weights: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    same_label: Literal["positive", "left out"] = "positive",
    normalize: bool = True,
    hardness: float = 0.0,
    debias: float = 0.0,
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
      concentration: the diagonal of Λ in natural units, positive, [dim] or a scalar; an
        `an.PerAnchor` for a diagonal of each anchor's own, at twice the width of the
        products; or an `an.Factored` for a full matrix Λ = L Lᵀ.
      negatives: where the negatives of an anchor come from. "both": both views are
        anchors, and negatives are the 2 (batch - 1) other points of both views.
        "anchors": the first view's rows are anchors, and negatives are its other
        rows, which is the form the theory is exact for. "cross": both views are anchors,
        and negatives are the batch - 1 other rows of the other view, as for two towers
        (CLIP). An array [keys, dim]: the first view's rows are anchors, and every row of
        the array is a negative; an `an.Bank` adds labels and a mask to it. A pair
        ("both", array): the negatives of both, and so with any name and with a bank. On
        several devices each passes its share of the array.
      reduction: "logsumexp" over the positive and the negatives, or "logmeanexp" over
        the negatives alone, which a mean over their number replaces the sum of. By either, an
        anchor that masks or labels leave no negatives has the loss 0.
      weights: w ≥ 0 of each pair, [batch]: the loss is Σ wᵢ lossᵢ / Σ wᵢ, and so are all
        other means. They do not change what a row counts as a negative.
      mask: bool [batch]; False: the row is padding, neither an anchor nor a negative,
        whatever it holds. Devices may have different numbers of real rows.
      labels: integers [batch], of each pair.
      same_label: what becomes of anchor and key with the same label. "positive": the
        anchor has several positives P, its own and those, and its loss is the mean over
        P of -score(a, p) + log Σ exp score(a, k) over all its keys k, positives
        included (SupCon, Khosla et al. 2020). "left out": they are not contrasted, since
        they would be false negatives.
      normalize: whether embeddings are first scaled to unit length.
      hardness: β ≥ 0. Negatives count in proportion to exp(β · score), so that those
        nearest to the anchor count most, at twice the cost; 0: all alike.
      debias: τ⁺, the share of negatives that are taken to be as near as a positive, by chance:
        the mean m of exp(score) over the negatives becomes (m - τ⁺ exp(s⁺)) / (1 - τ⁺), s⁺ being
        the score of the positive, and never less than exp of the lowest score there is on the
        sphere (Chuang et al. 2020; with `hardness`, Robinson et al. 2021). 0: no correction.
      axis_name: the mapped axis that the batch is spread over, or a tuple of axes, the
        slowest first, such as ("slices", "data"); None: the batch is all here. An axis of
        one device is as good as None. Arrays that are sharded under plain `jit` count as
        here: the compiler spreads the work, for which "auto" then leaves the kernels alone.
      strategy: how the scores are computed; values and gradients are the same.
        "dense": all at once. "chunked": a tile at a time, in memory linear in the
        batch; faster than dense where it can use that anchors are each other's keys, on
        one device, else at one matrix product more. "pallas": as chunked, fused, for TPU.
        With `axis_name`, "gather": every device receives all keys. "ring": keys travel
        from device to device, and memory depends on the device's own rows alone. "auto"
        chooses by size and platform; without `axis_name`, and with several devices around,
        it can't know that arrays will be on one of them, and leaves the kernels to "pallas".
      chunk_size: side of a tile of scores, but for the kernels, whose tiles suit the
        TPU's memory. None chooses, and "chunked" then keeps a device's scores rather than
        compute them again where all of them take 16 MiB or less, unless it computes only
        half of them.
      precision: of the matrix products, where the platform has a choice. `DEFAULT` rounds
        the operands to bfloat16 on TPU, faster and off by up to Λ/256 in a score, and to
        TF32 on GPU, off by about Λ/2000.

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

      The output's `strategy` is the name of the strategy that was used, never "auto".

    Raises:
      TypeError: embeddings that are not floating point.
      ValueError: shapes that do not fit, a batch without negatives, a concrete Λ that
        is not positive and finite, an unknown `negatives` or `strategy`, an axis that is
        not mapped, views spread differently, or a strategy that needs an axis without one.

    Example:
      >>> view1, view2 = jnp.eye(4), jnp.eye(4)  # four pairs, each other's negatives
      >>> out = an.aninfonce_loss(view1, view2, concentration=jnp.full(4, 10.0))
      >>> out.per_anchor.shape, float(out.metrics["accuracy"])
      ((8,), 1.0)
      >>> bool(jnp.isclose(out.loss, out.alignment + out.uniformity))
      True
    """
    settings = plan.checked_settings(axis_name, strategy, chunk_size, precision, hardness, debias)
    _check_reduction(reduction, labels, same_label)
    _check_debias(settings.debias, normalize, labels, same_label)
    facts = {"weights": weights, "mask": mask, "labels": labels, "same_label": same_label}
    pairing = pair(view1, view2, negatives, normalize, axis_name, facts)
    factors, diagonal = _anisotropic_factors(pairing, concentration)
    lowest = _lowest_score(concentration, diagonal) if settings.debias else None
    contrast = contrast_negatives(pairing, factors, settings, lowest=lowest)
    return assemble(contrast, pairing, diagonal, reduction, settings)


def infonce_loss(
    view1: ArrayLike,
    view2: ArrayLike,
    *,
    temperature: ArrayLike = 1.0,
    negatives: str | ArrayLike | Bank | tuple[str, ArrayLike | Bank] = "both",
    reduction: Literal["logsumexp", "logmeanexp"] = "logsumexp",
    weights: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    same_label: Literal["positive", "left out"] = "positive",
    normalize: bool = True,
    hardness: float = 0.0,
    debias: float = 0.0,
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
      negatives: as in `aninfonce_loss`, like all that follows.
      reduction: "logsumexp" over positive and negatives, or "logmeanexp" over negatives.
      weights: how much each pair counts, [batch].
      mask: which rows are no padding, bool [batch].
      labels: integers [batch].
      same_label: whether keys with the anchor's label are positives, or left out.
      normalize: whether embeddings are first scaled to unit length.
      hardness: how much more the nearest negatives count.
      debias: the share of negatives that are taken for false ones.
      axis_name: the mapped axis that the batch is spread over, or None.
      strategy: how the scores are computed.
      chunk_size: side of a tile of scores; None chooses.
      precision: of the matrix products, where the platform has a choice.

    Returns:
      The loss and its parts, with the metrics of `aninfonce_loss`.

    Raises:
      TypeError, ValueError: as `aninfonce_loss`, with τ in the place of Λ.

    Example:
      >>> view1, view2 = jnp.eye(4), jnp.eye(4)  # four pairs, each other's negatives
      >>> float(an.infonce_loss(view1, view2, temperature=0.1).metrics["accuracy"])
      1.0
      >>> keys = jax.random.normal(jax.random.key(0), (32, 4))
      >>> an.infonce_loss(view1, view2, temperature=0.1, negatives=keys).per_anchor.shape
      (4,)
    """
    settings = plan.checked_settings(axis_name, strategy, chunk_size, precision, hardness, debias)
    _check_reduction(reduction, labels, same_label)
    _check_debias(settings.debias, normalize, labels, same_label)
    facts = {"weights": weights, "mask": mask, "labels": labels, "same_label": same_label}
    pairing = pair(view1, view2, negatives, normalize, axis_name, facts)
    tau = checks.temperature(temperature, pairing.anchors.dtype)
    factors = similarity.dot_product_factors(
        pairing.anchors, pairing.positives, pairing.origin(), tau, normalized=normalize
    )
    contrast = contrast_negatives(pairing, factors, settings, lowest=-1 / tau)
    return assemble(contrast, pairing, tau, reduction, settings)


def lp_loss(
    view1: ArrayLike,
    view2: ArrayLike,
    *,
    p: float,
    temperature: ArrayLike = 1.0,
    negatives: str | ArrayLike | Bank | tuple[str, ArrayLike | Bank] = "anchors",
    reduction: Literal["logsumexp", "logmeanexp"] = "logsumexp",
    weights: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    same_label: Literal["positive", "left out"] = "positive",
    normalize: bool = False,
    axis_name: AxisName | None = None,
    strategy: Strategy = "auto",
    chunk_size: int | None = None,
    precision: lax.Precision = lax.Precision.HIGHEST,
) -> LossOutput:
    """The Lp loss: contrasts pairs by score(a, b) = -‖a - b‖_p^p / τ.

    p = 2 is a matrix product, with the precision of `aninfonce_loss` at Λ = 2 / τ.
    Other p cost dim operations per pair outside of matrix products, but no
    [anchors, keys, dim] array, and there are no kernels for them.

    Args:
      view1: embeddings of the first views, [batch, dim].
      view2: embeddings of the second views, [batch, dim].
      p: the exponent, a positive Python number.
      temperature: τ, a positive scalar.
      negatives: as in `aninfonce_loss`, like all that follows but for `normalize`.
      reduction: "logsumexp" over the positive and the negatives, or "logmeanexp" over
        the negatives alone, without the positive.
      weights: how much each pair counts, [batch].
      mask: which rows are no padding, bool [batch].
      labels: integers [batch].
      same_label: whether keys with the anchor's label are positives, or left out.
      normalize: whether embeddings are first scaled to unit length.
      axis_name: the mapped axis that the batch is spread over, or None.
      strategy: how the scores are computed.
      chunk_size: side of a tile of scores; None chooses.
      precision: of the matrix products, where the platform has a choice.

    Returns:
      The loss and its parts, with the metrics of `aninfonce_loss`. Under "logmeanexp"
      K is 1, for the mean has already divided by the number of keys: score = -loss,
      which again is 0 at chance.

    Raises:
      TypeError, ValueError: as `infonce_loss`, and for an impossible `p`.

    Example:
      >>> view1, view2 = jnp.eye(4), jnp.eye(4)  # four pairs, each other's negatives
      >>> float(an.lp_loss(view1, view2, p=1.0, temperature=0.1).metrics["accuracy"])
      1.0
    """
    exponent = checks.exponent(p)
    settings = plan.checked_settings(axis_name, strategy, chunk_size, precision, 0.0)
    _check_reduction(reduction, labels, same_label)
    facts = {"weights": weights, "mask": mask, "labels": labels, "same_label": same_label}
    pairing = pair(view1, view2, negatives, normalize, axis_name, facts)
    tau = checks.temperature(temperature, pairing.anchors.dtype)
    if exponent == 2:
        diagonal = jnp.broadcast_to(2 / tau, pairing.anchors.shape[1:])
        factors = similarity.anisotropic_factors(
            pairing.anchors, pairing.positives, pairing.origin(), diagonal
        )
        contrast = contrast_negatives(pairing, factors, settings)
    else:
        factors = similarity.lp_factors(pairing.anchors, pairing.positives, exponent, tau)
        contrast = contrast_negatives(pairing, factors, settings, power=exponent)
    return assemble(contrast, pairing, tau, reduction, settings)


def _check_reduction(reduction: Any, labels: Any, same_label: Any) -> None:
    if not isinstance(reduction, str) or reduction not in REDUCTIONS:
        raise ValueError(
            f"reduction must be one of {', '.join(map(repr, REDUCTIONS))}, got "
            f"{checks.shown(reduction)}"
        )
    if reduction == "logmeanexp" and labels is not None and same_label == "positive":
        raise ValueError(
            "reduction='logmeanexp' is over negatives alone, and same_label='positive' has "
            "positives among them; use same_label='left out' or reduction='logsumexp'"
        )


def _check_debias(debias: float, normalize: bool, labels: Any, same_label: Any) -> None:
    if debias and not normalize:
        raise ValueError(
            f"debias={debias} needs a lowest score, which only embeddings on the sphere have; use "
            "normalize=True or debias=0"
        )
    if debias and labels is not None and same_label == "positive":
        raise ValueError(
            f"debias={debias} corrects for positives that nobody has marked, and "
            "same_label='positive' marks them; use one of the two"
        )


def _lowest_score(concentration: Any, diagonal: Array) -> Array:
    """Returns the score of the points of the unit sphere that are farthest apart."""
    if isinstance(concentration, PerAnchor | Factored):
        raise ValueError(
            f"debias takes one diagonal Λ for all anchors, got {type(concentration).__name__}; use "
            "debias=0"
        )
    return -2 * jnp.max(diagonal)


def _anisotropic_factors(
    pairing: Pairing, concentration: ArrayLike | PerAnchor | Factored
) -> tuple[Factors, Array]:
    """Returns the factors of the scores, and the diagonal of Λ."""
    anchors, dtype = pairing.anchors, pairing.anchors.dtype
    points = anchors, pairing.positives, pairing.origin()
    if isinstance(concentration, Factored):
        factor = checks.factor(concentration.factor, anchors.shape[1], dtype)
        return similarity.factored_factors(*points, factor), jnp.sum(factor**2, axis=1)
    if isinstance(concentration, PerAnchor):
        diagonals = concentration.of_anchors(anchors)
        return similarity.per_anchor_factors(*points, diagonals), diagonals
    diagonal = checks.concentration(concentration, anchors.shape[1], dtype)
    return similarity.anisotropic_factors(*points, diagonal), diagonal
