"""The training step: the one place where it is compiled, for the loop and for tests."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from aninfonce_jax import rng
from aninfonce_jax.config import dispatch_steps
from aninfonce_jax.mesh import replicated, shard_batch
from aninfonce_jax.training.microbatch import microbatched
from aninfonce_jax.training.state import Experiment, TrainState
from aninfonce_jax.types import Array, PyTree

Metrics = Mapping[str, Array]
Step = Callable[[TrainState], tuple[TrainState, Metrics]]


def make_train_step(experiment: Experiment, mesh: Mesh) -> Step:
    """Compiles `dispatch_steps` training steps into one call.

    The pairs are made on the devices, inside the call, so the host neither feeds nor waits
    between two steps. The batch is split over the mesh and the state is replicated; jit's
    partitioner inserts the collectives, so the gradient is that of the global batch however
    many devices there are.

    A step whose loss or gradient is not finite is not taken, and neither are those behind
    it: the state stays that of the last good step, and `metrics["loss"]` shows where.

    Args:
      experiment: the parts of the run.
      mesh: where to run.

    Returns:
      A jitted function from a state, which it consumes, to the next state and metrics
      [dispatch_steps] each.
    """
    steps = dispatch_steps(experiment.config)
    step = _single_step(experiment, mesh)

    def run(state: TrainState) -> tuple[TrainState, Metrics]:
        return jax.lax.scan(lambda carry, _: step(carry), state, length=steps)

    whole = replicated(mesh)
    return jax.jit(run, in_shardings=whole, out_shardings=whole, donate_argnums=0)


def _single_step(experiment: Experiment, mesh: Mesh) -> Step:
    config = experiment.config
    ema_decay = config.optimizer.ema_decay
    encode = experiment.encode
    if config.train.microbatches > 1:
        encode = microbatched(encode, config.train.microbatches)

    def loss_fn(params: PyTree, key: Array) -> tuple[Array, Metrics]:
        pairs = shard_batch(mesh, experiment.source.sample(key, config.train.batch_size))
        return experiment.objective(params["objective"], lambda x: encode(params, x), pairs, mesh)

    def apply(state: TrainState, grads: PyTree) -> TrainState:
        updates, opt_state = experiment.optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        average = state.average
        if average is not None:
            average = optax.incremental_update(params, average, _ema_rate(ema_decay, state.step))
        return TrainState(state.step + 1, state.key, params, opt_state, average)

    def step(state: TrainState) -> tuple[TrainState, Metrics]:
        key = rng.at_step(state.key, state.step)
        (loss, metrics), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params, key)
        grad_norm = optax.tree.norm(grads)
        good = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
        state = jax.lax.cond(good, apply, lambda state, _: state, state, grads)
        return state, {"loss": loss, "grad_norm": grad_norm, **metrics}

    return step


def _ema_rate(decay: float, step: Array) -> Array:
    """Share of the newest parameters in the average.

    Early on the average follows closely, (1 + t) / (10 + t), so that it does not drag the
    initial parameters along.
    """
    t = step.astype(jnp.float32)
    return 1 - jnp.minimum(decay, (1 + t) / (10 + t))
