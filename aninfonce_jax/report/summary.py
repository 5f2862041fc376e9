"""The findings of a report in plain sentences, family by family of comparable runs."""

import math

from aninfonce_jax.report.groups import Comparison, Group
from aninfonce_jax.report.readout_summary import summarize_readouts
from aninfonce_jax.report.recovery_summary import summarize_recovery
from aninfonce_jax.report.runs import WorkDir
from aninfonce_jax.scores.registry import LOSS, SPREAD, effective_rank, ranked_layers


def summarize(comparison: Comparison) -> list[str]:
    """What was recovered, what can be read, and where neither is known how training ended."""
    sentences = []
    for family in comparison.families:
        recovered = family.where(lambda run: run.knows_latents)
        read = family.where(lambda run: run.knows_examples)
        others = family.where(lambda run: not (run.knows_latents or run.knows_examples))
        if recovered.groups:
            sentences += summarize_recovery(recovered)
        if read.groups:
            sentences += summarize_readouts(read)
        sentences += [_pairs_sentence(group) for group in others.groups]
    return sentences


def _pairs_sentence(group: Group) -> str:
    """What can be said of runs of which nothing but their pairs is known."""
    parts = []
    loss = group.score(LOSS)
    if math.isfinite(loss.value):
        parts.append(f"the held-out loss ended at {LOSS.form.both(loss.value, loss.interval)}")
    layers = ranked_layers(group.runs[0].final)
    for layer in layers:
        score = effective_rank(layer)
        rank = group.score(score)
        if math.isfinite(rank.value):
            text = score.form.both(rank.value, rank.interval)
            outputs = _outputs(group.runs[0]) if layer == layers[-1] else 0
            of_all = f" of {outputs}" if outputs else ""
            parts.append(f"the {layer} uses {text}{of_all} directions")
    found = (
        f"{', and '.join(parts)}. "
        if parts
        else "nothing was scored: no pairs were kept from training. "
    )
    average = f" (on average over {len(group.runs)} runs)" if len(group.runs) > 1 else ""
    return (
        f"{group.label}{average}: {found}Neither latent factors nor classes of its examples are "
        "known, so this page shows how it learned, not what."
    )


def _outputs(run: WorkDir) -> int:
    """How many outputs the encoder's last layer has; 0 if that is not known."""
    spread = run.final.get(SPREAD)
    return len(spread) if isinstance(spread, list) else 0
