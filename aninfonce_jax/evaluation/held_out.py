"""Pairs that training does not see: their loss, that of a perfect encoder, how alike they are."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax import rng
from aninfonce_jax.evaluation.findings import Findings
from aninfonce_jax.evaluation.worth import mean_worth, worth_of_factors
from aninfonce_jax.placement import Placement
from aninfonce_jax.scores import intervals, monitors, overlap, registry
from aninfonce_jax.sources.source import Source, as_feed, traced_pairs
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.types import Array, Pairs, PyTree, Weights

_STREAM = "held-out loss"
# Pairs of a batch whose similarities are counted, each with all the others.
_COUNTED = 512


class HeldOutPairs:
    """Pairs of a source that training does not see, the same ones in every evaluation.

    Args:
      experiment: the parts of the run.
      placement: where to compute.
    """

    def __init__(self, experiment: Experiment, placement: Placement) -> None:
        self._experiment = experiment
        self._placement = placement
        self._source: Source | None = experiment.source.held_out(experiment.batch_size)
        self._root = rng.stream(experiment.seed, _STREAM)
        self._scored = self._over_batches(self._score)
        self._embed = jax.jit(self._embedded)
        self._floors: np.ndarray | None = None
        self._worth: np.ndarray | None = None
        self.unreadable: set[str] = set()

    @property
    def exist(self) -> bool:
        """Whether there are any."""
        return self._source is not None

    def losses(self, weights: Weights, *, full: bool) -> Findings:
        """Returns the held-out loss, its floor, and how far positives and negatives overlap.

        All have intervals over batches.
        """
        del full
        if self._source is None or not self._experiment.objective.tells_of_others:
            return Findings({registry.LOSS.key: float("nan")})
        losses, counts = self._scored(weights)
        findings = loss_findings(losses, self._perfect_losses())
        findings.add(overlap_findings(counts))
        return findings

    def collapse(self, weights: Weights, *, full: bool) -> Findings:
        """Returns how far the embeddings of one batch, or of `eval.samples`, have collapsed."""
        if self._source is None:
            return Findings()
        samples = self._experiment.evaluation.samples if full else 1
        count = -(-samples // self._experiment.batch_size)
        # A source that is not fed has as many batches as keys.
        batches = list(self._batches(count)) or [None] * count
        embeddings = np.concatenate(
            [
                self._placement.fetch(self._embed(weights, rng.at_step(self._root, i), fed))
                for i, fed in enumerate(batches)
            ]
        )
        layer = self._experiment.encoder.layers[-1]
        return collapse_findings({layer: embeddings}, layer)

    def worth(self) -> np.ndarray | None:
        """Returns what each factor is worth to an anchor, [dim], in nats, where it is known."""
        self._perfect_losses()
        return self._worth

    def _perfect_losses(self) -> np.ndarray | None:
        """Returns the losses of a perfect encoder, where they are known; computed once."""
        latents, objective = self._experiment.source.known.latents, self._experiment.objective
        if self._floors is None and latents is not None:
            score, floor = latents.score, objective.floor(latents.score)
            # What is learned without negatives needs none to be found.
            contrasts = objective.chance(self._experiment.batch_size) is not None
            if floor is not None:

                def of_batch(_: Weights, pairs: Pairs, key: Array) -> tuple[Array, ...]:
                    del key
                    both = _latents(pairs)
                    if score is None or not contrasts:
                        return (floor(*both),)
                    return floor(*both), worth_of_factors(*both, score)

                self._floors, *worth = self._over_batches(of_batch)(Weights({}, {}))
                if worth and score is not None:
                    self._worth = mean_worth(worth[0], score.concentration)
        return self._floors

    def _score(self, weights: Weights, pairs: Pairs, key: Array) -> tuple[Array, dict[str, Array]]:
        """Returns the loss of a batch, and histograms of its similarities."""
        loss = self._experiment.loss(weights, pairs, key, self._placement)
        views = jax.tree.map(lambda x: x[:_COUNTED], (pairs.view1, pairs.view2))
        embeddings = [
            self._experiment.objective.compared(self._experiment.embed(weights, x)) for x in views
        ]
        counts = {registry.OF_EMBEDDINGS: overlap.count_similarities(*embeddings)}
        if pairs.latents1 is not None and pairs.latents2 is not None:
            latents = [x[:_COUNTED] for x in (pairs.latents1, pairs.latents2)]
            counts[registry.OF_LATENTS] = overlap.count_similarities(*latents)
        return loss, counts

    def _pairs(self, key: Array, fed: PyTree) -> Pairs:
        assert self._source is not None
        pairs: Pairs = self._placement.constrain(
            traced_pairs(self._source, key, fed, self._experiment.batch_size)
        )
        return pairs

    def _embedded(self, weights: Weights, key: Array, fed: PyTree) -> Array:
        embeddings = self._experiment.embed(weights, self._pairs(key, fed).view1)
        return self._experiment.objective.compared(embeddings)

    def _over_batches(
        self, score: Callable[[Weights, Pairs, Array], PyTree]
    ) -> Callable[[Weights], Any]:
        """Returns a function that computes `score` on every batch set aside, [batches, ...]."""
        batches, root = self._experiment.evaluation.held_out_batches, self._root

        def one(weights: Weights, index: Array | int, fed: PyTree) -> PyTree:
            key = rng.at_step(root, index)
            return score(weights, self._pairs(key, fed), key)

        if self._source is not None and self._source.fed(self._experiment.batch_size) is None:
            mapped = jax.jit(
                lambda weights: jax.lax.map(
                    lambda index: one(weights, index, None), jnp.arange(batches)
                )
            )
            return lambda weights: jax.tree.map(_as_float64, self._placement.fetch(mapped(weights)))
        compiled = jax.jit(one)

        def over_fed(weights: Weights) -> Any:
            found = [compiled(weights, i, fed) for i, fed in enumerate(self._batches(batches))]
            return jax.tree.map(
                lambda *own: _as_float64(np.stack(own)), *self._placement.fetch(found)
            )

        return over_fed

    def _batches(self, count: int) -> Iterator[PyTree]:
        assert self._source is not None
        return fed_batches(self._source, self._experiment, self._placement, count, self.unreadable)


def fed_batches(
    source: Source, experiment: Experiment, placement: Placement, count: int, unreadable: set[str]
) -> Iterator[PyTree]:
    """Yields what the source is fed for the first `count` batches, or all if it has fewer.

    Yields nothing for a source that is not fed.

    Args:
      source: of the pairs.
      experiment: says how large a batch is, and by which seed.
      placement: where the batches go.
      count: how many.
      unreadable: takes the names of examples that can't be read.
    """
    if source.fed(experiment.batch_size) is None:
        return
    rows = placement.rows(experiment.batch_size)
    with as_feed(source.open_feed(rows, seed=experiment.seed, step=0)) as feed:
        for fed in itertools.islice(feed, count):
            yield placement.put_rows(fed)
        unreadable.update(feed.unreadable.values())


def _latents(pairs: Pairs) -> tuple[Array, Array]:
    if pairs.latents1 is None or pairs.latents2 is None:
        raise ValueError(
            "a source that knows the true score of its pairs must give their latents: set "
            "latents1 and latents2 of its Pairs, or leave out Latents.score"
        )
    return pairs.latents1, pairs.latents2


def loss_findings(losses: np.ndarray, floors: np.ndarray | None) -> Findings:
    """Returns the held-out loss and that of a perfect encoder, with intervals over batches.

    Args:
      losses: of each batch, [batches].
      floors: of a perfect encoder on the same batches, [batches]; None where it has no form.
    """
    parts = {registry.LOSS.key: losses}
    if floors is not None:
        # Taken batch by batch, the difference varies far less than the two.
        parts |= {registry.LOSS_FLOOR.key: floors, registry.LOSS_ABOVE_FLOOR: losses - floors}
    return Findings(
        {name: float(np.mean(values)) for name, values in parts.items()},
        {name: intervals.mean_interval(values) for name, values in parts.items()},
    )


def _as_float64(x: Any) -> np.ndarray:
    return np.asarray(x, np.float64)


def overlap_findings(counts: Mapping[str, np.ndarray]) -> Findings:
    """Returns how far similarities of positives and negatives overlap, and their histograms.

    Args:
      counts: of each batch, [batches, 2, bins], as `overlap.count_similarities` returns them;
        of the embeddings and, where they are known, of the true latents.
    """
    findings = Findings({registry.SIMILARITIES: {}})
    for name, own in counts.items():
        value, interval = overlap.overlap(own)
        if np.isnan(value):  # of pairs that are not finite, or only one
            continue
        key = registry.OVERLAPS[name].key
        findings.scores[key], findings.intervals[key] = value, interval
        total = own.sum(axis=0)
        shares = total / total.sum(axis=1, keepdims=True)
        findings.scores[registry.SIMILARITIES][name] = shares.tolist()
    return findings


def collapse_findings(by_layer: dict[str, np.ndarray], embedding: str) -> Findings:
    """Returns how many directions each layer uses, and how far each embedding spreads.

    Args:
      by_layer: features [n, dim] of each layer.
      embedding: the layer that the objective compares.
    """
    found = {layer: monitors.collapse_scores(features) for layer, features in by_layer.items()}
    own = found[embedding]

    def rank(layer: str) -> str:
        return registry.effective_rank(layer).key

    return Findings(
        {
            **{rank(layer): x["effective_rank"] for layer, x in found.items()},
            registry.SPREAD_MIN.key: own["spread_min"],
            registry.SPREAD_MEDIAN.key: own["spread_median"],
            registry.SPREAD: own["spread"].tolist(),
        },
        {rank(layer): x["effective_rank_interval"] for layer, x in found.items()},
        by_layer[embedding],
    )
