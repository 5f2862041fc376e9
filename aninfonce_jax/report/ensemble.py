"""The section of ensembles: what each member has learned, and how its loss fell."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from aninfonce_jax.remote import AnyPath
from aninfonce_jax.report.figures import (
    COLORS,
    DASHED,
    RUN_COLORS,
    column,
    finite,
    say_nothing_recorded,
    step_axis,
)
from aninfonce_jax.report.groups import Comparison
from aninfonce_jax.report.panels import Drawing, Key, panel_chart
from aninfonce_jax.report.runs import WorkDir, as_vector
from aninfonce_jax.report.section import Section
from aninfonce_jax.report.wording import percent
from aninfonce_jax.scores.registry import (
    MEMBER_CONCENTRATION_ERRORS,
    MEMBER_CONCENTRATIONS,
    MEMBER_CONCENTRATIONS_TRUE,
    PREDICTION,
    STEP,
    member_loss,
)


@dataclasses.dataclass(frozen=True)
class Members:
    """What the figures show of an ensemble; NaN stands for what was not recorded.

    Attributes:
      steps: [rows] of training.
      losses: [members, rows].
      learned: [members, dim], Λ̂ after the last evaluation.
      true: [members, dim].
    """

    steps: np.ndarray
    losses: np.ndarray
    learned: np.ndarray
    true: np.ndarray


def ensemble_section(page: Comparison, folder: AnyPath) -> Section | None:
    """The section of those runs that are ensembles of several members; None if there are none."""
    own = page.where(lambda run: _count(run) > 1)
    if not own.entries:
        return None
    runs = [members_of(entry.run) for entry in own.entries]
    most = max(len(run.losses) for run in runs)
    keys = [Key(f"member {place + 1}", _color(place), "line") for place in range(most)]
    charts = [
        panel_chart(
            "member_losses",
            "Loss of each member",
            keys,
            [
                Drawing(entry.label, "", functools.partial(draw_losses, run=run))
                for entry, run in zip(own.entries, runs, strict=True)
            ],
            folder,
        )
    ]
    if any(finite(run.learned).size for run in runs):
        truth = [Key("true values", "muted", "dash")]
        is_known = any(finite(run.true).size for run in runs)
        charts.append(
            panel_chart(
                "member_concentrations",
                "Learned concentration Λ̂ of each member",
                keys + (truth if is_known else []),
                [
                    Drawing(
                        entry.label, _errors(entry.run), functools.partial(draw_learned, run=run)
                    )
                    for entry, run in zip(own.entries, runs, strict=True)
                ],
                folder,
            )
        )
    predictions = [
        (entry.label, entry.run.final[PREDICTION])
        for entry in own.entries
        if isinstance(entry.run.final.get(PREDICTION), str)
    ]
    return Section(
        "ensemble", own, None, {chart.name: chart for chart in charts}, {"predictions": predictions}
    )


def _count(run: WorkDir) -> int:
    """How many members have their loss among the rows of training."""
    rows = run.train[-1:]
    return next(i for i in itertools.count() if not any(member_loss(i + 1) in row for row in rows))


def members_of(run: WorkDir) -> Members:
    """What the figures need of a run."""
    count = _count(run)
    learned, true = (
        _rows(run.final.get(key), count)
        for key in (MEMBER_CONCENTRATIONS, MEMBER_CONCENTRATIONS_TRUE)
    )
    return Members(
        steps=column(run.train, STEP),
        losses=np.stack([column(run.train, member_loss(i + 1)) for i in range(count)]),
        learned=learned,
        true=true if true.shape == learned.shape else np.full_like(learned, math.nan),
    )


def _rows(values: object, count: int) -> np.ndarray:
    """[members, dim] numbers; [members, 0] if the list is missing or of another length."""
    if not isinstance(values, list) or len(values) != count:
        return np.zeros((count, 0))
    lengths = [len(row) if isinstance(row, list) else 0 for row in values]
    return np.stack([as_vector(row, max(lengths)) for row in values])


def _color(place: int) -> str:
    return RUN_COLORS[place % len(RUN_COLORS)]


def _errors(run: WorkDir) -> str:
    errors = run.final.get(MEMBER_CONCENTRATION_ERRORS)
    if not isinstance(errors, list):
        return ""
    found: Sequence[float] = as_vector(errors, len(errors)).tolist()
    return "largest errors " + ", ".join(percent(x) if math.isfinite(x) else "–" for x in found)


def draw_losses(ax: Axes, run: Members) -> None:
    """The training loss of each member."""
    for place, losses in enumerate(run.losses):
        ax.plot(run.steps, losses, color=COLORS[_color(place)], lw=1.4)
    ax.set_ylabel("training loss")
    step_axis(ax, run.steps)


def draw_learned(ax: Axes, run: Members) -> None:
    """The Λ̂ of each member, factor by factor, and dashed the true ones."""
    if not finite(run.learned).size:
        say_nothing_recorded(ax, "no learned Λ was recorded")
        return
    places = np.arange(1, run.learned.shape[1] + 1)
    for place, (learned, true) in enumerate(zip(run.learned, run.true, strict=True)):
        color = COLORS[_color(place)]
        marker = "o" if places.size <= 32 else ""
        ax.plot(places, learned, color=color, lw=1.2, marker=marker, ms=4)
        ax.step(places, true, where="mid", color=color, lw=1.2, ls=DASHED, alpha=0.8)
    is_known = finite(run.true).size > 0
    ax.set_xlabel("true factor" if is_known else "output, by the first member's Λ̂")
    ax.set_ylabel("Λ̂")
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
