"""The training step: the one place where it is compiled, for the loop and for tests."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from aninfonce_jax import rng
from aninfonce_jax.config import dispatch_steps
from aninfonce_jax.data.pipeline import ImageBatch
from aninfonce_jax.mesh import batch_sharding, replicated, shard_batch
from aninfonce_jax.training.microbatch import microbatched
from aninfonce_jax.training.objective import join_views, split_views
from aninfonce_jax.training.state import Experiment, TrainState
from aninfonce_jax.types import Array, PyTree, Weights

Metrics = Mapping[str, Array]
# A state, and what the feed gave for the call; `None` where the pairs are made on the device.
SingleStep = Callable[[TrainState, ImageBatch | None], tuple[TrainState, Metrics]]
# The same, and how many steps to take.
Step = Callable[[TrainState, ImageBatch | None, int], tuple[TrainState, Metrics]]


def make_train_step(experiment: Experiment, mesh: Mesh) -> Step:
    """Compiles up to `dispatch_steps` training steps into one call.

    How many steps a call takes is an argument of the compiled program. So a run that must
    stop at an uneven step, or goes on from one, computes each step by the same code as any
    other run, and its numbers are the same to the last bit.

    The pairs are made on the devices, inside the call: drawn from a process, so the host
    neither feeds nor waits between two steps, or augmented from the pictures it feeds, one
    step to a call. The batch is split over the mesh and the state is replicated; jit's
    partitioner inserts the collectives, so the gradient, and every BatchNorm, is that of the
    global batch however many devices there are.

    A step whose loss or gradient is not finite is not taken, and neither are those behind
    it: the state stays that of the last good step, and `metrics["loss"]` shows where.

    Args:
      experiment: the parts of the run.
      mesh: where to run.

    Returns:
      A jitted function from a state, which it consumes, what the feed gave, and a number of
      steps, at least 1 and at most `dispatch_steps`, to the next state and metrics
      [dispatch_steps] each, of which as many count as steps were asked for.
    """
    most = dispatch_steps(experiment.config)
    step = _single_step(experiment, mesh)

    def run(
        state: TrainState, batch: ImageBatch | None, steps: Array | int
    ) -> tuple[TrainState, Metrics]:
        if most == 1:
            # Not put into a loop, where a CPU's convolutions are many times slower.
            state, metrics = step(state, batch)
            return state, jax.tree.map(lambda x: x[None], metrics)

        def take(index: Array, carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
            state, metrics = step(carry[0], batch)
            return state, jax.tree.map(lambda all, one: all.at[index].set(one), carry[1], metrics)

        shapes = jax.eval_shape(step, state, batch)[1]
        empty = jax.tree.map(lambda x: jnp.zeros((most, *x.shape), x.dtype), shapes)
        return jax.lax.fori_loop(0, steps, take, (state, empty))

    whole = replicated(mesh)
    return jax.jit(
        run,
        in_shardings=(whole, batch_sharding(mesh), whole),
        out_shardings=whole,
        donate_argnums=0,
    )


def _single_step(experiment: Experiment, mesh: Mesh) -> SingleStep:
    config = experiment.config
    ema_decay = config.optimizer.ema_decay
    encode = experiment.encode_train
    if config.train.microbatches > 1:
        encode = microbatched(encode, config.train.microbatches, has_aux=True)

    def loss_fn(
        params: PyTree, model_state: PyTree, key: Array, batch: ImageBatch | None
    ) -> tuple[Array, tuple[PyTree, Metrics]]:
        pairs = shard_batch(mesh, experiment.pairs(key, batch))
        embeddings, model_state = encode(Weights(params, model_state), join_views(pairs))
        views = split_views(embeddings)
        loss, metrics = experiment.objective(params["objective"], *views, pairs, mesh)
        return loss, (model_state, metrics)

    def apply(state: TrainState, model_state: PyTree, grads: PyTree) -> TrainState:
        updates, opt_state = experiment.optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        average = state.average
        if average is not None:
            average = optax.incremental_update(
                Weights(params, model_state), average, _ema_rate(ema_decay, state.step)
            )
        return TrainState(state.step + 1, state.key, params, model_state, opt_state, average)

    def step(state: TrainState, batch: ImageBatch | None) -> tuple[TrainState, Metrics]:
        key = rng.at_step(state.key, state.step)
        (loss, (model_state, metrics)), grads = jax.value_and_grad(loss_fn, has_aux=True)(
            state.params, state.model_state, key, batch
        )
        grad_norm = optax.tree.norm(grads)
        good = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
        state = jax.lax.cond(good, apply, lambda state, *_: state, state, model_state, grads)
        return state, {"loss": loss, "grad_norm": grad_norm, **metrics}

    return step


def _ema_rate(decay: float, step: Array) -> Array:
    """Share of the newest parameters in the average.

    Early on the average follows closely, (1 + t) / (10 + t), so that it does not drag the
    initial parameters along.
    """
    t = step.astype(jnp.float32)
    return 1 - jnp.minimum(decay, (1 + t) / (10 + t))
