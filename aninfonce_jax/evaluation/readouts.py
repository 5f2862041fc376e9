"""What an encoder of pictures kept: classes, and what the augmentations did.

Cheap scores watch a run as it goes. At its two ends come the readouts of the paper's Table 1:
linear probes on frozen features, before and after the projector.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from aninfonce_jax import rng
from aninfonce_jax.config_schema import ConfigError
from aninfonce_jax.data.images import ImagePairs, choose
from aninfonce_jax.data.pipeline import ImageBatch
from aninfonce_jax.data.prefetch import Prefetch, to_devices
from aninfonce_jax.data.source import ImageSource
from aninfonce_jax.evaluation import health, intervals, interventions, monitors, probes
from aninfonce_jax.evaluation.table import AVERAGED, FEATURES
from aninfonce_jax.mesh import batch_sharding, shard_batch
from aninfonce_jax.training import loop
from aninfonce_jax.training.objective import Contrastive
from aninfonce_jax.training.state import Experiment
from aninfonce_jax.types import Array, Weights

# Of the pictures that a readout learns from, the share that chooses its penalty.
_VALIDATION_SHARE = 0.2

# One array [n, features] for each of FEATURES.
Features = dict[str, np.ndarray]


def make_image_evaluate(experiment: Experiment, mesh: Mesh) -> loop.Evaluate:
    """Returns a function from weights to scores on held-out pictures.

    Which pictures, and what is done to them, is drawn once, so that scores along a run
    differ by the weights alone.

    Args:
      experiment: the parts of a run on pictures.
      mesh: where to compute.
    """
    reader = _Reader(experiment, mesh)
    config, source = experiment.config, reader.source

    def evaluate(weights: Weights, *, full: bool) -> dict[str, Any]:
        try:
            return scores_of(weights, full)
        except probes.MissingClassError as error:
            raise ConfigError(
                f"eval.train_images={config.eval.train_images} is too few for a class readout: "
                f"{error}; raise it, or set it to 0 for all"
            ) from error

    def scores_of(weights: Weights, full: bool) -> dict[str, Any]:
        train, train_labels = reader.read(weights, reader.train)
        test, test_labels = reader.read(weights, reader.test)
        bank = {layer: probes.Labelled(train[layer], train_labels) for layer in FEATURES}
        queries = {layer: probes.Labelled(test[layer], test_labels) for layer in FEATURES}
        losses = reader.held_out_losses(weights)
        scores: dict[str, Any] = {"loss": float(np.mean(losses)) if losses else math.nan}
        found: dict[str, Any] = {"loss": intervals.mean_interval(losses)}
        collapse = {layer: monitors.collapse_scores(test[layer]) for layer in FEATURES}
        scores |= _collapse_scores(collapse)
        found |= {
            f"effective_rank_{layer}": own["effective_rank_interval"]
            for layer, own in collapse.items()
        }
        learned = experiment.objective.concentration(weights.params["objective"])
        if learned is not None:
            scores["concentration"] = np.sort(np.asarray(learned))[::-1].tolist()
        classes = {}
        if source.classes > 1:
            layers = FEATURES if full else ("backbone",)
            classes = {
                layer: probes.class_accuracy(
                    *_split(bank[layer]), queries[layer], source.classes
                ).accuracy
                for layer in layers
            }
            class_intervals = {
                layer: intervals.wilson(accuracy, intervals.effective_examples(test_labels))
                for layer, accuracy in classes.items()
            }
            scores |= {
                "chance": 1 / source.classes,
                "probe_accuracy": classes["backbone"],
                "knn_accuracy": monitors.knn_accuracy(
                    bank["backbone"],
                    queries["backbone"],
                    classes=source.classes,
                    neighbours=config.eval.neighbours,
                ),
            }
            found |= {
                "probe_accuracy": class_intervals["backbone"],
                "knn_accuracy": intervals.wilson(scores["knn_accuracy"], len(test_labels)),
            }
        if full:
            more, more_intervals = _augmentation_readouts(reader, weights)
            for layer in classes:
                more["readouts"][layer]["classes"] = classes[layer]
                more_intervals["readouts"][layer]["classes"] = class_intervals[layer]
            scores |= more
            found |= more_intervals
        problems = health.find_problems(config, test["projector"], loss=scores["loss"])
        return {
            **scores,
            "intervals": found,
            "unreadable_images": reader.unreadable,
            "warnings": problems,
        }

    return evaluate


class _Reader:
    """Encodes pictures, as they are or with one augmentation applied to them."""

    def __init__(self, experiment: Experiment, mesh: Mesh) -> None:
        assert isinstance(experiment.source, ImagePairs)
        config, source = experiment.config, experiment.source
        self.config, self.source = config, source
        self.train = choose(source.train, config.eval.train_images, config.seed)
        self.test = choose(source.test, config.eval.test_images, config.seed)
        self._experiment = experiment
        self._mesh = mesh
        # Every device gets as many rows as any other.
        self._batch_size = -(-config.eval.batch_size // mesh.size) * mesh.size
        self._key = rng.stream(config.seed, "readouts")
        # Views are made in calls of their own, so that the encoder is compiled only once.
        self._plain_views = jax.jit(source.plain_views)
        self._intervene = jax.jit(self._views_with, static_argnames=("readout", "strength"))
        self._encode = jax.jit(self._encode_layers)
        self._loss = jax.jit(self._pair_loss)
        self._unreadable: set[str] = set()

    def read(self, weights: Weights, pictures: ImageSource) -> tuple[Features, np.ndarray]:
        """Returns the features of pictures without augmentation, and their labels."""
        parts, labels = [], []
        for batch in self._batches(pictures):
            keep = np.asarray(batch.mask)
            parts.append(_rows(self._encode(weights, self._plain_views(batch.image)), keep))
            labels.append(np.asarray(batch.label)[keep])
        return _joined(parts), np.concatenate(labels)

    def read_with(
        self, weights: Weights, pictures: ImageSource, readout: str, strength: str
    ) -> tuple[Features, np.ndarray]:
        """Returns features with an augmentation applied, and how strong it was, [n]."""
        parts, strengths = [], []
        for shown, keep in self._shown(pictures, readout, strength):
            parts.append(_rows(self._encode(weights, shown.applied), keep))
            strengths.append(np.asarray(shown.strengths)[keep])
        return _joined(parts), np.concatenate(strengths)

    def read_without(self, weights: Weights, pictures: ImageSource, readout: str) -> Features:
        """Returns features of the same pictures with that augmentation alone left out."""
        if self.config.eval.readout_context == "clean":
            # The same for every readout.
            return self.read(weights, pictures)[0]
        shown = self._shown(pictures, readout, self.config.eval.readout_strength)
        return _joined([_rows(self._encode(weights, s.without), keep) for s, keep in shown])

    def _shown(
        self, pictures: ImageSource, readout: str, strength: str
    ) -> Iterator[tuple[interventions.Intervention, np.ndarray]]:
        for number, batch in enumerate(self._batches(pictures)):
            key = jax.random.fold_in(self._key, number)
            shown = self._intervene(key, batch.image, readout=readout, strength=strength)
            yield shown, np.asarray(batch.mask)

    def held_out_losses(self, weights: Weights) -> list[float]:
        """Returns the loss of batches of test pictures; none if they fill none."""
        config = self.config
        batch_size = config.train.batch_size
        if len(self.source.test) < batch_size:
            return []
        root = rng.stream(config.seed, "held-out loss")
        held_out = dataclasses.replace(self.source, train=self.source.test)
        losses = []
        with held_out.training_batches(batch_size, seed=config.seed) as batches:
            put = to_devices(batch_sharding(self._mesh))
            for number in range(config.eval.floor_batches):
                batch = put(next(batches))
                losses.append(self._loss(weights, rng.at_step(root, number), batch))
            self._unreadable.update(batches.unreadable.values())
        return [float(loss) for loss in losses]

    @property
    def unreadable(self) -> int:
        """How many pictures had to be left out so far."""
        return len(self._unreadable)

    def _batches(self, pictures: ImageSource) -> Iterator[ImageBatch]:
        with (
            self.source.evaluation_batches(pictures, self._batch_size) as batches,
            Prefetch(batches, to_devices(batch_sharding(self._mesh))) as ready,
        ):
            yield from ready
            self._unreadable.update(batches.unreadable.values())

    def _views_with(
        self, key: Array, images: Array, *, readout: str, strength: Any
    ) -> interventions.Intervention:
        context = self.config.eval.readout_context
        return interventions.intervene(
            key, images, self.source.spec, readout, strength=strength, context=context
        )

    def _encode_layers(self, weights: Weights, views: Array) -> dict[str, Array]:
        features, embeddings = self._experiment.encode_layers(weights, views)
        objective = self._experiment.objective
        if isinstance(objective, Contrastive) and objective.normalize:
            # As the loss sees them: their length means nothing to it.
            embeddings /= jnp.maximum(jnp.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)
        return dict(zip(FEATURES, (features, embeddings), strict=True))

    def _pair_loss(self, weights: Weights, key: Array, batch: ImageBatch) -> Array:
        pairs = shard_batch(self._mesh, self._experiment.pairs(key, batch))
        return self._experiment.loss(weights, pairs, self._mesh)


def _augmentation_readouts(
    reader: _Reader, weights: Weights
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns Table 1's row of each layer without classes, how well strengths can be read, and
    the intervals of both.
    """
    config = reader.config
    train = choose(reader.train, config.eval.readout_images, config.seed)
    test = choose(reader.test, config.eval.readout_images, config.seed)
    # By layer and readout: of each test picture the share of its two views told correctly.
    correct: dict[str, dict[str, np.ndarray]] = {layer: {} for layer in FEATURES}
    strengths: dict[str, dict[str, probes.RegressionProbe]] = {layer: {} for layer in FEATURES}

    chosen = config.eval.readout_strength
    without: list[Features] = []
    for readout in interventions.READOUTS:
        if not without or config.eval.readout_context == "augmented":
            without = [reader.read_without(weights, part, readout) for part in (train, test)]
        applied = [reader.read_with(weights, part, readout, chosen) for part in (train, test)]
        for layer in FEATURES:
            correct[layer][readout] = _told_correctly(
                [features[layer] for features in without],
                [features[layer] for features, _ in applied],
            )
        if not interventions.has_strength(readout):
            continue
        if chosen != "drawn":
            applied = [reader.read_with(weights, part, readout, "drawn") for part in (train, test)]
        for layer in FEATURES:
            learn, score = (probes.Labelled(features[layer], drawn) for features, drawn in applied)
            strengths[layer][readout] = probes.strength_r2(*_split(learn), score)
    for row in correct.values():
        row["average"] = np.mean([row[name] for name in AVERAGED], axis=0)
    spec = reader.source.spec
    scores = {
        "readouts": _nested(correct, lambda shares: float(shares.mean())),
        "strength_r2": _nested(strengths, lambda probe: probe.r2),
        "never_applied": [
            name for name in interventions.READOUTS if not interventions.occurs(spec, name)
        ],
    }
    return scores, {
        "readouts": _nested(correct, intervals.clustered_accuracy),
        "strength_r2": _nested(strengths, lambda probe: probe.interval),
    }


def _nested(values: dict[str, dict[str, Any]], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Returns what `change` makes of every value, by layer and readout."""
    return {
        layer: {name: change(value) for name, value in own.items()} for layer, own in values.items()
    }


def _told_correctly(without: list[np.ndarray], applied: list[np.ndarray]) -> np.ndarray:
    """Returns for each picture how many of its two views a probe tells correctly, as a share.

    Args:
      without: features of the pictures to learn from and of those to be tested on.
      applied: the same with the augmentation.
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


def _collapse_scores(by_layer: dict[str, monitors.CollapseScores]) -> dict[str, Any]:
    projector = by_layer["projector"]
    return {
        **{f"effective_rank_{layer}": own["effective_rank"] for layer, own in by_layer.items()},
        "spread_min": projector["spread_min"],
        "spread_median": projector["spread_median"],
        "spread": projector["spread"].tolist(),
    }


def _cut(count: int) -> tuple[slice, slice]:
    """Returns the rows that fit a probe, and those that choose its penalty."""
    first = count - max(1, round(_VALIDATION_SHARE * count))
    return slice(0, first), slice(first, None)


def _rows(features: dict[str, Array], keep: np.ndarray) -> Features:
    return {layer: np.asarray(values)[keep] for layer, values in features.items()}


def _joined(parts: list[Features]) -> Features:
    return {layer: np.concatenate([part[layer] for part in parts]) for layer in FEATURES}
