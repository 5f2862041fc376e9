"""The Λ̂ of every member of an ensemble: beside the truth where that is known, or by itself."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from aninfonce_jax.scores import concentration, identifiability, predictions, registry
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.types import Array, Weights


def learned_by_members(experiment: Experiment, weights: Weights) -> np.ndarray | None:
    """Returns the Λ̂ of every member, [members, outputs]; NaN for one that learns none.

    None where there are no members, or none of them learns any.
    """
    dim = experiment.embedding_dim
    found = experiment.objective.member_concentrations(weights.params["objective"], dim)
    if all(own is None for own in found):
        return None
    return np.stack([_as_row(own, dim) for own in found])


def _as_row(learned: Array | None, dim: int) -> np.ndarray:
    return np.full(dim, np.nan) if learned is None else np.asarray(learned, np.float64)


def member_scores(learned: np.ndarray) -> dict[str, Any]:
    """Returns the Λ̂ of every member, outputs in falling order of the first that learns one."""
    known = learned[np.isfinite(learned).all(axis=1)]
    order = np.argsort(-known[0], kind="stable")
    return {registry.MEMBER_CONCENTRATIONS: learned[:, order].tolist()}


def member_recovery(
    latents: np.ndarray,
    features: np.ndarray,
    truths: Sequence[np.ndarray],
    learned: np.ndarray | None,
) -> dict[str, Any]:
    """Returns what members' Λ predict of the map to recovered factors, and their Λ̂ beside Λ.

    Args:
      latents: true factors [samples, dim].
      features: embeddings [samples, outputs]; nothing is compared unless outputs are as many as
        factors.
      truths: the Λ [dim] of every member.
      learned: the Λ̂ [members, outputs], where members learn any.
    """
    if features.shape[1] != latents.shape[1]:
        return {}
    matrix = identifiability.recovered_map(latents, features)
    prediction = predictions.predict(truths)
    values = prediction.as_concentration
    blocks = concentration.block_orthogonality(matrix, values)
    # The output that recovers each factor, or one of its group.
    output_of = np.empty(len(values), np.intp)
    output_of[np.argsort(-values, kind="stable")] = blocks.feature_order
    scores: dict[str, Any] = {
        registry.MAP: matrix[output_of].tolist(),
        registry.BLOCK_ENERGY: blocks.inside,
        registry.BLOCK_ORTHOGONALITY: float(blocks.deviations.mean()),
        registry.PREDICTION: f"{prediction.words}; {prediction.outcome(blocks.inside)}",
        registry.MEMBER_CONCENTRATIONS_TRUE: [own.tolist() for own in truths],
    }
    if learned is not None:
        matched = learned[:, output_of]
        scores[registry.MEMBER_CONCENTRATIONS] = matched.tolist()
        scores[registry.MEMBER_CONCENTRATION_ERRORS] = [
            float(np.max(np.abs(own / truth - 1)))
            for own, truth in zip(matched, truths, strict=True)
        ]
    return scores
