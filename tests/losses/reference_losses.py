"""Contrastive losses by enumeration of the pairs: slow, plain, and differentiable."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.types import Array

Score = Callable[[Array, Array, Array], Array]


def anisotropic_score(a: Array, b: Array, concentration: Array) -> Array:
    return -0.5 * jnp.sum(concentration * (a - b) ** 2)


def dot_score(a: Array, b: Array, temperature: Array) -> Array:
    return jnp.sum(a * b) / temperature


def lp_score(a: Array, b: Array, temperature: Array, p: float) -> Array:
    return -jnp.sum(jnp.abs(a - b) ** p) / temperature


def enumerate_pairs(n: int, negatives: str) -> list[list[tuple[int, int]]]:
    """Lists, per anchor, the (anchor, key) pairs that are scored, the positive first.

    Indices count view1's rows, then view2's.
    """
    points = range(2 * n if negatives == "both" else n)
    rows = []
    for anchor in points:
        positive = (anchor + n) % (2 * n)
        row = [(anchor, positive)]
        for key in points:
            if key not in (anchor, positive):
                row.append((anchor, key))
        rows.append(row)
    return rows


def published_pairs(n: int) -> list[list[tuple[int, int]]]:
    """As `enumerate_pairs(n, "both")`, with the quirk of the published code.

    Rows of the second view take cross similarities from the first view's row.
    """
    rows = enumerate_pairs(n, "both")[:n]
    for i in range(n):
        others = [j for j in range(n) if j != i]
        rows.append([(i, n + i)] + [(n + i, n + j) for j in others] + [(i, n + j) for j in others])
    return rows


def naive_per_anchor(
    view1: Array,
    view2: Array,
    parameter: Array,
    *,
    score: Score,
    rows: list[list[tuple[int, int]]],
    normalize: bool = True,
) -> Array:
    """The negative log-softmax of the positive among all the scores of a row."""
    points = jnp.concatenate([view1, view2])
    if normalize:
        points = points / jnp.sqrt(jnp.sum(points**2, axis=-1, keepdims=True))
    index = np.array(rows)
    score_all = jax.vmap(jax.vmap(score, in_axes=(0, 0, None)), in_axes=(0, 0, None))
    scores = score_all(points[index[..., 0]], points[index[..., 1]], parameter)
    return -jax.nn.log_softmax(scores, axis=-1)[:, 0]
