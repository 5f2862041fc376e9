"""The sigmoid loss (SigLIP): every pair of an anchor and a key is a question of yes or no."""

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from aninfonce_jax.losses import checks, exchange, plan, similarity
from aninfonce_jax.losses.negatives import reduce_keys, tie_width
from aninfonce_jax.losses.pairing import Pairing, pair
from aninfonce_jax.losses.plan import AxisName, Strategy
from aninfonce_jax.types import Array, LossOutput, Unseen


def sigmoid_loss(
    view1: ArrayLike,
    view2: ArrayLike,
    *,
    temperature: ArrayLike = 0.1,
    bias: ArrayLike = -10.0,
    weights: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    same_label: Literal["positive", "left out"] = "positive",
    normalize: bool = True,
    axis_name: AxisName | None = None,
    strategy: Strategy = "auto",
    chunk_size: int | None = None,
    precision: lax.Precision = lax.Precision.HIGHEST,
) -> LossOutput:
    """The sigmoid loss (Zhai et al. 2023, SigLIP), with logits l(a, b) = aᵀb / τ + bias.

    The loss of row i of the first view is

        log(1 + exp(-l(i, i))) + Σ_j≠i log(1 + exp(l(i, j)))

    over all rows j of the second view. A pair is asked about once, so the second view's rows are
    not anchors again. τ and bias are trained; the defaults are where the paper starts them.

    Args:
      view1: embeddings of the first views, [batch, dim].
      view2: embeddings of the second views, [batch, dim]; row i is the positive of row
        i of `view1`.
      temperature: τ, a positive scalar.
      bias: what is added to every logit, a scalar.
      weights: as in `aninfonce_loss`, like all that follows.
      mask: which rows are no padding, bool [batch].
      labels: integers [batch].
      same_label: "positive": the answer for rows with the same label is yes; "left out": nothing
        is asked of them.
      normalize: whether embeddings are first scaled to unit length.
      axis_name: the mapped axis that the batch is spread over, or None.
      strategy: how the scores are computed; there are no kernels.
      chunk_size: side of a tile of scores; None chooses.
      precision: of the matrix products, where the platform has a choice.

    Returns:
      The loss and its parts: `alignment` is the mean of each row's term of its own positive,
      `uniformity` that of all others. Metrics: `accuracy`, `nonfinite` and `nonpositive` of
      `aninfonce_loss`.

    Raises:
      TypeError, ValueError: as `infonce_loss`.

    Example:
      >>> view1, view2 = jnp.eye(4), jnp.eye(4)
      >>> an.sigmoid_loss(view1, view2, temperature=0.1, bias=-10.0).per_anchor.shape
      (4,)
    """
    settings = plan.checked_settings(axis_name, strategy, chunk_size, precision, 0.0)
    facts = {"weights": weights, "mask": mask, "labels": labels, "same_label": same_label}
    pairing = _first_view(pair(view1, view2, "cross", normalize, axis_name, facts))
    tau = checks.temperature(temperature, pairing.anchors.dtype)
    shift = checks.real_scalar("bias", bias, pairing.anchors.dtype)
    factors = similarity.logit_factors(pairing.anchors, pairing.positives, tau, shift)
    (keys,) = pairing.keys
    found, strategy_used = reduce_keys(keys, factors, settings, "softplus")
    positive = jax.nn.softplus(-factors.positive)
    others = found.value
    if keys.known.label is not None:
        # log(1 + exp(-l)) = log(1 + exp(l)) - l
        others -= reduce_keys(keys, factors, settings, "same label")[0].value
    if pairing.real is not None:
        positive, others = (jnp.where(pairing.real, x, 0) for x in (positive, others))
    return _output(pairing, positive, others, factors.positive, found.best, strategy_used, tau)


def _first_view(pairing: Pairing) -> Pairing:
    """Returns the half of a pairing across views whose anchors are the first view's rows."""
    keys = pairing.keys[0]

    def half(x: Any) -> Any:
        return None if x is None else x[keys.seen_by]

    return pairing._replace(
        anchors=half(pairing.anchors),
        positives=half(pairing.positives),
        keys=(keys,),
        real=half(pairing.real),
        weights=half(pairing.weights),
    )


def _output(
    pairing: Pairing,
    positive: Array,
    others: Array,
    own_logit: Array,
    best: Array,
    strategy: str,
    tau: Array,
) -> LossOutput:
    mean = functools.partial(exchange.mean, axis_name=pairing.axis_name, weights=pairing.weights)
    maximum = functools.partial(exchange.maximum, axis_name=pairing.axis_name)
    per_anchor = positive + others
    loss, alignment = mean(per_anchor), mean(positive)
    picked = own_logit > best + tie_width(best.dtype) * jnp.abs(best)
    checked = pairing.anchors, pairing.positives, tau, loss
    metrics = {
        "accuracy": mean(picked.astype(loss.dtype)),
        "nonfinite": maximum(
            jnp.stack([jnp.any(~jnp.isfinite(x)) for x in checked]).astype(loss.dtype)
        ),
        "nonpositive": maximum((tau <= 0).astype(loss.dtype)),
    }
    return LossOutput(
        loss=loss,
        per_anchor=per_anchor,
        alignment=alignment,
        uniformity=loss - alignment,
        metrics=jax.tree.map(lax.stop_gradient, metrics),
        chosen=Unseen(strategy),
    )
