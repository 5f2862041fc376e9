"""Scores of an encoder on fresh data: during training, and from a checkpoint."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from aninfonce_jax import rng
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.cli import warn
from aninfonce_jax.config import check_devices, difference, for_evaluation
from aninfonce_jax.dgp.stream import LatentProcess, true_concentration
from aninfonce_jax.evaluation import health, identifiability, intervals
from aninfonce_jax.evaluation.groups import objective_name
from aninfonce_jax.evaluation.readouts import make_image_evaluate
from aninfonce_jax.evaluation.table import table_rows, write_table
from aninfonce_jax.memory import check_fits
from aninfonce_jax.mesh import make_mesh, replicated, shard_batch
from aninfonce_jax.training import loop
from aninfonce_jax.training.checkpoint import CheckpointError, Restored
from aninfonce_jax.training.objective import ground_truth_loss
from aninfonce_jax.training.state import Experiment, build_experiment
from aninfonce_jax.types import Array, Weights


def make_evaluate(experiment: Experiment, mesh: Mesh) -> loop.Evaluate:
    """Returns a function from weights to every score that the report shows.

    Args:
      experiment: the parts of the run.
      mesh: where to compute.

    Returns:
      A function from weights to a dictionary of numbers and lists.
    """
    if experiment.config.has_images:
        return make_image_evaluate(experiment, mesh)
    return _make_process_evaluate(experiment, mesh)


def _make_process_evaluate(experiment: Experiment, mesh: Mesh) -> loop.Evaluate:
    """Returns the evaluation against known latents.

    The data are drawn once, from a stream of their own, so that scores along a run differ
    by the weights alone. The loss floor does not depend on them and is computed once.
    """
    config, source = experiment.config, experiment.source
    assert isinstance(source, LatentProcess)
    truth = true_concentration(config.dgp)
    key = rng.stream(config.seed, "evaluation")
    latents, observations = jax.jit(lambda key: source.anchors(key, config.eval.samples))(key)
    true_latents = np.asarray(latents, np.float64)
    encode = jax.jit(experiment.encode)
    held_out_losses = _held_out(
        experiment, mesh, lambda weights, pairs: experiment.loss(weights, pairs, mesh)
    )
    floors = _floors(experiment, mesh, truth)

    def evaluate(weights: Weights, *, full: bool) -> dict[str, Any]:
        del full  # every score is cheap enough for every evaluation
        features = np.asarray(encode(weights, observations), np.float64)
        scores = loss_scores(np.asarray(held_out_losses(weights), np.float64), floors)
        recovery = recovery_scores(true_latents, features, truth)
        found = {**scores.pop("intervals"), **recovery.pop("intervals")}
        learned = experiment.objective.concentration(weights.params["objective"])
        mapped = _map_scores(true_latents, features, truth, learned)
        problems = health.find_problems(
            config,
            features,
            loss=scores["loss"],
            loss_floor=scores.get("loss_floor"),
            r2=recovery["r2"],
        )
        return {**scores, **recovery, **mapped, "intervals": found, "warnings": problems}

    return evaluate


def recovery_scores(latents: np.ndarray, features: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Returns how well each factor can be read off the features.

    Args:
      latents: true factors [samples, dim].
      features: embeddings [samples, features].
      truth: the true Λ [dim].

    Returns:
      R² in all, per factor, and for content and style; MCC by two correlations; and under
      "intervals" those of each.
    """
    per_factor = identifiability.linear_r2_per_factor(latents, features)
    content = identifiability.content_mask(truth)
    groups = {"r2": np.ones_like(content)}
    if not content.all():
        groups |= {"r2_content": content, "r2_style": ~content}
    found = intervals.r2_intervals(
        *identifiability.linear_readout(latents, features),
        np.concatenate([np.eye(len(content)), [*groups.values()]]),
    )
    scores: dict[str, Any] = {name: float(per_factor[own].mean()) for name, own in groups.items()}
    scores["r2_per_factor"] = per_factor.tolist()
    scores["intervals"] = dict(zip(groups, found[len(content) :], strict=True))
    scores["intervals"]["r2_per_factor"] = found[: len(content)]
    for method in identifiability.CORRELATIONS:
        name = f"mcc_{method}"
        scores[name], scores["intervals"][name] = identifiability.mcc_with_interval(
            latents, features, method
        )
    return scores


def loss_scores(losses: np.ndarray, floors: np.ndarray | None) -> dict[str, Any]:
    """Returns the held-out loss and that of a perfect encoder, with intervals over batches.

    Args:
      losses: of each batch, [batches].
      floors: of a perfect encoder on the same batches, [batches]; None where it has no form.
    """
    parts = {"loss": losses}
    if floors is not None:
        # Taken batch by batch, the difference varies far less than the two.
        parts |= {"loss_floor": floors, "loss_above_floor": losses - floors}
    return {
        **{name: float(np.mean(values)) for name, values in parts.items()},
        "intervals": {name: intervals.mean_interval(values) for name, values in parts.items()},
    }


def evaluate_checkpoint(workdir: Path, overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    """Recomputes every score from the latest checkpoint in `workdir` and writes them there.

    Args:
      workdir: of the run.
      overrides: what to change in its config; see `config.for_evaluation`.

    Raises:
      ConfigError: if the folder holds no run, or one that has not saved a checkpoint yet, or
        the changes are none of evaluation.
      CheckpointError: if no checkpoint is whole, or its scores must not replace those there.
      OSError: if the scores can't be written.
    """
    with workdir_lib.hold(workdir):
        return _evaluate_held(workdir, overrides)


def _evaluate_held(workdir: Path, overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    """See `evaluate_checkpoint`; nobody else may change the work directory meanwhile."""
    workdir_lib.check_entries(workdir)
    trained = workdir_lib.read_config(workdir)
    config_hash = workdir_lib.read_saved(workdir).hash
    config = for_evaluation(trained, overrides)
    devices = check_devices(config, jax.local_device_count(), jax.process_count())
    check_fits(config, devices, training=False)
    mesh = make_mesh(devices)
    experiment = build_experiment(config)
    if not (workdir / workdir_lib.CHECKPOINT_FOLDER).exists():
        raise workdir_lib.WorkdirError(f"{workdir} has no checkpoint yet; train it first")
    with loop.open_checkpoints(workdir, trained) as checkpoints:
        restored = checkpoints.restore_latest(loop.abstract_state(experiment, replicated(mesh)))
    if restored is None:
        raise workdir_lib.WorkdirError(f"{workdir} has no checkpoint yet; train it first")
    for problem in restored.problems:
        warn(problem)
    _check_replaces(workdir, config_hash, restored)
    scores = {
        "step": restored.step,
        **make_evaluate(experiment, mesh)(restored.state.evaluated, full=True),
        "parameters": loop.count_parameters(restored.state),
        "seconds": restored.extra["seconds"],
    }
    if config.eval != trained.eval:
        changes = difference(trained, config)
        scores["evaluated_with"] = {name: new for name, (_, new) in changes.items()}
    elif restored.extra["untrained"] is not None:  # scored in the same way
        scores["untrained"] = restored.extra["untrained"]
    workdir_lib.write_eval(workdir, scores, config_hash, restored.extra.get("rows"))
    return scores


def _check_replaces(workdir: Path, config_hash: str, restored: Restored) -> None:
    """Raises CheckpointError if there are scores of a later step than the checkpoint's."""
    known = workdir_lib.read_eval(workdir, config_hash).scores.get("step") or 0
    if known > restored.step:
        why = f" ({'; '.join(restored.problems)})" if restored.problems else ""
        raise CheckpointError(
            f"{workdir} has scores of step {known}, but its last whole checkpoint is of step "
            f"{restored.step}{why}; train on with the same command, or remove "
            f"{workdir_lib.EVAL_FILE} to have the scores of step {restored.step}"
        )


def tabulate(workdir: Path) -> list[dict[str, Any]]:
    """Writes the readouts of a run on pictures as a table, beside its other files.

    Returns:
      The rows of `evaluation.table`; none for a run without readouts.
    """
    config = workdir_lib.read_config(workdir)
    scores = workdir_lib.read_eval(workdir, workdir_lib.read_saved(workdir).hash).scores
    if "readouts" not in scores:
        return []
    name = objective_name(config.objective.kind)
    rows = table_rows(name, scores)
    with workdir_lib.hold(workdir):
        write_table(workdir, rows)
    return rows


def _floors(experiment: Experiment, mesh: Mesh, truth: np.ndarray) -> np.ndarray | None:
    """Returns the loss of a perfect encoder on each batch set aside; None where it has no form."""
    config = experiment.config
    floor = ground_truth_loss(config.objective, config.dgp, jnp.asarray(truth, jnp.float32))
    if floor is None:
        return None
    floors = _held_out(experiment, mesh, lambda _, pairs: floor(pairs.latents1, pairs.latents2))
    return np.asarray(floors(Weights({}, {})), np.float64)


def _held_out(
    experiment: Experiment, mesh: Mesh, loss: Callable[..., Array]
) -> Callable[[Weights], Array]:
    """Returns a function to `loss(weights, pairs)` of each batch set aside for it, [batches]."""
    config = experiment.config
    root = rng.stream(config.seed, "held-out loss")

    def losses(weights: Weights) -> Array:
        def one(index: Array) -> Array:
            pairs = experiment.pairs(rng.at_step(root, index), None)
            return loss(weights, shard_batch(mesh, pairs))

        return jax.lax.map(one, jnp.arange(config.eval.floor_batches))

    return jax.jit(losses)


def _map_scores(
    latents: np.ndarray, features: np.ndarray, truth: np.ndarray, learned: Array | None
) -> dict[str, Any]:
    """Returns Λ̂ beside Λ, and the linear map from true to recovered factors.

    Theory fixes the recovered factors up to order. Λ̂ is compared with the Λ of what its
    feature recovers, and for comparison with both sorted. The map's rows are in the order
    that distinct Λ̂ tell; where the objective has none, the map itself does.
    """
    scores: dict[str, Any] = {"concentration_true": truth.tolist()}
    values = None if learned is None else np.asarray(learned, np.float64)
    matrix = identifiability.recovered_map(latents, features)
    if values is not None:
        matched = identifiability.recovered_concentration(truth, values, matrix)
        scores["concentration"] = matched.tolist()
        scores["concentration_error"] = float(np.max(np.abs(matched / truth - 1)))
        scores["concentration_error_sorted"] = identifiability.concentration_error(truth, values)
    tells_order = values is not None and np.ptp(values) > 0
    blocks = identifiability.block_orthogonality(matrix, truth, values if tells_order else None)
    ordered = np.empty_like(matrix)
    ordered[np.argsort(-truth, kind="stable")] = matrix[blocks.feature_order]
    return scores | {
        "map": ordered.tolist(),
        "block_energy": blocks.inside,
        "block_orthogonality": float(blocks.deviations.mean()),
    }
