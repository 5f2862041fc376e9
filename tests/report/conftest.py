"""Pages of work directories that the loop wrote, and invented ones for damage and extremes."""

import json
import math

import numpy as np
import pytest
from shared_folders import make_once

from aninfonce_jax.report import report
from aninfonce_jax.workdir import REPORT_FILE, write_config

CONTENT, STYLE = 25.0, 5.0


def fake_config(kind="aninfonce", seed=0, dim=10, steps=3000, **changes):
    config = {
        "name": "quickstart",
        "seed": seed,
        "source": {"kind": "process", "dim": dim, "concentration": {"layout": "bimodal"}},
        "objective": {"kind": kind, "temperature": 1.0},
        "train": {"steps": steps, "batch_size": 1000},
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        config[section][name] = value
    return config


def fake_map(rng, true, content, style):
    """Rotations within the blocks of equal Λ, faint where the factors are lost."""
    dim = true.size
    result = 0.02 * rng.standard_normal((dim, dim))
    for value in np.unique(true):
        block = np.flatnonzero(true == value)
        r2 = content if value > (true.min() + true.max()) / 2 else style
        rotation = np.linalg.qr(rng.standard_normal((block.size, block.size)))[0]
        result[np.ix_(block, block)] += math.sqrt(max(r2, 0)) * rotation
    return result


def fake_row(rng, step, true, content, style, learned, loss):
    is_content = true > (true.min() + true.max()) / 2
    r2 = np.where(is_content, content, style) - 0.004 * rng.random(true.size)
    row = {
        "step": step,
        "split": "eval",
        "r2": float(r2.mean()),
        "r2_per_factor": r2.tolist(),
        "mcc_pearson": 0.68,
        "mcc_spearman": 0.67,
        "loss": loss,
        "loss_floor": 4.3521,
        "block_energy": 0.97,
        "block_orthogonality": 0.98,
    }
    if is_content.any():
        row |= {
            "r2_content": float(r2[is_content].mean()),
            "r2_style": float(r2[~is_content].mean()),
        }
    if learned is not None:
        row |= {
            "concentration": learned.tolist(),
            "concentration_error": float(np.abs(learned / true - 1).mean()),
        }
    return row


def fake_intervals(row, margin):
    """Intervals of the same width around every score that is measured on examples."""
    keys = ("r2", "r2_content", "r2_style", "mcc_pearson", "mcc_spearman", "loss", "loss_floor")
    gap = row["loss"] - row["loss_floor"]
    return {
        **{key: [row[key] - margin, row[key] + margin] for key in keys if key in row},
        "r2_per_factor": [[value - margin, value + margin] for value in row["r2_per_factor"]],
        "loss_above_floor": [gap - margin, gap + margin],
    }


def make_workdir(
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
    **config,
):
    """A work directory as training leaves it, with the final scores that are asked for.

    Args:
      folder: to make.
      kind: the objective.
      content: R² of the content factors.
      style: R² of the style factors.
      dim: how many factors.
      evals: how many evaluations.
      true: Λ, [dim].
      margin: half the width of every interval; None for none, as older runs have it.
      warnings: of the last evaluation.
      **config: see `fake_config`.
    """
    rng = np.random.default_rng(7)
    true = np.repeat([CONTENT, STYLE], dim // 2) if true is None else np.asarray(true)
    steps = config.get("steps", 3000)
    rows = []
    for step in range(50, steps + 1, 50):
        progress = 1 - math.exp(-5 * step / steps)
        loss = 7.6 - progress * 3.22 + 0.02 * rng.standard_normal()
        rows.append({"step": step, "split": "train", "loss": loss, "accuracy": 0.1})
    for step in np.linspace(steps / evals, steps, evals).astype(int).tolist():
        late = step / steps
        grown = (1 - math.exp(-9 * late)) / (1 - math.exp(-9))
        slow = (1 / (1 + math.exp(-14 * (late - 0.4)))) / (1 / (1 + math.exp(-8.4)))
        learned = {
            "supervised": None,
            "infonce": np.full(true.size, 0.7 + 14 * grown),
        }.get(kind, true * (0.05 + 0.93 * slow) + 0.1 * rng.random(true.size))
        loss = 7.6 - 3.24 * (1 - math.exp(-5 * late))
        rows.append(fake_row(rng, step, true, content * grown, style * slow, learned, loss))
    last = rows[-1] | {
        "map": fake_map(rng, true, content, style).tolist(),
        "concentration_true": true.tolist(),
        "parameters": 1_234_567,
        "seconds": 151.4,
    }
    if margin is not None:
        last["intervals"] = fake_intervals(last, margin)
    if warnings:
        last["warnings"] = list(warnings)
    del last["split"]
    folder.mkdir(parents=True)
    rows.sort(key=lambda row: row["step"])
    write_config(folder, fake_config(kind, dim=true.size, **config), "")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "eval.json").write_text(json.dumps(last))
    return folder


@pytest.fixture(scope="session")
def fake_workdir():
    """Makes a work directory; see `make_workdir`."""
    return make_workdir


@pytest.fixture(scope="session")
def contrast(fake_workdir, tmp_path_factory):
    """Two invented runs, and their page: AnInfoNCE finds all, InfoNCE loses style."""
    base = tmp_path_factory.mktemp("contrast")
    folders = [
        fake_workdir(base / "an"),
        fake_workdir(base / "info", "infonce", content=0.97, style=0.06),
    ]
    return folders, report.write_report(folders, base / "out")


@pytest.fixture(scope="session")
def pages(synthetic_runs, image_runs, pairs_run, known_run, tmp_path_factory):
    """By name, the runs of a page, all written by the loop, and the page itself."""
    runs = {
        "synthetic": synthetic_runs,
        "images": image_runs,
        "pairs": [pairs_run],
        "known": [known_run],
        "mixed": [*synthetic_runs, *image_runs, pairs_run],
    }

    def make(folder):
        for name, folders in runs.items():
            report.write_report(folders, folder / name)

    folder = make_once(tmp_path_factory, "pages", make)
    return {name: (folders, folder / name / REPORT_FILE) for name, folders in runs.items()}
