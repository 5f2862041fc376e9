"""Where the training of an estimator begins."""

import dataclasses

import jax
import jax.numpy as jnp

from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.training.saved_trees import as_target, layout_of, snapshot
from aninfonce_jax.training.state import TrainState
from aninfonce_jax.types import PyTree, Weights


@dataclasses.dataclass(frozen=True)
class Start:
    """Where a run goes on from.

    Attributes:
      weights: as `snapshot_tree` returns them.
      opt_state: of the optimiser, likewise; None: it begins anew.
    """

    weights: Weights
    opt_state: PyTree = None


@dataclasses.dataclass(frozen=True)
class ContinuedExperiment(Experiment):
    """An experiment that may begin from given weights."""

    start: Start | None = None

    def init_state(self) -> TrainState:
        """Returns the state before the first step; may be traced."""
        state = super().init_state()
        if self.start is None:
            return state
        self._check_start(self.start, state)
        weights: Weights = jax.tree.map(as_target, self.start.weights, state.weights)
        opt_state = state.opt_state
        if self.start.opt_state is not None:
            opt_state = jax.tree.map(as_target, self.start.opt_state, opt_state)
        average = None if state.average is None else jax.tree.map(jnp.copy, weights)
        return dataclasses.replace(
            state,
            params=weights.params,
            model_state=weights.model_state,
            opt_state=opt_state,
            average=average,
        )

    def _check_start(self, start: Start, state: TrainState) -> None:
        """Raises ValueError if the objective has other parameters than it had."""
        has, wants = (layout_of(x.params["objective"]) for x in (start.weights, state.weights))
        for name in {**has, **wants}:
            if has.get(name) != wants.get(name):
                raise ValueError(
                    f"{type(self.objective).__name__} can't go on from where it is: it has "
                    f"{has.get(name, 'nothing')} at {name}, and these pairs ask for "
                    f"{wants.get(name, 'nothing')}; pass as many as before, or fit a new model"
                )


def snapshot_tree(tree: PyTree) -> PyTree:
    """Returns a tree of NumPy arrays; random keys as their numbers."""
    return jax.tree.map(snapshot, tree)
