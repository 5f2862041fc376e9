"""Which runs may be averaged, and what tells the others apart."""

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from aninfonce_jax.evaluation.intervals import Interval, over_seeds
from aninfonce_jax.evaluation.registry import MISSING
from aninfonce_jax.evaluation.workdir import WorkDir

OBJECTIVE_NAMES = {
    "aninfonce": "AnInfoNCE",
    "infonce": "InfoNCE",
    "supervised": "Supervised",
    "lp": "Lp contrast",
    "aninfonce_no_l2": "AnInfoNCE, no ℓ2 norm",
}
# What has no part in what a run learns.
_IDLE = ("name", "compare")
_IDLE_SECTIONS = ("log.", "checkpoint.")


@dataclasses.dataclass(frozen=True)
class Measured:
    """A score and its interval; NaN and None where they were not recorded."""

    value: float
    interval: Interval | None = None


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but their seed, and what the page calls them."""

    label: str
    runs: tuple[WorkDir, ...]

    @property
    def kind(self) -> str:
        """The objective, as the config calls it."""
        return self.runs[0].kind

    def measure(self, of_run: Callable[[WorkDir], Measured]) -> Measured:
        """The mean over the runs, NaN if one lacks the score, and its interval over seeds."""
        own = [of_run(run) for run in self.runs]
        values = [one.value for one in own]
        return Measured(float(np.mean(values)), over_seeds(values, [one.interval for one in own]))

    def score(self, key: str) -> Measured:
        """The mean of a score of the last evaluation."""
        return self.measure(lambda run: Measured(run.number(key), run.interval(key)))


def objective_name(kind: str) -> str:
    """What the page calls an objective; one it does not know keeps the config's name."""
    return OBJECTIVE_NAMES.get(kind, kind)


def group_runs(runs: Sequence[WorkDir]) -> list[Group]:
    """Puts runs together that differ in nothing but their seed, in the order of the first.

    Runs of another length, width or anything else are groups of their own, as are runs that
    have come less far.
    """
    found: dict[str, list[WorkDir]] = {}
    for run in runs:
        found.setdefault(_identity(run), []).append(run)
    members = [*found.values()]
    labels = _labels([own[0] for own in members], ignored=("seed",))
    return [Group(label, tuple(own)) for label, own in zip(labels, members, strict=True)]


def _identity(run: WorkDir) -> str:
    """What runs must have in common to be averaged."""
    settings = {key: setting(run, key) for key in sorted(run.config) if _matters(key)}
    settings.pop("seed", None)
    step = run.number("step")
    return json.dumps([run.kind, settings, step if math.isfinite(step) else None])


def run_labels(runs: Sequence[WorkDir]) -> list[str]:
    """A name for each run: its objective, and if that is not enough, what sets it apart."""
    return _labels(runs)


def _labels(runs: Sequence[WorkDir], ignored: Sequence[str] = ()) -> list[str]:
    labels = []
    for run in runs:
        same = [other for other in runs if other.kind == run.kind]
        keys = [key for key in differing(same) if _matters(key) and key not in ignored]
        if len(same) == 1:
            labels.append(objective_name(run.kind))
        elif 1 <= len(keys) <= 2:
            apart = ", ".join(f"{key.rpartition('.')[2]} {setting(run, key)}" for key in keys)
            labels.append(f"{objective_name(run.kind)} ({apart})")
        else:
            labels.append(f"{objective_name(run.kind)} ({run.name})")
    count = Counter(labels)
    return [
        f"{label} #{labels[: index + 1].count(label)}" if count[label] > 1 else label
        for index, label in enumerate(labels)
    ]


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
