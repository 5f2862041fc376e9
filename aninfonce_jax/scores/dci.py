"""DCI: how much a readout of each factor needs each feature."""

import dataclasses
from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from aninfonce_jax.scores.estimates import (
    DRAWS,
    Estimate,
    FloatArray,
    axis_warnings,
    bootstrap_errors,
    checked_samples,
    halves,
    interval_about,
    standardised,
)
from aninfonce_jax.scores.explicitness import explicitness, r2_estimate
from aninfonce_jax.scores.lasso import lasso_weights
from aninfonce_jax.scores.trees import fit_trees

# Below this R² a readout has hardly found a factor, and what it needs for it is noise.
_UNFOUND = 0.05

# From how often each sample counts to the importances [feature_dim, dim].
Importances = Callable[[FloatArray], FloatArray]


@dataclasses.dataclass(frozen=True)
class DCI:
    """Three scores by how much a readout needs each feature.

    Attributes:
      disentanglement: 1 if every feature matters for one factor only; features weigh by how
        much they matter at all.
      completeness: 1 if every factor needs one feature only.
      informativeness: the readout's held-out R².
      importances: [feature_dim, dim], 0 or more.
    """

    disentanglement: Estimate
    completeness: Estimate
    informativeness: Estimate
    importances: FloatArray = dataclasses.field(compare=False)

    def __str__(self) -> str:
        return "\n".join(map(str, (self.disentanglement, self.completeness, self.informativeness)))


def dci(
    latents: npt.ArrayLike,
    features: npt.ArrayLike,
    *,
    readout: Literal["lasso", "trees"] = "trees",
    concentration: npt.ArrayLike | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> DCI:
    """Measures disentanglement, completeness and informativeness (Eastwood and Williams, 2018).

    With "lasso" the importance of a feature is the size of its weight, features standardised,
    as in that paper; it is blind to what is not linear. With "trees" it is by how much the
    squared error on the scored half grows if the feature's values are shuffled (Breiman, 2001):
    that paper takes the number of splits, which is positive for pure noise too.

    Assumes independent factors; of two features that say the same, a readout may use either. Of a
    factor that the readout does not find, importances are noise: a warning names it.
    The interval of "lasso" fits again in every draw; that of "trees" holds the trees fixed and
    moves the scored samples, so it is somewhat too narrow.

    Args:
      latents: [samples, dim].
      features: [samples, feature_dim].
      readout: "lasso" or "trees".
      concentration: the true Λ, [dim], if it is known: for the warning about repeats.
      draws: of the bootstrap; 0 for no intervals.
      seed: of the halves and the draws.

    Raises:
      ValueError: shapes that do not fit, values that are not finite, or too few samples.

    Example:
      >>> latents = np.random.default_rng(0).normal(size=(200, 2))
      >>> an.dci(latents, latents[:, ::-1], readout="lasso", draws=0).disentanglement.value > 0.9
      True
    """
    if readout not in ("lasso", "trees"):
        raise ValueError(f"readout must be 'lasso' or 'trees', got {readout!r}")
    z, h = checked_samples(latents, features)
    if len(z) < 40:
        raise ValueError(f"a readout needs at least 40 samples, got {len(z)}")
    warnings = tuple(axis_warnings(z, h.shape[1], concentration))
    read = _read_by_lasso if readout == "lasso" else _read_by_trees
    informativeness, samples, importances = read(z, h, seed)
    found = informativeness.per_factor
    if found is not None and (unfound := np.flatnonzero(found < _UNFOUND)).size:
        warnings += (
            f"the readout does not find factors {unfound.tolist()} (R² below {_UNFOUND}): which "
            "features it needs for them says nothing",
        )
    plain = importances(np.ones(samples))
    values = _disentanglement_and_completeness(plain)
    errors = bootstrap_errors(
        lambda weights: _disentanglement_and_completeness(importances(weights)),
        samples,
        draws=draws,
        seed=seed,
    )
    disentanglement, completeness = (
        Estimate(
            f"DCI {name} ({readout})",
            float(values[i]),
            interval_about(float(values[i]), None if errors is None else errors[i], low=0.0),
            None,
            warnings,
        )
        for i, name in enumerate(("disentanglement", "completeness"))
    )
    name = f"DCI informativeness ({readout})"
    return DCI(
        disentanglement, completeness, dataclasses.replace(informativeness, name=name), plain
    )


def _read_by_lasso(
    latents: FloatArray, features: FloatArray, seed: int
) -> tuple[Estimate, int, Importances]:
    z, h = standardised(latents), standardised(features)
    informativeness = explicitness(latents, features, readout="linear", seed=seed)
    return (
        informativeness,
        len(z),
        lambda weights: np.abs(lasso_weights(h, z, weights, seed=seed)),
    )


def _read_by_trees(
    latents: FloatArray, features: FloatArray, seed: int
) -> tuple[Estimate, int, Importances]:
    """Returns the R², the number of scored samples, and importances by their weights."""
    fitted, scored = halves(len(latents), seed)
    z = standardised(latents, latents[fitted])
    shuffled = np.random.default_rng(seed).permutation(len(scored))
    h = features[scored]
    growth = np.zeros((len(scored), h.shape[1], z.shape[1]))
    predictions = np.zeros((len(scored), z.shape[1]))
    for j, column in enumerate(z.T):
        trees = fit_trees(features[fitted], column[fitted])
        predictions[:, j] = trees(h)
        error = (column[scored] - predictions[:, j]) ** 2
        for i in range(h.shape[1]):
            other = h.copy()
            other[:, i] = h[shuffled, i]
            growth[:, i, j] = (column[scored] - trees(other)) ** 2 - error

    def importances(weights: FloatArray) -> FloatArray:
        return np.maximum(np.einsum("n,nij->ij", weights / weights.sum(), growth), 0.0)

    return r2_estimate("trees", z[scored], predictions), len(scored), importances


def _disentanglement_and_completeness(importances: FloatArray) -> FloatArray:
    total = importances.sum()
    if total <= 0:
        return np.zeros(2)
    features, factors = importances.shape
    by_feature = importances.sum(axis=1)
    d = _one_less_entropy(importances) if factors > 1 else np.ones(features)
    c = _one_less_entropy(importances.T) if features > 1 else np.ones(factors)
    needed = importances.sum(axis=0) > 0
    return np.array([by_feature @ d / total, np.where(needed, c, 0.0).mean()])


def _one_less_entropy(rows: FloatArray) -> FloatArray:
    """1 less the entropy of each row's shares, in units of the largest possible."""
    totals = rows.sum(axis=1, keepdims=True)
    shares = rows / np.where(totals > 0, totals, 1.0)
    logs = np.log(np.where(shares > 0, shares, 1.0))
    return 1 + np.sum(shares * logs, axis=1) / np.log(rows.shape[1])
