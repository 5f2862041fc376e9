"""A diagnosis of a trained run: its assumptions, checked on pairs that it was not trained on."""

import functools
import itertools
from collections.abc import Iterator

import jax
import numpy as np

from aninfonce_jax import rng
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.diagnosis.diagnose import DEFAULT_NEGATIVES, LEAST_PER_DIMENSION, diagnose
from aninfonce_jax.diagnosis.findings import Diagnosis
from aninfonce_jax.evaluation.held_out import fed_batches
from aninfonce_jax.evaluation.runner import check_run
from aninfonce_jax.placement import Placement, Rows
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.sources.source import Examples, Source
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.training.trained import restore_run
from aninfonce_jax.types import Array, PyTree, Weights

_STREAM = "diagnosis"
# What the sets are called that the anchors are compared with.
TRAINING, CLEAN = "training inputs", "clean inputs"
# How many pairs are looked at: the larger of so many and so many per dimension, or all there are.
_PAIRS, _PER_DIMENSION = 4000, 40


def diagnose_workdir(experiment: Experiment, workdir: AnyPath, placement: Placement) -> Diagnosis:
    """Checks the assumptions on held-out pairs of a run, and writes `diagnosis.json` there.

    Args:
      experiment: what was trained there.
      workdir: of the run.
      placement: where to compute; of one process.

    Raises:
      ConfigError: the run's embeddings are not compared on a sphere, it has too few held-out
        pairs, or several processes share it.
      WorkdirError, CheckpointError, OSError: as `evaluate_workdir`.
    """
    _check(experiment, placement)
    with workdir_lib.hold(workdir):
        check_run(experiment, workdir)
        restored = restore_run(workdir, experiment, placement)
        found = diagnose_weights(experiment, restored.state.evaluated, placement)
        title = f"{workdir.absolute().name}, {experiment.name}, step {restored.step:,}"
        workdir_lib.write_diagnosis(workdir, title, found.to_dict())
    return found


def diagnose_weights(experiment: Experiment, weights: Weights, placement: Placement) -> Diagnosis:
    """Checks the assumptions on held-out pairs, as an encoder with these weights sees them."""
    dim, size = experiment.embedding_dim, experiment.batch_size
    source = experiment.source.held_out(size)
    if source is None:
        raise ConfigError(
            f"{experiment.source.name} has no pairs that were kept from training; pass some of "
            "your own: --pairs=VIEW1.npy,VIEW2.npy, or an.diagnose"
        )
    wanted = max(_PAIRS, _PER_DIMENSION * dim)
    anchors, positives = _embed_pairs(experiment, source, weights, placement, wanted)
    needed = LEAST_PER_DIMENSION * anchors.shape[1]
    if len(anchors) < needed:
        raise ConfigError(
            f"{anchors.shape[1]} dimensions need {needed} held-out pairs, "
            f"{source.name} has {len(anchors)}; keep more from training"
        )
    learned = experiment.objective.concentration(weights.params["objective"], dim)
    keys = experiment.objective.keys(size)
    return diagnose(
        anchors,
        positives,
        concentration=None if learned is None else np.asarray(learned),
        batch_negatives=DEFAULT_NEGATIVES if keys is None else keys - 1,
        reference=_references(experiment, weights, placement, len(anchors)),
    )


def _check(experiment: Experiment, placement: Placement) -> None:
    if placement.peers.are_many:
        raise ConfigError("a diagnosis is made by one process; start it on one host alone")
    if not experiment.objective.has_directions:
        raise ConfigError(
            f"a diagnosis is of embeddings that are compared on the unit sphere, and "
            f"{type(experiment.objective).__name__} of this run compares their lengths too"
        )


def _references(
    experiment: Experiment, weights: Weights, placement: Placement, count: int
) -> dict[str, np.ndarray]:
    """Returns embeddings of other sets that anchors should not differ from, by their names.

    There are none for a process that draws every pair afresh: all its inputs are alike.
    """
    source = experiment.source
    found = {}
    if source.fed(experiment.batch_size) is not None:
        found[TRAINING] = _embed_pairs(experiment, source, weights, placement, count)[0]
    if source.known.examples is not None:
        found[CLEAN] = _embed_examples(experiment, source.known.examples, weights, placement, count)
    return found


def _embed_pairs(
    experiment: Experiment, source: Source, weights: Weights, placement: Placement, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns embeddings of about `count` pairs, of no input twice, as the objective has them."""
    size = experiment.batch_size
    at_hand = source.pair_count
    batches = -(-count // size) if at_hand is None else max(min(count, at_hand) // size, 1)

    @jax.jit
    def embedded(weights: Weights, key: Array, fed: PyTree) -> tuple[Array, Array]:
        pairs = placement.constrain(source.pairs(key, fed, size))
        first, second = (
            experiment.objective.compared(experiment.embed(weights, view))
            for view in (pairs.view1, pairs.view2)
        )
        return first, second

    root = rng.stream(experiment.seed, _STREAM)
    fed: Iterator[PyTree] = fed_batches(source, experiment, placement, batches, set())
    if source.fed(size) is None:
        fed = itertools.repeat(None, batches)
    found = [
        placement.fetch(embedded(weights, rng.at_step(root, index), rows))
        for index, rows in enumerate(fed)
    ]
    first, second = (np.concatenate(views) for views in zip(*found, strict=True))
    return first, second


def _embed_examples(
    experiment: Experiment, examples: Examples, weights: Weights, placement: Placement, count: int
) -> np.ndarray:
    """Returns embeddings of test examples as they are."""
    chosen = examples.test.choose(count, seed=0)
    embed = jax.jit(functools.partial(_embed_clean, experiment, examples))
    found = []
    with chosen.batches(Rows(experiment.batch_size)) as batches:
        for batch in batches:
            embeddings = placement.fetch(embed(weights, placement.put_rows(batch)))
            found.append(np.asarray(embeddings)[np.asarray(batch.mask)])
    return np.concatenate(found)


def _embed_clean(
    experiment: Experiment, examples: Examples, weights: Weights, batch: PyTree
) -> Array:
    embeddings = experiment.embed(weights, examples.observe(batch))
    return experiment.objective.compared(embeddings)
