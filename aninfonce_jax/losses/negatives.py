"""One log-sum-exp over the negatives of each anchor: the only part that sees all pairs.

Whatever is done for scale is done behind it, as a plan says (`plan.py`). An anchor may have several
sets of keys; their log-sum-exps are joined here.
"""

import functools
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from aninfonce_jax.losses import (
    each_other,
    each_other_halved,
    exchange,
    plan,
    reductions,
    rows_with_bank,
    rows_with_keys,
    similarity,
)
from aninfonce_jax.losses.pairing import Keys, Pairing
from aninfonce_jax.losses.plan import Plan, Settings
from aninfonce_jax.losses.reductions import Reduction
from aninfonce_jax.losses.similarity import Factors
from aninfonce_jax.losses.tiles import Points, Rows
from aninfonce_jax.types import Array, PyTree

# A positive must win by more than this many units of rounding error to count as picked.
_TIE_ULPS = 8


class Contrast(NamedTuple):
    """What a loss needs to know of each anchor, [anchors] each, in units of the score.

    Attributes:
      positive: score of the positive, without `offset`, like the next three.
      mean_positive: mean score of all positives of the anchor, or None where it has but one.
      negatives: log-sum-exp of the scores of the negatives, and of other positives.
      best_negative: the largest score of a negative, without gradient.
      negative_count: how many negatives there are, or one number where all have as many.
      offset: what all scores have in common, a scalar.
      rounding: a bound on the error of positive and best negative.
      strategy: what computed them.
    """

    positive: Array
    mean_positive: Array | None
    negatives: Array
    best_negative: Array
    negative_count: Array | int
    offset: Array
    rounding: Array
    strategy: str


class Reduced(NamedTuple):
    """What is known of some keys of each anchor, at some sharpness.

    Attributes:
      value: what the reduction makes of the scores times the sharpness, [anchors].
      best: the largest of them, [anchors], without gradient.
      longest: the largest length of a key's vector, a scalar without gradient.
    """

    value: Array
    best: Array
    longest: Array


def contrast_negatives(
    pairing: Pairing,
    factors: Factors,
    settings: Settings,
    power: float | None = None,
    lowest: Array | None = None,
) -> Contrast:
    """Returns what scores that are made of factors say of each anchor, as plans compute it.

    Args:
      pairing: who is contrasted with whom.
      factors: of the scores.
      settings: what a user asks for.
      power: p, where the factors are those of Lp distances.
      lowest: the lowest score that there is, a scalar; needed where negatives are debiased.
    """
    plans = [
        plan.make_plan(_problem(keys, factors, "logsumexp", power), settings)
        for keys in pairing.keys
    ]
    count = _count(pairing, settings)
    beta = settings.hardness
    if beta:
        # The mean of exp(score) under weights exp(β score), times the number of negatives.
        harder = _negatives(plans, pairing, factors, 1 + beta)
        weights = _negatives(plans, pairing, factors, beta)
        negatives = harder.value - reductions.finite_or_zero(weights.value) + log_count(count)
        best, longest = harder.best / (1 + beta), harder.longest
    else:
        negatives, best, longest = _negatives(plans, pairing, factors, 1.0)
    if settings.debias:
        assert lowest is not None
        least = lowest - factors.offset + log_count(count)
        negatives = _debiased(settings.debias, negatives, factors.positive, log_count(count), least)
    over_devices = functools.partial(exchange.maximum, axis_name=settings.axis_name)
    magnitude = factors.own_reach + over_devices(factors.reach) * over_devices(longest)
    return Contrast(
        positive=factors.positive,
        mean_positive=_mean_positive(pairing, factors, settings, power),
        negatives=negatives,
        best_negative=lax.stop_gradient(best),
        negative_count=count,
        offset=factors.offset,
        rounding=tie_width(best.dtype) * magnitude,
        strategy="+".join(dict.fromkeys(chosen.strategy for chosen in plans)),
    )


def _debiased(
    share: float, negatives: Array, positive: Array, log_number: Array | float, least: Array
) -> Array:
    """Returns log Σ exp(score) of the negatives without what false ones add to it, [anchors].

    A `share` of the N negatives is taken to score as the positive does. What is returned is the
    log of (Σ exp(score) - share · N · exp(positive)) / (1 - share), and no less than `least`.
    """
    log_false = math.log(share) + log_number + positive - negatives
    # The logarithm exists below 0 only; what lies beyond is `least` in any case.
    is_less = log_false < 0
    rest = jnp.log1p(-jnp.exp(jnp.where(is_less, log_false, -1.0))) - math.log1p(-share)
    corrected = jnp.maximum(jnp.where(is_less, negatives + rest, -jnp.inf), least)
    return jnp.where(negatives == -jnp.inf, negatives, corrected)


def _problem(
    keys: Keys, factors: Factors, reduction: Reduction, power: float | None
) -> plan.Problem:
    symmetric = factors.root is not None and reduction == "logsumexp"
    return plan.Problem(
        rows=factors.queries[keys.seen_by].shape[0],
        keys=keys.vectors.shape[0],
        dim=factors.queries.shape[1],
        each_other=keys.each_other and symmetric,
        wide=factors.queries.dtype == jnp.float64,
        kernels=plan.kernels_fit(factors.queries),
        platform=plan.platform_of(factors.queries),
        reduction=reduction,
        power=power,
    )


def reduce_keys(
    keys: Keys,
    factors: Factors,
    settings: Settings,
    reduction: Reduction,
    power: float | None = None,
) -> tuple[Reduced, str]:
    """Returns what a reduction makes of the scores with one set of keys, and the strategy."""
    chosen = plan.make_plan(_problem(keys, factors, reduction, power), settings)
    return _reduce(chosen, keys, factors, 1.0), chosen.strategy


def _negatives(plans: list[Plan], pairing: Pairing, factors: Factors, sharpness: float) -> Reduced:
    """Returns what the plans compute of `sharpness` times the scores of all negatives."""
    found = [
        _reduce(chosen, keys, factors, sharpness)
        for chosen, keys in zip(plans, pairing.keys, strict=True)
    ]
    if len(found) == 1:
        return found[0]
    value = best = jnp.full_like(factors.positive, -jnp.inf)
    for keys, part in zip(pairing.keys, found, strict=True):
        seen_by = keys.seen_by
        value = value.at[seen_by].set(_logaddexp(value[seen_by], part.value))
        best = best.at[seen_by].max(part.best)
    return Reduced(value, best, functools.reduce(jnp.maximum, (part.longest for part in found)))


def _logaddexp(a: Array, b: Array) -> Array:
    """Returns log(exp a + exp b), whose gradient is zero where both are -∞; JAX's is NaN there."""
    none = (a == -jnp.inf) & (b == -jnp.inf)
    return jnp.where(none, -jnp.inf, jnp.logaddexp(*(jnp.where(none, 0, x) for x in (a, b))))


def _reduce(chosen: Plan, keys: Keys, factors: Factors, sharpness: float) -> Reduced:
    """Returns what the plan computes of `sharpness` times the scores with one set of keys."""
    real = keys.known.real

    def make_keys(rows: Array, parameters: PyTree) -> Points:
        made = factors.of_keys(keys.prepare(rows), parameters)
        return made._replace(bias=sharpness * made.bias)

    queries = sharpness * factors.queries[keys.seen_by]
    own_bias = sharpness * factors.query_bias[keys.seen_by]
    if chosen.reduction == "same label":
        own_bias = jnp.zeros_like(own_bias)
    rows = Rows(queries, keys.anchors.number, keys.anchors.label)
    if chosen.contrast == "bank":
        value, best, longest = rows_with_bank.reduce(
            chosen, make_keys, rows, keys.vectors, keys.known, factors.parameters
        )
        return Reduced(value + own_bias, best + own_bias, longest)
    vectors = keys.vectors if real is None else jnp.where(real[:, None], keys.vectors, 0)
    made = make_keys(vectors, factors.parameters)._replace(number=keys.known.number)
    if real is not None:
        made = made._replace(bias=jnp.where(real, made.bias, -jnp.inf))
    longest = jnp.max(similarity.lengths(made.vectors))
    if chosen.contrast == "given keys":
        value, best = rows_with_keys.reduce(chosen, rows, made._replace(label=keys.known.label))
        return Reduced(value + own_bias, best + own_bias, longest)
    # Points that are each other's keys have one vector for both, and scores that contain both
    # biases.
    assert factors.root is not None
    halved = chosen.contrast == "each other, halved"
    form = each_other_halved if halved else each_other
    points = made._replace(vectors=math.sqrt(sharpness) * factors.root)
    value, best = form.logsumexp(chosen, points)
    return Reduced(value, best, longest)


def _mean_positive(
    pairing: Pairing, factors: Factors, settings: Settings, power: float | None
) -> Array | None:
    """Returns the mean score of an anchor's positive and of all keys with its label."""
    if all(keys.known.label is None for keys in pairing.keys):
        return None
    total, count = factors.positive, jnp.ones_like(factors.positive)
    for keys in pairing.keys:
        if keys.known.label is None:
            continue
        found, _ = reduce_keys(keys, factors, settings, "same label", power)
        own_bias = found.best * factors.query_bias[keys.seen_by]
        total = total.at[keys.seen_by].add(found.value + own_bias)
        count = count.at[keys.seen_by].add(found.best)
    return total / count


def log_count(count: Array | int, more: int = 0) -> Array | float:
    """Returns the logarithm of `count` and `more`; of none, 0."""
    if isinstance(count, int):
        return math.log(count + more)
    return jnp.log(jnp.maximum(count + more, 1))


def _count(pairing: Pairing, settings: Settings) -> Array | int:
    """Returns the number of negatives of each anchor."""
    static = pairing.negatives_per_anchor
    if static is not None:
        return static
    count: Any = jnp.zeros_like(pairing.anchors[:, 0])
    for keys in pairing.keys:
        found: Any = pairing.devices * keys.vectors.shape[0]
        if keys.known.real is not None:
            found = exchange.total(keys.known.real.astype(count.dtype), pairing.axis_name)
        left_out = _same_number(pairing, keys, settings) if keys.left_out is None else keys.left_out
        count = count.at[keys.seen_by].add(found - left_out)
    return lax.stop_gradient(count)


def _same_number(pairing: Pairing, keys: Keys, settings: Settings) -> Array:
    """Returns how many keys of all devices have an anchor's number, [anchors]."""
    # Keys with the same label are counted by the reduction of that name, whatever they score.
    column = jnp.zeros_like(pairing.anchors[keys.seen_by][:, :1])
    vectors = jnp.zeros((keys.vectors.shape[0], 1), column.dtype)
    bias = vectors[:, 0]
    if keys.known.real is not None:
        bias = jnp.where(keys.known.real, 0, -jnp.inf)
    problem = plan.Problem(
        rows=column.shape[0],
        keys=vectors.shape[0],
        dim=1,
        each_other=False,
        wide=column.dtype == jnp.float64,
        kernels=False,
        platform=plan.platform_of(column),
        reduction="same label",
    )
    strategy = "chunked" if settings.strategy == "pallas" else settings.strategy
    chosen = plan.make_plan(problem, settings._replace(strategy=strategy))
    rows = Rows(column, label=keys.anchors.number)
    return rows_with_keys.reduce(chosen, rows, Points(vectors, bias, label=keys.known.number))[1]


def tie_width(dtype: jnp.dtype) -> float:
    """Returns by how much of its magnitude a positive must win to count as picked."""
    return _TIE_ULPS * float(jnp.finfo(dtype).eps)
