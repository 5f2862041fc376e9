"""AnInfoNCE over all devices, with a Haiku network and optax.

XLA_FLAGS=--xla_force_host_platform_device_count=8 python examples/haiku_mesh.py
"""

import haiku as hk
import jax
import jax.numpy as jnp
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import aninfonce_jax as an

STEPS, BATCH, DIM = 50, 256, 4

# One axis over all devices, and the loss over that axis: every row is contrasted with all others.
mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
loss_over_mesh = an.over_mesh(an.aninfonce_loss, mesh, "data")
by_rows, everywhere = (NamedSharding(mesh, PartitionSpec(*axis)) for axis in (("data",), ()))


@hk.without_apply_rng
@hk.transform
def model(x):
    """An MLP whose embeddings lie on the unit sphere."""
    x = hk.nets.MLP([64, DIM])(x)
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


optimizer = optax.adam(1e-2)


def loss_fn(params, view1, view2):
    out = loss_over_mesh(
        model.apply(params["encoder"], view1),
        model.apply(params["encoder"], view2),
        jnp.exp(params["log_concentration"]),  # Λ̂, trained along
    )
    return out.loss


@jax.jit
def step(params, opt_state, view1, view2):
    loss, grads = jax.value_and_grad(loss_fn)(params, view1, view2)
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def draw_views(key):
    """Two noisy copies of the same rows, spread over the devices: put your pairs here."""
    shared, *noise = jax.random.split(key, 3)
    rows = jax.random.normal(shared, (BATCH, 16))
    views = [rows + 0.1 * jax.random.normal(k, rows.shape) for k in noise]
    return jax.device_put(views, by_rows)


def main() -> list[float]:
    key = jax.random.key(0)
    params = {
        "encoder": model.init(key, draw_views(key)[0]),
        "log_concentration": jnp.full((DIM,), -0.4),
    }
    params = jax.device_put(params, everywhere)
    opt_state = optimizer.init(params)
    losses = []
    for number in range(STEPS):
        params, opt_state, loss = step(params, opt_state, *draw_views(jax.random.key(number)))
        losses.append(float(loss))
    print(f"{jax.device_count()} devices: loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last")
    return losses


if __name__ == "__main__":
    main()
