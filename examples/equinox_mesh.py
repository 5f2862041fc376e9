"""AnInfoNCE over all devices, with an Equinox network and optax.

XLA_FLAGS=--xla_force_host_platform_device_count=8 python examples/equinox_mesh.py
"""

import equinox as eqx
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


class Encoder(eqx.Module):
    """An MLP whose embeddings lie on the unit sphere, and Λ̂ beside it."""

    mlp: eqx.nn.MLP
    log_concentration: jax.Array

    def __init__(self, key):
        self.mlp = eqx.nn.MLP(16, DIM, width_size=64, depth=1, key=key)
        self.log_concentration = jnp.full((DIM,), -0.4)

    def __call__(self, x):
        x = jax.vmap(self.mlp)(x)
        return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


optimizer = optax.adam(1e-2)


def loss_fn(model, view1, view2):
    concentration = jnp.exp(model.log_concentration)  # Λ̂, trained along
    return loss_over_mesh(model(view1), model(view2), concentration).loss


@eqx.filter_jit
def step(model, opt_state, view1, view2):
    loss, grads = eqx.filter_value_and_grad(loss_fn)(model, view1, view2)
    updates, opt_state = optimizer.update(grads, opt_state)
    return eqx.apply_updates(model, updates), opt_state, loss


def draw_views(key):
    """Two noisy copies of the same rows, spread over the devices: put your pairs here."""
    shared, *noise = jax.random.split(key, 3)
    rows = jax.random.normal(shared, (BATCH, 16))
    views = [rows + 0.1 * jax.random.normal(k, rows.shape) for k in noise]
    return jax.device_put(views, by_rows)


def main() -> list[float]:
    # A copy on every device; functions such as the activation stay where they are.
    model = eqx.filter_shard(Encoder(jax.random.key(0)), everywhere)
    opt_state = optimizer.init(eqx.filter(model, eqx.is_array))
    losses = []
    for number in range(STEPS):
        model, opt_state, loss = step(model, opt_state, *draw_views(jax.random.key(number)))
        losses.append(float(loss))
    print(f"{jax.device_count()} devices: loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last")
    return losses


if __name__ == "__main__":
    main()
