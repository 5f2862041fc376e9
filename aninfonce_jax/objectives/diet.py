"""DIET (Balestriero, 2023): every example of the data set is a class of its own."""

import dataclasses

import jax
import jax.numpy as jnp

from aninfonce_jax.models.encoder import Encoder
from aninfonce_jax.models.heads import HEAD
from aninfonce_jax.objectives.objective import (
    Encode,
    Metrics,
    NeedsError,
    Objective,
    pair_shapes,
)
from aninfonce_jax.placement import Placement
from aninfonce_jax.sources.source import Source
from aninfonce_jax.types import Array, Pairs, Params


@dataclasses.dataclass(frozen=True)
class Diet(Objective):
    """Cross-entropy of telling which example a view shows, from z by a linear map W [n, dim].

    With y the number of the example and ε the smoothing of the labels, the loss of a view is

        -(1 - ε) log p_y - ε/n Σ log p_k,   p = softmax(W z).

    The first view of each pair is classified, and the second plays no part. The loss
    has no meaning for examples that it was not trained on: such a run has no held-out loss.

    Attributes:
      smoothing: ε.
      examples: n, how many examples there are; None: as many as the source of a run has.

    Example:
      >>> model = an.AnInfoNCE(dim=2, objective=an.objectives.Diet())
    """

    smoothing: float = 0.8
    examples: int | None = None

    def for_run(self, source: Source, encoder: Encoder) -> "Diet":
        """Returns the objective with the number of the source's examples."""
        del encoder
        if self.examples is not None:
            return self
        self.check(source)
        return dataclasses.replace(self, examples=source.pair_count)

    def check(self, source: Source) -> None:
        """Raises NeedsError if pairs have no numbers, or there are more or fewer examples."""
        count = source.pair_count
        if count is None or pair_shapes(source).number is None:
            raise NeedsError(
                f"DIET needs to know which example a pair shows, and its source ({source.name}) "
                "does not count them; use a data set of images or arrays"
            )
        if self.examples not in (None, count):
            raise NeedsError(
                f"DIET has a class for each of examples={self.examples}, but there are {count} to "
                f"train on ({source.name}); set examples={count}"
            )

    @property
    def tells_of_others(self) -> bool:
        """Whether the loss has a meaning for pairs that training does not see: none."""
        return False

    def init(self, key: Array, dim: int) -> Params:
        """Returns W, drawn uniformly within ±1/√dim."""
        if self.examples is None:
            raise ValueError("DIET is not told how many examples there are; set examples")
        bound = dim**-0.5
        return {HEAD: jax.random.uniform(key, (self.examples, dim), minval=-bound, maxval=bound)}

    def __call__(
        self, params: Params, encode: Encode, pairs: Pairs, key: Array, placement: Placement
    ) -> tuple[Array, Metrics]:
        """Returns the loss, and how often the example is told."""
        del key, placement
        assert pairs.number is not None  # see `check`
        embeddings, classes = encode(pairs.view1).astype(jnp.float32), params[HEAD]
        logits = embeddings @ classes.T
        # The sum over all classes of log p is linear in them but for its normalisation.
        own = jnp.sum(embeddings * classes[pairs.number], axis=1)
        mean = embeddings @ jnp.mean(classes, axis=0)
        target = (1 - self.smoothing) * own + self.smoothing * mean
        loss = jnp.mean(jax.nn.logsumexp(logits, axis=1) - target)
        return loss, {"accuracy": jnp.mean(jnp.argmax(logits, axis=1) == pairs.number)}
