"""Scores against known latents: how much of them an encoder has recovered."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax import rng
from aninfonce_jax.evaluation.findings import Findings, Part
from aninfonce_jax.evaluation.members import learned_by_members, member_recovery
from aninfonce_jax.placement import Placement
from aninfonce_jax.scores import (
    concentration,
    explicitness,
    identifiability,
    intervals,
    registry,
    retrieval,
)
from aninfonce_jax.sources.source import Latents
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.types import Array, Weights


def make_recovery(experiment: Experiment, placement: Placement, known: Latents) -> Part:
    """Returns the part of an evaluation that compares embeddings with latents.

    The data are drawn once, from a stream of their own, so that scores along a run differ
    by the weights alone.
    """
    key = rng.stream(experiment.seed, "evaluation")
    draw = jax.jit(lambda key: known.draw(key, experiment.evaluation.samples))
    latents, observations = draw(key)
    true_latents = np.asarray(latents, np.float64)
    embed = jax.jit(experiment.embed)

    def recover(weights: Weights, *, full: bool) -> Findings:
        features = np.asarray(placement.fetch(embed(weights, observations)), np.float64)
        findings = recovery_findings(true_latents, features, known.concentration)
        findings.observations, findings.latents = np.asarray(observations), true_latents
        if full:
            findings.add(nonlinear_findings(true_latents, features))
            compared = experiment.objective.compared(jnp.asarray(features))
            findings.add(retrieval_findings(true_latents, compared, known.concentration))
        if known.concentration is not None:
            objective = experiment.objective
            learned = objective.concentration(weights.params["objective"], features.shape[1])
            target = objective.target(known)
            findings.scores |= map_scores(
                true_latents, features, known.concentration, learned, target
            )
        if known.members:
            by_members = learned_by_members(experiment, weights)
            findings.scores |= member_recovery(true_latents, features, known.members, by_members)
        return findings

    return recover


def recovery_findings(
    latents: np.ndarray, features: np.ndarray, truth: np.ndarray | None
) -> Findings:
    """Returns how well each factor can be read off the features.

    Args:
      latents: true factors [samples, dim].
      features: embeddings [samples, features].
      truth: the true Λ [dim], where there is one.

    Returns:
      R² in all, per factor, and for content and style; MCC by two correlations; intervals of
      each.
    """
    per_factor = identifiability.linear_r2_per_factor(latents, features)
    content = np.ones(latents.shape[1], bool)
    if truth is not None:
        content = concentration.content_mask(truth)
    groups = {registry.R2.key: np.ones_like(content)}
    if not content.all():
        groups |= {registry.R2_CONTENT.key: content, registry.R2_STYLE.key: ~content}
    found = intervals.r2_intervals(
        *identifiability.linear_readout(latents, features),
        np.concatenate([np.eye(len(content)), [*groups.values()]]),
    )
    findings = Findings(
        {name: float(per_factor[own].mean()) for name, own in groups.items()},
        dict(zip(groups, found[len(content) :], strict=True)),
        features,
    )
    findings.scores[registry.R2_PER_FACTOR] = per_factor.tolist()
    findings.intervals[registry.R2_PER_FACTOR] = found[: len(content)]
    for method in identifiability.CORRELATIONS:
        name = registry.mcc(method).key
        findings.scores[name], findings.intervals[name] = identifiability.mcc_with_interval(
            latents, features, method
        )
    return findings


def nonlinear_findings(latents: np.ndarray, features: np.ndarray) -> Findings:
    """Returns what kernel ridge regression finds of the factors; nothing of too few samples."""
    if len(latents) < explicitness.FEWEST_SAMPLES:
        return Findings()
    found = explicitness.explicitness(latents, features, readout="kernel")
    key = registry.R2_KERNEL.key
    return Findings({key: found.value}, {key: found.interval})


def retrieval_findings(
    latents: np.ndarray, features: Array | np.ndarray, truth: np.ndarray | None
) -> Findings:
    """Returns how near in the true factors, and in those of style, what is retrieved is.

    Args:
      latents: true factors [samples, dim].
      features: embeddings as the objective compares them, [samples, features].
      truth: the true Λ [dim], which tells the style; None: nothing does.
    """
    wanted: dict[str, np.ndarray | None] = {registry.RETRIEVAL.key: None}
    if truth is not None and not (content := concentration.content_mask(truth)).all():
        wanted[registry.RETRIEVAL_STYLE.key] = ~content
    found = {
        key: retrieval.retrieval(latents, features, factors) for key, factors in wanted.items()
    }
    return Findings(
        {key: value for key, (value, _) in found.items()},
        {key: interval for key, (_, interval) in found.items()},
    )


def map_scores(
    latents: np.ndarray,
    features: np.ndarray,
    truth: np.ndarray,
    learned: Array | None,
    target: np.ndarray | None,
) -> dict[str, Any]:
    """Returns Λ̂ beside what it should be, and the linear map from true to recovered factors.

    Theory fixes the recovered factors up to order. Λ̂ is compared with the Λ of what its
    feature recovers, and for comparison with both sorted. The map's rows are in the order
    that distinct Λ̂ tell; where the objective has none, the map itself does. An encoder with
    more or fewer outputs than factors has no such order, and nothing is compared.

    Args:
      latents: true factors [samples, dim].
      features: embeddings [samples, features].
      truth: the true Λ [dim].
      learned: Λ̂ [features], where the objective has one.
      target: the Λ̂ [dim] at which the loss is smallest: Λ, but for some objectives; None where
        it is not known, and Λ̂ can't be compared.
    """
    scores: dict[str, Any] = {}
    if target is not None:
        scores[registry.CONCENTRATION_TRUE] = target.tolist()
    if features.shape[1] != latents.shape[1]:
        return scores
    values = None if learned is None or target is None else np.asarray(learned, np.float64)
    matrix = identifiability.recovered_map(latents, features)
    if values is not None:
        assert target is not None
        matched = concentration.recovered_concentration(target, values, matrix)
        scores[registry.CONCENTRATION] = matched.tolist()
        scores[registry.CONCENTRATION_ERROR.key] = float(np.max(np.abs(matched / target - 1)))
        error = concentration.concentration_error(target, values)
        scores[registry.CONCENTRATION_ERROR_SORTED] = error
    tells_order = values is not None and np.ptp(values) > 0
    blocks = concentration.block_orthogonality(matrix, truth, values if tells_order else None)
    ordered = np.empty_like(matrix)
    ordered[np.argsort(-truth, kind="stable")] = matrix[blocks.feature_order]
    return scores | {
        registry.MAP: ordered.tolist(),
        registry.BLOCK_ENERGY: blocks.inside,
        registry.BLOCK_ORTHOGONALITY: float(blocks.deviations.mean()),
    }
