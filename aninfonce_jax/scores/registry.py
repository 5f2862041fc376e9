"""Every score that is shown: its name in the files, its headings, its form, what is good.

The one home of these for the console, the tables, the report and its sentences.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

from aninfonce_jax.scores.intervals import Interval, is_above

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

Table = Literal["recovery", "training", "features", "views"]


@dataclasses.dataclass(frozen=True)
class Score:
    """A score of a run as a whole.

    Attributes:
      key: what `eval.json` and `metrics.jsonl` call it.
      group: the heading over its column and its neighbours' in the report.
      label: the heading of its column there.
      table: the one of the report that shows it: of the "recovery" of latents, of the
        "training", of the "features", or of the "views" of one example.
      form: how it is written.
      better: which values are better; "" where a difference means neither.
      console: the heading of its column on the console; "" if it is not shown there.
      progress: its name beside the progress line; "" if it is not shown there.
    """

    key: str
    group: str
    label: str
    table: Table
    form: Form = PLAIN
    better: Literal["higher", "lower", ""] = ""
    console: str = ""
    progress: str = ""


_R2, _MCC, _ACCURACY, _RANK = "R² of the factors", "MCC", "class accuracy", "effective rank"
_OPERATIONS = "augmentations told"
_OVERLAP = "overlap of positives and negatives"
_VIEWS = "views of one example"

R2 = Score("r2", _R2, "all", "recovery", better="higher", console="R²", progress="R²")
R2_CONTENT = Score(
    "r2_content", _R2, "content", "recovery", better="higher", console="R²\ncontent",
    progress="content R²",
)  # fmt: skip
R2_STYLE = Score(
    "r2_style", _R2, "style", "recovery", better="higher", console="R²\nstyle",
    progress="style R²",
)  # fmt: skip
# Read by kernel ridge regression, which also finds factors that are there but bent.
R2_KERNEL = Score("r2_kernel", _R2, "kernel ridge", "recovery", better="higher")
# How near, in the true factors, the example with the nearest embedding is: 0 means no nearer than
# one at random, 1 as near as the true nearest.
RETRIEVAL = Score("retrieval", "retrieval", "all", "recovery", better="higher")
RETRIEVAL_STYLE = Score("retrieval_style", "retrieval", "style", "recovery", better="higher")
# Some sources have test anchors that are distributed in another way than those of training. The
# first score is their R². The second is how often a classifier tells observations of the two apart.
R2_SHIFTED = Score("r2_shifted", "shifted anchors", "R²", "recovery", better="higher")
SHIFT_ACCURACY = Score("shift_accuracy", "shifted anchors", "told apart", "recovery", PERCENT)
MCC_PEARSON = Score("mcc_pearson", _MCC, "Pearson", "recovery", better="higher", console="MCC")
MCC_SPEARMAN = Score("mcc_spearman", _MCC, "Spearman", "recovery", better="higher")
# Λ̂ is a number of the network's own, not measured on examples: it has no interval.
CONCENTRATION_ERROR = Score(
    "concentration_error", "learned Λ", "error", "recovery", PERCENT, "lower", "worst\nΛ̂ error"
)
KNN_ACCURACY = Score(
    "knn_accuracy", _ACCURACY, "k-NN", "training", PERCENT, "higher", "k-NN", "k-NN accuracy"
)
PROBE_ACCURACY = Score(
    "probe_accuracy", _ACCURACY, "probe", "training", PERCENT, "higher", "linear\nprobe",
    "probe accuracy",
)  # fmt: skip
# This is for the last layer, which the objective compares; the two above are for the first one.
PROBE_ACCURACY_LAST = Score(
    "probe_accuracy_last", _ACCURACY, "probe, last layer", "training", PERCENT, "higher"
)
# How often it is told whether something was done to an example, on average over what can be done.
OPERATION_ACCURACY = Score(
    "operation_accuracy", _OPERATIONS, "first layer", "training", PERCENT, "higher"
)
OPERATION_ACCURACY_LAST = Score(
    "operation_accuracy_last", _OPERATIONS, "last layer", "training", PERCENT, "higher"
)
LOSS = Score("loss", "loss", "held out", "training", console="loss", progress="loss")
LOSS_FLOOR = Score("loss_floor", "loss", "floor", "training", console="floor")
SPREAD_MIN = Score("spread_min", "spread", "smallest", "features")
SPREAD_MEDIAN = Score("spread_median", "spread", "median", "features")
# How far similarities of positives and of negatives overlap: 0 if disjoint, 1 if alike.
OVERLAP = Score("overlap", _OVERLAP, "embeddings", "features")
OVERLAP_TRUE = Score("overlap_true", _OVERLAP, "true latents", "features")
# How the views of one example are spread, output by output: how wide they are, as a share of the
# width of all; how many times as wide for some examples as for others; and their shape. Each is a
# mean over examples and outputs; tests refute at 5 %.
VIEWS_WIDTH = Score("views_width", _VIEWS, "width", "views")
VIEWS_WIDTH_RATIO = Score("views_width_ratio", _VIEWS, "widest ÷ narrowest", "views")
VIEWS_SKEWNESS = Score("views_skewness", _VIEWS, "|skewness|", "views")
VIEWS_KURTOSIS = Score("views_kurtosis", _VIEWS, "excess kurtosis", "views")
VIEWS_NOT_NORMAL = Score("views_not_normal", _VIEWS, "not normal", "views", PERCENT)
VIEWS_MANY_MODES = Score("views_many_modes", _VIEWS, "several modes", "views", PERCENT)

SCORES = (
    R2, R2_CONTENT, R2_STYLE, R2_KERNEL, R2_SHIFTED, SHIFT_ACCURACY, MCC_PEARSON, MCC_SPEARMAN,
    RETRIEVAL, RETRIEVAL_STYLE, CONCENTRATION_ERROR, KNN_ACCURACY, PROBE_ACCURACY,
    PROBE_ACCURACY_LAST, OPERATION_ACCURACY, OPERATION_ACCURACY_LAST, LOSS, LOSS_FLOOR, SPREAD_MIN,
    SPREAD_MEDIAN, OVERLAP, OVERLAP_TRUE, VIEWS_WIDTH, VIEWS_WIDTH_RATIO, VIEWS_SKEWNESS,
    VIEWS_KURTOSIS, VIEWS_NOT_NORMAL, VIEWS_MANY_MODES,
)  # fmt: skip


def mcc(method: str) -> Score:
    """The mean correlation coefficient by one of `identifiability.CORRELATIONS`."""
    return {"pearson": MCC_PEARSON, "spearman": MCC_SPEARMAN}[method]


# Each layer of an encoder has its own effective rank; the encoder names its layers.
_RANK_PREFIX = "effective_rank_"


def effective_rank(layer: str) -> Score:
    """The effective rank of a layer's features."""
    return Score(f"{_RANK_PREFIX}{layer}", _RANK, layer, "features", ONE_DECIMAL)


def ranked_layers(keys: Iterable[str]) -> list[str]:
    """The layers whose effective rank is among some entries, in their order."""
    return [key.removeprefix(_RANK_PREFIX) for key in keys if key.startswith(_RANK_PREFIX)]


# --- Entries of `eval.json` and `metrics.jsonl` that are no columns of a table ---

STEP, SECONDS, PARAMETERS = "step", "seconds", "parameters"
R2_PER_FACTOR = "r2_per_factor"  # [dim]
MAP = "map"  # [dim, dim], recovered factors in rows, true ones in columns
CONCENTRATION_ERROR_SORTED = "concentration_error_sorted"  # with both sorted
BLOCK_ORTHOGONALITY = "block_orthogonality"  # how far blocks are from orthogonal, on average
BLOCK_ENERGY = "block_energy"  # share of the map that lies within blocks of equal Λ
CONCENTRATION = "concentration"  # Λ̂, in the order of the true factors where that is known
CONCENTRATION_TRUE = "concentration_true"  # [dim]
# What is known of the members of an ensemble.
MEMBER_CONCENTRATIONS = "member_concentrations"  # [members, dim], Λ̂
MEMBER_CONCENTRATIONS_TRUE = "member_concentrations_true"  # [members, dim]
MEMBER_CONCENTRATION_ERRORS = "member_concentration_errors"  # [members]
PREDICTION = "prediction"  # what their Λ predict of the factors, and whether it came true
LOSS_ABOVE_FLOOR = "loss_above_floor"
CHANCE = "chance"  # the accuracy of guessing a class
SPREAD = "spread"  # of every output
# [2, bins], shares of positives and of negatives by their cosine, of the embeddings and, where they
# are known, of the true latents.
SIMILARITIES = "similarities"
OF_EMBEDDINGS, OF_LATENTS = "of_embeddings", "of_latents"
OVERLAPS = {OF_EMBEDDINGS: OVERLAP, OF_LATENTS: OVERLAP_TRUE}
UNREADABLE = "unreadable_examples"
READOUTS = "readouts"  # by layer and readout, shares
STRENGTHS = "strength_r2"  # by layer and operation
NEVER_APPLIED = "never_applied"  # operations that are read out but were no part of training
UNTRAINED = "untrained"  # what is `OF_UNTRAINED`, of the network before its first step
VIEWS = "views"  # how the views of one example are spread, by output
SAMPLES = "samples"  # a sheet of pairs that the source made itself, a PNG in base64
WARNINGS, INTERVALS = "warnings", "intervals"

# --- Entries that measure the machine, not the run ---

STEPS_PER_SECOND, EXAMPLES_PER_SECOND = "steps_per_second", "examples_per_second"
DATA_WAIT_SHARE = "data_wait_share"
WALL_SECONDS = "wall_seconds"  # since the run was begun, with what was lost and time away
GOODPUT = "goodput"  # share of that time in training steps
PEAK_MEMORY = "device_memory_peak_bytes"  # of the fullest device, where the backend tells

# What a run's wall time is spent on. "repeated": on steps that a killed session did not save;
# "away": between two sessions.
Phase = Literal[
    "steps", "input", "compile", "evaluation", "checkpoint", "setup", "repeated", "away"
]
PHASES: tuple[Phase, ...] = get_args(Phase)


class PhaseName(NamedTuple):
    """What a phase is called: in words, and over a narrow column of the console."""

    label: str
    console: str


PHASE_NAMES: dict[Phase, PhaseName] = {
    "steps": PhaseName("training steps", "steps"),
    "input": PhaseName("waiting for data", "input"),
    "compile": PhaseName("compiling", "compile"),
    "evaluation": PhaseName("evaluation", "scoring"),
    "checkpoint": PhaseName("checkpoints", "saving"),
    "setup": PhaseName("setting up", "set-up"),
    "repeated": PhaseName("steps done again", "again"),
    "away": PhaseName("not running", "away"),
}


def member_name(place: int) -> str:
    """What a member of an ensemble is called, counted from 1."""
    return f"member_{place}"


def member_entry(place: int, key: str) -> str:
    """What rows of training call an entry of a member, counted from 1."""
    return f"{member_name(place)}_{key}"


def member_loss(place: int) -> str:
    """What rows of training call the loss of a member, counted from 1."""
    return member_entry(place, LOSS.key)


def phase_key(phase: Phase) -> str:
    """What the seconds of a phase are called."""
    return f"{SECONDS}_{phase}"


# They differ from run to run where everything else is the same, to the last bit.
TIMINGS = frozenset(
    {
        SECONDS, STEPS_PER_SECOND, EXAMPLES_PER_SECOND, DATA_WAIT_SHARE, WALL_SECONDS, GOODPUT,
        PEAK_MEMORY,
        *map(phase_key, PHASES),
    }
)  # fmt: skip

# Those that are too long for every row of the metrics.
DETAILS = (
    MAP, CONCENTRATION_TRUE, MEMBER_CONCENTRATIONS_TRUE, PREDICTION, SPREAD, SIMILARITIES, READOUTS,
    STRENGTHS, NEVER_APPLIED, VIEWS, UNTRAINED, SAMPLES, WARNINGS, INTERVALS,
)  # fmt: skip
# Scores of the start that later evaluations repeat: what the network shows untrained.
OF_UNTRAINED = (READOUTS, STRENGTHS)

# --- The columns of the table of readouts ---

OBJECTIVE, FEATURES = "objective", "features"
CLASSES, AVERAGE = "classes", "average"
# The five that the paper reads out and averages.
AVERAGED = ("grey", "brightness", "contrast", "hue", "saturation")
_FIRST, _LAST = (CLASSES, *AVERAGED), (AVERAGE, "crop", "blur")


def readout_order(names: Iterable[str]) -> list[str]:
    """Readouts in the order of the paper's table; those that it does not have as they come."""
    given = list(dict.fromkeys(names))
    others = [name for name in given if name not in (*_FIRST, *_LAST)]
    return [name for name in (*_FIRST, *others, *_LAST) if name in given]


def operations(names: Iterable[str]) -> list[str]:
    """Those readouts that tell what was done to an example."""
    return [name for name in readout_order(names) if name not in (CLASSES, AVERAGE)]


# What tells the best checkpoint, by what is known; without any of these the held-out loss does.
_BEST = (R2, KNN_ACCURACY)


def goodness(scores: Mapping[str, Any]) -> float:
    """How good an evaluation is, compared with others of the same run; higher is better."""
    for score in _BEST:
        if scores.get(score.key) is not None:
            return float(scores[score.key])
    return -float(scores.get(LOSS.key, math.nan))


def scores_of(table: Table) -> list[Score]:
    """The scores of one of the report's tables, in the order of its columns."""
    return [score for score in SCORES if score.table == table]


def score(key: str) -> Score:
    """The score of that name.

    Raises:
      ValueError: there is none.
    """
    for own in SCORES:
        if own.key == key:
            return own
    raise ValueError(f"unknown score {key!r}; choose one of {', '.join(x.key for x in SCORES)}")


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
