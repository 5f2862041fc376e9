"""The training step: the one place where it is compiled, for the loop and for tests."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import optax

from aninfonce_jax import rng
from aninfonce_jax.placement import Placement, on
from aninfonce_jax.scores import registry
from aninfonce_jax.sources.source import traced_pairs
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.training.state import TrainState
from aninfonce_jax.types import Array, PyTree, Weights

Metrics = Mapping[str, Array]
# A state, and what the feed gave for the call; None where nothing is fed.
SingleStep = Callable[[TrainState, PyTree], tuple[TrainState, Metrics]]
# The same, and how many steps to take.
Step = Callable[[TrainState, PyTree, int], tuple[TrainState, Metrics]]


def make_train_step(experiment: Experiment, placement: Placement) -> Step:
    """Compiles up to `experiment.dispatch_steps` training steps into one call.

    How many steps a call takes is an argument of the compiled program. So a run that must
    stop at an uneven step, or goes on from one, computes each step by the same code as any
    other run, and its numbers are the same to the last bit.

    The pairs are made on the devices, inside the call. Where they are made of a key alone,
    the host neither feeds nor waits between two steps; where the host feeds, a call takes one
    step. The batch is split over the devices and the state is replicated; jit's partitioner
    inserts the collectives, so the gradient, and every BatchNorm, is that of the global batch
    however many devices there are.

    A step whose loss or gradient is not finite is not taken, and neither are those behind
    it: the state stays that of the last good step, and `metrics["loss"]` shows where.

    Args:
      experiment: the parts of the run.
      placement: where to run.

    Returns:
      A jitted function from a state, which it consumes, what the feed gave, and a number of
      steps, at least 1 and at most `dispatch_steps`, to the next state and metrics
      [dispatch_steps] each, of which as many count as steps were asked for.
    """
    most = experiment.dispatch_steps
    step = _single_step(experiment, placement)

    def run(state: TrainState, fed: PyTree, steps: Array | int) -> tuple[TrainState, Metrics]:
        if most == 1:
            # Not put into a loop, where a CPU's convolutions are many times slower.
            state, metrics = step(state, fed)
            return state, jax.tree.map(lambda x: x[None], metrics)

        def take(index: Array, carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
            state, metrics = step(carry[0], fed)
            return state, jax.tree.map(lambda all, one: all.at[index].set(one), carry[1], metrics)

        shapes = jax.eval_shape(step, state, fed)[1]
        empty = jax.tree.map(lambda x: jnp.zeros((most, *x.shape), x.dtype), shapes)
        return jax.lax.fori_loop(0, steps, take, (state, empty))

    return jax.jit(
        run,
        in_shardings=(placement.whole, placement.split, placement.whole),
        out_shardings=placement.whole,
        donate_argnums=0,
    )


def trace_train_step(experiment: Experiment, placement: Placement) -> jax.stages.Traced:
    """Traces the training step for arguments that lie as the loop lays them, but do not exist.

    The placement may be abstract: `trace_train_step(...).lower().compile()` then asks the compiler
    of a machine that is not at hand.
    """
    state = on(placement.whole, jax.eval_shape(experiment.init_state))
    fed = on(placement.split, experiment.source.fed(experiment.batch_size))
    steps = on(placement.whole, jax.ShapeDtypeStruct((), jnp.int32))
    step: jax.stages.Wrapped = make_train_step(experiment, placement)  # type: ignore[assignment]
    return step.trace(state, fed, steps)


def _single_step(experiment: Experiment, placement: Placement) -> SingleStep:
    def loss_fn(
        params: PyTree, model_state: PyTree, step: Array, key: Array, fed: PyTree
    ) -> tuple[Array, tuple[PyTree, Metrics]]:
        with jax.named_scope("pairs"):
            drawn = traced_pairs(experiment.source, key, fed, experiment.batch_size)
            pairs = placement.constrain(drawn)
        weights = Weights(params, model_state)
        return experiment.training_loss(weights, pairs, key, placement, step)

    @jax.named_scope("optimiser")
    def apply(state: TrainState, model_state: PyTree, grads: PyTree) -> TrainState:
        updates, opt_state = experiment.optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        average = state.average
        if average is not None:
            rate = _ema_rate(experiment.ema_decay, state.step)
            average = _averaged(Weights(params, model_state), average, rate)
        return TrainState(state.step + 1, state.key, params, model_state, opt_state, average)

    def step(state: TrainState, fed: PyTree) -> tuple[TrainState, Metrics]:
        key = rng.at_step(state.key, state.step)
        (loss, (model_state, metrics)), grads = jax.value_and_grad(loss_fn, has_aux=True)(
            state.params, state.model_state, state.step, key, fed
        )
        grad_norm = optax.tree.norm(grads)
        good = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
        state = jax.lax.cond(good, apply, lambda state, *_: state, state, model_state, grads)
        # An objective that adds something to its loss on the way logs the loss itself.
        return state, {registry.LOSS.key: loss, "grad_norm": grad_norm, **metrics}

    return step


def _averaged(new: Weights, average: Weights, rate: Array) -> Weights:
    """Moves the average towards new weights; what is no number, like a key, is the latest."""

    def one(new: Array, old: Array) -> Array:
        if jnp.issubdtype(new.dtype, jnp.inexact):
            moved: Array = optax.incremental_update(new, old, rate)
            return moved
        return new

    averaged: Weights = jax.tree.map(one, new, average)
    return averaged


def _ema_rate(decay: float, step: Array) -> Array:
    """Share of the newest parameters in the average.

    Early on the average follows closely, (1 + t) / (10 + t), so that it does not drag the
    initial parameters along.
    """
    t = step.astype(jnp.float32)
    return 1 - jnp.minimum(decay, (1 + t) / (10 + t))
