"""What augmentations make of single examples: the conditional that they induce."""

from typing import Any

import jax
import numpy as np

from aninfonce_jax import rng
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.diagnosis.findings import LEVEL, histogram
from aninfonce_jax.diagnosis.view_shapes import ViewShapes, view_shapes
from aninfonce_jax.evaluation.findings import Findings
from aninfonce_jax.placement import Placement
from aninfonce_jax.scores import intervals, registry
from aninfonce_jax.sources.source import Examples
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.types import Array, Weights

_STREAM = "views"
_EXAMPLES = 64
# How many outputs, and which quantiles over examples, figures show.
_SHOWN = 12
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class Views:
    """How the views of one example are spread, of some test examples, at the ends of a run.

    Args:
      experiment: the parts of the run; its evaluation says how many views.
      placement: where to compute.
      examples: what is known of.

    Raises:
      ConfigError: the source does not tell how it makes views.
    """

    def __init__(self, experiment: Experiment, placement: Placement, examples: Examples) -> None:
        if examples.views is None:
            raise ConfigError(
                f"eval.views={experiment.evaluation.views} has no use: {experiment.source.name} "
                "does not augment examples; leave it out"
            )
        make_views = examples.views
        self._placement = placement
        self._chosen = examples.test.choose(_EXAMPLES, experiment.seed)
        self._keys = jax.random.split(
            rng.stream(experiment.seed, _STREAM), experiment.evaluation.views
        )
        self.unreadable: set[str] = set()

        @jax.jit
        def encode(weights: Weights, batch: Any, key: Array) -> Array:
            embeddings = experiment.embed(weights, make_views(key, batch))
            return experiment.objective.compared(embeddings)

        self._encode = encode

    def __call__(self, weights: Weights, *, full: bool) -> Findings:
        """Returns the shapes of the conditional, if `full`."""
        if not full:
            return Findings()
        views = self._embed(weights)
        shapes = view_shapes(views)
        found = Findings({registry.VIEWS: _details(views, shapes)})
        for score, values in (
            (registry.VIEWS_WIDTH, shapes.widths),
            (registry.VIEWS_SKEWNESS, np.abs(shapes.skewness)),
            (registry.VIEWS_KURTOSIS, shapes.kurtosis),
        ):
            found.scores[score.key] = float(values.mean())
            # The outputs of one example are not independent of each other.
            found.intervals[score.key] = intervals.mean_interval(values.mean(axis=1))
        for score, p_values in (
            (registry.VIEWS_NOT_NORMAL, shapes.normal),
            (registry.VIEWS_MANY_MODES, shapes.one_mode),
        ):
            refuted = (p_values < LEVEL).mean(axis=1)
            found.scores[score.key] = float(refuted.mean())
            found.intervals[score.key] = intervals.clustered_accuracy(refuted)
        found.scores[registry.VIEWS_WIDTH_RATIO.key] = float(np.median(shapes.width_ratios))
        return found

    def _embed(self, weights: Weights) -> np.ndarray:
        """Returns embeddings of views, [examples, views, dim]."""
        size = -(-len(self._chosen) // self._placement.size) * self._placement.size
        found = []
        with self._chosen.batches(self._placement.rows(size)) as batches:
            for batch in batches:
                rows = self._placement.put_rows(batch)
                self._placement.peers.at("evaluating: views of one example")
                each = [self._encode(weights, rows, key) for key in self._keys]
                embeddings = np.stack(self._placement.fetch(each), axis=1)
                found.append(embeddings[self._placement.fetch(rows.mask)])
            self.unreadable.update(batches.unreadable.values())
        return np.concatenate(found).astype(np.float64)


def _details(views: np.ndarray, shapes: ViewShapes) -> dict[str, Any]:
    """Returns what figures show: the views of the first example, and of all by output."""
    first = views[0]
    return {
        "examples": len(views),
        "per_example": len(first),
        "widths": np.quantile(shapes.widths, _QUANTILES, axis=0).T.tolist(),
        "not_normal": (shapes.normal < LEVEL).mean(axis=0).tolist(),
        "many_modes": (shapes.one_mode < LEVEL).mean(axis=0).tolist(),
        "first": [
            {
                **histogram(first[:, k]),
                "mean": float(first[:, k].mean()),
                "deviation": float(first[:, k].std()),
                "skewness": float(shapes.skewness[0, k]),
                "one_mode": float(shapes.one_mode[0, k]),
            }
            for k in range(min(first.shape[1], _SHOWN))
        ],
    }
