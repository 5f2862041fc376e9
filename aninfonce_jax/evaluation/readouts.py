"""What can be read off features of known examples: their classes, and what was done to them.

Cheap scores watch a run as it goes. At its two ends come the readouts of the paper's Table 1:
linear probes on frozen features, of every layer that the encoder shows.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from aninfonce_jax import rng
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.data.prefetch import Prefetch
from aninfonce_jax.evaluation.findings import Findings
from aninfonce_jax.evaluation.held_out import collapse_findings
from aninfonce_jax.evaluation.recovery import nonlinear_findings, recovery_findings
from aninfonce_jax.placement import Placement
from aninfonce_jax.scores import intervals, monitors, probes, registry
from aninfonce_jax.sources.source import Examples, ExampleSet, Interventions
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.types import Array, Intervention, Weights

# The share of a readout's training examples that chooses its penalty.
_VALIDATION_SHARE = 0.2

# One array [n, features] for each layer.
Features = dict[str, np.ndarray]


class Readouts:
    """Readouts of an encoder's layers on examples that are chosen once.

    Which examples, and what is done to them, is drawn once, so that scores along a run differ
    by the weights alone.

    Args:
      experiment: the parts of the run.
      placement: where to compute.
      examples: what is known of.
      interventions: what can be done to them; None: nothing.
    """

    def __init__(
        self,
        experiment: Experiment,
        placement: Placement,
        examples: Examples,
        interventions: Interventions | None,
    ) -> None:
        self._settings = experiment.evaluation
        self._layers = experiment.encoder.layers
        self._classes = examples.classes
        self._interventions = interventions
        self._reader = _Reader(experiment, placement, examples, interventions)
        self._seed = experiment.seed
        self._train = examples.train.choose(self._settings.train_examples, experiment.seed)
        self._test = examples.test.choose(self._settings.test_examples, experiment.seed)
        # What is known of how the examples were made, [examples, factors].
        self._factors = None
        if examples.factors is not None:
            self._factors = np.asarray(examples.factors(self._test), np.float64)

    @property
    def unreadable(self) -> set[str]:
        """Examples that had to be left out so far, and why."""
        return self._reader.unreadable

    def __call__(self, weights: Weights, *, full: bool) -> Findings:
        """Returns collapse scores, class readouts and, if `full`, those of interventions.

        Raises:
          ConfigError: a class has no example to learn from.
        """
        train, train_labels, _ = self._reader.read(weights, self._train)
        test, test_labels, kept = self._reader.read(weights, self._test)
        findings = collapse_findings(test, self._layers[-1])
        if self._factors is not None:
            features = test[self._layers[-1]].astype(np.float64)
            findings.add(recovery_findings(self._factors[kept], features, None))
            if full:
                findings.add(nonlinear_findings(self._factors[kept], features))
        classes = Findings()
        if self._classes > 1:
            bank = {x: probes.Labelled(train[x], train_labels) for x in self._layers}
            queries = {x: probes.Labelled(test[x], test_labels) for x in self._layers}
            layers = self._layers if full else self._layers[:1]
            classes = self._class_readouts(bank, queries, layers)
            findings.add(self._watched(classes, bank, queries))
        if full and self._interventions is not None:
            findings.add(self._intervention_readouts(weights, classes, self._interventions))
        elif full and self._classes > 1:
            findings.add(
                Findings(
                    {registry.READOUTS: _each(classes.scores, lambda x: {registry.CLASSES: x})},
                    {registry.READOUTS: _each(classes.intervals, lambda x: {registry.CLASSES: x})},
                )
            )
        return findings

    def _class_readouts(
        self,
        bank: dict[str, probes.Labelled],
        queries: dict[str, probes.Labelled],
        layers: tuple[str, ...],
    ) -> Findings:
        """Returns the accuracy of a linear probe on each of some layers, by layer."""
        try:
            accuracies = {
                layer: probes.class_accuracy(
                    *_split(bank[layer]), queries[layer], self._classes
                ).accuracy
                for layer in layers
            }
        except probes.MissingClassError as error:
            raise ConfigError(
                f"eval.train_examples={self._settings.train_examples} is too few for a class "
                f"readout: {error}; raise it, or set it to 0 for all"
            ) from error
        examples = intervals.effective_examples(queries[layers[0]].labels)
        return Findings(
            dict(accuracies), _each(accuracies, lambda share: intervals.wilson(share, examples))
        )

    def _watched(
        self,
        classes: Findings,
        bank: dict[str, probes.Labelled],
        queries: dict[str, probes.Labelled],
    ) -> Findings:
        """Returns what every evaluation says of the classes, by the first layer.

        Where the last layer was read out as well, its scores are returned too.
        """
        first, last = self._layers[0], self._layers[-1]
        nearest = monitors.knn_accuracy(
            bank[first],
            queries[first],
            classes=self._classes,
            neighbours=self._settings.neighbours,
        )
        count = len(np.asarray(queries[first].labels))
        findings = Findings(
            {
                registry.CHANCE: 1 / self._classes,
                registry.PROBE_ACCURACY.key: classes.scores[first],
                registry.KNN_ACCURACY.key: nearest,
            },
            {
                registry.PROBE_ACCURACY.key: classes.intervals[first],
                registry.KNN_ACCURACY.key: intervals.wilson(nearest, count),
            },
        )
        if last in classes.scores:
            key = registry.PROBE_ACCURACY_LAST.key
            findings.scores[key] = classes.scores[last]
            findings.intervals[key] = classes.intervals[last]
        return findings

    def _intervention_readouts(
        self, weights: Weights, classes: Findings, interventions: Interventions
    ) -> Findings:
        """Returns Table 1's row of each layer, and how well strengths can be read."""
        chosen = self._settings.readout_strength
        parts = [
            part.choose(self._settings.readout_examples, self._seed)
            for part in (self._train, self._test)
        ]
        reader, layers = self._reader, self._layers
        # By layer and readout: for each test example, the share of its two views told correctly.
        correct: dict[str, dict[str, np.ndarray]] = {layer: {} for layer in layers}
        strengths: dict[str, dict[str, probes.RegressionProbe]] = {layer: {} for layer in layers}
        without: list[Features] = []
        for name in interventions.names:
            if not without or self._settings.readout_context == "augmented":
                without = [reader.read_without(weights, part, name) for part in parts]
            applied = [reader.read_with(weights, part, name, chosen) for part in parts]
            for layer in layers:
                correct[layer][name] = _told_correctly(
                    [features[layer] for features in without],
                    [features[layer] for features, _ in applied],
                )
            if not interventions.has_strength(name):
                continue
            if chosen != "drawn":
                applied = [reader.read_with(weights, part, name, "drawn") for part in parts]
            for layer in layers:
                learn, score = (probes.Labelled(x[layer], drawn) for x, drawn in applied)
                strengths[layer][name] = probes.strength_r2(*_split(learn), score)
        for row in correct.values():
            row[registry.AVERAGE] = np.mean([row[name] for name in interventions.averaged], axis=0)
        findings = Findings(
            {
                registry.READOUTS: _nested(correct, lambda shares: float(shares.mean())),
                registry.STRENGTHS: _nested(strengths, lambda probe: probe.r2),
                registry.NEVER_APPLIED: [
                    x for x in interventions.names if not interventions.occurs(x)
                ],
            },
            {
                registry.READOUTS: _nested(correct, intervals.clustered_accuracy),
                registry.STRENGTHS: _nested(strengths, lambda probe: probe.interval),
            },
        )
        for watched, layer in (
            (registry.OPERATION_ACCURACY, layers[0]),
            (registry.OPERATION_ACCURACY_LAST, layers[-1]),
        ):
            for found in (findings.scores, findings.intervals):
                found[watched.key] = found[registry.READOUTS][layer][registry.AVERAGE]
        for layer in classes.scores:
            findings.scores[registry.READOUTS][layer][registry.CLASSES] = classes.scores[layer]
            own = findings.intervals[registry.READOUTS][layer]
            own[registry.CLASSES] = classes.intervals[layer]
        return findings


class _Reader:
    """Encodes examples, as they are or with one intervention applied to them."""

    def __init__(
        self,
        experiment: Experiment,
        placement: Placement,
        examples: Examples,
        interventions: Interventions | None,
    ) -> None:
        self.unreadable: set[str] = set()
        self._experiment = experiment
        self._placement = placement
        self._interventions = interventions
        settings = experiment.evaluation
        self._context, self._strength = settings.readout_context, settings.readout_strength
        # Every device gets as many rows as any other.
        self._batch_size = -(-settings.batch_size // placement.size) * placement.size
        self._key = rng.stream(experiment.seed, "readouts")
        # Views are made in calls of their own, so that the encoder is compiled only once.
        self._observe = jax.jit(examples.observe)
        self._intervene = jax.jit(self._views_with, static_argnames=("name", "strength"))
        self._encode = jax.jit(self._encode_layers)

    def read(
        self, weights: Weights, examples: ExampleSet
    ) -> tuple[Features, np.ndarray, np.ndarray]:
        """Returns the features of examples as they are, their labels, and which could be read."""
        parts, labels, kept = [], [], []
        for number, batch in enumerate(self._batches(examples)):
            keep, own = self._placement.fetch((batch.mask, batch.label))
            parts.append(self._rows(self._encode(weights, self._observe(batch)), keep))
            labels.append(own[keep])
            kept.append(number * len(keep) + np.flatnonzero(keep))
        return _joined(parts), np.concatenate(labels), np.concatenate(kept)

    def read_with(
        self, weights: Weights, examples: ExampleSet, name: str, strength: str
    ) -> tuple[Features, np.ndarray]:
        """Returns features with an intervention applied, and how strong it was, [n]."""
        parts, strengths = [], []
        for shown, keep in self._shown(examples, name, strength):
            parts.append(self._rows(self._encode(weights, shown.applied), keep))
            strengths.append(self._placement.fetch(shown.strengths)[keep])
        return _joined(parts), np.concatenate(strengths)

    def read_without(self, weights: Weights, examples: ExampleSet, name: str) -> Features:
        """Returns features of the same examples with that intervention alone left out."""
        if self._context == "clean":
            # The same for every readout.
            return self.read(weights, examples)[0]
        shown = self._shown(examples, name, self._strength)
        return _joined([self._rows(self._encode(weights, s.without), keep) for s, keep in shown])

    def _shown(
        self, examples: ExampleSet, name: str, strength: str
    ) -> Iterator[tuple[Intervention, np.ndarray]]:
        for number, batch in enumerate(self._batches(examples)):
            key = jax.random.fold_in(self._key, number)
            shown = self._intervene(key, batch, name=name, strength=strength)
            yield shown, self._placement.fetch(batch.mask)

    def _batches(self, examples: ExampleSet) -> Iterator[Any]:
        with (
            examples.batches(self._placement.rows(self._batch_size)) as batches,
            Prefetch(batches, self._placement.put_rows) as ready,
        ):
            for batch in ready:
                self._placement.peers.at("evaluating: reading examples")
                yield batch
            self.unreadable.update(batches.unreadable.values())

    def _views_with(self, key: Array, batch: Any, *, name: str, strength: str) -> Intervention:
        assert self._interventions is not None
        return self._interventions.intervene(
            key, batch, name, strength=strength, context=self._context
        )

    def _rows(self, features: dict[str, Array], keep: np.ndarray) -> Features:
        fetched = self._placement.fetch(features)
        return {layer: values[keep] for layer, values in fetched.items()}

    def _encode_layers(self, weights: Weights, views: Array) -> dict[str, Array]:
        layers = dict(self._experiment.layers(weights, views))
        last = self._experiment.encoder.layers[-1]
        layers[last] = self._experiment.objective.compared(layers[last])
        return layers


def _each(values: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: change(value) for name, value in values.items()}


def _nested(values: dict[str, dict[str, Any]], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Returns what `change` makes of every value, by layer and readout."""
    return {layer: _each(own, change) for layer, own in values.items()}


def _told_correctly(without: list[np.ndarray], applied: list[np.ndarray]) -> np.ndarray:
    """Returns for each example how many of its two views a probe tells correctly, as a share.

    Args:
      without: features of the examples to learn from and of those to be tested on.
      applied: the same with the intervention.
    """

    def both(part: int, rows: slice) -> probes.Labelled:
        features = [without[part][rows], applied[part][rows]]
        return probes.Labelled(np.concatenate(features), np.repeat([0, 1], len(features[0])))

    fit, validation = _cut(len(without[0]))
    probe = probes.binary_accuracy(both(0, fit), both(0, validation), both(1, slice(None)))
    return probe.correct.reshape(2, -1).mean(axis=0)


def _split(train: probes.Labelled) -> tuple[probes.Labelled, probes.Labelled]:
    """Returns what fits a probe, and what chooses its penalty."""
    features, labels = np.asarray(train.features), np.asarray(train.labels)
    fit, validation = (
        probes.Labelled(features[rows], labels[rows]) for rows in _cut(len(features))
    )
    return fit, validation


def _cut(count: int) -> tuple[slice, slice]:
    """Returns the rows that fit a probe, and those that choose its penalty."""
    first = count - max(1, round(_VALIDATION_SHARE * count))
    return slice(0, first), slice(first, None)


def _joined(parts: list[Features]) -> Features:
    return {layer: np.concatenate([part[layer] for part in parts]) for layer in parts[0]}
