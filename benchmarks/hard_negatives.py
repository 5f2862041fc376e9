"""The loss along Λ̂ at the true encoder, with hard negatives (Cor. 3.1, Fig. 10 of the paper).

    python benchmarks/hard_negatives.py [--dim=20] [--plus=150] [--minus=100] [--own=15]
        [--anchors=16384] [--seeds=3] [--output=hard_negatives.png]

Anchors are uniform on the sphere; positives follow Λ⁺, an anchor's own negatives Λ⁻. The loss with
these alone should be smallest at Λ⁺ - Λ⁻. Beside it: the loss where they join ordinary negatives,
for which theory names no minimum. It prints the minima of each seed and draws both curves.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import pyplot as plt

from aninfonce_jax.dgp.conditionals import VonMisesFisher
from aninfonce_jax.dgp.marginals import Uniform
from aninfonce_jax.dgp.spaces import Sphere
from aninfonce_jax.losses.contrast import aninfonce_loss
from aninfonce_jax.losses.own_negatives import own_negatives_loss
from aninfonce_jax.types import Array

# Anchors that ordinary negatives are drawn among, and halvings of the interval of the minimum.
BATCH, HALVINGS = 512, 14


def draw(seed: int, args: argparse.Namespace) -> tuple[Array, Array, Array]:
    """Returns anchors and positives [anchors, dim], and own negatives [anchors, own, dim]."""
    keys, sphere = jax.random.split(jax.random.key(seed), 3), Sphere(args.dim)
    anchors = Uniform().sample(keys[0], sphere, args.anchors)
    near = VonMisesFisher(args.plus).sample(keys[1], sphere, anchors)
    repeated = jnp.repeat(anchors, args.own, axis=0)
    own = VonMisesFisher(args.minus).sample(keys[2], sphere, repeated)
    return anchors, near, own.reshape(args.anchors, args.own, args.dim)


def alone(concentration: Array, points: tuple[Array, Array, Array]) -> Array:
    """Returns the loss with an anchor's own negatives alone."""
    return own_negatives_loss(*points, concentration)


def joined(concentration: Array, points: tuple[Array, Array, Array]) -> Array:
    """Returns the loss where they join ordinary ones, in one batch."""
    view1, view2, own = (x[:BATCH] for x in points)
    ordinary = aninfonce_loss(view1, view2, concentration, negatives="anchors").per_anchor
    return own_negatives_loss(view1, view2, own, concentration, ordinary=ordinary)


def minimum(slope, points, low: float, high: float) -> float:
    """Returns where a convex loss is smallest, by halving."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle, points) < 0 else (low, middle)
    return (low + high) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dim", type=int, default=20)
    parser.add_argument("--plus", type=float, default=150.0)
    parser.add_argument("--minus", type=float, default=100.0)
    parser.add_argument("--own", type=int, default=15)
    parser.add_argument("--anchors", type=int, default=2**14)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", default="hard_negatives.png")
    args = parser.parse_args()
    if args.minus >= args.plus:
        parser.error(f"--minus={args.minus:g} must be below --plus={args.plus:g}")
    best = args.plus - args.minus
    slopes = {loss.__name__: jax.jit(jax.grad(loss)) for loss in (alone, joined)}
    for seed in range(args.seeds):
        points = draw(seed, args)
        found = {name: minimum(slope, points, 0.0, 2 * args.plus) for name, slope in slopes.items()}
        error = found["alone"] / best - 1
        print(
            f"seed {seed}: alone smallest at {found['alone']:.2f}, {error:+.2%} from Λ⁺ - Λ⁻ = "
            f"{best:g}; joined to {BATCH - 1} ordinary ones at {found['joined']:.1f}"
        )
    values = np.geomspace(best / 10, 2 * args.plus, 60)
    figure, axes = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
    for loss in (alone, joined):
        jitted = jax.jit(loss)
        axes.plot(values, [jitted(value, points) for value in values], label=loss.__name__)
    axes.axvline(best, color="black", lw=1, ls="--", label=f"Λ⁺ - Λ⁻ = {best:g}")
    axes.set(xscale="log", xlabel="Λ̂", ylabel="loss of the true encoder")
    axes.legend()
    figure.savefig(args.output, dpi=150)
    print(f"drawn in {args.output}")


if __name__ == "__main__":
    main()
