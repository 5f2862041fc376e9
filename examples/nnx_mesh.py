"""AnInfoNCE over all devices, with a Flax NNX network and optax.

XLA_FLAGS=--xla_force_host_platform_device_count=8 python examples/nnx_mesh.py
"""

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import aninfonce_jax as an

STEPS, BATCH, DIM = 50, 256, 4

# One axis over all devices, and the loss over that axis: every row is contrasted with all others.
mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(AxisType.Auto,))
loss_over_mesh = an.over_mesh(an.aninfonce_loss, mesh, "data")
by_rows, everywhere = (NamedSharding(mesh, PartitionSpec(*axis)) for axis in (("data",), ()))


class Encoder(nnx.Module):
    """An MLP whose embeddings lie on the unit sphere, and Λ̂ beside it."""

    def __init__(self, rngs):
        self.first = nnx.Linear(16, 64, rngs=rngs)
        self.last = nnx.Linear(64, DIM, rngs=rngs)
        self.log_concentration = nnx.Param(jnp.full((DIM,), -0.4))

    def __call__(self, x):
        x = self.last(nnx.relu(self.first(x)))
        return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


def loss_fn(model, view1, view2):
    concentration = jnp.exp(model.log_concentration[...])  # Λ̂, trained along
    return loss_over_mesh(model(view1), model(view2), concentration).loss


@nnx.jit
def step(model, optimizer, view1, view2):
    loss, grads = nnx.value_and_grad(loss_fn)(model, view1, view2)
    optimizer.update(model, grads)
    return loss


def draw_views(key):
    """Two noisy copies of the same rows, spread over the devices: put your pairs here."""
    shared, *noise = jax.random.split(key, 3)
    rows = jax.random.normal(shared, (BATCH, 16))
    views = [rows + 0.1 * jax.random.normal(k, rows.shape) for k in noise]
    return jax.device_put(views, by_rows)


def main() -> list[float]:
    model = Encoder(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    for part in (model, optimizer):  # a copy on every device
        nnx.update(part, jax.device_put(nnx.state(part), everywhere))
    losses = []
    for number in range(STEPS):
        loss = step(model, optimizer, *draw_views(jax.random.key(number)))
        losses.append(float(loss))
    print(f"{jax.device_count()} devices: loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last")
    return losses


if __name__ == "__main__":
    main()
