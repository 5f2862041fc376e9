"""What a run carries from step to step."""

import dataclasses

from aninfonce_jax.types import Array, PyTree, Weights, register_dataclass


@register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """All that a checkpoint must hold to go on as if nothing had happened.

    Attributes:
      step: how many steps were taken, an int32 scalar.
      key: root of the data stream; the batch of step t is a function of (key, t).
      params: {"encoder": ..., "objective": ...}.
      model_state: the encoder's running statistics, {} where it has none.
      opt_state: the optimiser's.
      average: exponential average of `params` and `model_state`, or None.
    """

    step: Array
    key: Array
    params: PyTree
    model_state: PyTree
    opt_state: PyTree
    average: Weights | None

    @property
    def weights(self) -> Weights:
        """The latest."""
        return Weights(self.params, self.model_state)

    @property
    def evaluated(self) -> Weights:
        """What to judge a run by: the average, where one is kept."""
        return self.weights if self.average is None else self.average
