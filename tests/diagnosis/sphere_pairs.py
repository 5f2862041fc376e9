"""Pairs on the sphere for the tests of the diagnosis, in NumPy."""

import numpy as np


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def uniform(seed, n, dim):
    return unit(np.random.default_rng(seed).normal(size=(n, dim)))


def positives(seed, anchors, concentration):
    """Draws of ∝ exp(-½ (v-u)ᵀΛ(v-u)) on the unit sphere, by rejection from uniform points.

    Exact for any Λ, and cheap where it is small: the density is at most 1.
    """
    rng = np.random.default_rng(seed)
    concentration = np.broadcast_to(concentration, anchors.shape)
    result = np.zeros_like(anchors)
    waiting = np.arange(len(anchors))
    while waiting.size:
        proposal = unit(rng.normal(size=(waiting.size, anchors.shape[1])))
        squares = (proposal - anchors[waiting]) ** 2
        log_density = -0.5 * np.sum(concentration[waiting] * squares, axis=1)
        kept = np.log(rng.uniform(size=waiting.size)) < log_density
        result[waiting[kept]] = proposal[kept]
        waiting = waiting[~kept]
    return result


def pairs(seed, n=2000, concentration=(8.0, 6.0, 4.0)):
    anchors = uniform(seed, n, len(concentration))
    return anchors, positives(seed + 1000, anchors, np.asarray(concentration))
