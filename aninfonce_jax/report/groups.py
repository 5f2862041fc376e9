"""Which runs may be averaged, which may be compared, and what tells the others apart."""

import dataclasses
import functools
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from aninfonce_jax.report.runs import Measured, WorkDir
from aninfonce_jax.scores.intervals import over_seeds
from aninfonce_jax.scores.objectives import ObjectiveWords
from aninfonce_jax.scores.registry import MISSING, STEP, Score

# What has no part in what a run learns.
_IDLE = ("name", "compare", "made_by")
_IDLE_SECTIONS = ("log.", "checkpoint.")


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but their seed, and what the page calls them."""

    label: str
    runs: tuple[WorkDir, ...]

    @property
    def objective(self) -> ObjectiveWords:
        """What they all minimised."""
        return self.runs[0].objective

    def measure(self, of_run: Callable[[WorkDir], Measured]) -> Measured:
        """The mean over the runs, NaN if one lacks the score, and its interval over seeds."""
        own = [of_run(run) for run in self.runs]
        values = [one.value for one in own]
        return Measured(float(np.mean(values)), over_seeds(values, [one.interval for one in own]))

    def score(self, score: Score) -> Measured:
        """The mean of a score of the last evaluation."""
        return self.measure(lambda run: run.score(score))


@dataclasses.dataclass(frozen=True)
class Entry:
    """A run as the page shows it.

    Attributes:
      run: its files.
      label: what the page calls it.
      color: its name among the page's colours.
      place: among the runs of the page, from 0 on.
    """

    run: WorkDir
    label: str
    color: str
    place: int


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Some of the page's runs, and the groups that they form; both by the page's names.

    Attributes:
      entries: the runs.
      groups: those of the page that they belong to.
      needs_names: whether the page has several runs, so that numbers need a run's name.
    """

    entries: tuple[Entry, ...]
    groups: tuple[Group, ...]
    needs_names: bool

    @property
    def runs(self) -> list[WorkDir]:
        """The runs alone."""
        return [entry.run for entry in self.entries]

    @property
    def labels(self) -> list[str]:
        """What the runs are called."""
        return [entry.label for entry in self.entries]

    @property
    def families(self) -> list["Comparison"]:
        """The runs by the data that they were scored on: only within one may they compete."""
        found = dict.fromkeys(run.data for run in self.runs)
        return [self.where(functools.partial(_is_on, data)) for data in found]

    def where(self, holds: Callable[[WorkDir], bool]) -> "Comparison":
        """Those runs for which something holds."""
        groups = (
            Group(group.label, tuple(run for run in group.runs if holds(run)))
            for group in self.groups
        )
        return Comparison(
            tuple(entry for entry in self.entries if holds(entry.run)),
            tuple(group for group in groups if group.runs),
            self.needs_names,
        )


def _is_on(data: tuple[str, ...], run: WorkDir) -> bool:
    return run.data == data


def compare(runs: Sequence[WorkDir], colors: Sequence[str]) -> Comparison:
    """The runs of a page, each with its name and its colour."""
    entries = map(Entry, runs, run_labels(runs), colors, range(len(runs)))
    return Comparison(tuple(entries), tuple(group_runs(runs)), len(runs) > 1)


def group_runs(runs: Sequence[WorkDir]) -> list[Group]:
    """Puts runs together that differ in nothing but their seed, in the order of the first.

    Runs of another length, width or anything else are groups of their own, as are runs that
    have come less far. So is a run whose seed a group has already: it says nothing of other
    seeds, and counted twice it would make an interval over seeds too narrow.
    """
    found: dict[tuple[str, int], list[WorkDir]] = {}
    times: Counter[tuple[str, str]] = Counter()
    for run in runs:
        identity, seed = _identity(run), setting(run, "seed")
        found.setdefault((identity, times[identity, seed]), []).append(run)
        times[identity, seed] += 1
    members = [*found.values()]
    labels = _labels([own[0] for own in members], ignored=("seed",))
    return [Group(label, tuple(own)) for label, own in zip(labels, members, strict=True)]


def repeated(runs: Sequence[WorkDir]) -> list[str]:
    """Returns a line for each run that has the seed and the settings of one before it."""
    first: dict[tuple[str, str], WorkDir] = {}
    lines = []
    for run in runs:
        earlier = first.setdefault((_identity(run), setting(run, "seed")), run)
        if earlier is not run:
            lines.append(
                f"{run.name} has the seed and the settings of {earlier.name}: they are not averaged"
            )
    return lines


def _identity(run: WorkDir) -> str:
    """What runs must have in common to be averaged."""
    settings = {key: setting(run, key) for key in sorted(run.config) if _matters(key)}
    settings.pop("seed", None)
    step = run.number(STEP)
    return json.dumps([run.objective.kind, settings, step if math.isfinite(step) else None])


def run_labels(runs: Sequence[WorkDir]) -> list[str]:
    """A name for each run: its objective, and if that is not enough, what sets it apart."""
    return _labels(runs)


def _labels(runs: Sequence[WorkDir], ignored: Sequence[str] = ()) -> list[str]:
    labels = []
    for run in runs:
        same = [other for other in runs if other.objective == run.objective]
        apart = _apart(run, same, ignored)
        labels.append(f"{run.objective.label} ({apart})" if apart else run.objective.label)
    count = Counter(labels)
    return [
        f"{label} #{labels[: index + 1].count(label)}" if count[label] > 1 else label
        for index, label in enumerate(labels)
    ]


def _apart(run: WorkDir, same: Sequence[WorkDir], ignored: Sequence[str]) -> str:
    """What tells a run from others of its objective; "" if there are none."""
    if len(same) == 1:
        return ""
    alike = [other for other in same if other.source == run.source]
    if len(alike) < len(same):
        return ", ".join(filter(None, (run.source, _apart(run, alike, ignored))))
    keys = [key for key in differing(same) if _matters(key) and key not in ignored]
    if 1 <= len(keys) <= 2:
        return ", ".join(f"{key.rpartition('.')[2]} {setting(run, key)}" for key in keys)
    return run.name


def differing(runs: Sequence[WorkDir]) -> list[str]:
    """The settings that are not the same in all runs."""
    keys = dict.fromkeys(key for run in runs for key in run.config)
    return [key for key in keys if len({setting(run, key) for run in runs}) > 1]


def setting(run: WorkDir, key: str) -> str:
    """A value of a run's config as the page writes it."""
    if key not in run.config:
        return MISSING
    value = run.config[key]
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def unequal_settings(runs: Sequence[WorkDir]) -> list[str]:
    """Settings besides objective and seed in which the runs differ: a caveat to their contrast."""
    return [
        key
        for key in differing(runs)
        if _matters(key) and key != "seed" and not key.startswith("objective.")
    ]


def _matters(key: str) -> bool:
    return key not in _IDLE and not key.startswith(_IDLE_SECTIONS)
