"""One log-sum-exp over the negatives of each anchor: the only part that sees all pairs.

Whatever is done for scale is done behind it, as a plan says (`plan.py`).
"""

import functools
import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from aninfonce_jax.losses import (
    each_other,
    each_other_halved,
    exchange,
    plan,
    rows_with_bank,
    rows_with_keys,
    similarity,
)
from aninfonce_jax.losses.pairing import Pairing
from aninfonce_jax.losses.plan import Plan, Settings
from aninfonce_jax.losses.similarity import Factors
from aninfonce_jax.losses.tiles import Points, Rows
from aninfonce_jax.types import Array, PyTree

# A positive must win by more than this many units of rounding error to count as picked.
_TIE_ULPS = 8


class Contrast(NamedTuple):
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


class _Negatives(NamedTuple):
    """What is known of the negatives of each anchor, at some sharpness.

    Attributes:
      logsumexp: of the scores times the sharpness, [anchors].
      best: the largest of them, [anchors], without gradient.
      longest: the largest length of a key's vector, a scalar without gradient.
    """

    logsumexp: Array
    best: Array
    longest: Array


def contrast_negatives(pairing: Pairing, factors: Factors, settings: Settings) -> Contrast:
    """Returns what scores that are made of factors say of each anchor, as a plan computes it."""
    problem = plan.Problem(
        rows=pairing.anchors.shape[0],
        keys=pairing.keys.shape[0],
        dim=pairing.keys.shape[1],
        each_other=pairing.pairs is not None,
        wide=factors.queries.dtype == jnp.float64,
        kernels=plan.kernels_fit(factors.queries),
        platform=plan.platform_of(factors.queries),
    )
    chosen = plan.make_plan(problem, settings)
    beta = settings.hardness
    if beta:
        # The mean of exp(score) under weights exp(β score), times the number of negatives.
        harder = _negatives(chosen, pairing, factors, 1 + beta)
        weights = _negatives(chosen, pairing, factors, beta)
        negatives = harder.logsumexp - weights.logsumexp
        negatives += math.log(pairing.negatives_per_anchor)
        best, longest = harder.best / (1 + beta), harder.longest
    else:
        negatives, best, longest = _negatives(chosen, pairing, factors, 1.0)
    over_devices = functools.partial(exchange.maximum, axis_name=settings.axis_name)
    magnitude = factors.own_reach + over_devices(factors.reach) * over_devices(longest)
    return Contrast(
        positive=factors.positive,
        negatives=negatives,
        best_negative=lax.stop_gradient(best),
        offset=factors.offset,
        rounding=tie_width(best.dtype) * magnitude,
        strategy=chosen.strategy,
    )


def _negatives(chosen: Plan, pairing: Pairing, factors: Factors, sharpness: float) -> _Negatives:
    """Returns what the plan computes of `sharpness` times the scores of all negatives."""

    def make_keys(rows: Array, parameters: PyTree) -> Points:
        keys = factors.of_keys(pairing.prepare(rows), parameters)
        return keys._replace(bias=sharpness * keys.bias)

    queries, own_bias = sharpness * factors.queries, sharpness * factors.query_bias
    if chosen.contrast == "bank":
        logsumexp, best, longest = rows_with_bank.logsumexp(
            chosen, make_keys, queries, pairing.keys, factors.parameters
        )
        return _Negatives(logsumexp + own_bias, best + own_bias, longest)
    row_numbers, key_numbers = pairing.numbers()
    keys = make_keys(pairing.keys, factors.parameters)._replace(number=key_numbers)
    longest = jnp.max(similarity.lengths(keys.vectors))
    if chosen.contrast == "given keys":
        rows = Rows(queries, row_numbers)
        logsumexp, best = rows_with_keys.logsumexp(chosen, rows, keys)
        return _Negatives(logsumexp + own_bias, best + own_bias, longest)
    # Points that are each other's keys have one vector for both, and scores that contain both
    # biases.
    halved = chosen.contrast == "each other, halved"
    form = each_other_halved if halved else each_other
    points = keys._replace(vectors=math.sqrt(sharpness) * factors.root)
    logsumexp, best = form.logsumexp(chosen, points)
    return _Negatives(logsumexp, best, longest)


def tie_width(dtype: jnp.dtype) -> float:
    """Returns by how much of its magnitude a positive must win to count as picked."""
    return _TIE_ULPS * float(jnp.finfo(dtype).eps)
