"""What an encoder of pictures kept: classes, and what the augmentations did.

Cheap scores watch a run as it goes. At its two ends come the readouts of the paper's Table 1:
linear probes on frozen features, before and after the projector.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from aninfonce_jax import rng
from aninfonce_jax.data.images import ImagePairs, choose
from aninfonce_jax.data.pipeline import ImageBatch
from aninfonce_jax.data.prefetch import Prefetch, to_devices
from aninfonce_jax.data.source import ImageSource
from aninfonce_jax.evaluation import interventions, monitors, probes
from aninfonce_jax.evaluation.table import AVERAGED
from aninfonce_jax.mesh import batch_sharding, shard_batch
from aninfonce_jax.training import loop
from aninfonce_jax.training.objective import Contrastive, join_views, split_views
from aninfonce_jax.training.state import Experiment
from aninfonce_jax.types import Array, Weights

LAYERS = ("backbone", "projector")
# Of the pictures that a readout learns from, the share that chooses its penalty.
_VALIDATION_SHARE = 0.2

# One array [n, features] for each of LAYERS.
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
        train, train_labels = reader.read(weights, reader.train)
        test, test_labels = reader.read(weights, reader.test)
        scores: dict[str, Any] = {"loss": reader.held_out_loss(weights)}
        scores |= _collapse_scores(test)
        learned = experiment.objective.concentration(weights.params["objective"])
        if learned is not None:
            scores["concentration"] = np.sort(np.asarray(learned))[::-1].tolist()
        classes = {}
        if source.classes > 1:
            layers = LAYERS if full else ("backbone",)
            classes = {
                layer: _class_accuracy(
                    train[layer], train_labels, test[layer], test_labels, source.classes
                )
                for layer in layers
            }
            scores |= {
                "chance": 1 / source.classes,
                "probe_accuracy": classes["backbone"],
                "knn_accuracy": monitors.knn_accuracy(
                    probes.Labelled(train["backbone"], train_labels),
                    probes.Labelled(test["backbone"], test_labels),
                    classes=source.classes,
                    neighbours=config.eval.neighbours,
                ),
            }
        if full:
            scores |= _augmentation_readouts(reader, weights, classes)
        return scores

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
    ) -> tuple[Features, Features, np.ndarray]:
        """Returns features without and with an augmentation, and how strong it was, [n]."""
        without, applied, strengths = [], [], []
        for number, batch in enumerate(self._batches(pictures)):
            key = jax.random.fold_in(self._key, number)
            keep = np.asarray(batch.mask)
            shown = self._intervene(key, batch.image, readout=readout, strength=strength)
            without.append(_rows(self._encode(weights, shown.without), keep))
            applied.append(_rows(self._encode(weights, shown.applied), keep))
            strengths.append(np.asarray(shown.strengths)[keep])
        return _joined(without), _joined(applied), np.concatenate(strengths)

    def held_out_loss(self, weights: Weights) -> float:
        """Returns the mean loss over batches of test pictures; NaN if they fill none."""
        config = self.config
        batch_size = config.train.batch_size
        if len(self.source.test) < batch_size:
            return float("nan")
        root = rng.stream(config.seed, "held-out loss")
        held_out = dataclasses.replace(self.source, train=self.source.test)
        losses = []
        with held_out.training_batches(batch_size, seed=config.seed) as batches:
            put = to_devices(batch_sharding(self._mesh))
            for number in range(config.eval.floor_batches):
                batch = put(next(batches))
                losses.append(self._loss(weights, rng.at_step(root, number), batch))
        return float(np.mean([float(loss) for loss in losses]))

    def _batches(self, pictures: ImageSource) -> Iterator[ImageBatch]:
        with (
            self.source.evaluation_batches(pictures, self._batch_size) as batches,
            Prefetch(batches, to_devices(batch_sharding(self._mesh))) as ready,
        ):
            yield from ready

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
        return dict(zip(LAYERS, (features, embeddings), strict=True))

    def _pair_loss(self, weights: Weights, key: Array, batch: ImageBatch) -> Array:
        pairs = shard_batch(self._mesh, self._experiment.pairs(key, batch))
        views = split_views(self._experiment.encode(weights, join_views(pairs)))
        own = weights.params["objective"]
        return self._experiment.objective(own, *views, pairs, self._mesh)[0]


def _augmentation_readouts(
    reader: _Reader, weights: Weights, classes: dict[str, float]
) -> dict[str, Any]:
    """Returns Table 1's row of each layer, and how well strengths can be read."""
    config = reader.config
    train = choose(reader.train, config.eval.readout_images, config.seed)
    test = choose(reader.test, config.eval.readout_images, config.seed)
    readouts: dict[str, dict[str, float]] = {layer: {} for layer in LAYERS}
    strengths: dict[str, dict[str, float]] = {layer: {} for layer in LAYERS}

    def read(readout: str, strength: str) -> list[tuple[Features, Features, np.ndarray]]:
        return [reader.read_with(weights, part, readout, strength) for part in (train, test)]

    for readout in interventions.READOUTS:
        with_chosen = read(readout, config.eval.readout_strength)
        for layer in LAYERS:
            readouts[layer][readout] = _applied_accuracy(layer, *with_chosen)
        if interventions.has_strength(readout):
            drawn = (
                with_chosen if config.eval.readout_strength == "drawn" else read(readout, "drawn")
            )
            for layer in LAYERS:
                strengths[layer][readout] = _strength_r2(layer, *drawn)
    for layer in LAYERS:
        row = readouts[layer]
        row["average"] = float(np.mean([row[name] for name in AVERAGED]))
        if layer in classes:
            row["classes"] = classes[layer]
    return {"readouts": readouts, "strength_r2": strengths}


_ReadOut = tuple[Features, Features, np.ndarray]


def _applied_accuracy(layer: str, train: _ReadOut, test: _ReadOut) -> float:
    """Returns how often a probe tells whether the augmentation was applied."""

    def both(part: _ReadOut, rows: slice) -> probes.Labelled:
        without, applied = part[0][layer][rows], part[1][layer][rows]
        labels = np.repeat([0, 1], [len(without), len(applied)])
        return probes.Labelled(np.concatenate([without, applied]), labels)

    fit, validation = _cut(len(train[2]))
    return probes.binary_accuracy(
        both(train, fit), both(train, validation), both(test, slice(None))
    ).accuracy


def _strength_r2(layer: str, train: _ReadOut, test: _ReadOut) -> float:
    """Returns the held-out R² of the strength, read from augmented pictures."""

    def applied(part: _ReadOut, rows: slice) -> probes.Labelled:
        return probes.Labelled(part[1][layer][rows], part[2][rows])

    fit, validation = _cut(len(train[2]))
    return probes.strength_r2(
        applied(train, fit), applied(train, validation), applied(test, slice(None))
    ).r2


def _class_accuracy(
    train: np.ndarray,
    train_labels: np.ndarray,
    test: np.ndarray,
    test_labels: np.ndarray,
    classes: int,
) -> float:
    fit, validation = _cut(len(train))
    return probes.class_accuracy(
        probes.Labelled(train[fit], train_labels[fit]),
        probes.Labelled(train[validation], train_labels[validation]),
        probes.Labelled(test, test_labels),
        classes,
    ).accuracy


def _collapse_scores(features: Features) -> dict[str, Any]:
    backbone, projector = (monitors.collapse_scores(features[layer]) for layer in LAYERS)
    return {
        "effective_rank_backbone": backbone["effective_rank"],
        "effective_rank_projector": projector["effective_rank"],
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
    return {layer: np.concatenate([part[layer] for part in parts]) for layer in LAYERS}
