"""Losses with several sets of keys, weights, masks and labels, pair by pair and in float64."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.types import Array


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """The arguments of a loss that say who is contrasted with whom."""

    name: str | None
    bank: bool = False
    reduction: str = "logsumexp"
    hardness: float = 0.0
    weights: np.ndarray | None = None
    mask: np.ndarray | None = None
    labels: np.ndarray | None = None
    bank_labels: np.ndarray | None = None
    bank_mask: np.ndarray | None = None
    same_label: str = "positive"


def relations(case: Case, batch: int, keys: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lists who is who, by loops.

    Points are counted through view1, view2 and the bank.

    Returns:
      Whether each pair of an anchor and a point is one of a positive, and of a negative, both
      [anchors, points], and each anchor's weight, [anchors].
    """
    anchors = range(2 * batch if case.name in ("both", "cross") else batch)
    points = 2 * batch + (keys if case.bank else 0)
    positive = np.zeros((len(anchors), points), bool)
    negative = np.zeros((len(anchors), points), bool)
    weight = np.ones(len(anchors))
    for i in anchors:
        own = i % batch
        if case.weights is not None:
            weight[i] *= case.weights[own]
        if case.mask is not None:
            weight[i] *= case.mask[own]
        positive[i, (i + batch) % (2 * batch)] = True
        for j in range(points):
            in_bank = j >= 2 * batch
            if in_bank:
                real = case.bank_mask is None or case.bank_mask[j - 2 * batch]
                label = None if case.bank_labels is None else case.bank_labels[j - 2 * batch]
            else:
                same_view = (i < batch) == (j < batch)
                is_key = {
                    "both": True,
                    "anchors": j < batch,
                    "cross": not same_view,
                    None: False,
                }[case.name]
                if not is_key or j % batch == own:
                    continue
                real = case.mask is None or case.mask[j % batch]
                label = None if case.labels is None else case.labels[j % batch]
            if not real:
                continue
            same = case.labels is not None and label is not None and label == case.labels[own]
            if not same:
                negative[i, j] = True
            elif case.same_label == "positive":
                positive[i, j] = True
    return positive, negative, weight


def per_anchor_losses(case: Case, scores: Array, positive: Any, negative: Any) -> Array:
    """Returns the loss of each anchor from all scores [anchors, points], by the definitions."""
    count = np.maximum(negative.sum(1), 1)
    if case.hardness:
        beta = case.hardness
        tilt = jnp.where(negative, beta * scores, -jnp.inf)
        others = jax.nn.logsumexp(jnp.where(negative, scores + tilt, -jnp.inf), axis=1)
        others = others - jax.nn.logsumexp(tilt, axis=1) + jnp.log(count)
        best = jnp.sum(jnp.where(positive, scores, 0), axis=1)
        return jnp.logaddexp(best, others) - best
    own = jnp.sum(jnp.where(positive, scores, 0), axis=1) / positive.sum(1)
    if case.reduction == "logmeanexp":
        return (
            jax.nn.logsumexp(jnp.where(negative, scores, -jnp.inf), axis=1) - jnp.log(count) - own
        )
    return jax.nn.logsumexp(jnp.where(positive | negative, scores, -jnp.inf), axis=1) - own


def anisotropic(a: Array, b: Array, parameter: Array) -> Array:
    return -0.5 * (a[:, None] - b[None]) ** 2 @ parameter


def dot(a: Array, b: Array, parameter: Array) -> Array:
    return a @ b.T / parameter


def cubed(a: Array, b: Array, parameter: Array) -> Array:
    return -jnp.sum(jnp.abs(a[:, None] - b[None]) ** 3, axis=-1) / parameter


def per_anchor(a: Array, b: Array, parameter: Array) -> Array:
    return -0.5 * jnp.einsum("ijk,ik->ij", (a[:, None] - b[None]) ** 2, parameter)


def factored(a: Array, b: Array, parameter: Array) -> Array:
    matrix = parameter @ parameter.T
    difference = a[:, None] - b[None]
    return -0.5 * jnp.einsum("ijk,kl,ijl->ij", difference, matrix, difference)


def sigmoid_losses(scores: Array, positive: Any, negative: Any) -> Array:
    """Returns the sigmoid loss of each row of logits, by its definition."""
    yes = jnp.where(positive, -jnp.log(jax.nn.sigmoid(scores)), 0)
    no = jnp.where(negative, -jnp.log(jax.nn.sigmoid(-scores)), 0)
    return jnp.sum(yes + no, axis=1)
