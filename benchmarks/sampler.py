"""Drawing positive pairs: ours, jitted, against a vectorised shell-rejection loop in NumPy.

    python benchmarks/sampler.py

The contestants take turns, so that a busy machine slows them alike; speed-ups are medians of
the ratios within a round. NumPy gets its fast float32 generator, redraws only the rows that
still wait, and makes one or several proposals at once, whichever is faster. It does what the
paper's code does; ours draws from the same law ("shell") or from the exact density.
"""

import functools
import itertools
from collections.abc import Callable

import jax
import numpy as np
from timing import interleave

from aninfonce_jax.dgp import fisher_bingham, marginals
from aninfonce_jax.dgp.conditionals import Anisotropic, concentration_values
from aninfonce_jax.dgp.spaces import Sphere

ROUNDS = 60
SHELL = 0.1
SETTINGS = [(10, 25.0, 5.0), (20, 400.0, 15.0)]
SIZES = [1_000, 8_192]
# Proposals that a waiting row gets at once, in NumPy.
BLOCKS = [1, 4]


def numpy_pairs(
    rng: np.random.Generator, concentration: np.ndarray, n: int, block: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Draws anchors and positives [n, dim] on the unit sphere; also counts the proposals.

    A waiting row gets `block` proposals at once.
    """
    dim = concentration.size
    scale = 1 / np.sqrt(concentration)
    anchors = rng.standard_normal((n, dim), np.float32)
    anchors /= np.linalg.norm(anchors, axis=1, keepdims=True)
    positives = np.empty_like(anchors)
    waiting, proposals = np.arange(n), 0
    while waiting.size:
        rows = np.tile(waiting, block)
        proposals += rows.size
        draws = anchors[rows] + scale * rng.standard_normal((rows.size, dim), np.float32)
        norm = np.sqrt(np.einsum("ij,ij->i", draws, draws))
        kept = np.flatnonzero(np.abs(norm - 1) < SHELL)
        positives[rows[kept]] = draws[kept] / norm[kept, None]
        done = np.zeros(n, bool)
        done[rows[kept]] = True
        waiting = waiting[~done[waiting]]
    return anchors, positives, proposals


def jax_pairs(conditional: Anisotropic, n: int) -> Callable[[], object]:
    """Returns a function that draws anchors and positives and waits for them."""
    space = Sphere(np.size(conditional.concentration))

    @jax.jit
    def draw(seed: int) -> tuple[jax.Array, jax.Array]:
        anchor_key, positive_key = jax.random.split(jax.random.key(seed))
        anchors = marginals.Uniform().sample(anchor_key, space, n)
        return anchors, conditional.sample(positive_key, space, anchors)

    seeds = itertools.count()
    return lambda: jax.block_until_ready(draw(next(seeds)))


def exact_acceptance(concentration: np.ndarray) -> float:
    """Returns the share of the exact sampler's proposals that are accepted."""
    values = jax.numpy.asarray(concentration, np.float32)
    anchors = Sphere(values.size).uniform(jax.random.key(0), 20_000)
    envelope = fisher_bingham.fit_envelope(values[None, :] * anchors, values)
    return float(fisher_bingham.propose(jax.random.key(1), envelope)[1].mean())


def speedup(slow: list, fast: list) -> str:
    low, median, high = np.percentile(np.array(slow) / np.array(fast), [25, 50, 75])
    return f"{median:5.2f}x ({low:.2f}–{high:.2f})"


def main() -> None:
    print(f"{jax.default_backend()}, {ROUNDS} rounds; medians, quartiles in brackets")
    print(f"{'':24s}{'numpy shell':>14s}{'ours, shell':>14s}{'ours, exact':>14s}", end="")
    print(f"{'shell: faster by':>22s}{'exact: faster by':>22s}   accepted: numpy / exact")
    rng = np.random.default_rng(0)
    for (dim, high, low), n in itertools.product(SETTINGS, SIZES):
        concentration = concentration_values("bimodal", dim, high, low).astype(np.float32)
        contestants = {
            "shell": jax_pairs(Anisotropic(concentration, "paper", SHELL), n),
            "exact": jax_pairs(Anisotropic(concentration, "exact"), n),
        }
        for block in BLOCKS:
            contestants[f"numpy {block}"] = functools.partial(
                numpy_pairs, rng, concentration, n, block
            )
        seconds = interleave(contestants, ROUNDS)
        # Whichever block size is faster for NumPy, here and now.
        fastest = min((f"numpy {b}" for b in BLOCKS), key=lambda name: np.median(seconds[name]))
        numpy, shell, exact = (seconds[name] for name in (fastest, "shell", "exact"))
        print(f"{f'd={dim} Λ={high:g}/{low:g} n={n}':24s}", end="")
        print(
            "".join(f"{1e3 * np.median(times):11.2f} ms" for times in (numpy, shell, exact)), end=""
        )
        print(f"{speedup(numpy, shell):>22s}{speedup(numpy, exact):>22s}", end="")
        proposals = numpy_pairs(rng, concentration, 20_000, 1)[2]
        print(f"   {20_000 / proposals:.1%} / {exact_acceptance(concentration):.1%}", flush=True)


if __name__ == "__main__":
    main()
