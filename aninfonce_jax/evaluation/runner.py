"""Scores of an encoder on fresh data: during training, and from a checkpoint.

What a run is scored by follows from what its source knows about its pairs. Latents, examples
with labels, interventions: each brings its own scores, and a source may know several of them.
"""

import contextlib
import zlib
from typing import Any

import numpy as np

from aninfonce_jax import config as config_lib
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.distributed.equal import require_equal
from aninfonce_jax.evaluation.findings import Findings, Part
from aninfonce_jax.evaluation.held_out import HeldOutPairs
from aninfonce_jax.evaluation.lost import find_lost_factor
from aninfonce_jax.evaluation.members import learned_by_members, member_scores
from aninfonce_jax.evaluation.readouts import Readouts
from aninfonce_jax.evaluation.recovery import make_recovery
from aninfonce_jax.evaluation.samples import Samples
from aninfonce_jax.evaluation.shifted import make_shifted
from aninfonce_jax.evaluation.views import Views
from aninfonce_jax.evaluation.worth import find_too_little
from aninfonce_jax.placement import Placement
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.scores import health, registry
from aninfonce_jax.training.checkpoint import CheckpointError, Restored
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.training.goodput import entries
from aninfonce_jax.training.session import Evaluate, count_parameters
from aninfonce_jax.training.together import to_be_equal
from aninfonce_jax.training.trained import check_saved, restore_run
from aninfonce_jax.types import Weights

# The fields of a run that may change once it is trained.
_EVALUATION = "eval."


def make_evaluate(experiment: Experiment, placement: Placement) -> Evaluate:
    """Returns a function from weights to every score that the report shows.

    Args:
      experiment: the parts of the run.
      placement: where to compute.

    Returns:
      A function from weights to a dictionary of numbers, lists and details.
    """
    known = experiment.source.known
    held_out = HeldOutPairs(experiment, placement)
    unreadable = [held_out.unreadable]
    parts: list[Part] = [held_out.losses]
    if known.examples is not None:
        readouts = Readouts(experiment, placement, known.examples, known.interventions)
        unreadable.append(readouts.unreadable)
        parts.append(readouts)
        if experiment.evaluation.views:
            views = Views(experiment, placement, known.examples)
            unreadable.append(views.unreadable)
            parts.append(views)
    if known.latents is not None:
        parts.append(make_recovery(experiment, placement, known.latents))
        if known.latents.draw_shifted is not None:
            parts.append(make_shifted(experiment, placement, known.latents))
    if known.latents is None and known.examples is None:
        parts.append(held_out.collapse)
    parts.append(Samples(experiment.source))

    def evaluate(weights: Weights, *, full: bool) -> dict[str, Any]:
        findings = Findings(_learned(experiment, weights))
        for part in parts:
            findings.add(part(weights, full=full))
        scores = findings.scores
        if experiment.source.fed(experiment.batch_size) is not None:
            # Each process reads its own rows: they count together what none could read. They send
            # digests, as names may be long.
            own = sorted(
                {
                    zlib.crc32(name.encode(errors="backslashreplace"))
                    for name in set().union(*unreadable)
                }
            )
            scores[registry.UNREADABLE] = placement.peers.decide(
                "unreadable examples", own, lambda all_digests: len(set().union(*all_digests))
            )
        problems = health.find_problems(
            experiment.objective,
            experiment.batch_size,
            findings.embeddings,
            loss=scores[registry.LOSS.key] if held_out.exist else None,
            loss_floor=scores.get(registry.LOSS_FLOOR.key),
            r2=scores.get(registry.R2.key),
        )
        if full and not problems:
            problems += _lost_factor(experiment, findings)
        problems += _too_little(experiment, held_out)
        return {**scores, registry.INTERVALS: findings.intervals, registry.WARNINGS: problems}

    return evaluate


def _lost_factor(experiment: Experiment, findings: Findings) -> list[str]:
    """Returns a sentence if a factor looks lost, as far as that can be known without the truth."""
    embeddings, latents = findings.embeddings, experiment.source.known.latents
    on_sphere = experiment.objective.compares_directions
    if embeddings is None:
        return []
    as_many = latents is not None and embeddings.shape[1] == latents.dim
    # Off the sphere there is no telling which outputs are meant to be factors.
    if not (on_sphere or as_many):
        return []
    lost = find_lost_factor(
        embeddings,
        findings.observations,
        on_sphere=on_sphere,
        as_many=as_many,
        latents=findings.latents,
    )
    return [lost] if lost else []


def _too_little(experiment: Experiment, held_out: HeldOutPairs) -> list[str]:
    """Returns a sentence if the run has too little to find its weakest factor by."""
    worth, latents = held_out.worth(), experiment.source.known.latents
    if worth is None or latents is None or latents.score is None:
        return []
    true = latents.score.concentration
    said = find_too_little(worth, true, experiment.batch_size, experiment.steps)
    return [said] if said else []


def _learned(experiment: Experiment, weights: Weights) -> dict[str, Any]:
    """Returns the Λ̂ that the objective has learned, largest first, or those of its members."""
    by_members = learned_by_members(experiment, weights)
    if by_members is not None and len(by_members) > 1:
        return member_scores(by_members)
    dim = experiment.embedding_dim
    learned = experiment.objective.concentration(weights.params["objective"], dim)
    if learned is None:
        return {}
    return {registry.CONCENTRATION: np.sort(np.asarray(learned))[::-1].tolist()}


def evaluate_workdir(
    experiment: Experiment, workdir: AnyPath, placement: Placement
) -> dict[str, Any]:
    """Recomputes every score from the latest checkpoint in `workdir` and writes them there.

    Args:
      experiment: what was trained there, perhaps to be evaluated in another way: in what, is
        written beside the scores.
      workdir: of the run.
      placement: where to compute.

    Raises:
      WorkdirError: if the folder holds no run, another one, or one that has not saved a
        checkpoint yet.
      CheckpointError: if no checkpoint is whole, or its scores must not replace those there.
      OSError: if the scores can't be written.
    """
    peers = placement.peers

    def open_run() -> None:
        stack.enter_context(workdir_lib.hold(workdir))
        check_run(experiment, workdir)

    with (
        contextlib.ExitStack() as stack,
        peers.watched(experiment.hang_timeout),
        peers.telling(),
    ):
        peers.at("setting up an evaluation")
        peers.by_first("open the run", open_run)
        if peers.are_many:
            require_equal(peers, "what is evaluated", to_be_equal(experiment))
        saved = workdir_lib.read_saved(workdir)
        config_hash = saved.hash
        restored = restore_run(workdir, experiment, placement)
        if peers.is_first:
            _check_replaces(workdir, config_hash, restored)
        peers.at("evaluating", restored.step)
        scores = {
            registry.STEP: restored.step,
            **make_evaluate(experiment, placement)(restored.state.evaluated, full=True),
            registry.PARAMETERS: count_parameters(restored.state),
            **entries(restored.extra["clock"]["seconds"]),
        }
        changed = config_lib.difference(experiment.complete(saved.values), experiment.description)
        if changed:
            scores[workdir_lib.EVALUATED_WITH] = {name: now for name, (_, now) in changed.items()}
        elif restored.extra[registry.UNTRAINED] is not None:  # scored in the same way
            scores[registry.UNTRAINED] = restored.extra[registry.UNTRAINED]
        if peers.is_first:
            workdir_lib.write_eval(workdir, scores, config_hash, restored.extra.get("rows"))
        peers.wait_for_all("scores are written")
    return scores


def check_run(experiment: Experiment, workdir: AnyPath) -> None:
    """Raises WorkdirError if the folder holds no run of the experiment that was saved."""
    workdir_lib.check_entries(workdir)
    workdir_lib.check_same(workdir, experiment.description, experiment.complete, but=_EVALUATION)
    check_saved(workdir)


def _check_replaces(workdir: AnyPath, config_hash: str, restored: Restored) -> None:
    """Raises CheckpointError if there are scores of a later step than the checkpoint's."""
    known = workdir_lib.read_eval(workdir, config_hash).scores.get(registry.STEP) or 0
    if known > restored.step:
        why = f" ({'; '.join(restored.problems)})" if restored.problems else ""
        raise CheckpointError(
            f"{workdir} has scores of step {known}, but its last whole checkpoint is of step "
            f"{restored.step}{why}; train on with the same command, or remove "
            f"{workdir_lib.EVAL_FILE} to have the scores of step {restored.step}"
        )
