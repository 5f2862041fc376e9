"""How the theorem's own density spreads the positives of one anchor: what a sound run would show.

    python benchmarks/view_shapes.py [--anchors=64] [--positives=500] [--seed=0]

Ten latents on the sphere, five with Λ = 25 and five with Λ = 5. The measures are those that a run
with `eval.views` has of the views of one example; docs/mnist.md compares the two.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np

import aninfonce_jax as an
from aninfonce_jax.diagnosis.findings import LEVEL
from aninfonce_jax.diagnosis.view_shapes import view_shapes

CONCENTRATION = np.repeat([25.0, 5.0], 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--anchors", type=int, default=64)
    parser.add_argument("--positives", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    sphere, conditional = an.Sphere(10), an.conditionals.Anisotropic(CONCENTRATION)
    anchor_key, key = jax.random.split(jax.random.key(arguments.seed))
    anchors = an.marginals.Uniform().sample(anchor_key, sphere, arguments.anchors)
    drawn = conditional.sample(key, sphere, jnp.repeat(anchors, arguments.positives, axis=0))
    shape = (arguments.anchors, arguments.positives, 10)
    shapes = view_shapes(np.asarray(drawn, np.float64).reshape(shape))
    print(
        f"width {shapes.widths.mean():.2f}  widest ÷ narrowest {np.median(shapes.width_ratios):.2f}"
        f"  |skewness| {np.abs(shapes.skewness).mean():.2f}"
        f"  excess kurtosis {shapes.kurtosis.mean():.2f}"
        f"  not normal {np.mean(shapes.normal < LEVEL):.0%}"
        f"  several modes {np.mean(shapes.one_mode < LEVEL):.1%}"
    )


if __name__ == "__main__":
    main()
