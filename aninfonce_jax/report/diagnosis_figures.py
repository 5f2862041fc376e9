"""The figures of a diagnosis: a small one for each check, and one of all effects."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from aninfonce_jax.remote import AnyPath
from aninfonce_jax.report.diagnosis_words import SHIFT
from aninfonce_jax.report.figures import COLORS, DASHED, percent_axis
from aninfonce_jax.report.panels import Chart, Drawing, Key, overview_chart, panel_chart

Details = Mapping[str, Any]
Found = tuple[list[Key], list[Drawing]]

VERDICT_COLORS = {"violated": "style", "doubtful": "run-2", "holds": "run-1"}
# Effects are shown in units of what is harmless, up to here.
_MOST = 4.0
_REACH = 1.96
_NORMAL_QUANTILES = (-1.645, -0.674, 0.674, 1.645)
_EXPECTED = Key("as a uniform sphere has it", "muted", "dash")
_HARM = Key("beyond it harms", "muted", "dash")


def effects_chart(findings: Sequence[Mapping[str, Any]], folder: AnyPath | None) -> Chart:
    """All effects in units of what is harmless, the worst of each check."""
    keys = [Key(verdict, color, "dot") for verdict, color in VERDICT_COLORS.items()]
    keys.append(Key("harmless up to here", "muted", "dash"))
    draw = functools.partial(_draw_effects, findings=findings)
    height = 0.9 + 0.3 * len(findings)
    note = "; ".join(f"{one['check']} {one['verdict']}" for one in findings)
    return overview_chart(
        "diagnosis-effects", "Effects", keys, ((9.0, height), draw), ((3.9, height), draw),
        folder, note,
    )  # fmt: skip


def _draw_effects(ax: Axes, findings: Sequence[Mapping[str, Any]]) -> None:
    for place, finding in enumerate(findings):
        worst = max(finding["evidence"], key=_relative)
        color = COLORS[VERDICT_COLORS[finding["verdict"]]]
        low, high = (min(end / worst["tolerance"], _MOST) for end in worst["interval"])
        ax.hlines(place, max(low, 0), max(high, 0), color=color, lw=5, alpha=0.45)
        at = min(max(_relative(worst), 0.0), _MOST)
        ax.plot([at], [place], color=color, marker="o" if at < _MOST else ">", ms=6, clip_on=False)
    ax.axvline(1, color=COLORS["muted"], lw=1.5, ls=DASHED)
    ax.set_yticks(range(len(findings)), [finding["check"] for finding in findings])
    ax.set_xlim(0, _MOST)
    ax.set_xlabel(f"effect ÷ harmless (▸: {_MOST:.0f} or more)")
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")


def _relative(evidence: Mapping[str, Any]) -> float:
    return float(evidence["effect"]) / float(evidence["tolerance"])


def check_chart(finding: Mapping[str, Any], name: str, folder: AnyPath | None) -> Chart | None:
    """The figure of one check; None where it has none, or nothing was kept to draw."""
    check = finding["check"]
    draw = _FIGURES.get(SHIFT if check.startswith(SHIFT) else check)
    if draw is None or not finding["details"]:
        return None
    keys, panels = draw(finding)
    return panel_chart(name, check, keys, panels, folder)


def _collapse(finding: Details) -> Found:
    spread = np.array(finding["details"]["spread"])

    def draw(ax: Axes) -> None:
        ax.bar(range(len(spread)), spread, color=COLORS["content"])
        ax.axhline(1, color=COLORS["muted"], lw=1.5, ls=DASHED)
        _by_output(ax, "spread")

    return [_EXPECTED], [Drawing("Spread", f"least {spread.min():.2f}", draw)]


def _injective(finding: Details) -> Found:
    shares = np.array(finding["details"]["positive_shares"])
    told = np.array(finding["details"]["told_by_others"])

    def draw_signs(ax: Axes) -> None:
        ax.plot(shares, "o", ms=5, color=COLORS["content"])
        ax.axhline(0.5, color=COLORS["muted"], lw=1.5, ls=DASHED)
        ax.set_ylim(-0.05, 1.05)
        percent_axis(ax, "y")
        _by_output(ax, "inputs for which it is positive")

    def draw_told(ax: Axes) -> None:
        ax.bar(range(len(told)), told, color=COLORS["content"])
        ax.set_ylim(0, 1.05)
        percent_axis(ax, "y")
        _by_output(ax, "told by the other outputs")

    worst = shares[np.argmax(np.abs(shares - 0.5))]
    return [_EXPECTED], [
        Drawing("Signs", f"furthest from half: {worst:.0%}", draw_signs),
        Drawing("What the others tell", f"at most {told.max():.0%}", draw_told),
    ]


def _uniform(finding: Details) -> Found:
    details = finding["details"]
    along = details["projection"]
    means, squares = (np.array(details[key]) for key in ("scaled_means", "scaled_squares"))

    def draw_projection(ax: Axes) -> None:
        _draw_shares(ax, along["edges"], along["shares"], "content")
        ax.stairs(along["expected"], along["edges"], color=COLORS["muted"], lw=1.5, ls=DASHED)
        ax.set_xlabel(along["where"])
        ax.set_ylabel("share of the inputs")

    def draw_moments(ax: Axes) -> None:
        ax.plot(means, "o", ms=5, color=COLORS["content"])
        ax.plot(squares, "s", ms=5, color=COLORS["style"])
        for level in (0, 1):
            ax.axhline(level, color=COLORS["muted"], lw=1.5, ls=DASHED)
        _by_output(ax, "mean and mean square")

    keys = [Key("inputs; means", "content", "box"), Key("mean squares", "style", "box"), _EXPECTED]
    note = f"means within ±{np.abs(means).max():.2f}, squares {squares.min():.2f} to "
    return keys, [
        Drawing("The direction that fits worst", along["where"], draw_projection),
        Drawing("Moments of each output", f"{note}{squares.max():.2f}", draw_moments),
    ]


def _pairing(finding: Details) -> Found:
    shared = np.array(finding["details"]["shared"])
    least = 1 - finding["evidence"][0]["tolerance"]

    def draw(ax: Axes) -> None:
        ax.bar(range(len(shared)), shared, color=COLORS["content"])
        ax.axhline(least, color=COLORS["muted"], lw=1.5, ls=DASHED)
        _by_output(ax, "correlation of the views")

    keys = [Key("below it harms", "muted", "dash")]
    return keys, [Drawing("What views share", f"least {shared.min():.2f}", draw)]


def _shape(finding: Details) -> Found:
    details = finding["details"]
    quantiles = np.array(details["residual_quantiles"])

    def draw_residuals(ax: Axes) -> None:
        places = np.arange(len(quantiles))
        ax.vlines(places, quantiles[:, 0], quantiles[:, 4], color=COLORS["content"], lw=1.2)
        ax.vlines(places, quantiles[:, 1], quantiles[:, 3], color=COLORS["content"], lw=4)
        ax.plot(places, quantiles[:, 2], "o", ms=3, color=COLORS["ink"])
        for level in _NORMAL_QUANTILES:
            ax.axhline(level, color=COLORS["muted"], lw=1, ls=DASHED)
        _by_output(ax, "distance from the anchor × √Λ")

    def draw_moments(ax: Axes) -> None:
        for shift, key, color in (
            (-0.15, "skewness", "content"),
            (0.15, "excess_kurtosis", "style"),
        ):
            _draw_estimates(ax, details[key], details[f"{key}_errors"], color, shift)
        _by_output(ax, "not explained by Λ")

    keys = [
        Key("half and nine tenths of the pairs; skewness", "content", "box"),
        Key("excess kurtosis", "style", "box"),
        Key("a narrow Gaussian", "muted", "dash"),
    ]
    return keys, [
        Drawing("Residuals of each output", "", draw_residuals),
        Drawing("Skewness and tails", "", draw_moments),
    ]


def _one_mode(finding: Details) -> Found:
    worst = finding["details"]["worst"]

    def draw(ax: Axes) -> None:
        _draw_shares(ax, worst["edges"], worst["shares"], "content")
        ax.set_xlabel("distance from the anchor × √Λ")
        ax.set_ylabel("share of the pairs")

    return [], [Drawing("Where views lie", worst["where"], draw)]


def _centre(finding: Details) -> Found:
    details, tolerance = finding["details"], finding["evidence"][0]["tolerance"]

    def draw(ax: Axes) -> None:
        _draw_estimates(ax, details["everywhere"], details["everywhere_errors"], "content")
        _draw_tolerance(ax, tolerance)
        _by_output(ax, "shift, in standard deviations")

    return [_HARM], [Drawing("Shift of the views", "", draw)]


def _axes(finding: Details) -> Found:
    largest, tolerance = finding["details"]["largest"], finding["evidence"][0]["tolerance"]

    def draw(ax: Axes) -> None:
        places = np.arange(len(largest))
        effects = [one["effect"] for one in largest]
        errors = [_REACH * one["error"] for one in largest]
        ax.errorbar(effects, places, xerr=errors, fmt="o", ms=4, color=COLORS["content"], lw=1.5)
        for side in (-1, 1):
            ax.axvline(side * tolerance, color=COLORS["muted"], lw=1.5, ls=DASHED)
        ax.axvline(0, color=COLORS["muted"], lw=0.8)
        names = [one["where"].replace("dimension ", "") for one in largest]
        ax.set_yticks(places, names)
        ax.set_xlabel("coupling of the two outputs")
        ax.invert_yaxis()

    return [_HARM], [Drawing("Outputs that change together", "", draw)]


def _constant(finding: Details) -> Found:
    details = finding["details"]
    groups = details["groups"]

    def draw(ax: Axes) -> None:
        at, values, errors = (
            np.array([group[key] for group in groups])
            for key in ("position", "concentration", "error")
        )
        color = COLORS["content"]
        ax.errorbar(at, values, yerr=_REACH * errors, fmt="o-", ms=4, color=color, lw=1.5)
        ax.set_xlabel(f"inputs by their {details['along']}")
        ax.set_ylabel(f"Λ of {details['where']}")
        ax.set_ylim(0, 1.15 * float(np.max(values + _REACH * errors)))

    return [], [Drawing("Λ over the inputs", f"{details['where']}", draw)]


def _learned(finding: Details) -> Found:
    details = finding["details"]
    fitted, errors, learned = (np.array(details[key]) for key in ("fitted", "errors", "learned"))

    def draw(ax: Axes) -> None:
        color = COLORS["content"]
        ax.errorbar(fitted, learned, xerr=_REACH * errors, fmt="o", ms=4, color=color, lw=1.2)
        end = 1.08 * float(max(fitted.max(), learned.max()))
        ax.plot([0, end], [0, end], color=COLORS["muted"], lw=1.5, ls=DASHED)
        ax.set_xlabel("Λ fitted to the pairs")
        ax.set_ylabel("learned Λ̂")

    return [Key("equal", "muted", "dash")], [Drawing("Λ̂ against Λ", "", draw)]


def _negatives(finding: Details) -> Found:
    details = finding["details"]
    distances, rows = details["distances"], details["by_negatives"]
    counts = [row["negatives"] for row in rows]
    now = next(row for row in rows if row["negatives"] == details["in_training"])

    def draw_distances(ax: Axes) -> None:
        for name, color in (("positives", "positive"), ("negatives", "negative")):
            _draw_shares(ax, distances["edges"], distances[name], color)
        ax.set_xlabel("distance from the anchor, as the loss measures it")
        ax.set_ylabel("share")

    def draw_counts(ax: Axes) -> None:
        for key, color in (("left_to_learn", "content"), ("assured_r2", "floor")):
            values = [row[key] for row in rows]
            ax.plot(counts, values, color=COLORS[color], lw=1.8, marker="o", ms=3)
        ax.axvline(details["in_training"], color=COLORS["ink"], lw=1.2)
        ax.set_xscale("log")
        ax.set_ylim(-0.03, 1.03)
        percent_axis(ax, "y")
        ax.set_xlabel("negatives of an anchor")

    keys = [
        Key("positives", "positive", "box"),
        Key("negatives", "negative", "box"),
        Key("left to learn", "content", "line"),
        Key("assured R²", "floor", "line"),
        Key("in training", "ink", "tick"),
    ]
    note = f"{now['left_to_learn']:.0%} left, R² of {now['assured_r2']:.2f} assured"
    return keys, [
        Drawing("Overlap", f"{details['overlap']:.1%} of negatives are nearer", draw_distances),
        Drawing("By the number of negatives", note, draw_counts),
    ]


def _shift(finding: Details) -> Found:
    scores = finding["details"]["scores"]

    def draw(ax: Axes) -> None:
        for name, color in (("anchors", "content"), ("reference", "style")):
            _draw_shares(ax, scores["edges"], scores[name], color)
        ax.set_xlabel("score of the classifier")
        ax.set_ylabel("share")

    keys = [Key("anchors", "content", "box"), Key("the other set", "style", "box")]
    area = finding["details"]["area_under_curve"]
    return keys, [Drawing("Told apart?", f"area under the curve {area:.2f}", draw)]


_FIGURES: dict[str, Callable[[Details], Found]] = {
    "collapse": _collapse,
    "injective": _injective,
    "uniform": _uniform,
    "pairing": _pairing,
    "shape": _shape,
    "one mode": _one_mode,
    "centre": _centre,
    "axes": _axes,
    "constant Λ": _constant,
    "learned Λ": _learned,
    "negatives": _negatives,
    SHIFT: _shift,
}


def _draw_shares(ax: Axes, edges: Sequence[float], shares: Sequence[float], color: str) -> None:
    ax.stairs(shares, edges, fill=True, color=COLORS[color], alpha=0.35)
    ax.stairs(shares, edges, color=COLORS[color], lw=1.4)


def _draw_estimates(
    ax: Axes, effects: Sequence[float], errors: Sequence[float], color: str, shift: float = 0.0
) -> None:
    at = np.arange(len(effects)) + shift
    reach = _REACH * np.array(errors)
    ax.errorbar(at, effects, yerr=reach, fmt="o", ms=3, color=COLORS[color], lw=1.2)
    ax.axhline(0, color=COLORS["muted"], lw=0.8)


def _draw_tolerance(ax: Axes, tolerance: float) -> None:
    for side in (-1, 1):
        ax.axhline(side * tolerance, color=COLORS["muted"], lw=1.5, ls=DASHED)


def _by_output(ax: Axes, label: str) -> None:
    ax.set_xlabel("output")
    ax.set_ylabel(label)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
