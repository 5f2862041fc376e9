"""The page of a diagnosis: which assumption the pairs break, for readers new to the theorem.

Made from `diagnosis.json` alone, or from what `an.diagnose` returned.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import matplotlib

from aninfonce_jax import remote
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.files import write_bytes
from aninfonce_jax.remote import AnyPath, RemotePath
from aninfonce_jax.report.diagnosis_figures import VERDICT_COLORS, check_chart, effects_chart
from aninfonce_jax.report.diagnosis_words import Words, words_of
from aninfonce_jax.report.figures import COLORS
from aninfonce_jax.report.panels import STYLE, Chart
from aninfonce_jax.report.templates import templates
from aninfonce_jax.report.wording import join_words

# Worst first.
_ORDER = tuple(VERDICT_COLORS)


class Diagnosed(Protocol):
    """What `an.diagnose` returns."""

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON holds it."""
        ...


@dataclasses.dataclass(frozen=True)
class Entry:
    """What the page says of one check.

    Attributes:
      name: of its figure and its place in the page.
      finding: what was found.
      words: what it asks.
      chart: its figure; None without.
      advice: what to do; "" where nothing has to be done.
    """

    name: str
    finding: Mapping[str, Any]
    words: Words
    chart: Chart | None
    advice: str

    @property
    def color(self) -> str:
        """The colour of its verdict."""
        return VERDICT_COLORS[self.finding["verdict"]]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Its evidence as rows of a table."""
        return [_row(evidence) for evidence in self.finding["evidence"]]


def write_diagnosis(
    found: Diagnosed, path: str | os.PathLike[str] | RemotePath, *, title: str = "pairs"
) -> AnyPath:
    """Writes what `an.diagnose` found as a page that needs no other file.

        found = an.diagnose(view1, view2)
        an.write_diagnosis(found, "diagnosis.html")

    Args:
      found: what `an.diagnose` returned.
      path: of the page; its folder is made if need be.
      title: what the page calls the pairs.

    Returns:
      The path of the page.

    Example:
      >>> view1 = np.random.default_rng(0).normal(size=(500, 3))
      >>> view2 = view1 + 0.1 * np.random.default_rng(1).normal(size=view1.shape)
      >>> an.write_diagnosis(an.diagnose(view1, view2), "diagnosis.html").name
      'diagnosis.html'
    """
    page = remote.locate(path)
    page.parent.mkdir(parents=True, exist_ok=True)
    return write_bytes(page, _render(found.to_dict(), title, None).encode())


def write_diagnosis_page(folder: AnyPath) -> AnyPath:
    """Writes `diagnosis.html`, and its figures as PNG and SVG, from a run's `diagnosis.json`.

    Returns:
      The path of the page, which needs no other file.

    Raises:
      WorkdirError: there is no such file, or it is damaged.
    """
    values = workdir_lib.read_diagnosis(folder)
    figures = folder / workdir_lib.FIGURES_FOLDER
    figures.mkdir(parents=True, exist_ok=True)
    page = _render(values["diagnosis"], values["title"], figures)
    return write_bytes(folder / workdir_lib.DIAGNOSIS_PAGE, page.encode())


def _render(values: Mapping[str, Any], title: str, figures: AnyPath | None) -> str:
    findings = sorted(values["findings"], key=lambda one: _ORDER.index(one["verdict"]))
    with matplotlib.rc_context(STYLE):
        overview = effects_chart(findings, figures)
        entries = [_entry(finding, figures) for finding in findings]
    charts = [overview, *(entry.chart for entry in entries if entry.chart is not None)]
    known = [value for value in values["concentration"] if value is not None]
    return (
        templates()
        .get_template("diagnosis.html")
        .render(
            title=title,
            pairs=values["pairs"],
            dim=values["dim"],
            reach=(min(known), max(known)) if known else None,
            summary=_summary(findings, values.get("begin_with")),
            overview_figure=overview,
            entries=entries,
            numbers={chart.name: place for place, chart in enumerate(charts, start=1)},
            has_figures=figures is not None,
            colors=COLORS,
            labels=[title],
        )
    )


def _entry(finding: Mapping[str, Any], figures: AnyPath | None) -> Entry:
    name = "diagnosis-" + "-".join(finding["check"].replace("Λ", "lambda").split())
    name = "".join(letter for letter in name if letter.isalnum() or letter == "-")
    advice = finding["advice"] if finding["alarm"] else ""
    if finding.get("small"):
        advice = "Nothing: it is there, but too small to do harm."
    if finding["verdict"] == "doubtful" and not finding["alarm"]:
        advice = "Not refuted, but too few pairs to see a harmful size: pass more."
    return Entry(
        name, finding, words_of(finding["check"]), check_chart(finding, name, figures), advice
    )


def _summary(findings: Sequence[Mapping[str, Any]], begin_with: str | None) -> list[str]:
    """Sentences that say which assumptions hold, and which do not."""
    by_verdict = {
        verdict: [one["check"] for one in findings if one["verdict"] == verdict]
        for verdict in _ORDER
    }
    sentences = []
    if broken := by_verdict["violated"]:
        sentences.append(f"Violated: {join_words(broken)}.")
    if begin_with is not None:
        sentences.append(f"Begin with {begin_with}: it may be the cause of the others.")
    if doubtful := by_verdict["doubtful"]:
        sentences.append(f"Doubtful: {join_words(doubtful)}.")
    holding = by_verdict["holds"]
    rest = "all" if len(holding) == len(findings) else str(len(holding))
    sentences.append(
        f"Of {len(findings)} assumptions that were checked {rest} hold"
        + ("" if not holding or rest == "all" else f": {join_words(holding)}")
        + "."
    )
    return sentences


def _row(evidence: Mapping[str, Any]) -> tuple[str, ...]:
    low, high = evidence["interval"]
    p_value, seen = evidence["p_value"], evidence["detectable"]
    shown = "–" if p_value is None else "< 0.0001" if p_value < 1e-4 else f"{p_value:.4f}"
    return (
        evidence["name"],
        f"{evidence['effect']:.3g}",
        f"{low:.3g} to {high:.3g}",
        f"{evidence['tolerance']:.3g}",
        shown,
        "–" if seen is None else f"{seen:.2g}",
    )
