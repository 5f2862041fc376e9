"""From two numbers per anchor, of its positive and of its negatives, to a `LossOutput`."""

import functools

import jax
import jax.numpy as jnp
from jax import lax

from aninfonce_jax.losses import exchange
from aninfonce_jax.losses.negatives import Contrast, log_count
from aninfonce_jax.losses.pairing import Keys, Pairing
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
    mean = functools.partial(exchange.mean, axis_name=settings.axis_name, weights=pairing.weights)
    maximum = functools.partial(exchange.maximum, axis_name=settings.axis_name)
    negatives = contrast.negatives
    if pairing.real is not None:
        negatives = jnp.where(pairing.real, negatives, 0)
    gap = negatives - contrast.positive
    if reduction == "logsumexp":
        # -s⁺ + log(exp s⁺ + Σ exp s⁻), written so that it can approach zero.
        per_anchor = jax.nn.softplus(gap)
        log_keys = log_count(contrast.negative_count, 1)
    else:
        per_anchor = gap - log_count(contrast.negative_count)
        if not isinstance(contrast.negative_count, int):
            # As for the sum, there is nothing to be told from where no negatives are left.
            per_anchor = jnp.where(contrast.negative_count == 0, 0, per_anchor)
        log_keys = 0.0
    if contrast.mean_positive is not None:
        per_anchor += contrast.positive - contrast.mean_positive
    if pairing.real is not None:
        per_anchor = jnp.where(pairing.real, per_anchor, 0)
    loss = mean(per_anchor)
    positive = contrast.positive if contrast.mean_positive is None else contrast.mean_positive
    alignment = -(mean(positive) + contrast.offset)
    picked = contrast.positive > contrast.best_negative + contrast.rounding
    checked = (pairing.anchors, pairing.positives, parameter, loss)
    bad = [jnp.any(~jnp.isfinite(x)) for x in checked]
    bad += [_any_nonfinite(keys) for keys in pairing.keys]
    metrics = {
        "accuracy": mean(picked.astype(loss.dtype)),
        "score": (log_keys if isinstance(log_keys, float) else mean(log_keys)) - loss,
        "nonfinite": maximum(jnp.stack(bad).astype(loss.dtype)),
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


def _any_nonfinite(keys: Keys) -> Array:
    bad = ~jnp.isfinite(keys.vectors)
    return jnp.any(bad if keys.known.real is None else bad & keys.known.real[:, None])
