"""Whether one recipe finds every factor, in settings that nobody tuned it for.

    python benchmarks/recovery.py [--settings=bimodal-100-5,d16] [--seeds=0,1] [--size=small]
        [--output=recovery.jsonl] [--config.KEY=VALUE ...]
    python benchmarks/recovery.py --summary=recovery.jsonl

A setting is a data-generating process, and where it is no sphere the loss that fits it. The recipe
is that of configs/quickstart.py (--size=quickstart, under a minute of one core each; --size=small,
a narrower encoder and seven times as many steps, 90 s) or of configs/synthetic.py
(--size=full), the same for all settings; flags --config.KEY=VALUE change it, as in
--config.objective.keeping=0. For each setting and seed: the R² of every factor, of which the
smallest counts; the worst error of Λ̂; MCC where the Λ are distinct; what became of a factor that
is lost; the step from which on every factor is at 0.99; and what the weakest factor is worth.

With --output every run is a line of that file, and runs that it holds already are not run again.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from aninfonce_jax import config as config_lib
from aninfonce_jax.build import build_experiment
from aninfonce_jax.config.file import load_config
from aninfonce_jax.config.parse import read_override
from aninfonce_jax.config.schema import Config
from aninfonce_jax.evaluation.worth import factor_worth
from aninfonce_jax.placement import Placement
from aninfonce_jax.scores import concentration, identifiability
from aninfonce_jax.scores.lost import monomials, untold, whitened
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.training.step import make_train_step

SIZES = {
    "quickstart": "configs/quickstart.py",
    "small": "configs/quickstart.py",
    "full": "configs/synthetic.py",
}
# Steep mixings and many factors are found by the quickstart's recipe too, but not so soon. What
# they need is many steps, rather than large ones or a wide encoder: docs/synthetic.md.
LONGER = {"small": {"train.steps": 20_000, "encoder.widths": (128, 128, 128, 128)}}
# A run has found every factor from this R² of the worst one on.
FOUND = {"quickstart": 0.97, "small": 0.97, "full": 0.99}
# What is called learned on the way there.
NEARLY = 0.99
# A factor below this R² is lost.
LOST = 0.9
# An output of which functions explain this share, beyond what is linear, holds them.
EXPLAINED = 0.5
# A factor is merged with those that have at least this share of the direction that is lost.
SHARED = 0.2
# Up to so many factors there are few enough products of three.
CUBED = 12
EVALUATIONS = 20
SAMPLES = 8192


def _bimodal(high: float, low: float) -> dict[str, Any]:
    return {"layout": "bimodal", "high": high, "low": low}


def _explicit(values: np.ndarray) -> dict[str, Any]:
    return {"layout": "explicit", "values": tuple(round(float(value), 4) for value in values)}


def _sphere(concentration: Mapping[str, Any], dim: int = 10, **mixing: Any) -> dict[str, Any]:
    return {
        "source.dim": dim,
        **{f"source.concentration.{key}": value for key, value in concentration.items()},
        **{f"source.mixing.{key}": value for key, value in mixing.items()},
    }


def _lp(space: str, conditional: str, exponent: float, **more: Any) -> dict[str, Any]:
    """A process off the sphere, and the loss of its own exponent and scale."""
    concentration = 100.0 if space == "box" else 4.0
    return {
        "source.dim": 5,
        "source.space": space,
        "source.conditional": conditional,
        "source.concentration.layout": "constant",
        "source.concentration.high": concentration,
        "objective.kind": "lp",
        "objective.exponent": exponent,
        "objective.temperature": exponent / concentration,
        "encoder.output": "box" if space == "box" else "none",
        **more,
    }


BIMODAL = _bimodal(25.0, 5.0)
SETTINGS: dict[str, dict[str, Any]] = {
    "bimodal-25-5": _sphere(BIMODAL),
    "bimodal-25-2": _sphere(_bimodal(25.0, 2.0)),
    "bimodal-25-1": _sphere(_bimodal(25.0, 1.0)),
    "bimodal-100-5": _sphere(_bimodal(100.0, 5.0)),
    "bimodal-200-5": _sphere(_bimodal(200.0, 5.0)),
    "bimodal-400-15": _sphere(_bimodal(400.0, 15.0)),
    "linear-25-5": _sphere({"layout": "linear", "high": 25.0, "low": 5.0}),
    "linear-40-2": _sphere({"layout": "linear", "high": 40.0, "low": 2.0}),
    "uneven-40-2": _sphere(_explicit(np.array([40, 40, 30, 20, 14, 9, 6, 4, 3, 2]))),
    "geometric-60-3": _sphere(_explicit(np.geomspace(60, 3, 10))),
    "constant-5": _sphere({"layout": "constant", "high": 5.0}),
    "constant-20": _sphere({"layout": "constant", "high": 20.0}),
    "constant-75": _sphere({"layout": "constant", "high": 75.0}),
    "two-factors": _sphere(BIMODAL, dim=2),
    "d3": _sphere(BIMODAL, dim=3),
    "d5": _sphere(BIMODAL, dim=5),
    "d16": _sphere(BIMODAL, dim=16),
    "d20": _sphere(BIMODAL, dim=20),
    "mixing-2": _sphere(BIMODAL, layers=2),
    "mixing-4": _sphere(BIMODAL, layers=4),
    "mixing-5": _sphere(BIMODAL, layers=5),
    "slope-0.05": _sphere(BIMODAL, slope=0.05),
    "elu": _sphere(BIMODAL, activation="elu"),
    "smooth-leaky-relu": _sphere(BIMODAL, activation="smooth_leaky_relu"),
    "softplus": _sphere(BIMODAL, activation="softplus"),
    "box-laplace": _lp("box", "laplace", 1.0),
    "box-normal": _lp("box", "normal", 2.0),
    "box-cubic": _lp("box", "generalized_normal", 3.0, **{"source.conditional_exponent": 3.0}),
    "real-normal": _lp("real", "normal", 2.0, **{"source.marginal": "normal"}),
    "real-laplace": _lp("real", "laplace", 1.0, **{"source.marginal": "normal"}),
}


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of the suite: what it is called, and all that it depends on."""

    setting: str
    size: str
    config: Config

    @property
    def identity(self) -> str:
        """A hash of all that the result depends on."""
        return config_lib.fingerprint(self.config)


def make_run(setting: str, size: str, seed: int, recipe: Mapping[str, Any]) -> Run:
    """Returns a run of the suite; `recipe` changes the size's own."""
    changes = {"compare": (), **LONGER.get(size, {}), **SETTINGS[setting], **recipe, "seed": seed}
    (config,) = config_lib.resolve(load_config(SIZES[size]), changes).runs.values()
    return Run(setting, size, config)


def train(run: Run) -> dict[str, Any]:
    """Trains a run to its end, and returns what it recovered."""
    placement = Placement.local(1)
    experiment = build_experiment(run.config)
    latents = experiment.source.known.latents
    assert latents is not None
    truth = latents.concentration
    z, x = jax.jit(lambda key: latents.draw(key, SAMPLES))(jax.random.key(run.config.seed))
    z = np.asarray(z, np.float64)
    embed = jax.jit(experiment.embed)
    curve, begin = [], time.process_time()
    for done, weights in training(experiment, placement):
        features = np.asarray(embed(weights, x), np.float64)
        curve.append((done, identifiability.linear_r2_per_factor(z, features)))
    per_factor = curve[-1][1]
    return {
        "r2": per_factor.tolist(),
        "worst": float(per_factor.min()),
        "steps_to_goal": steps_to(curve, NEARLY),
        "lost": fate_of_lost(z, features, np.max([r2 for _, r2 in curve], axis=0)),
        "mean": (math.sqrt(z.shape[1]) * np.abs(features.mean(axis=0))).tolist(),
        "curve": [(done, float(r2.min()), float(r2.mean())) for done, r2 in curve],
        "cpu_seconds": time.process_time() - begin,
        **_against_truth(experiment, weights, z, features, truth),
    }


def training(experiment: Experiment, placement: Placement) -> Iterator[tuple[int, Any]]:
    """Yields the steps done and the evaluated weights, at equal distances over the run."""
    step = make_train_step(experiment, placement)
    state = jax.jit(experiment.init_state, out_shardings=placement.whole)()
    done = 0
    for index in range(1, EVALUATIONS + 1):
        until = experiment.steps * index // EVALUATIONS
        while done < until:
            steps = min(experiment.dispatch_steps, until - done)
            state, _ = step(state, None, steps)
            done += steps
        yield done, state.evaluated


def steps_to(curve: list[tuple[int, np.ndarray]], goal: float) -> int | None:
    """Returns the step from which on every factor stays at the goal; None if there is none."""
    reached = None
    for done, per_factor in reversed(curve):
        if per_factor.min() < goal:
            break
        reached = done
    return reached


def fate_of_lost(z: np.ndarray, features: np.ndarray, best: np.ndarray) -> dict[str, str]:
    """Returns what became of every lost factor, and what its output holds instead.

    What is lost is a direction of the latents. Where it lies between several factors these are
    merged: they share outputs. Of the outputs, what is linear in the latents is left out. A large
    rest that is an even function of the lost direction is a fold; one that products of latents
    explain is a function of others. Without such a rest the direction was given up, if the factor
    was known once, or never learned.

    Args:
      z: the latents, [samples, dim].
      features: of the encoder, [samples, outputs].
      best: the highest R² of every factor along the run, [dim].
    """
    lost = np.flatnonzero(identifiability.linear_r2_per_factor(z, features) < LOST)
    factors = (z - z.mean(axis=0)) / z.std(axis=0)
    outputs, _ = whitened(features, 1e-3)
    unknown, directions = np.linalg.eigh(untold(outputs, factors))
    fates = {}
    for index in lost:
        shares = np.square(directions) * (unknown > 1 - LOST)
        own = int(np.argmax(shares[index]))
        partners = [str(k) for k in np.flatnonzero(shares[:, own] > SHARED) if k != index]
        fate = _held_instead(factors, outputs, factors @ directions[:, own])
        if fate is None:
            fate = "given up" if best[index] >= LOST else "never learned"
        fates[str(index)] = f"merged with {' and '.join(partners)}, {fate}" if partners else fate
    return fates


def _held_instead(factors: np.ndarray, outputs: np.ndarray, lost: np.ndarray) -> str | None:
    """Returns which functions of the latents some output holds, if they are most of it."""
    linear = untold(factors, outputs)
    degree = 3 if factors.shape[1] <= CUBED else 2
    kinds = {
        "folded": np.column_stack([factors, np.abs(lost), lost**2, lost**4]),
        "function of others": monomials(factors, degree),
    }
    for kind, functions in kinds.items():
        if np.linalg.eigvalsh(linear - untold(functions, outputs))[-1] >= EXPLAINED:
            return kind
    return None


def _against_truth(
    experiment: Experiment, weights: Any, z: np.ndarray, features: np.ndarray, truth: Any
) -> dict[str, Any]:
    """Returns how far Λ̂ is off, MCC where it means something, and the weakest factor's worth."""
    if truth is None:
        return {}
    found: dict[str, Any] = {}
    if len(np.unique(truth)) == len(truth):
        found["mcc"] = identifiability.mcc(z, features)
    learned = experiment.objective.concentration(weights.params["objective"], z.shape[1])
    if learned is not None:
        matrix = identifiability.recovered_map(z, features)
        matched = concentration.recovered_concentration(truth, np.asarray(learned), matrix)
        found["concentration_error"] = float(np.max(np.abs(matched / truth - 1)))
        found["worth"] = float(factor_worth(truth, experiment.batch_size).min())
    return found


# --- Reading and printing ---


def describe(row: Mapping[str, Any]) -> str:
    """Returns one run in one line."""
    parts = [f"{row['setting']:<18} seed {row['seed']}  worst R² {row['worst']:7.4f}"]
    parts.append(f"mean {np.mean(row['r2']):.4f}")
    if "concentration_error" in row:
        parts.append(f"Λ̂ off by {100 * row['concentration_error']:.1f} %")
    if "mcc" in row:
        parts.append(f"MCC {row['mcc']:.3f}")
    if row["lost"]:
        parts.append("lost: " + ", ".join(f"{k} {fate}" for k, fate in row["lost"].items()))
    if row["steps_to_goal"]:
        parts.append(f"0.99 from step {row['steps_to_goal']}")
    if "worth" in row:
        parts.append(f"the weakest is worth {row['worth']:.3f} nats")
    return "  ".join(parts)


def summarize(rows: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yields which share of the runs found every factor, for every recipe in turn."""
    for size in SIZES:
        for recipe in sorted({row["recipe"] for row in rows if row["size"] == size}):
            own = [row for row in rows if row["size"] == size and row["recipe"] == recipe]
            found = [row for row in own if row["worst"] >= FOUND[size]]
            yield (
                f"{size}{', ' + recipe if recipe else ''}: {len(found)} of {len(own)} runs found "
                f"every factor (R² of the worst at least {FOUND[size]}); of the others: "
                + (
                    ", ".join(
                        f"{r['setting']}/{r['seed']} {r['worst']:.3f}"
                        for r in own
                        if r not in found
                    )
                    or "none"
                )
            )


def read_rows(path: pathlib.Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _names(text: str) -> list[str]:
    names = text.split(",") if text else list(SETTINGS)
    for name in names:
        if name not in SETTINGS:
            sys.exit(f"unknown setting {name!r}; choose from {', '.join(SETTINGS)}")
    return names


def _changes(flags: list[str]) -> dict[str, Any]:
    changes = {}
    for flag in flags:
        name, _, text = flag.removeprefix("--config.").partition("=")
        if not flag.startswith("--config.") or not text:
            sys.exit(f"unknown flag {flag!r}; a change of the recipe is --config.KEY=VALUE")
        changes[name] = read_override(name, text)
    return changes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", default="", help="comma-separated; by default all")
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--output", type=pathlib.Path)
    parser.add_argument("--summary", type=pathlib.Path, help="only sum up this file")
    arguments, flags = parser.parse_known_args()
    if arguments.summary:
        print("\n".join(summarize(read_rows(arguments.summary))))
        return
    recipe = _changes(flags)
    rows = read_rows(arguments.output) if arguments.output else []
    names = _names(arguments.settings)
    own = []
    for seed in map(int, arguments.seeds.split(",")):
        for name in names:
            run = make_run(name, arguments.size, seed, recipe)
            row = next((row for row in rows if row["identity"] == run.identity), None)
            if row is None:
                row = {
                    "setting": name,
                    "seed": seed,
                    "size": arguments.size,
                    "recipe": " ".join(f"{key}={value}" for key, value in recipe.items()),
                    "identity": run.identity,
                    **train(run),
                }
                if arguments.output:
                    with arguments.output.open("a") as file:
                        file.write(json.dumps(row) + "\n")
            print(describe(row), flush=True)
            own.append(row)
    print("\n".join(summarize(own)))


if __name__ == "__main__":
    main()
