"""Work directories with scores of one's choice, derived from those that the loop wrote.

Every entry and every setting that is changed must be one that the loop wrote, under that name;
what is not asked for is left out, so that pages stay small.
"""

import copy
import dataclasses
import json
import math

import numpy as np

from aninfonce_jax.scores import registry
from aninfonce_jax.workdir import (
    EVAL_FILE,
    METRICS_FILE,
    read_eval,
    read_metrics,
    read_saved,
    rows_of,
    write_config,
)

CONTENT, STYLE = 25.0, 5.0
SPLIT = "split"
LAYERS = ("backbone", "projector")


@dataclasses.dataclass(frozen=True)
class Written:
    """What the loop wrote for one run: its config, its last rows and its last evaluation."""

    config: dict
    train: dict
    evaluated: dict
    last: dict

    @classmethod
    def read(cls, folder):
        saved = read_saved(folder)
        rows = read_metrics(folder / METRICS_FILE)
        train, evaluated = (list(rows_of(rows, split))[-1] for split in ("train", "eval"))
        return cls(saved.values, train, evaluated, read_eval(folder, saved.hash).scores)

    def changed_config(self, changes):
        """The config with other values of dotted names, which it must have."""
        config = copy.deepcopy(dict(self.config))
        for name, value in changes.items():
            *sections, key = name.split(".")
            inside = config
            for section in sections:
                inside = inside[section]
            assert key in inside, name
            inside[key] = value
        return config


def only(written, entries):
    """The entries, if what the loop wrote has them all."""
    strange = set(entries) - set(written)
    assert not strange, f"the loop writes no {strange}"
    return entries


def around(scores, margin):
    """An interval of the same width around each score, in the layout of the scores."""
    if isinstance(scores, dict):
        return {name: around(value, margin) for name, value in scores.items()}
    if isinstance(scores, list):
        return [around(value, margin) for value in scores]
    return [scores - margin, scores + margin]


def write(folder, config, rows, last):
    """Writes the three files of a work directory; the evaluation without its digest."""
    folder.mkdir(parents=True)
    write_config(folder, config, "")
    rows = sorted(rows, key=lambda row: row[registry.STEP])
    (folder / METRICS_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / EVAL_FILE).write_text(json.dumps(last))
    return folder


# --- Runs whose latents are known ---


def derive_recovery(
    written,
    folder,
    kind="aninfonce",
    *,
    content=0.998,
    style=0.996,
    dim=10,
    evals=40,
    true=None,
    margin=0.001,
    warnings=(),
    seed=0,
    steps=3000,
    batch_size=1000,
):
    """A work directory with the final scores that are asked for.

    Args:
      written: what the loop wrote for a run of AnInfoNCE on a process.
      folder: to make.
      kind: the objective.
      content: R² of the content factors.
      style: R² of the style factors.
      dim: how many factors.
      evals: how many evaluations.
      true: Λ, [dim].
      margin: half the width of every interval; None for none, as older runs have it.
      warnings: of the last evaluation.
      seed: of the run.
      steps: of the run.
      batch_size: of the run.
    """
    rng = np.random.default_rng(7)
    true = np.repeat([CONTENT, STYLE], dim // 2) if true is None else np.asarray(true)
    rows = []
    for step in range(50, steps + 1, 50):
        progress = 1 - math.exp(-5 * step / steps)
        loss = 7.6 - progress * 3.22 + 0.02 * rng.standard_normal()
        row = {registry.STEP: step, SPLIT: "train", registry.LOSS.key: loss}
        rows.append(only(written.train, row))
    for step in np.linspace(steps / evals, steps, evals).astype(int).tolist():
        late = step / steps
        grown = (1 - math.exp(-9 * late)) / (1 - math.exp(-9))
        slow = (1 / (1 + math.exp(-14 * (late - 0.4)))) / (1 / (1 + math.exp(-8.4)))
        learned = {
            "supervised": None,
            "infonce": np.full(true.size, 0.7 + 14 * grown),
        }.get(kind, true * (0.05 + 0.93 * slow) + 0.1 * rng.random(true.size))
        loss = 7.6 - 3.24 * (1 - math.exp(-5 * late))
        row = _recovery_row(rng, step, true, content * grown, style * slow, learned, loss)
        rows.append(only(written.evaluated, row))
    last = {key: value for key, value in rows[-1].items() if key != SPLIT} | {
        registry.MAP: _map(rng, true, content, style).tolist(),
        registry.CONCENTRATION_TRUE: true.tolist(),
        registry.PARAMETERS: 1_234_567,
        registry.SECONDS: 151.4,
    }
    if margin is not None:
        last[registry.INTERVALS] = _recovery_intervals(written, last, margin)
    if warnings:
        last[registry.WARNINGS] = list(warnings)
    config = written.changed_config(
        {
            "name": "quickstart",
            "seed": seed,
            "source.dim": true.size,
            "objective.kind": kind,
            "train.steps": steps,
            "train.batch_size": batch_size,
        }
    )
    return write(folder, config, rows, only(written.last, last))


def _recovery_row(rng, step, true, content, style, learned, loss):
    is_content = true > (true.min() + true.max()) / 2
    r2 = np.where(is_content, content, style) - 0.004 * rng.random(true.size)
    row = {
        registry.STEP: step,
        SPLIT: "eval",
        registry.R2.key: float(r2.mean()),
        registry.R2_PER_FACTOR: r2.tolist(),
        registry.MCC_PEARSON.key: 0.68,
        registry.MCC_SPEARMAN.key: 0.67,
        registry.LOSS.key: loss,
        registry.LOSS_FLOOR.key: 4.3521,
        registry.BLOCK_ENERGY: 0.97,
        registry.BLOCK_ORTHOGONALITY: 0.98,
    }
    if is_content.any():
        row |= {
            registry.R2_CONTENT.key: float(r2[is_content].mean()),
            registry.R2_STYLE.key: float(r2[~is_content].mean()),
        }
    if learned is not None:
        row |= {
            registry.CONCENTRATION: learned.tolist(),
            registry.CONCENTRATION_ERROR.key: float(np.abs(learned / true - 1).mean()),
        }
    return row


def _recovery_intervals(written, last, margin):
    """Intervals around every score of which the loop writes one."""
    found = {key: last[key] for key in written.last[registry.INTERVALS] if key in last}
    gap = last[registry.LOSS.key] - last[registry.LOSS_FLOOR.key]
    found |= {registry.LOSS_ABOVE_FLOOR: gap}
    return around(only(written.last[registry.INTERVALS], found), margin)


def _map(rng, true, content, style):
    """Rotations within the blocks of equal Λ, faint where the factors are lost."""
    dim = true.size
    result = 0.02 * rng.standard_normal((dim, dim))
    for value in np.unique(true):
        block = np.flatnonzero(true == value)
        r2 = content if value > (true.min() + true.max()) / 2 else style
        rotation = np.linalg.qr(rng.standard_normal((block.size, block.size)))[0]
        result[np.ix_(block, block)] += math.sqrt(max(r2, 0)) * rotation
    return result


# --- Runs whose examples are known ---


def derive_readouts(
    written,
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
    dataset="cifar10",
    seed=0,
    steps=2000,
):
    """A work directory of a run on images, with the final scores that are asked for.

    Args:
      written: what the loop wrote for a run of AnInfoNCE on images.
      folder: to make.
      kind: the objective.
      backbone: accuracy of the classes and average of the augmentations.
      projector: likewise.
      untrained: whether the network before training was evaluated.
      evals: how many evaluations.
      dim: outputs of the projector.
      margin: half the width of every interval; None for none, as older runs have it.
      warnings: of the last evaluation.
      dataset: its name.
      seed: of the run.
      steps: of the run.
    """
    rng = np.random.default_rng(3)
    rows = []
    for step in range(20, steps + 1, 20):
        progress = 1 - math.exp(-4 * step / steps)
        row = {
            registry.STEP: step,
            SPLIT: "train",
            registry.STEPS_PER_SECOND: 4.0,
            registry.LOSS.key: 5.4 - 1.2 * progress + 0.05 * rng.standard_normal(),
            registry.EXAMPLES_PER_SECOND: 1024.0,
            registry.DATA_WAIT_SHARE: 0.031,
            registry.UNREADABLE: 0,
        }
        rows.append(only(written.train, row))
    for step in np.linspace(steps / evals, steps, evals).astype(int).tolist():
        scores = _evaluation(rng, kind, step / steps, dim)
        row = {registry.STEP: step, SPLIT: "eval", **scores}
        rows.append(only(written.evaluated, row))
    last = {
        **{key: value for key, value in rows[-1].items() if key != SPLIT},
        registry.SPREAD: np.linspace(0.2, 1.4, dim).tolist(),
        registry.PARAMETERS: 11_234_567,
        registry.SECONDS: 1234.5,
        registry.CHANCE: 0.1,
        **_read(written.last, rng, backbone, projector, margin),
    }
    if margin is not None:
        scored = (registry.LOSS, registry.KNN_ACCURACY, registry.PROBE_ACCURACY)
        found = {score.key: last[score.key] for score in scored}
        last[registry.INTERVALS] |= around(only(written.last[registry.INTERVALS], found), margin)
    if warnings:
        last[registry.WARNINGS] = list(warnings)
    if untrained:
        rng = np.random.default_rng(4)  # the same network whatever the objective
        before = written.last[registry.UNTRAINED]
        last[registry.UNTRAINED] = _read(before, rng, (0.301, 0.683), (0.221, 0.604), margin)
    config = written.changed_config(
        {
            "name": "cifar10_small",
            "seed": seed,
            "source.dataset": dataset,
            "source.folder": "",
            "objective.kind": kind,
            "train.steps": steps,
        }
    )
    return write(folder, config, rows, only(written.last, last))


def _evaluation(rng, kind, late, dim):
    """Scores of an evaluation at the share `late` of the run."""
    grown = 1 - math.exp(-4 * late)
    steep = {"infonce": 0.0, "aninfonce": 2.2}.get(kind, 1.3) * late
    lost = {"infonce": 0.0, "aninfonce": 0.03}.get(kind, 0.08) * late
    backbone, projector = (registry.effective_rank(layer).key for layer in LAYERS)
    return {
        registry.LOSS.key: 5.4 - 1.1 * grown,
        registry.KNN_ACCURACY.key: 0.22 + 0.28 * grown - lost + 0.005 * rng.standard_normal(),
        registry.PROBE_ACCURACY.key: 0.28 + 0.27 * grown - lost + 0.005 * rng.standard_normal(),
        backbone: 9 + 30 * grown,
        projector: 4 + (12 if kind == "infonce" else 25) * grown,
        registry.SPREAD_MIN.key: 0.02,
        registry.SPREAD_MEDIAN.key: 0.08,
        registry.CONCENTRATION: (4 * np.exp(steep * np.linspace(1, -1, dim) ** 3)).tolist(),
    }


def _read(written, rng, backbone, projector, margin):
    """What is read off both layers."""
    pairs = dict(zip(LAYERS, (backbone, projector), strict=True))
    readouts, strengths = written[registry.READOUTS], written[registry.STRENGTHS]
    scores = {
        registry.READOUTS: {
            layer: only(readouts[layer], _readouts(*pair, rng)) for layer, pair in pairs.items()
        },
        registry.STRENGTHS: {
            layer: only(strengths[layer], _strengths(pair[1], rng)) for layer, pair in pairs.items()
        },
    }
    return scores if margin is None else {**scores, registry.INTERVALS: around(scores, margin)}


def _readouts(classes, average, rng):
    """The readouts of one layer, with the average that is asked for."""
    noise = rng.uniform(-0.04, 0.04, len(registry.AVERAGED))
    shares = average + noise - noise.mean()
    return {
        registry.CLASSES: classes,
        **dict(zip(registry.AVERAGED, shares.tolist(), strict=True)),
        registry.AVERAGE: average,
        "crop": average + 0.02,
        "blur": average - 0.03,
    }


def _strengths(average, rng):
    names = (*registry.AVERAGED[1:], "crop", "blur")
    values = 1.6 * (average - 0.5) + rng.uniform(-0.05, 0.05, len(names))
    return dict(zip(names, values.tolist(), strict=True))
