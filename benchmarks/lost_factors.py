"""Why a loosely held factor is given up early in training: the figure of docs/synthetic.md.

    python benchmarks/lost_factors.py [--output=docs/images/lost_factors.png] [--seed=0]

Left: how alike two views are in a factor of Λ = 5, and in functions of tightly held factors.
Right: the R² of every factor over a run of the quickstart's recipe at Λ = 200 and 5, with and
without its penalties; and of that direction of the factors that is known least, which no turning
of factors with the same Λ can hide. Two runs, some two minutes of one core.
"""

import argparse

import jax
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import recovery

from aninfonce_jax.build import build_experiment
from aninfonce_jax.placement import Placement
from aninfonce_jax.scores import identifiability
from aninfonce_jax.scores.lost import untold, whitened

TIGHT = (25.0, 100.0, 200.0)
LOOSE = 5.0
SETTING = "bimodal-200-5"
WITHOUT = {"objective.spreading": 0.0, "objective.keeping": 0.0}
PAIRS = 100_000
COLORS = {"content": "#0072b2", "style": "#d55e00"}


def correlations(high: float) -> dict[str, float]:
    """Returns how alike two views are in functions of their latents."""
    run = recovery.make_run(
        "bimodal-25-5",
        "quickstart",
        0,
        {"source.concentration.high": high, "train.batch_size": PAIRS},
    )
    source = build_experiment(run.config).source
    pairs = source.pairs(jax.random.key(0), None, PAIRS)
    one, other = np.asarray(pairs.latents1), np.asarray(pairs.latents2)
    functions = {
        "style": lambda z: z[:, -1],
        "content": lambda z: z[:, 0],
        "its square": lambda z: z[:, 0] ** 2,
        "product of two": lambda z: z[:, 0] * z[:, 1],
        "product of three": lambda z: z[:, 0] * z[:, 1] * z[:, 2],
    }
    return {
        name: float(np.corrcoef(function(one), function(other))[0, 1])
        for name, function in functions.items()
    }


def curves(seed: int, recipe: dict[str, float]) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Trains a run; returns steps, the R² of every factor at each, and of the worst direction."""
    run = recovery.make_run(SETTING, "quickstart", seed, recipe)
    experiment = build_experiment(run.config)
    latents = experiment.source.known.latents
    assert latents is not None
    z, x = jax.jit(lambda key: latents.draw(key, recovery.SAMPLES))(jax.random.key(seed))
    z = np.asarray(z, np.float64)
    embed = jax.jit(experiment.embed)
    factors = (z - z.mean(axis=0)) / z.std(axis=0)
    steps, rows, worst = [], [], []
    for done, weights in recovery.training(experiment, Placement.local(1)):
        features = np.asarray(embed(weights, x), np.float64)
        steps.append(done)
        rows.append(identifiability.linear_r2_per_factor(factors, features))
        outputs, _ = whitened(features, 1e-3)
        worst.append(1 - np.linalg.eigvalsh(untold(outputs, factors))[-1])
    return steps, np.array(rows), np.array(worst)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="docs/images/lost_factors.png")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    found = {high: correlations(high) for high in TIGHT}
    for index, (high, values) in enumerate(found.items()):
        places = np.arange(len(values)) + 0.27 * (index - 1)
        axes[0].bar(places, list(values.values()), 0.25, label=f"Λ = {high:g} and {LOOSE:g}")
        print(f"Λ = {high:g}: " + ", ".join(f"{name} {x:.2f}" for name, x in values.items()))
    axes[0].set_xticks(range(len(values)), [name.replace(" of ", "\nof ") for name in values])
    axes[0].set_ylabel("correlation between views")
    axes[0].set_ylim(0, 1.4)
    axes[0].set_yticks(np.linspace(0, 1, 6))
    axes[0].legend(frameon=False, loc="upper left")
    for ax, (title, recipe) in zip(
        axes[1:], (("the loss alone", WITHOUT), ("with the penalties", {})), strict=True
    ):
        steps, rows, worst = curves(arguments.seed, recipe)
        for factor in range(rows.shape[1]):
            kind = "content" if factor < rows.shape[1] // 2 else "style"
            ax.plot(steps, rows[:, factor], color=COLORS[kind], label=kind)
        ax.plot(steps, np.maximum(worst, 0), color="black", ls="--", label="worst direction")
        handles = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
        ax.legend(handles.values(), handles, frameon=False, loc="center right")
        ax.set(
            title=f"Λ = 200 and 5, {title}",
            xlabel="step",
            ylabel="R² of a factor",
            ylim=(-0.02, 1.02),
        )
        print(f"{title}: R² of the worst factor {rows[-1].min():.3f}")
        print("  of the worst direction: " + ", ".join(f"{x:.2f}" for x in worst))
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(arguments.output, dpi=130)


if __name__ == "__main__":
    main()
