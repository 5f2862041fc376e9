"""Expectations to compare samplers with, by other means than the samplers use.

Low dimensions: quadrature over the sphere or the line. Ten dimensions: self-normalised
importance sampling with an angular central Gaussian. All in NumPy, float64.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import numpy as np

LogDensity = Callable[[np.ndarray], np.ndarray]

# For tests that compile for longer than they run.
quick_jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@dataclasses.dataclass(frozen=True)
class Weighted:
    """Points [m, dim] with weights [m] that sum to 1, and how exact averages over them are."""

    points: np.ndarray
    weights: np.ndarray
    exact: bool

    def mean(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean = self.weights @ features
        if self.exact:
            return mean, np.zeros_like(mean)
        return mean, np.sqrt((self.weights**2) @ (features - mean) ** 2)


def quadrature_on_sphere(log_density: LogDensity, dim: int, nodes: int) -> Weighted:
    """Returns the density on a fine grid over the unit circle or sphere."""
    angle = (np.arange(nodes) + 0.5) * 2 * np.pi / nodes
    if dim == 2:
        points = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        return Weighted(points, _normalize(log_density(points)), exact=True)
    height, area = np.polynomial.legendre.leggauss(nodes)
    width = np.sqrt(1 - height**2)
    rings = [np.outer(width, np.cos(angle)), np.outer(width, np.sin(angle))]
    points = np.stack([np.repeat(height, nodes), *(ring.ravel() for ring in rings)], axis=1)
    weights = _normalize(log_density(points) + np.log(np.repeat(area, nodes)))
    return Weighted(points, weights, exact=True)


def quadrature_on_line(log_density: LogDensity, low: float, high: float) -> Weighted:
    """Returns the density of one coordinate on a fine grid."""
    points = low + (np.arange(20_000) + 0.5)[:, None] * (high - low) / 20_000
    return Weighted(points, _normalize(log_density(points[:, 0])), exact=True)


def importance_on_sphere(
    log_density: LogDensity, anchor: np.ndarray, variances: np.ndarray, draws: int
) -> Weighted:
    """Weighs draws from an angular central Gaussian around an anchor.

    Its variances [dim] must cover the density; they are widened a little.
    """
    dim = anchor.size
    covariance = np.diag(1.2 * variances) + np.outer(anchor, anchor)
    rng = np.random.default_rng(7)
    points = rng.standard_normal((draws, dim)) @ np.linalg.cholesky(covariance).T
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    log_proposal = -0.5 * dim * np.log(np.sum(points @ np.linalg.inv(covariance) * points, axis=1))
    points = np.concatenate([points, -points])
    weights = _normalize(log_density(points) - np.tile(log_proposal, 2))
    assert 1 / np.sum(weights**2) > 2_000, "importance sampling misses the density"
    return Weighted(points, weights, exact=False)


def anisotropic(anchor: np.ndarray, concentration: np.ndarray) -> LogDensity:
    return lambda points: -0.5 * ((points - anchor) ** 2) @ concentration


def projected(
    anchor: np.ndarray,
    concentration: np.ndarray,
    exponent: int,
    low: float,
    high: float,
    nodes: int = 160,
) -> LogDensity:
    """Noise around the anchor, kept if its norm is between low and high, projected radially."""
    # Dense where peaks are, near 1, and sparse in a long tail.
    low, high = np.arcsinh([low, high])
    position = low + (np.arange(nodes) + 0.5) * (high - low) / nodes
    radii, steps = np.sinh(position), np.cosh(position)

    def log_density(points: np.ndarray) -> np.ndarray:
        total = np.zeros(len(points))
        for radius, step in zip(radii, steps, strict=True):
            # Whole powers, multiplied out: far faster than a general one.
            difference = np.abs(radius * points - anchor)
            power = functools.reduce(np.multiply, [difference] * int(exponent))
            volume = step * radius ** (anchor.size - 1)
            total += volume * np.exp(-power @ concentration / exponent)
        return np.log(total + 1e-300)

    return log_density


def mixture(first: Weighted, second: Weighted) -> Weighted:
    """Mixes two densities evenly; the error of inexact ones comes out a little too large."""
    points = np.concatenate([first.points, second.points])
    weights = 0.5 * np.concatenate([first.weights, second.weights])
    return Weighted(points, weights, exact=first.exact and second.exact)


def worst_deviation(samples: np.ndarray, reference: Weighted) -> float:
    """Returns the largest |difference| in standard errors over moments and marginals.

    First moments, second moments, and each coordinate's distribution function at five points
    of its range, smoothed a little so that a grid can integrate it.
    """
    samples = np.asarray(samples, np.float64)
    edges = np.quantile(samples, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
    width = 0.2 * samples.std(axis=0)
    features = _features(samples, edges, width)
    mean, error = reference.mean(_features(reference.points, edges, width))
    standard_error = np.sqrt(features.var(axis=0) / len(samples) + error**2)
    return float(np.max(np.abs(features.mean(axis=0) - mean) / standard_error))


def _features(points: np.ndarray, edges: np.ndarray, width: np.ndarray) -> np.ndarray:
    upper = np.triu_indices(points.shape[1])
    second = points[:, upper[0]] * points[:, upper[1]]
    below = [np.tanh((edge - points) / width) for edge in edges]
    return np.concatenate([points, second, *below], axis=1)


def _normalize(log_weights: np.ndarray) -> np.ndarray:
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()
