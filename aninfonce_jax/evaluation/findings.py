"""What one part of an evaluation finds."""

import dataclasses
from typing import Any, Protocol

import numpy as np

from aninfonce_jax.types import Weights


@dataclasses.dataclass
class Findings:
    """Scores with their intervals.

    Attributes:
      scores: numbers, lists and, as details, whatever JSON holds.
      intervals: of those scores that have one, under the same names.
      embeddings: of some examples, [n, dim], as the objective compares them.
      observations: what was embedded, [n, ...], where it is exact: without noise.
      latents: of those examples, [n, factors], where they are known.
    """

    scores: dict[str, Any] = dataclasses.field(default_factory=dict)
    intervals: dict[str, Any] = dataclasses.field(default_factory=dict)
    embeddings: np.ndarray | None = None
    observations: np.ndarray | None = None
    latents: np.ndarray | None = None

    def add(self, other: "Findings") -> None:
        """Takes over what another part has found."""
        self.scores |= other.scores
        self.intervals |= other.intervals
        if other.embeddings is not None:
            self.embeddings, self.observations = other.embeddings, other.observations
            self.latents = other.latents


class Part(Protocol):
    """One part of an evaluation."""

    def __call__(self, weights: Weights, *, full: bool) -> Findings:
        """Returns what it finds; `full`: also what takes too long for every evaluation."""
        ...
