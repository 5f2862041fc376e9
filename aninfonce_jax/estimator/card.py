"""The model card of an exported model: what it is, how good it is, and how to use it."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from aninfonce_jax.cli import printable
from aninfonce_jax.report.runs import as_number, interval_of
from aninfonce_jax.scores import registry
from aninfonce_jax.scores.registry import SCORES

if TYPE_CHECKING:
    from aninfonce_jax.estimator.model import TrainedModel

CARD_FILE = "README.md"
# What the Hugging Face Hub reads.
_HEAD = """\
---
library_name: aninfonce_jax
pipeline_tag: feature-extraction
tags:
- contrastive-learning
- jax
---
"""


def scores_to_keep(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a card shows of an `eval.json`.

    Args:
      evaluation: what it holds; {} where there is none.
    """
    keys = [score.key for score in SCORES if not math.isnan(as_number(evaluation.get(score.key)))]
    intervals = {key: found for key in keys if (found := interval_of(evaluation, key))}
    kept = {key: evaluation[key] for key in keys}
    if kept:
        kept |= {registry.STEP: evaluation.get(registry.STEP), registry.INTERVALS: intervals}
    return kept


def write_card(model: "TrainedModel", content: Mapping[str, Any], usage: str) -> str:
    """Returns a model card in Markdown.

    Args:
      model: what is described.
      content: what is written of it besides the weights.
      usage: Python that embeds `x` with what lies beside the card.
    """
    values = "uint8, from 0 to 255" if model.rows.is_bytes else "float32"
    shape = ", ".join(map(str, ("n", *model.rows.shape)))
    parts = [
        _HEAD,
        f"# {_name_of(content)}\n",
        f"From observations [{shape}] ({values}) to embeddings [n, {model.dim}] (float32), trained "
        "with aninfonce_jax.\n",
        "## How to use it\n",
        f"```python\n{usage}```\n",
        *_training(content),
        *_scores(model.scores, content),
        *_concentration(model),
    ]
    return "\n".join(parts)


def _name_of(content: Mapping[str, Any]) -> str:
    return printable(content.get("config", {}).get("name") or "An encoder of positive pairs")


def _training(content: Mapping[str, Any]) -> list[str]:
    """Says what it was trained by."""
    if "config" in content:
        config = content["config"]
        rows = [
            (section, config[section]["kind"])
            for section in ("source", "encoder", "objective", "optimizer")
        ]
        rows += [("steps", config["train"]["steps"]), ("pairs of a step", _batch_of(config))]
        rows += [("seed", config["seed"])]
    else:
        described, fitted = content["estimator"], content["fitted"]
        objective = described["objective"]
        rows = [
            ("encoder", described["encoder"]),
            ("objective", objective["kind"] if isinstance(objective, dict) else objective),
            ("step that is kept", fitted["n_iter_"]),
            ("pairs of a step", fitted["batch_size_"]),
        ]
    return ["## Training\n", _table(("", ""), [(f"{name}", f"{value}") for name, value in rows])]


def _batch_of(config: Mapping[str, Any]) -> Any:
    return config["train"]["batch_size"]


def _scores(scores: Mapping[str, Any], content: Mapping[str, Any]) -> list[str]:
    """Shows the last evaluation, with 95 % intervals."""
    step = scores.get(registry.STEP)
    loss = as_number(content.get("fitted", {}).get("held_out_loss_"))
    if not scores and not math.isnan(loss):
        scores = {registry.LOSS.key: loss}
    rows = [
        (
            f"{score.group}, {score.label}",
            score.form.both(as_number(scores[score.key]), interval_of(scores, score.key)),
        )
        for score in SCORES
        if score.key in scores
    ]
    if not rows:
        return ["## Scores\n", "It was not evaluated.\n"]
    when = "" if step is None else f"At step {step}. "
    told = f"{when}± is half of a 95 % interval, over the examples that it was scored on.\n"
    return ["## Scores\n", told, _table(("score", "value"), rows)]


def _concentration(model: "TrainedModel") -> list[str]:
    if model.concentration_ is None:
        return []
    values = ", ".join(f"{value:.4g}" for value in model.concentration_)
    return [
        "## Λ̂\n",
        f"How tightly each embedding is held between two views: {values}\n",
    ]


def _table(heads: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [heads, ("---", "---"), *rows]
    return "\n".join(f"| {_cell(one)} | {_cell(other)} |" for one, other in lines) + "\n"


def _cell(text: str) -> str:
    return printable(text).replace("|", "\\|")
