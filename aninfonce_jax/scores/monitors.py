"""Cheap scores of features while training goes on: neighbours' classes, and collapse."""

import functools
from typing import TypedDict

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from aninfonce_jax.scores import intervals
from aninfonce_jax.scores.labelled import (
    Labelled,
    check_same_width,
    checked_classes,
    checked_features,
)
from aninfonce_jax.types import Array

# Similarities that are held at a time: 256 MB.
_MOST_SIMILARITIES = 2**26
# Features that vary by less than this share of their size vary by rounding.
_CONSTANT = 1e-5


class CollapseScores(TypedDict):
    """How far features have collapsed.

    Attributes:
      effective_rank: how many directions the features use, from 0 (constant) to
        min(feature_dim, samples - 1).
      effective_rank_interval: of it, over samples; None if they are constant.
      spread_min: the smallest of `spread`.
      spread_median: the median of `spread`.
      spread: of each feature, [feature_dim]; 1 where directions are uniform, 0 where the
        feature is constant.
    """

    effective_rank: float
    effective_rank_interval: list[float] | None
    spread_min: float
    spread_median: float
    spread: npt.NDArray[np.float64]


def knn_accuracy(
    bank: Labelled,
    queries: Labelled,
    *,
    classes: int,
    neighbours: int = 200,
    temperature: float = 0.07,
) -> float:
    """Returns the share of queries whose nearest neighbours in the bank vote for their class.

    A neighbour's vote weighs exp(cosine / temperature), as in Wu et al. (2018) and DINO.

    Args:
      bank: the samples that vote.
      queries: the samples to classify.
      classes: how many there are.
      neighbours: how many vote; all of them if the bank has fewer.
      temperature: the smaller, the more the nearest count.

    Raises:
      ValueError: shapes that do not fit, features that are not finite, labels outside
        0 ... classes - 1, or a number that is not positive.
    """
    bank_features, bank_labels = checked_classes("bank", bank, classes)
    features, labels = checked_classes("queries", queries, classes)
    check_same_width({"bank": bank_features, "queries": features})
    if neighbours < 1:
        raise ValueError(f"neighbours must be at least 1, got {neighbours}")
    if not temperature > 0:
        raise ValueError(f"temperature must be positive, got {temperature}")
    predicted = _vote(
        bank_features,
        bank_labels,
        features,
        np.float32(temperature),
        classes=classes,
        neighbours=min(neighbours, len(bank_features)),
        chunk=max(1, min(len(features), _MOST_SIMILARITIES // len(bank_features))),
    )
    return float(np.mean(np.asarray(predicted) == labels))


@functools.partial(jax.jit, static_argnames=("classes", "neighbours", "chunk"))
def _vote(
    bank: Array,
    bank_labels: Array,
    features: Array,
    temperature: Array,
    *,
    classes: int,
    neighbours: int,
    chunk: int,
) -> Array:
    """Returns the class of each query, [queries]; if several have as many votes, the lowest."""
    bank, features = _normalised(bank), _normalised(features)

    def vote(query: Array) -> Array:
        cosines = jnp.matmul(bank, query, precision=jax.lax.Precision.HIGHEST)
        nearest, indices = jax.lax.top_k(cosines, neighbours)
        # Relative to the nearest: the same vote, and no overflow at low temperatures.
        weights = jnp.exp((nearest - nearest[0]) / temperature)
        return jnp.argmax(jnp.zeros(classes).at[bank_labels[indices]].add(weights))

    return jax.lax.map(vote, features, batch_size=chunk)


def _normalised(features: Array) -> Array:
    norms = jnp.linalg.norm(features, axis=1, keepdims=True)
    return features / jnp.maximum(norms, jnp.finfo(features.dtype).tiny)


def collapse_scores(features: npt.ArrayLike) -> CollapseScores:
    """Measures how far features have collapsed, in all directions or in some.

    The effective rank is that of Roy and Vetterli (2007), exp of the entropy of the singular
    values' shares, of the centred features. RankMe (Garrido et al., 2023) is the same without
    centring, so that a large common offset looks like a collapse there. Features that are
    constant but for rounding have effective rank 0: that of the rounding would be high.

    The spread of a feature is its standard deviation after each sample is scaled to length
    one, times √feature_dim (Chen and He, 2021).

    Args:
      features: [samples, feature_dim].

    Raises:
      ValueError: shapes that do not fit, or values that are not finite.
    """
    x = checked_features("features", features, np.float64)
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    spread = np.std(x / np.where(norms > 0, norms, 1.0), axis=0) * np.sqrt(x.shape[1])
    rank, interval = _effective_rank(x)
    return CollapseScores(
        effective_rank=rank,
        effective_rank_interval=interval,
        spread_min=float(spread.min()),
        spread_median=float(np.median(spread)),
        spread=spread,
    )


def _effective_rank(features: npt.NDArray[np.float64]) -> tuple[float, list[float] | None]:
    centred = features - features.mean(axis=0)
    if np.linalg.norm(centred) <= _CONSTANT * np.linalg.norm(features):
        return 0.0, None
    return intervals.effective_rank(centred)
