"""Every score that is shown: its name in the files, its headings, its form, what is good.

The one home of these for the console, the tables, the report and its sentences.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

from aninfonce_jax.evaluation.intervals import Interval, is_above

MISSING = "–"  # what was not recorded


@dataclasses.dataclass(frozen=True)
class Form:
    """How a number is written.

    Attributes:
      decimals: behind the point; one more where the interval is narrower than they can show.
      scale: what it is multiplied by first: 100 for per cent.
      unit: written behind it.
    """

    decimals: int = 3
    scale: float = 1.0
    unit: str = ""

    def value(self, number: float, interval: Interval | None = None) -> str:
        """The number, such as "0.944" or "46.5%"."""
        if not math.isfinite(number):
            return MISSING
        text = f"{self.scale * number:.{self._decimals(number, interval)}f}{self.unit}"
        return text.replace("-", "−")

    def margin(self, number: float, interval: Interval | None) -> str:
        """Half the interval, rounded up, such as "±0.006"; "" if there is none.

        Where the interval is lopsided this is its wider half.
        """
        if interval is None or not math.isfinite(number):
            return ""
        decimals = self._decimals(number, interval)
        # A hair less, so that what is exact in decimals is not rounded up.
        steps = math.ceil(self._half(number, interval) * 10**decimals - 1e-6)
        return f"±{steps / 10**decimals:.{decimals}f}"

    def both(self, number: float, interval: Interval | None) -> str:
        """The number with its interval, such as "0.944 ±0.006"."""
        return f"{self.value(number, interval)} {self.margin(number, interval)}".strip()

    def _half(self, number: float, interval: Interval) -> float:
        return self.scale * max(interval[1] - number, number - interval[0], 0.0)

    def _decimals(self, number: float, interval: Interval | None) -> int:
        if interval is None or self.unit or self.decimals < 3:
            return self.decimals
        return self.decimals + (0 < self._half(number, interval) < 10**-self.decimals)


PLAIN = Form()
PERCENT = Form(1, 100.0, "%")
# A rank, or a number in per cent under a heading that says so.
ONE_DECIMAL = Form(1)

Table = Literal["recovery", "features"]


@dataclasses.dataclass(frozen=True)
class Score:
    """A score of a run as a whole.

    Attributes:
      key: what `eval.json` and `metrics.jsonl` call it.
      group: the heading over its column and its neighbours' in the report.
      label: the heading of its column there.
      tables: the tables of the report that show it: "recovery" of latents, or of "features".
      form: how it is written.
      better: which values are better; "" where a difference means neither.
      console: the heading of its column on the console; "" if it is not shown there.
    """

    key: str
    group: str
    label: str
    tables: tuple[Table, ...]
    form: Form = PLAIN
    better: Literal["higher", "lower", ""] = ""
    console: str = ""


_R2, _MCC, _ACCURACY, _RANK = "R² of the factors", "MCC", "class accuracy", "effective rank"

SCORES = (
    Score("r2", _R2, "all", ("recovery",), better="higher", console="R²"),
    Score("r2_content", _R2, "content", ("recovery",), better="higher", console="R²\ncontent"),
    Score("r2_style", _R2, "style", ("recovery",), better="higher", console="R²\nstyle"),
    Score("mcc_pearson", _MCC, "Pearson", ("recovery",), better="higher", console="MCC"),
    Score("mcc_spearman", _MCC, "Spearman", ("recovery",), better="higher"),
    # Λ̂ is a number of the network's own, not measured on examples: it has no interval.
    Score(
        "concentration_error", "learned Λ", "error", ("recovery",), PERCENT, "lower",
        "worst\nΛ̂ error",
    ),
    Score("knn_accuracy", _ACCURACY, "k-NN", ("features",), PERCENT, "higher", "k-NN"),
    Score("probe_accuracy", _ACCURACY, "probe", ("features",), PERCENT, "higher", "linear\nprobe"),
    Score("effective_rank_backbone", _RANK, "backbone", ("features",), ONE_DECIMAL),
    Score("effective_rank_projector", _RANK, "projector", ("features",), ONE_DECIMAL),
    Score("loss", "loss", "held out", ("recovery", "features"), console="loss"),
    Score("loss_floor", "loss", "floor", ("recovery",), console="floor"),
)  # fmt: skip


def scores_of(table: Table) -> list[Score]:
    """The scores of one of the report's tables, in the order of its columns."""
    return [score for score in SCORES if table in score.tables]


def score(key: str) -> Score:
    """The score of that name."""
    return next(own for own in SCORES if own.key == key)


def groups(columns: Sequence[tuple[str, str]]) -> list[tuple[str, int]]:
    """The headings over columns (heading, label), and how many columns each spans."""
    spans: list[tuple[str, int]] = []
    for heading, _ in columns:
        if spans and spans[-1][0] == heading:
            spans[-1] = (heading, spans[-1][1] + 1)
        else:
            spans.append((heading, 1))
    return spans


def outstanding(intervals: Sequence[Interval | None], better: str) -> list[bool]:
    """Which of several runs may be called best by their intervals.

    That is each that no other surpasses and that surpasses at least one itself, where to
    surpass is to have an interval wholly on the better side of the other's.
    """

    def surpasses(one: Interval | None, other: Interval | None) -> bool:
        return is_above(one, other) if better == "higher" else is_above(other, one)

    if not better:
        return [False] * len(intervals)
    return [
        any(surpasses(own, other) for other in intervals)
        and not any(surpasses(other, own) for other in intervals)
        for own in intervals
    ]
