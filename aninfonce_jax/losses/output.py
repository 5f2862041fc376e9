"""From two numbers per anchor, of its positive and of its negatives, to a `LossOutput`."""

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax

from aninfonce_jax.losses import exchange
from aninfonce_jax.losses.negatives import Contrast
from aninfonce_jax.losses.pairing import Pairing
from aninfonce_jax.losses.plan import Settings
from aninfonce_jax.types import Array, LossOutput, Unseen

REDUCTIONS = ("logsumexp", "logmeanexp")


def assemble(
    contrast: Contrast, pairing: Pairing, parameter: Array, reduction: str, settings: Settings
) -> LossOutput:
    """Returns the output of a loss, from what is known of each anchor.

    Args:
      contrast: the scores of positives and negatives.
      pairing: whom they are of.
      parameter: Λ or τ, for the metrics.
      reduction: one of `REDUCTIONS`.
      settings: of the loss.
    """
    mean = functools.partial(exchange.mean, axis_name=settings.axis_name)
    maximum = functools.partial(exchange.maximum, axis_name=settings.axis_name)
    gap = contrast.negatives - contrast.positive
    if reduction == "logsumexp":
        # -s⁺ + log(exp s⁺ + Σ exp s⁻), written so that it can approach zero.
        per_anchor = jax.nn.softplus(gap)
        keys_per_anchor = pairing.negatives_per_anchor + 1
    else:
        per_anchor = gap - math.log(pairing.negatives_per_anchor)
        keys_per_anchor = 1
    loss = mean(per_anchor)
    alignment = -(mean(contrast.positive) + contrast.offset)
    picked = contrast.positive > contrast.best_negative + contrast.rounding
    checked = (pairing.anchors, pairing.positives, pairing.keys, parameter, loss)
    bad = jnp.stack([jnp.any(~jnp.isfinite(x)) for x in checked])
    metrics = {
        "accuracy": mean(picked.astype(loss.dtype)),
        "score": math.log(keys_per_anchor) - loss,
        "nonfinite": maximum(bad.astype(loss.dtype)),
        "nonpositive": maximum((parameter <= 0).astype(loss.dtype)),
    }
    return LossOutput(
        loss=loss,
        per_anchor=per_anchor,
        alignment=alignment,
        uniformity=loss - alignment,
        metrics=jax.tree.map(lax.stop_gradient, metrics),
        chosen=Unseen(contrast.strategy),
    )
