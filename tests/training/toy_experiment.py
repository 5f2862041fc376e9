"""An experiment of a user's own: pairs of signals and a network that the package has not seen.

Run as a script it trains in the folder that it is given; the tests kill it and start it again.
"""

import sys

import jax
import jax.numpy as jnp
import optax
from flax import nnx

import aninfonce_jax as an


class ShiftedWaves(an.Source):
    """Two noisy recordings of a sine wave of unknown frequency."""

    def example(self):
        return jnp.zeros((2, 32))

    def pairs(self, key, fed, batch_size):
        wave, *noise = jax.random.split(key, 3)
        rate = jax.random.uniform(wave, (batch_size, 1), minval=0.1, maxval=1.0)
        clean = jnp.sin(rate * jnp.arange(32.0)[None])
        view1, view2 = (clean + 0.1 * jax.random.normal(k, clean.shape) for k in noise)
        return an.Pairs(view1, view2)


class Network(nnx.Module):
    def __init__(self, rngs):
        self.hidden = nnx.Linear(32, 16, rngs=rngs)
        self.norm = nnx.BatchNorm(16, rngs=rngs)
        self.out = nnx.Linear(16, 4, rngs=rngs)

    def __call__(self, x):
        return self.out(jax.nn.relu(self.norm(self.hidden(x))))


def make_experiment(**changes):
    settings = {
        "name": "waves",
        "steps": 40,
        "batch_size": 16,
        "steps_per_dispatch": 5,
        "ema_decay": 0.9,
        "evaluation": an.EvalConfig(every=20, held_out_batches=2),
        "checkpoint": an.CheckpointConfig(every=5),
        "log": an.LogConfig(every=5, tensorboard=False),
    }
    return an.Experiment(
        ShiftedWaves(),
        an.NNXEncoder(Network),
        an.objectives.AnInfoNCE(negatives="both"),
        optax.adam(1e-2),
        **(settings | changes),
    )


if __name__ == "__main__":
    an.train(make_experiment(), sys.argv[1], progress="plain")
