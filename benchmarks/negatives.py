"""What more negatives buy: R² of the recovered factors against the number of negatives.

    python benchmarks/negatives.py [--dim=20] [--concentration=75] [--negatives=64,1024,4096] \
        [--pairs=1000] [--steps=1500] [--seed=0]

All factors share one Λ, as in the paper's Figures 4 and 9. Every run sees the same positive
pairs for the same number of steps, from the same start; only the negatives differ, which are
fresh anchors, encoded along in micro-batches. A small encoder, so that a CPU can do it.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax.contrib import muon

import aninfonce_jax as an
from aninfonce_jax.models.heads import OutputNormalization
from aninfonce_jax.models.mlp import MLP

WIDTHS = (200, 400, 400, 200)
LARGEST_MICROBATCH = 2048


def make_process(dim: int, concentration: float, key: jax.Array) -> an.LatentProcess:
    return an.LatentProcess(
        space=an.Sphere(dim),
        marginal=an.marginals.Uniform(),
        conditional=an.conditionals.Anisotropic(np.full(dim, concentration, np.float32)),
        mixing=an.draw_mixing(key, dim),
    )


def train(arguments: argparse.Namespace, negatives: int) -> tuple[float, float]:
    """Returns the held-out R² and the median Λ̂ after training with so many negatives."""
    root = jax.random.key(arguments.seed)
    mixing_key, init_key, data_key, test_key = jax.random.split(root, 4)
    process = make_process(arguments.dim, arguments.concentration, mixing_key)
    encoder = MLP(
        WIDTHS, arguments.dim, "leaky_relu", "looks_linear", False, OutputNormalization("sphere")
    )
    example = process.anchors(test_key, 2)[1]
    params = {
        "encoder": encoder.init(init_key, example)["params"],
        "log_concentration": jnp.full(arguments.dim, jnp.log(0.7), jnp.float32),
    }

    def encode(params: object, x: jax.Array) -> jax.Array:
        return encoder.apply({"params": params}, x)

    encode_bank = an.microbatched(encode, max(1, negatives // LARGEST_MICROBATCH))
    rate = optax.cosine_decay_schedule(1e-2, arguments.steps, 0.01)
    optimizer = optax.multi_transform(
        {"encoder": muon(rate), "log_concentration": optax.adam(lambda t: 2 * rate(t))},
        {"encoder": "encoder", "log_concentration": "log_concentration"},
    )

    def loss(params: dict, key: jax.Array) -> jax.Array:
        pair_key, bank_key = jax.random.split(key)
        pairs = process.sample(pair_key, arguments.pairs)
        bank = process.anchors(bank_key, negatives)[1]
        return an.aninfonce_loss(
            encode(params["encoder"], pairs.view1),
            encode(params["encoder"], pairs.view2),
            jnp.exp(params["log_concentration"]),
            negatives=encode_bank(params["encoder"], bank),
        ).loss

    @jax.jit
    def run(params: dict) -> dict:
        def step(carry: tuple, index: jax.Array) -> tuple[tuple, None]:
            params, state = carry
            grads = jax.grad(loss)(params, jax.random.fold_in(data_key, index))
            updates, state = optimizer.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), None

        start = params, optimizer.init(params)
        return jax.lax.scan(step, start, jnp.arange(arguments.steps))[0][0]

    params = run(params)
    latents, observations = process.anchors(test_key, 8192)
    score = an.linear_r2(latents, encode(params["encoder"], observations))
    return score, float(jnp.median(jnp.exp(params["log_concentration"])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dim", type=int, default=20)
    parser.add_argument("--concentration", type=float, default=75.0)
    parser.add_argument("--negatives", default="64,1024,4096")
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for negatives in map(int, arguments.negatives.split(",")):
        score, learned = train(arguments, negatives)
        print(
            f"d {arguments.dim}, Λ {arguments.concentration:g}, {negatives:>6} negatives: "
            f"R² {score:.4f}, median Λ̂ {learned:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
