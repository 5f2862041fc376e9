"""Whether a network has learned anything: a loss at chance, embeddings that collapsed.

A run may end with finite numbers and still have nothing to show. What is found here is said in
words, beside the scores.
"""

import math

import numpy as np

from aninfonce_jax.config_schema import Config, ObjectiveConfig
from aninfonce_jax.evaluation import monitors

# A loss is at chance if it is below it by less than this share of what could be gained. It is
# several times the scatter of a held-out loss, and far less than any run of use gains.
_NOTHING_GAINED = 0.01
# Features whose directions vary by less than this share of uniform ones all point one way.
_NO_SPREAD = 0.01
# Two directions, the second with 1/20 of the first one's size, have this effective rank.
_ONE_DIRECTION = 1.2
# A network of random weights has an R² far above this.
_NO_R2 = 0.01


def find_problems(
    config: Config,
    embeddings: np.ndarray,
    *,
    loss: float,
    loss_floor: float | None = None,
    r2: float | None = None,
) -> list[str]:
    """Returns what is wrong with a network, in sentences; none if it is well.

    Args:
      config: of the run.
      embeddings: of samples, as the objective gets them, [samples, dim].
      loss: on held-out pairs.
      loss_floor: what a perfect encoder would reach, where it is known.
      r2: how much of the true latents is in the embeddings, where they are known.
    """
    problems = []
    objective = config.objective
    if objective.kind == "supervised":
        if r2 is not None and not r2 >= _NO_R2:
            problems.append(
                f"R² is {r2:.2g}: the network has learned nothing yet, or its embeddings have "
                "collapsed; lower the learning rate, or train longer"
            )
    elif is_at_chance(objective, config.train.batch_size, loss, loss_floor):
        problems.append(
            f"the held-out loss, {loss:.4g}, is no better than that of chance, "
            f"{chance_loss(objective, config.train.batch_size):.4g}: the network has learned "
            "nothing yet, or has collapsed; lower the learning rate, or train longer"
        )
    return problems + _collapse(embeddings, on_sphere=_compares_directions(objective))


def chance_loss(objective: ObjectiveConfig, batch_size: int) -> float:
    """Returns the loss of a contrastive objective that can't tell any key from another.

    It is log K for K keys, the positive and its negatives, whatever their hardness. A mean over
    the keys has divided by their number already.
    """
    averages_keys = objective.kind == "lp" and objective.reduction == "logmeanexp"
    return 0.0 if averages_keys else math.log(_keys(objective, batch_size))


def is_at_chance(
    objective: ObjectiveConfig, batch_size: int, loss: float, loss_floor: float | None = None
) -> bool:
    """Returns whether a contrastive loss is no better than chance.

    Where even a perfect encoder could hardly gain anything, there is nothing to miss.
    """
    chance = chance_loss(objective, batch_size)
    possible = math.log(_keys(objective, batch_size))
    if objective.kind == "infonce" and objective.normalize and not objective.train_temperature:
        # Cosines lie between -1 and 1, so that scores can't differ by more.
        possible = min(possible, 2 / objective.temperature)
    least = _NOTHING_GAINED * possible
    if loss_floor is not None and chance - loss_floor < 2 * least:
        return False
    return not chance - loss >= least


def _keys(objective: ObjectiveConfig, batch_size: int) -> int:
    """Returns how many keys an anchor has, with its positive."""
    return 2 * batch_size - 1 if objective.negatives == "both" else batch_size


def _compares_directions(objective: ObjectiveConfig) -> bool:
    return objective.kind in ("aninfonce", "infonce") and objective.normalize


def _collapse(embeddings: np.ndarray, *, on_sphere: bool) -> list[str]:
    """Returns a sentence if embeddings are all alike, or differ in one direction only."""
    if not np.isfinite(embeddings).all():
        return ["the embeddings are not finite"]
    scores = monitors.collapse_scores(embeddings)
    dim, rank = embeddings.shape[1], scores["effective_rank"]
    spread = float(scores["spread"].max())
    if rank == 0 or (on_sphere and spread < _NO_SPREAD):
        return ["the embeddings have collapsed: they are the same for every input"]
    if dim > 1 and rank < _ONE_DIRECTION:
        return [
            f"the embeddings have collapsed to one direction: effective rank {rank:.2f} of {dim}"
        ]
    return []
