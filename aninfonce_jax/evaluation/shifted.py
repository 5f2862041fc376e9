"""What an encoder recovers of anchors that are distributed in another way than in training."""

import jax
import numpy as np

from aninfonce_jax import rng
from aninfonce_jax.diagnosis import shift
from aninfonce_jax.evaluation.findings import Findings, Part
from aninfonce_jax.placement import Placement
from aninfonce_jax.scores import identifiability, intervals, registry
from aninfonce_jax.sources.source import Latents
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.types import Array, Weights

_STREAM = "shifted evaluation"


def make_shifted(experiment: Experiment, placement: Placement, known: Latents) -> Part:
    """Returns the part of an evaluation on anchors that are distributed in another way.

    Their R² is computed like that of anchors as in training: a linear map is fitted to one half and
    scored on the other. Beside it stands how well a classifier tells observations of the two kinds
    of anchors apart. No encoder changes that, so it is computed once.
    """
    assert known.draw_shifted is not None
    samples = experiment.evaluation.samples
    usual_key, key = jax.random.split(rng.stream(experiment.seed, _STREAM))
    latents, observations = jax.jit(known.draw_shifted, static_argnums=1)(key, samples)
    _, usual = jax.jit(known.draw, static_argnums=1)(usual_key, samples)
    true_latents = np.asarray(latents, np.float64)
    accuracy, count = shift.tell_apart(_as_rows(usual), _as_rows(observations))
    told = Findings(
        {registry.SHIFT_ACCURACY.key: accuracy},
        {registry.SHIFT_ACCURACY.key: intervals.wilson(accuracy, count)},
    )
    embed = jax.jit(experiment.embed)

    def recover(weights: Weights, *, full: bool) -> Findings:
        del full
        features = np.asarray(placement.fetch(embed(weights, observations)), np.float64)
        r2 = identifiability.linear_r2_per_factor(true_latents, features).mean()
        readout = identifiability.linear_readout(true_latents, features)
        (interval,) = intervals.r2_intervals(*readout, np.ones((1, true_latents.shape[1])))
        key = registry.R2_SHIFTED.key
        findings = Findings({key: float(r2)}, {key: interval})
        findings.add(told)
        return findings

    return recover


def _as_rows(observations: Array) -> np.ndarray:
    return np.asarray(observations, np.float64).reshape(len(observations), -1)
