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

from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from aninfonce_jax.losses import checks, plan, similarity, tiles
from aninfonce_jax.losses.negatives import Contrast, contrast_negatives, tie_width
from aninfonce_jax.losses.output import REDUCTIONS, assemble
from aninfonce_jax.losses.pairing import NEGATIVES, Pairing, pair
from aninfonce_jax.losses.plan import AxisName, Settings, Strategy
from aninfonce_jax.types import Array, LossOutput

__all__ = ["NEGATIVES", "REDUCTIONS", "aninfonce_loss", "infonce_loss", "lp_loss"]


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
    """
    settings = plan.checked_settings(axis_name, strategy, chunk_size, precision, hardness)
    pairing = pair(view1, view2, negatives, normalize, axis_name)
    weights = checks.concentration(concentration, pairing.anchors.shape[1], pairing.anchors.dtype)
    return _anisotropic_output(pairing, weights, "logsumexp", settings)


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
    settings = plan.checked_settings(axis_name, strategy, chunk_size, precision, hardness)
    pairing = pair(view1, view2, negatives, normalize, axis_name)
    tau = checks.temperature(temperature, pairing.anchors.dtype)
    factors = similarity.dot_product_factors(
        pairing.anchors, pairing.positives, pairing.origin(), tau, normalized=normalize
    )
    contrast = contrast_negatives(pairing, factors, settings)
    return assemble(contrast, pairing, tau, "logsumexp", settings)


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
    if not isinstance(reduction, str) or reduction not in REDUCTIONS:
        raise ValueError(
            f"reduction must be one of {', '.join(map(repr, REDUCTIONS))}, got "
            f"{checks.shown(reduction)}"
        )
    pairing = pair(view1, view2, negatives, normalize, None)
    tau = checks.temperature(temperature, pairing.anchors.dtype)
    if exponent == 2:
        weights = jnp.broadcast_to(2 / tau, pairing.anchors.shape[1:])
        return _anisotropic_output(pairing, weights, reduction, Settings())

    keys = pairing.prepare(pairing.keys)
    scores = similarity.lp_matrix(pairing.anchors, keys, exponent, tau)
    positive = similarity.lp(pairing.anchors, pairing.positives, exponent, tau)
    scores = tiles.mask(scores, *pairing.numbers())
    best = lax.stop_gradient(jnp.max(scores, axis=-1))
    contrast = Contrast(
        positive=positive,
        negatives=jax.nn.logsumexp(scores, axis=-1),
        best_negative=best,
        offset=jnp.zeros_like(tau),
        # Nothing cancels in a distance, so a score is as wrong as it is large.
        rounding=tie_width(best.dtype) * jnp.abs(lax.stop_gradient(positive)),
        strategy="dense",
    )
    return assemble(contrast, pairing, tau, reduction, Settings())


def _anisotropic_output(
    pairing: Pairing, weights: Array, reduction: str, settings: Settings
) -> LossOutput:
    factors = similarity.anisotropic_factors(
        pairing.anchors, pairing.positives, pairing.origin(), weights
    )
    contrast = contrast_negatives(pairing, factors, settings)
    return assemble(contrast, pairing, weights, reduction, settings)
