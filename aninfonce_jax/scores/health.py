"""Whether a network has learned anything: a loss at chance, embeddings that collapsed.

A run may end with finite numbers and still have nothing to show. What is found here is said in
words, beside the scores.
"""

from typing import Protocol

import numpy as np

from aninfonce_jax.scores import monitors

# A loss is at chance if it is below it by less than this share of what could be gained. It is
# several times the scatter of a held-out loss, and far less than any run of use gains.
_NOTHING_GAINED = 0.01
# A loss in float32, a mean over many rows, is good to less than this share of it.
_ROUNDING = 1e-5
# Features whose directions vary by less than this share of uniform ones all point one way.
_NO_SPREAD = 0.01
# Two directions, the second with 1/20 of the first one's size, have this effective rank.
_ONE_DIRECTION = 1.2
# A network of random weights has an R² far above this.
_NO_R2 = 0.01


class Gain(Protocol):
    """What an objective tells of its own loss."""

    @property
    def compares_directions(self) -> bool:
        """Whether the length of an embedding means nothing to it."""
        ...

    def chance(self, batch_size: int) -> float | None:
        """The loss of embeddings that tell nothing; None where that is not known."""
        ...

    def largest_gain(self, batch_size: int) -> float:
        """How far below chance the loss could fall at the most."""
        ...


def find_problems(
    objective: Gain,
    batch_size: int,
    embeddings: np.ndarray | None,
    *,
    loss: float | None,
    loss_floor: float | None = None,
    r2: float | None = None,
) -> list[str]:
    """Returns what is wrong with a network, in sentences; none if it is well.

    Args:
      objective: of the run.
      batch_size: of the run.
      embeddings: of samples, as the objective gets them, [samples, dim]; None: not known.
      loss: on held-out pairs; None where there are none.
      loss_floor: what a perfect encoder would reach, where it is known.
      r2: how much of the true latents is in the embeddings, where they are known.
    """
    problems = []
    chance = objective.chance(batch_size)
    gain = objective.largest_gain(batch_size)
    if chance is not None and gain < _ROUNDING * chance:
        problems.append(
            f"the loss can fall below that of chance, {chance:.4g}, by {gain:.2g} at the most: "
            "that is lost in rounding, and nothing is learned; lower the temperature"
        )
    elif chance is None:
        if r2 is not None and not r2 >= _NO_R2:
            problems.append(
                f"R² is {r2:.2g}: the network has learned nothing yet, or its embeddings have "
                "collapsed; lower the learning rate, or train longer"
            )
    elif loss is not None and is_at_chance(chance, gain, loss, loss_floor):
        problems.append(
            f"the held-out loss, {loss:.4g}, is no better than that of chance, {chance:.4g}: the "
            "network has learned nothing yet, or has collapsed; lower the learning rate, or train "
            "longer"
        )
    if embeddings is None:
        return problems
    return problems + _collapse(embeddings, on_sphere=objective.compares_directions)


def is_at_chance(
    chance: float, largest_gain: float, loss: float, loss_floor: float | None = None
) -> bool:
    """Returns whether a contrastive loss is no better than chance.

    Where even a perfect encoder could hardly gain anything, there is nothing to miss.

    Args:
      chance: the loss of embeddings that tell nothing.
      largest_gain: how far below it the loss could fall at the most.
      loss: that of the run.
      loss_floor: that of a perfect encoder, where it is known.
    """
    least = _NOTHING_GAINED * largest_gain
    if loss_floor is not None and chance - loss_floor < 2 * least:
        return False
    return not chance - loss >= least


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
