"""Every score against known factors at once, with what each is worth here."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from aninfonce_jax.scores import intervals
from aninfonce_jax.scores.dci import dci
from aninfonce_jax.scores.disentanglement import infomec, mig, sap
from aninfonce_jax.scores.estimates import (
    DRAWS,
    Estimate,
    axis_warnings,
    checked_samples,
    factor_warnings,
)
from aninfonce_jax.scores.explicitness import explicitness
from aninfonce_jax.scores.identifiability import linear_r2, linear_readout, mcc_with_interval


@dataclasses.dataclass(frozen=True)
class FactorScores:
    """Scores in a fixed order; `print` shows them as a table with their warnings.

    Attributes:
      estimates: every score.
    """

    estimates: tuple[Estimate, ...]

    def __getitem__(self, name: str) -> Estimate:
        """Returns a score by its name."""
        for estimate in self.estimates:
            if estimate.name == name:
                return estimate
        raise KeyError(f"no score {name!r}; there are {', '.join(e.name for e in self.estimates)}")

    def __str__(self) -> str:
        width = max(len(estimate.name) for estimate in self.estimates)
        noted: list[str] = []
        lines = []
        for estimate in self.estimates:
            marks = []
            for warning in estimate.warnings:
                if warning not in noted:
                    noted.append(warning)
                marks.append(f"[{noted.index(warning) + 1}]")
            ends = "" if estimate.interval is None else "{:.3f} … {:.3f}".format(*estimate.interval)
            line = f"{estimate.name:<{width}}  {estimate.value:6.3f}  {ends:<17}{' '.join(marks)}"
            lines.append(line.rstrip())
        return "\n".join([*lines, *(f"[{i}] {text}" for i, text in enumerate(noted, 1))])

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as JSON holds it, by the names of the scores."""
        return {estimate.name: estimate.to_dict() for estimate in self.estimates}


def factor_scores(
    latents: npt.ArrayLike,
    features: npt.ArrayLike,
    *,
    concentration: npt.ArrayLike | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> FactorScores:
    """Returns R², MCC, nonlinear readouts, DCI, MIG, SAP and InfoMEC of embeddings.

    Each has its assumptions in its own docstring, and a warning where they do not hold: under
    repeated Λ, for one, MCC and all scores of axes may be low for a perfect encoder.

    Args:
      latents: [samples, dim].
      features: [samples, feature_dim].
      concentration: the true Λ, [dim], if it is known: for the warning about repeats.
      draws: of the bootstraps; 0 for no intervals by them.
      seed: of the draws and halves.

    Raises:
      ValueError: shapes that do not fit, values that are not finite, or too few samples.

    Example:
      >>> latents = np.random.default_rng(0).normal(size=(200, 2))
      >>> scores = an.factor_scores(latents, 2 * latents, concentration=[25.0, 5.0], draws=0)
      >>> str(scores).splitlines()[0]
      'R²                            1.000  1.000 … 1.000'
    """
    z, h = checked_samples(latents, features)
    targets, predictions = linear_readout(z, h, seed=seed)
    (interval,) = intervals.r2_intervals(targets, predictions, np.ones((1, z.shape[1])))
    r2 = Estimate("R²", linear_r2(z, h, seed=seed), interval, None, tuple(factor_warnings(z)))
    aligned = tuple(axis_warnings(z, h.shape[1], concentration))
    correlations = [
        Estimate(f"MCC ({method})", *mcc_with_interval(z, h, method), None, aligned)
        for method in ("pearson", "spearman")
    ]
    given: dict[str, Any] = {"concentration": concentration, "draws": draws, "seed": seed}
    by_trees, by_lasso = (dci(z, h, readout=readout, **given) for readout in ("trees", "lasso"))
    information = infomec(z, h, **given)
    return FactorScores(
        (
            r2,
            *correlations,
            explicitness(z, h, readout="kernel", seed=seed),
            *(
                score
                for found in (by_trees, by_lasso)
                for score in (found.disentanglement, found.completeness, found.informativeness)
            ),
            mig(z, h, **given),
            sap(z, h, **given),
            information.modularity,
            information.compactness,
            information.explicitness,
        )
    )
