"""Invented work directories of runs with readouts, for damage and extremes."""

import json
import math

import numpy as np

from aninfonce_jax.workdir import write_config

AUGMENTATIONS = ("grey", "brightness", "contrast", "hue", "saturation")


def image_config(kind="aninfonce", *, dataset="cifar10", seed=0, steps=2000):
    return {
        "name": "cifar10_small",
        "seed": seed,
        "source": {"kind": "images", "dataset": dataset, "folder": ""},
        "objective": {"kind": kind, "temperature": 0.5},
        "train": {"steps": steps, "batch_size": 256},
    }


def fake_readouts(classes, average, rng):
    """The readouts of one kind of features, with the average that is asked for."""
    noise = rng.uniform(-0.04, 0.04, len(AUGMENTATIONS))
    shares = average + noise - noise.mean()
    return {
        "classes": classes,
        **dict(zip(AUGMENTATIONS, shares.tolist(), strict=True)),
        "average": average,
        "crop": average + 0.02,
        "blur": average - 0.03,
    }


def fake_strengths(average, rng):
    names = (*AUGMENTATIONS[1:], "crop", "blur")
    values = 1.6 * (average - 0.5) + rng.uniform(-0.05, 0.05, len(names))
    return dict(zip(names, values.tolist(), strict=True))


def around(scores, margin):
    """An interval of the same width around each score, in the layout of the scores."""
    if isinstance(scores, dict):
        return {name: around(value, margin) for name, value in scores.items()}
    return [scores - margin, scores + margin]


def fake_evaluation(rng, kind, late, dim):
    """A row of an evaluation at the share `late` of the run."""
    grown = 1 - math.exp(-4 * late)
    steep = {"infonce": 0.0, "aninfonce": 2.2}.get(kind, 1.3) * late
    lost = {"infonce": 0.0, "aninfonce": 0.03}.get(kind, 0.08) * late
    return {
        "loss": 5.4 - 1.1 * grown,
        "knn_accuracy": 0.22 + 0.28 * grown - lost + 0.005 * rng.standard_normal(),
        "probe_accuracy": 0.28 + 0.27 * grown - lost + 0.005 * rng.standard_normal(),
        "effective_rank_backbone": 9 + 30 * grown,
        "effective_rank_projector": 4 + (12 if kind == "infonce" else 25) * grown,
        "spread_min": 0.02,
        "spread_median": 0.08,
        "concentration": (4 * np.exp(steep * np.linspace(1, -1, dim) ** 3)).tolist(),
    }


def make_image_workdir(
    folder,
    kind="aninfonce",
    *,
    backbone=(0.52, 0.71),
    projector=(0.46, 0.62),
    untrained=True,
    evals=10,
    dim=128,
    margin=0.004,
    warnings=(),
    **config,
):
    """A work directory of an image run.

    Args:
      folder: to make.
      kind: the objective.
      backbone: accuracy of the classes and average of the augmentations.
      projector: likewise.
      untrained: whether the network before training was evaluated.
      evals: how many evaluations.
      dim: outputs of the projector.
      margin: half the width of every interval; None for none, as older runs have it.
      warnings: of the last evaluation.
      **config: see `image_config`.
    """
    rng = np.random.default_rng(3)
    saved = image_config(kind, **config)
    steps = saved["train"]["steps"]
    rows = [
        {
            "step": step, "split": "train", "grad_norm": 1.0, "steps_per_second": 4.0,
            "loss": 5.4 - 1.2 * (1 - math.exp(-4 * step / steps)) + 0.05 * rng.standard_normal(),
            "examples_per_second": 1024.0, "data_wait_share": 0.031, "unreadable_examples": 0,
        }
        for step in range(20, steps + 1, 20)
    ]  # fmt: skip
    for step in np.linspace(steps / evals, steps, evals).astype(int).tolist():
        scores = fake_evaluation(rng, kind, step / steps, dim)
        rows.append({"step": step, "split": "eval", **scores})

    def read(own_backbone, own_projector):
        pairs = {"backbone": own_backbone, "projector": own_projector}
        scores = {
            "readouts": {name: fake_readouts(*pair, rng) for name, pair in pairs.items()},
            "strength_r2": {name: fake_strengths(pair[1], rng) for name, pair in pairs.items()},
        }
        return scores if margin is None else {**scores, "intervals": around(scores, margin)}

    last = {
        **{key: value for key, value in rows[-1].items() if key != "split"},
        "spread": np.linspace(0.2, 1.4, dim).tolist(),
        "parameters": 11_234_567,
        "seconds": 1234.5,
        "chance": 0.1,
        **read(backbone, projector),
    }
    if margin is not None:
        keys = ("loss", "knn_accuracy", "probe_accuracy")
        last["intervals"] |= around({key: last[key] for key in keys}, margin)
    if warnings:
        last["warnings"] = list(warnings)
    if untrained:
        rng = np.random.default_rng(4)  # the same network whatever the objective
        last["untrained"] = read((0.301, 0.683), (0.221, 0.604))
    folder.mkdir(parents=True)
    rows.sort(key=lambda row: row["step"])
    write_config(folder, saved, "")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "eval.json").write_text(json.dumps(last))
    return folder
