"""What a diagnosis says: evidence, a verdict by fixed rules, and what to do.

A piece of evidence has an effect, its interval, and a size below which it does no harm (its
tolerance). The verdict of a check follows from them, and from the p-values where there are any:

* violated: significant, and the whole interval lies above the tolerance;
* doubtful: significant but perhaps harmless, or a harmful size would have gone unseen;
* holds: not significant, and a harmful size would have been seen.

Intervals and p-values are adjusted for the number of things that a check looks at, so that on
data without a violation it raises an alarm in at most `level` of all cases.
"""

import dataclasses
import textwrap
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

FloatArray = npt.NDArray[np.float64]
Verdict = Literal["holds", "doubtful", "violated"]

LEVEL = 0.05
# The power at which a size counts as one that would have been seen.
POWER = 0.8
# What to do where something is refuted, but harmless.
SMALL = "Nothing: it is there, but too small to do harm."
_WIDTH = 96


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One thing that a check looked at.

    Attributes:
      name: what was measured, and where it was worst.
      effect: its size, 0 if the assumption holds.
      interval: of the effect, at the check's level over all that it looks at.
      tolerance: up to which it does no harm.
      statistic: that was tested; None where nothing was.
      p_value: of the test, adjusted for all that this evidence looks at.
      detectable: the size that is seen in 80 % of the cases with so many pairs; None where
        nothing is tested.
    """

    name: str
    effect: float
    interval: tuple[float, float]
    tolerance: float
    statistic: float | None = None
    p_value: float | None = None
    detectable: float | None = None

    def verdict(self, level: float) -> Verdict:
        """Returns what this evidence alone says, by the rules of the module."""
        if self.p_value is None:
            if self.interval[0] > self.tolerance:
                return "violated"
            return "doubtful" if self.interval[0] > self.tolerance / 2 else "holds"
        if self.p_value < level:
            return "violated" if self.interval[0] > self.tolerance else "doubtful"
        unseen = self.detectable is not None and self.detectable > self.tolerance
        return "doubtful" if unseen else "holds"

    def is_significant(self, level: float) -> bool:
        """Whether the assumption is refuted, by however little."""
        if self.p_value is None:
            return self.verdict(level) != "holds"
        return self.p_value < level

    def __str__(self) -> str:
        low, high = self.interval
        text = f"{self.name}: {self.effect:.3g} [{low:.3g}, {high:.3g}]"
        text += f", harmless up to {self.tolerance:.3g}"
        if self.p_value is not None:
            text += f"; p {'< 0.0001' if self.p_value < 1e-4 else f'= {self.p_value:.4f}'}"
        if self.detectable is not None:
            text += f"; {self.detectable:.2g} would be seen in {POWER:.0%} of cases"
        return text


@dataclasses.dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
      check: its name.
      assumption: what it asks, in a sentence.
      evidence: everything it looked at, the worst first.
      advice: what to do if the assumption does not hold.
      level: the share of false alarms that is allowed.
      is_cause: whether other checks tend to fail with this one.
      details: numbers behind it, as JSON holds them.
    """

    check: str
    assumption: str
    evidence: tuple[Evidence, ...]
    advice: str
    level: float = LEVEL
    is_cause: bool = False
    details: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """The worst of what the evidence says, each piece at its share of the level."""
        found = {item.verdict(self._share) for item in self.evidence}
        order: tuple[Verdict, ...] = ("violated", "doubtful", "holds")
        return next(verdict for verdict in order if verdict in found)

    @property
    def is_alarm(self) -> bool:
        """Whether any evidence refutes the assumption; too few pairs are no alarm."""
        return any(item.is_significant(self._share) for item in self.evidence)

    @property
    def is_small(self) -> bool:
        """Whether what is refuted is harmless up to the end of its interval."""
        refuted = [item for item in self.evidence if item.is_significant(self._share)]
        return bool(refuted) and all(
            item.p_value is not None and item.interval[1] <= item.tolerance for item in refuted
        )

    @property
    def p_value(self) -> float | None:
        """The smallest p-value, adjusted for the number of tests; None without any."""
        tests = [item.p_value for item in self.evidence if item.p_value is not None]
        return min(1.0, len(tests) * min(tests)) if tests else None

    @property
    def _share(self) -> float:
        tests = sum(item.p_value is not None for item in self.evidence)
        return self.level / max(tests, 1)

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as JSON holds it."""
        return {
            "check": self.check,
            "verdict": self.verdict,
            "alarm": self.is_alarm,
            "small": self.is_small,
            "assumption": self.assumption,
            "p_value": self.p_value,
            "evidence": [dataclasses.asdict(item) for item in self.evidence],
            "advice": self.advice,
            "details": self.details,
        }

    def __str__(self) -> str:
        head = f"{self.verdict.upper():<9} {self.check}: {self.assumption}"
        lines = _wrapped(head, "", " " * 14)
        wanted = [e for e in self.evidence if e.verdict(self._share) != "holds"]
        for item in wanted or self.evidence[:1]:
            lines += _wrapped(str(item), " " * 10, " " * 14)
        if self.verdict != "holds":
            if not self.is_alarm:
                advice = "Not refuted, but too few pairs to see it; pass more."
            else:
                advice = SMALL if self.is_small else self.advice
            lines += _wrapped(advice, " " * 10 + "→ ", " " * 12)
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What pairs of embeddings say of the theorem's assumptions; `print` shows it.

    Attributes:
      findings: of every check that was possible, causes before what follows from them.
      pairs: how many there were.
      dim: of the embeddings.
      concentration: Λ fitted to the pairs, [dim]; NaN for dimensions that are constant.
    """

    findings: tuple[Finding, ...]
    pairs: int
    dim: int
    concentration: FloatArray

    def __getitem__(self, check: str) -> Finding:
        """Returns a finding by its check's name."""
        for finding in self.findings:
            if finding.check == check:
                return finding
        raise KeyError(f"no check {check!r}; there are {', '.join(f.check for f in self.findings)}")

    @property
    def violated(self) -> tuple[str, ...]:
        """The checks whose assumption is violated."""
        return tuple(f.check for f in self.findings if f.verdict == "violated")

    @property
    def begin_with(self) -> str | None:
        """The violated check that may be the cause of the others; None without such a one."""
        broken = self.violated
        return broken[0] if len(broken) > 1 and self[broken[0]].is_cause else None

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as JSON holds it."""
        values = [float(x) if np.isfinite(x) else None for x in self.concentration]
        return {
            "pairs": self.pairs,
            "dim": self.dim,
            "concentration": values,
            "begin_with": self.begin_with,
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def __str__(self) -> str:
        finite = self.concentration[np.isfinite(self.concentration)]
        reach = f"Λ from {finite.min():.3g} to {finite.max():.3g}" if finite.size else "no Λ"
        head = f"{self.pairs} pairs in {self.dim} dimensions; {reach} fits them best"
        lines = [head, "", *map(str, self.findings)]
        if self.begin_with is not None:
            lines += ["", f"Begin with '{self.begin_with}': it may be the cause of the others."]
        return "\n".join(lines)


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=rest)


def strongest(
    name: str,
    effects: FloatArray,
    errors: FloatArray,
    tolerance: float,
    labels: list[str],
    *,
    level: float = LEVEL,
    counted: float = 1.0,
) -> Evidence:
    """Returns evidence of the worst of several estimates that are normal about 0 without effect.

    Bonferroni's adjustment: for m of them, p-values times m and intervals of level / m.

    Args:
      name: what they measure.
      effects: estimates, [m].
      errors: their standard errors, [m].
      tolerance: of the effect.
      labels: where each was measured, [m].
      level: of the intervals, all together.
      counted: how often each counts in the adjustment; more than once where estimates are not
        quite as normal as their errors take them to be.
    """
    m = counted * len(effects)
    reach = float(stats.norm.isf(level / (2 * m)))
    scores = np.abs(effects) / errors
    worst = int(np.argmax(np.abs(effects) - reach * errors))
    size, error = float(abs(effects[worst])), float(errors[worst])
    return Evidence(
        name=f"{name} ({labels[worst]})",
        effect=size,
        interval=(max(size - reach * error, 0.0), size + reach * error),
        tolerance=tolerance,
        statistic=float(scores.max()),
        p_value=min(1.0, m * 2 * float(stats.norm.sf(scores.max()))),
        detectable=float((reach + stats.norm.ppf(POWER)) * np.median(errors)),
    )


def histogram(values: FloatArray, bins: int = 30) -> dict[str, Any]:
    """Returns edges [bins + 1] and the share of values between them [bins], as JSON holds them."""
    low, high = float(values.min()), float(values.max())
    # So that there is a range even if all numbers are alike, or differ by rounding only.
    room = 1e-6 * max(1.0, abs(low), abs(high))
    counts, edges = np.histogram(values, bins, (low - room, high + room))
    return {"edges": edges.tolist(), "shares": (counts / max(len(values), 1)).tolist()}
