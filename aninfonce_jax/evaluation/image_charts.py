"""The charts of image runs: panels for the page, and pictures for papers."""

import functools
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np

from aninfonce_jax.evaluation.figures import draw_loss
from aninfonce_jax.evaluation.image_figures import (
    AUGMENTATIONS,
    CURVES,
    STRENGTHS,
    ImageRun,
    Readings,
    draw_accuracy,
    draw_profile,
    draw_rank,
    draw_readouts,
    draw_spread,
    draw_strengths,
    is_repeat,
)
from aninfonce_jax.evaluation.panels import (
    STYLE,
    Chart,
    Draw,
    Key,
    overview_chart,
    panel_chart,
)
from aninfonce_jax.evaluation.table import FEATURES
from aninfonce_jax.evaluation.workdir import WorkDir, as_number, interval_of

_ROW_HEIGHT = 0.19  # inches for each run within an augmentation's row


def image_run(run: WorkDir, label: str, color: str) -> ImageRun:
    """What the figures need of a work directory."""
    before = run.final.get("untrained")
    before = before if isinstance(before, Mapping) else {}
    profiles = [_profile(row.get("concentration")) for row in (*run.evals, run.final)]
    profiles = [profile for profile in profiles if profile.size] or [np.zeros(0)]
    return ImageRun(
        label=label,
        color=color,
        loss_family="contrastive",
        train_steps=_column(run.train, "step"),
        train_loss=_column(run.train, "loss"),
        eval_steps=_column(run.evals, "step"),
        eval_loss=_column(run.evals, "loss"),
        floor=math.nan,
        curves={name: _column(run.evals, name) for name in CURVES},
        ends={name: _ends(run.final, name) for name in CURVES},
        chance=run.number("chance"),
        readouts=_readings(run.final, before, "readouts", AUGMENTATIONS),
        strengths=_readings(run.final, before, "strength_r2", STRENGTHS),
        concentration_first=profiles[0],
        concentration_last=profiles[-1],
        spread=_profile(run.final.get("spread")),
    )


def _column(rows: Sequence[Mapping[str, Any]], key: str) -> np.ndarray:
    return np.array([as_number(row.get(key)) for row in rows])


def _profile(values: Any) -> np.ndarray:
    """[outputs] the known values from large to small; empty if there are none."""
    numbers = [as_number(value) for value in values] if isinstance(values, list) else []
    return np.array(sorted((value for value in numbers if value >= 0), reverse=True))


def _readings(
    final: Mapping[str, Any], before: Mapping[str, Any], key: str, names: Sequence[str]
) -> dict[str, Readings]:
    def vector(source: Mapping[str, Any], features: str) -> np.ndarray:
        values = source.get(key)
        values = values.get(features) if isinstance(values, Mapping) else None
        values = values if isinstance(values, Mapping) else {}
        return np.array([as_number(values.get(name)) for name in names])

    return {
        features: Readings(
            vector(final, features),
            np.stack([_ends(final, key, features, name) for name in names]),
            vector(before, features),
        )
        for features in FEATURES
    }


def _ends(final: Mapping[str, Any], *keys: str) -> np.ndarray:
    """[2] the ends of an interval; NaN if there is none."""
    return np.array(interval_of(final, *keys) or [math.nan, math.nan])


def draw_image_charts(runs: Sequence[ImageRun], folder: pathlib.Path) -> dict[str, Chart]:
    """Draws every chart, and writes each as PNG and SVG into `folder`.

    Args:
      runs: at least one run.
      folder: an existing folder.

    Returns:
      The charts by name: readouts, strengths, accuracy, loss, concentration, rank, spread.
    """
    with matplotlib.rc_context(STYLE):
        charts = [
            _dot_chart("readouts", "Which augmentations can be told", draw_readouts, runs, folder),
            _dot_chart(
                "strengths", "How strong each augmentation was", draw_strengths, runs, folder
            ),
            panel_chart(
                "accuracy",
                "Class accuracy",
                [*_run_keys(runs, "line"), Key("guessing", "muted", "dash")],
                [
                    ("Nearest neighbours", _bind(draw_accuracy, runs, "knn_accuracy")),
                    ("Linear probe", _bind(draw_accuracy, runs, "probe_accuracy")),
                ],
                folder,
            ),
            panel_chart(
                "loss",
                "Loss",
                [Key("held-out loss", "ink", "line"), Key("training batches", "muted", "line")],
                [(run.label, functools.partial(draw_loss, run=run, runs=runs)) for run in runs],
                folder,
            ),
            _sorted_chart(
                "concentration",
                "Learned concentration Λ̂ of every output",
                [run.concentration_last for run in runs],
                [Key("at the first evaluation", "muted", "dash")],
                draw_profile,
                runs,
                folder,
            ),
            panel_chart(
                "rank",
                "Effective rank of the features",
                _run_keys(runs, "line"),
                [
                    (name.capitalize(), _bind(draw_rank, runs, f"effective_rank_{name}"))
                    for name in FEATURES
                ],
                folder,
            ),
            _sorted_chart(
                "spread",
                "Spread of every output",
                [run.spread for run in runs],
                [],
                draw_spread,
                runs,
                folder,
            ),
        ]
    return {chart.name: chart for chart in charts}


def _bind(draw: Callable[..., None], runs: Sequence[ImageRun], what: str) -> Draw:
    return lambda ax: draw(ax, runs, what)


def _run_keys(runs: Sequence[ImageRun], mark: str) -> list[Key]:
    return [
        Key(run.label, run.color, mark, hatch="////" if is_repeat(index) else "")
        for index, run in enumerate(runs)
    ]


def _dot_chart(
    name: str,
    title: str,
    draw: Callable[..., None],
    runs: Sequence[ImageRun],
    folder: pathlib.Path,
) -> Chart:
    """A panel for each kind of features; its height follows the number of dots."""
    guess = "guessing" if name == "readouts" else "nothing can be read"
    keys = [*_run_keys(runs, "dot"), Key(guess, "muted", "dash")]
    readings = [run.readouts if name == "readouts" else run.strengths for run in runs]
    before = [reading.untrained for own in readings for reading in own.values()]
    if np.isfinite(np.concatenate(before)).any():
        keys.append(Key("before training", "muted", "tick"))
    if any(np.isfinite(reading.intervals).any() for own in readings for reading in own.values()):
        keys.append(Key("broad: 95 % interval", "muted", "line"))
    size = 3.9, 0.9 + len(AUGMENTATIONS) * max(0.3, _ROW_HEIGHT * len(runs))
    panels = [(features.capitalize(), _bind(draw, runs, features)) for features in FEATURES]
    return panel_chart(name, title, keys, panels, folder, size)


def _sorted_chart(
    name: str,
    title: str,
    values: Sequence[np.ndarray],
    keys: Sequence[Key],
    draw: Callable[..., None],
    runs: Sequence[ImageRun],
    folder: pathlib.Path,
) -> Chart:
    """One wide panel with a line through the sorted outputs of each run that has values."""
    bound = functools.partial(draw, runs=runs)
    own = [key for key, line in zip(_run_keys(runs, "line"), values, strict=True) if line.size]
    size, narrow = ((8.8, 3.2), bound), ((3.9, 3.0), bound)
    return overview_chart(name, title, [*own, *keys], size, narrow, folder)
