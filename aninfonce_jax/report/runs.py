"""What a training run left in its work directory, read back from the files.

Reads `config.json`, `metrics.jsonl` and `eval.json`, never a live object, so that every
number and figure can be made again from what a run left behind. Whatever is missing
there is NaN or empty here.
"""

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.scores import registry
from aninfonce_jax.scores.intervals import Interval
from aninfonce_jax.scores.objectives import ObjectiveWords, objective
from aninfonce_jax.scores.registry import Score

RECOVERED_R2 = 0.9  # from here on the page calls a factor recovered

# What a data set is called that has no name of its own: its path tells it from others.
_FOLDER = "folder"


class ReportError(workdir_lib.WorkdirError):
    """A folder that no report can be made from; its message is one line for the user."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """A score and its interval; NaN and None where they were not recorded."""

    value: float
    interval: Interval | None = None


@dataclasses.dataclass(frozen=True)
class WorkDir:
    """What the files of one work directory hold.

    Attributes:
      name: the folder's own name.
      objective: what was minimised.
      config: the resolved config, flat: "train.steps" -> 3000.
      config_hash: its hash, or "".
      command: the command that repeats the run, or "" if it isn't known.
      train: rows of training metrics by increasing step.
      evals: rows of evaluations by increasing step; at least one.
      final: the last evaluation, with the entries that only `eval.json` has.
      problems: a line for each thing that is wrong with the files, yet not so wrong that no
        report can be made.
    """

    name: str
    objective: ObjectiveWords
    config: dict[str, Any]
    config_hash: str
    command: str
    train: list[dict[str, Any]]
    evals: list[dict[str, Any]]
    final: dict[str, Any]
    problems: tuple[str, ...] = ()

    def has(self, *keys: str) -> bool:
        """Whether an evaluation has one of these entries, be it empty."""
        return any(key in row for row in (self.final, *self.evals) for key in keys)

    def number(self, key: str) -> float:
        """A value of the last evaluation; NaN if it was not recorded."""
        return as_number(self.final.get(key))

    def interval(self, *keys: str) -> Interval | None:
        """The interval of a value of the last evaluation; None if it was not recorded.

        Args:
          *keys: the value's name, or the names that lead to it, such as those of the
            readouts, of a layer and of one readout.
        """
        return interval_of(self.final, *keys)

    def score(self, score: Score) -> Measured:
        """A score of the last evaluation."""
        return Measured(self.number(score.key), self.interval(score.key))

    @property
    def planned_steps(self) -> float:
        """At which step the run ends; NaN if its config does not say."""
        return as_number(_planned_steps(self.config))

    @property
    def warnings(self) -> list[str]:
        """What the last evaluation warns of, in sentences."""
        return warnings_of(self.final)

    @property
    def dataset(self) -> str:
        """What the data set is called; "" if the source is none that has a name."""
        return str(self.config.get("source.title") or self.config.get("source.dataset") or "")

    @property
    def source(self) -> str:
        """What the run learned from, in a word or two."""
        if not self.dataset and self.knows_latents:
            return f"{self.dim} latent factors"
        if self.dataset == _FOLDER:
            return pathlib.Path(str(self.config.get("source.folder"))).name or _FOLDER
        return self.dataset or str(self.config.get("source.kind", "unknown source"))

    @property
    def data(self) -> tuple[str, ...]:
        """What runs must have in common so that their scores measure the same."""
        keys = ["source.kind", "source.dim", "source.test_split"]
        if self.dataset == _FOLDER:
            keys.append("source.folder")
        return (self.dataset, *(str(self.config.get(key)) for key in keys))

    @property
    def knows_latents(self) -> bool:
        """Whether the run was scored by what it recovered of known latents."""
        scores = (score.key for score in registry.scores_of("recovery"))
        return self.has(*scores, registry.R2_PER_FACTOR, registry.CONCENTRATION_TRUE, registry.MAP)

    @property
    def knows_examples(self) -> bool:
        """Whether the run was scored by what can be read off features of known examples."""
        accuracies = registry.KNN_ACCURACY.key, registry.PROBE_ACCURACY.key
        return self.has(registry.READOUTS, registry.STRENGTHS, registry.UNTRAINED, *accuracies)

    @property
    def has_profile(self) -> bool:
        """Whether Λ̂ was learned that can't be set against true values factor by factor."""
        learned = self.final.get(registry.CONCENTRATION)
        true = self.final.get(registry.CONCENTRATION_TRUE)
        if isinstance(learned, list) and isinstance(true, list):
            return len(learned) != len(true)
        return self.has(registry.CONCENTRATION) and not isinstance(true, list)

    @property
    def untrained(self) -> Mapping[str, Any]:
        """What was read off the network before its first step; {} if nothing was."""
        found = self.final.get(registry.UNTRAINED)
        return found if isinstance(found, Mapping) else {}

    @property
    def dim(self) -> int:
        """The number of latent factors."""
        for key in (registry.CONCENTRATION_TRUE, registry.R2_PER_FACTOR, registry.CONCENTRATION):
            if isinstance(self.final.get(key), list):
                return len(self.final[key])
        return int(self.config.get("source.dim", 1))

    @property
    def r2_final(self) -> np.ndarray:
        """[dim] the last R² of every factor."""
        return as_vector(self.final.get(registry.R2_PER_FACTOR), self.dim)

    @property
    def factor_intervals(self) -> np.ndarray:
        """[dim, 2] the interval of each of `r2_final`; NaN where there is none."""
        found = self.final.get(registry.INTERVALS)
        rows = found.get(registry.R2_PER_FACTOR) if isinstance(found, Mapping) else None
        rows = rows if isinstance(rows, list) and len(rows) == self.dim else [None] * self.dim
        return np.stack([as_vector(row, 2) for row in rows])

    @property
    def recovered(self) -> int | None:
        """How many factors were recovered; None if that is not known."""
        if np.isnan(self.r2_final).any():
            return None
        return int((self.r2_final >= RECOVERED_R2).sum())

    @property
    def concentration_deviation(self) -> float:
        """The largest |Λ̂/Λ - 1| over the factors; NaN if not known."""
        learned = as_vector(self.final.get(registry.CONCENTRATION), self.dim)
        true = as_vector(self.final.get(registry.CONCENTRATION_TRUE), self.dim)
        return float(np.max(np.abs(learned / true - 1)))


def find_metrics(path: AnyPath) -> AnyPath:
    """Returns the file of rows of a work directory.

    Raises:
      ReportError: if there is none.
    """
    metrics = path / workdir_lib.METRICS_FILE
    if not metrics.exists():
        raise ReportError(
            f"{path} holds no {metrics.name}; the command that trained the run writes it again "
            "from its checkpoint"
        )
    return metrics


def read_workdir(path: AnyPath) -> WorkDir:
    """Reads the files of one work directory; see `WorkDir`.

    Raises:
      ReportError: if there is nothing to report on.
      WorkdirError: if a file is damaged, or not the one that the run wrote.
    """
    if not path.is_dir():
        raise ReportError(f"no such folder: {path}; expected a work directory of a training run")
    workdir_lib.check_entries(path)
    saved = workdir_lib.read_saved(path)
    config = dict(_flatten(saved.values))
    evaluation = workdir_lib.read_eval(path, saved.hash)
    if evaluation.is_foreign:
        raise ReportError(f"{evaluation.problem}; put back the file that does not belong")
    metrics = find_metrics(path)
    rows = workdir_lib.read_metrics(metrics)
    evals = _by_step(rows, "eval")
    last = dict(evaluation.scores)
    if not evals and not last:
        raise ReportError(
            f"{path} holds no evaluation yet (no row of one in {metrics.name}); "
            "wait for the first one, or lower eval.every"
        )
    changed = workdir_lib.check_metrics(metrics, rows, evaluation, _planned_steps(config))
    problems = [f"{changed}; the curves may be wrong"] if changed else []
    if evaluation.problem:
        shown = "not verified" if last else f"those of the last row of {metrics.name}"
        problems.append(
            f"{evaluation.problem}; the scores shown are {shown}: --mode=eval writes it again"
        )
    # Evaluated once more in another way than the run itself did.
    config |= last.get(workdir_lib.EVALUATED_WITH) or {}
    evals = evals or [last]
    if last.get(registry.STEP) in (None, evals[-1].get(registry.STEP)):
        last = {**evals[-1], **{key: value for key, value in last.items() if value is not None}}
    return WorkDir(
        name=path.resolve().name,
        objective=objective(config.get("objective.kind")),
        config=config,
        config_hash=saved.hash,
        command=saved.command,
        train=_by_step(rows, "train"),
        evals=evals,
        final=last,
        problems=tuple(problems),
    )


def _planned_steps(config: Mapping[str, Any]) -> Any:
    # A config has it in its section `train`; an experiment made in code has no such section.
    return config.get("train.steps", config.get("steps"))


def _by_step(rows: Sequence[Mapping[str, Any]], split: workdir_lib.Split) -> list[dict[str, Any]]:
    """The rows of one split by increasing step; if a resumed run logged a step twice, the later."""
    chosen = {row[registry.STEP]: dict(row) for row in workdir_lib.rows_of(rows, split)}
    return [chosen[step] for step in sorted(chosen)]


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for key, value in tree.items():
        if isinstance(value, Mapping):
            leaves += _flatten(value, f"{prefix}{key}.")
        else:
            leaves.append((f"{prefix}{key}", value))
    return leaves


def as_number(value: Any) -> float:
    """The value if it is a finite number, NaN if it is anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else math.nan


def interval_of(scores: Mapping[str, Any], *keys: str) -> Interval | None:
    """The interval [low, high] of a score; None if there is none, or it is damaged.

    Args:
      scores: what `eval.json` holds.
      *keys: the score's name, or the names that lead to it.
    """
    found: Any = scores.get(registry.INTERVALS)
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    if not isinstance(found, list) or len(found) != 2:
        return None
    low, high = map(as_number, found)
    return [low, high] if low <= high else None


def warnings_of(scores: Mapping[str, Any]) -> list[str]:
    """The sentences that an evaluation warns with; none if there are none.

    Args:
      scores: what `eval.json` holds.
    """
    found = scores.get(registry.WARNINGS)
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []


def as_vector(values: Any, length: int) -> np.ndarray:
    """[length] numbers; all NaN if the list is missing or of another length."""
    if not isinstance(values, list) or len(values) != length:
        return np.full(length, math.nan)
    return np.array([as_number(value) for value in values])
