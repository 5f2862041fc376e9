"""Λ from pairs on the sphere without its normaliser, and tests of anything the density lacks.

The theorem's conditional is p(v|u) ∝ exp(Σ λ_k t_k), t_k = u_k v_k - ½ v_k², on the unit sphere.
For any smooth q, Stein's identity holds under it:

    E[Δq + ⟨∇ℓ, ∇q⟩ | u] = 0,    ℓ = Σ λ_k t_k,

with the gradient and Laplacian of the sphere; the normaliser plays no part. Taken with q = t_k
it is a linear system for λ: score matching (Hyvärinen, 2005; on spheres Mardia, Kent and Laha,
2016), whatever the marginal of u. With any other q it is a test: its mean, with the error that
λ was fitted too, is zero if the density is the theorem's. If the density were ℓ + γ q, one step
of the same equations estimates γ: the size of what is missing.

For q with ambient gradient g and Hessian H at v: ⟨∇q, ∇p⟩ = g·g' - (g·v)(g'·v), and
Δq = tr H - vᵀHv - (d - 1) v·g.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
from scipy import stats

FloatArray = npt.NDArray[np.float64]

# Relative to the largest eigenvalue of the system; below it a direction tells nothing.
_NEGLIGIBLE = 1e-9


@dataclasses.dataclass(frozen=True)
class Fit:
    """Λ fitted to pairs of unit vectors.

    Attributes:
      anchors: u, [n, d].
      positives: v, [n, d].
      concentration: λ, [d].
      errors: its standard errors, [d].
      inverse: of the system, [d, d].
      influence: what each pair adds to the equations, [n, d].
    """

    anchors: FloatArray
    positives: FloatArray
    concentration: FloatArray
    errors: FloatArray
    inverse: FloatArray
    influence: FloatArray

    @property
    def residuals(self) -> FloatArray:
        """Positives less anchors, [n, d]."""
        return self.positives - self.anchors

    @property
    def scale(self) -> FloatArray:
        """√λ, [d]; where λ is not positive, of the residuals' own size."""
        own = 1 / np.maximum(np.mean(self.residuals**2, axis=0), 1e-300)
        return np.sqrt(np.maximum(self.concentration, 0.1 * own))


def fit_concentration(anchors: FloatArray, positives: FloatArray) -> Fit:
    """Fits Λ to pairs of unit vectors, both [n, d] with d at least 2."""
    u, v = anchors, positives
    n, d = u.shape
    r = u - v
    turned = r * v
    system = np.diag(np.mean(r**2, axis=0)) - turned.T @ turned / n
    laplacian = d * v**2 - (d - 1) * u * v - 1
    values, axes = np.linalg.eigh(system)
    kept = values > _NEGLIGIBLE * values[-1]
    inverse = (axes[:, kept] / values[kept]) @ axes[:, kept].T
    concentration = -inverse @ laplacian.mean(axis=0)
    along = turned @ concentration
    influence = laplacian + r**2 * concentration - turned * along[:, None]
    moved = influence @ inverse
    errors = np.sqrt(np.mean(moved**2, axis=0) / max(n - 1, 1))
    return Fit(u, v, concentration, errors, inverse, influence)


def errors_about(fit: Fit, concentration: FloatArray) -> FloatArray:
    """Standard errors of the fitted λ [d], to compare it with a given one [d]."""
    moved = -fit.influence @ fit.inverse + fit.concentration - concentration
    return _mean_errors(moved, len(concentration))


def missing_terms(fit: Fit, first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Estimates the coefficients of terms q_k(u, v_k), one per dimension, that ℓ lacks.

    Args:
      fit: of Λ.
      first: the derivative of q_k by v_k, [n, d].
      second: the second derivative, [n, d].

    Returns:
      Coefficients and their standard errors, [d] each.
    """
    u, v = fit.anchors, fit.positives
    d = u.shape[1]
    r = u - v
    turned = r * v
    along = turned @ fit.concentration
    stein = second * (1 - v**2) - (d - 1) * v * first
    stein += first * (r * fit.concentration - v * along[:, None])
    cross = np.diag(np.mean(first * r, axis=0)) - (first * v).T @ turned / len(u)
    own = np.mean(first**2 * (1 - v**2), axis=0)
    return _one_step(fit, stein, cross, own)


def missing_products(fit: Fit, k: int) -> tuple[FloatArray, FloatArray]:
    """Estimates the entries Λ_kl, l > k, that a diagonal Λ lacks.

    Returns:
      Coefficients and their standard errors, [d - k - 1] each.
    """
    u, v = fit.anchors, fit.positives
    n, d = u.shape
    r = u - v
    turned = r * v
    along = turned @ fit.concentration
    later = slice(k + 1, d)
    products = r[:, k : k + 1] * r[:, later]
    radial = r[:, later] * v[:, k : k + 1] + r[:, k : k + 1] * v[:, later]
    stein = 2 * d * v[:, k : k + 1] * v[:, later]
    stein -= (d - 1) * (u[:, k : k + 1] * v[:, later] + u[:, later] * v[:, k : k + 1])
    stein += (fit.concentration[k] + fit.concentration[later]) * products
    stein -= along[:, None] * radial
    cross = -radial.T @ turned / n
    means = products.mean(axis=0)
    cross[:, k] += means
    cross[np.arange(d - k - 1), np.arange(k + 1, d)] += means
    own = np.mean(r[:, later] ** 2 + r[:, k : k + 1] ** 2 - radial**2, axis=0)
    return _one_step(fit, stein, cross, own)


def _one_step(
    fit: Fit, stein: FloatArray, cross: FloatArray, own: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """From Stein's terms [n, q], products of gradients with those of ℓ's, and their squares."""
    projected = cross @ fit.inverse
    influence = stein - fit.influence @ projected.T
    means = influence.mean(axis=0)
    left = np.maximum(own - np.sum(projected * cross, axis=1), 1e-12 * own + 1e-300)
    errors = _mean_errors(influence, len(cross[0]))
    return -means / left, errors / left


def _mean_errors(values: FloatArray, dim: int) -> FloatArray:
    """Standard errors of means [n, q], such that mean / error is normal where n is not large.

    The variance of heavy-tailed values is itself uncertain: mean / error is then nearer to
    Student's distribution, with as many degrees of freedom as the variance of the variance says
    (Satterthwaite, 1946). What that widens is written into the error. So is what the fit of
    `dim` parameters takes from the residuals.
    """
    n = len(values)
    centred = values - values.mean(axis=0)
    spread = np.maximum(np.sqrt(np.mean(centred**2, axis=0)), 1e-300)
    errors = spread / np.sqrt(max(n - 1, 1)) * (1 + 2 * dim / n)
    kurtosis = np.mean(((centred / spread) ** 2) ** 2, axis=0)  # a power of 4 takes far longer
    score = np.abs(values.mean(axis=0)) / errors
    freedom = 2 * n / np.maximum(kurtosis - 1, 1e-6)
    normal = stats.norm.isf(np.maximum(stats.t.sf(score, freedom), 1e-300))
    # Below one standard error there is nothing to widen.
    return errors * np.where(score > 1, score / np.maximum(normal, 1e-6), 1.0)
