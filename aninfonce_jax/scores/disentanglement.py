"""Whether each factor has a feature of its own: MIG, SAP, InfoMEC (`dci.py` has DCI).

All of them look at axes: a rotation of the features, which R² does not see, changes them. So
they are for factors that theory finds up to order and sign, that is, for distinct Λ.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from aninfonce_jax.scores.estimates import (
    DRAWS,
    Estimate,
    FloatArray,
    axis_warnings,
    bootstrap_errors,
    checked_samples,
    interval_about,
)
from aninfonce_jax.scores.explicitness import explicitness
from aninfonce_jax.scores.mutual_information import BINS, Binned, bin_warnings, mutual_information

# A feature whose range is below this share of the widest carries nothing (Hsu et al., 2023).
_INACTIVE = 1 / 20
# How often samples are shuffled to learn how much information there is by chance.
_SHUFFLES = 20


# --- Gaps between the best feature and the next: MIG and SAP ---


def mig(
    latents: npt.ArrayLike,
    features: npt.ArrayLike,
    *,
    bins: int = BINS,
    concentration: npt.ArrayLike | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Estimate:
    """Returns the mutual information gap (Chen et al., 2018), the mean over factors.

    Per factor: its information with the feature that has most of it, less that of the next,
    over the factor's entropy. 1: one feature tells everything, no other anything.

    Assumes factors that are independent, and a feature for each. It does not see a feature
    that carries several factors. Information is counted in bins of equal frequency
    (`scores/mutual_information.py`), so increasing maps and signs do not matter.

    Args:
      latents: [samples, dim].
      features: [samples, feature_dim].
      bins: per column.
      concentration: the true Λ, [dim], if it is known: for the warning about repeats.
      draws: of the bootstrap; 0 for no interval.
      seed: of the draws.

    Raises:
      ValueError: shapes that do not fit, or values that are not finite.

    Example:
      >>> latents = np.random.default_rng(0).normal(size=(200, 2))
      >>> rotated = latents @ np.array([[0.6, 0.8], [-0.8, 0.6]])
      >>> axes, mixed = (an.mig(latents, z, draws=0).value for z in (latents[:, ::-1], rotated))
      >>> axes > mixed + 0.3
      True
    """
    z, h = checked_samples(latents, features)
    factors, codes = Binned(z, bins), Binned(h, bins)

    def gaps(weights: FloatArray) -> FloatArray:
        information = mutual_information(codes, factors, weights)
        entropies = factors.entropies(weights)
        constant = entropies <= 0
        return np.where(constant, 0.0, _gap(information) / np.where(constant, 1.0, entropies))

    warnings = bin_warnings(len(z), factors.most_bins, codes.most_bins)
    return _mean_over_factors("MIG", gaps, z, h, warnings, concentration, draws, seed)


def sap(
    latents: npt.ArrayLike,
    features: npt.ArrayLike,
    *,
    concentration: npt.ArrayLike | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> Estimate:
    """Returns the separated attribute predictability (Kumar et al., 2018), the mean over factors.

    Per factor: the R² of a line from the one feature that tells it best, less that of the next.

    Assumes what `mig` does, and that a factor shows in its feature by a line: an increasing map
    that is not linear lowers it.

    Args and Raises: as `mig`.

    Example:
      >>> latents = np.random.default_rng(0).normal(size=(200, 2))
      >>> rotated = latents @ np.array([[0.6, 0.8], [-0.8, 0.6]])
      >>> axes, mixed = (an.sap(latents, z, draws=0).value for z in (latents[:, ::-1], rotated))
      >>> axes > mixed + 0.3
      True
    """
    z, h = checked_samples(latents, features)

    def gaps(weights: FloatArray) -> FloatArray:
        share = weights / weights.sum()
        columns = []
        for x in (z, h):
            centred = x - share @ x
            spread = np.sqrt(share @ centred**2)
            constant = spread <= 1e-12 * np.maximum(np.abs(x).max(axis=0), 1e-300)
            columns.append(np.where(constant, 0.0, centred / np.where(constant, 1.0, spread)))
        return _gap(((columns[1] * share[:, None]).T @ columns[0]) ** 2)

    return _mean_over_factors("SAP", gaps, z, h, [], concentration, draws, seed)


def _gap(scores: FloatArray) -> FloatArray:
    """Returns the largest less the next of each column, [features, dim] to [dim]."""
    ordered = np.sort(scores, axis=0)
    return ordered[-1] - (ordered[-2] if len(ordered) > 1 else 0.0)


def _mean_over_factors(
    name: str,
    per_factor: Callable[[FloatArray], FloatArray],
    latents: FloatArray,
    features: FloatArray,
    warnings: list[str],
    concentration: npt.ArrayLike | None,
    draws: int,
    seed: int,
) -> Estimate:
    warnings = axis_warnings(latents, features.shape[1], concentration) + warnings
    values = per_factor(np.ones(len(latents)))
    errors = bootstrap_errors(
        lambda weights: np.array([per_factor(weights).mean()]), len(latents), draws=draws, seed=seed
    )
    value = float(values.mean())
    interval = interval_about(value, None if errors is None else errors[0], low=0.0)
    return Estimate(name, value, interval, values, tuple(warnings))


# --- InfoMEC ---


@dataclasses.dataclass(frozen=True)
class InfoMEC:
    """Three scores by information.

    Attributes:
      modularity: InfoM; 1 if every feature tells of one factor only, 0 if of all alike.
      compactness: InfoC; 1 if every factor is told by one feature only.
      explicitness: InfoE; how much of the factors a linear map finds.
      information: of factors with features, over the factor's entropy, [feature_dim, dim].
      active: which features carry anything, [feature_dim].
    """

    modularity: Estimate
    compactness: Estimate
    explicitness: Estimate
    information: FloatArray = dataclasses.field(compare=False)
    active: npt.NDArray[np.bool_] = dataclasses.field(compare=False)

    def __str__(self) -> str:
        return "\n".join(map(str, (self.modularity, self.compactness, self.explicitness)))


def infomec(
    latents: npt.ArrayLike,
    features: npt.ArrayLike,
    *,
    bins: int = BINS,
    concentration: npt.ArrayLike | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> InfoMEC:
    """Measures modularity, compactness and explicitness by information (Hsu et al., 2023).

    With NMI the information of a factor with a feature over the factor's entropy, a feature's
    share is its largest NMI over the sum of all, and a factor's likewise; both are averaged and
    rescaled so that 0 is no preference. Features of a range below 1/20 of the widest are left
    out, as there. A feature that tells no factor, or a factor that no feature tells, more than by
    chance (the largest NMI of 20 shuffles) prefers nothing: the share of what is chance would say
    that a lost factor has a feature of its own. Explicitness is the held-out linear R², the
    predictive information of a linear family for continuous factors.

    Assumes independent factors; those on a sphere of few dimensions are not quite (a perfect
    encoder of six scores 0.95 in modularity and compactness). Features that differ in scale by
    more than 20 are taken for dead ones. Information is counted in bins, where the
    paper takes nearest neighbours.

    Args and Raises: as `mig`.

    Example:
      >>> latents = np.random.default_rng(0).normal(size=(200, 2))
      >>> rotated = latents @ np.array([[0.6, 0.8], [-0.8, 0.6]])
      >>> both = (latents[:, ::-1], rotated)
      >>> axes, mixed = (an.infomec(latents, z, draws=0).modularity.value for z in both)
      >>> axes > mixed + 0.3
      True
    """
    z, h = checked_samples(latents, features)
    ranges = np.ptp(h, axis=0)
    active = ranges > _INACTIVE * ranges.max()
    warnings = axis_warnings(z, h.shape[1], concentration)
    if not active.all():
        warnings.append(
            f"{int(np.sum(~active))} of {h.shape[1]} features have a range below 1/20 of the "
            "widest and are left out"
        )
    factors, codes = Binned(z, bins), Binned(h[:, active], bins) if active.any() else None
    if codes is not None:
        warnings += bin_warnings(len(z), factors.most_bins, codes.most_bins)

    def information(weights: FloatArray, factors: Binned = factors) -> FloatArray:
        if codes is None:
            return np.zeros((0, z.shape[1]))
        entropies = factors.entropies(weights)
        shared = mutual_information(codes, factors, weights)
        return np.where(entropies > 0, shared / np.where(entropies > 0, entropies, 1.0), 0.0)

    plain = np.ones(len(z))
    rng = np.random.default_rng(seed)
    shuffles = (factors.taken(rng.permutation(len(z))) for _ in range(_SHUFFLES))
    by_chance = max(float(information(plain, other).max(initial=0.0)) for other in shuffles)
    # Of the samples as they are: drawn with repeats, they look more dependent.
    told = information(plain) > by_chance

    def both(weights: FloatArray) -> FloatArray:
        nmi = information(weights)
        return np.array([_preference(nmi, told), _preference(nmi.T, told.T)])

    values = both(plain)
    errors = bootstrap_errors(both, len(z), draws=draws, seed=seed)
    modularity, compactness = (
        Estimate(
            name,
            float(values[i]),
            interval_about(float(values[i]), None if errors is None else errors[i], low=0.0),
            None,
            tuple(warnings),
        )
        for i, name in enumerate(("InfoM", "InfoC"))
    )
    linear = explicitness(z, h, readout="linear", seed=seed)
    nmi = np.zeros((h.shape[1], z.shape[1]))
    nmi[active] = information(plain)
    infoe = dataclasses.replace(linear, name="InfoE")
    return InfoMEC(modularity, compactness, infoe, nmi, active)


def _preference(nmi: FloatArray, told: npt.NDArray[np.bool_]) -> float:
    """How far rows prefer one column, on average: 0 not at all, 1 wholly.

    Args:
      nmi: [rows, columns].
      told: which of it is more than chance; rows without any count as 0.
    """
    rows, columns = nmi.shape
    if rows == 0 or columns < 2:
        return float(told.any(axis=1).mean()) if rows and columns else 0.0
    totals = nmi.sum(axis=1)
    found = told.any(axis=1) & (totals > 0)
    shares = np.where(found, nmi.max(axis=1) / np.where(found, totals, 1.0), 1 / columns)
    return float((shares.mean() - 1 / columns) / (1 - 1 / columns))
