"""False alarms and power of every check of `an.diagnose`, on processes whose truth is known.

    python benchmarks/diagnose.py alarms   # the table of docs/diagnose.md: false alarms
    python benchmarks/diagnose.py power    # its table and figure of power
    python benchmarks/diagnose.py dip      # the quantiles that the dip test compares with

A draw counts as an alarm if a check refutes its assumption (violated, or significant though
small); false alarms are those of the check on processes without any violation.

Every draw is kept in a file of `--results` as soon as it is made. The same command goes on where
it was stopped, and with more `--repeats` or other `--checks` it makes only what is missing;
tables and figure show all that is kept.
"""

import argparse
import dataclasses
import functools
import json
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy import special, stats

import aninfonce_jax as an
from aninfonce_jax.diagnosis import conditional, marginal, shift
from aninfonce_jax.diagnosis.dip import dip_statistic
from aninfonce_jax.diagnosis.findings import Finding
from aninfonce_jax.diagnosis.negatives import check_negatives
from aninfonce_jax.diagnosis.score_matching import Fit, fit_concentration

Pairs = tuple[np.ndarray, np.ndarray]
ALARM_REPEATS, POWER_REPEATS = 400, 60
PAIRS, NEGATIVES = 2000, 1023
LAMBDA = np.array([25.0] * 5 + [5.0] * 5)
# Processes that break nothing, by their name.
SOUND = {
    "Λ = 25 and 5, d = 10": (LAMBDA, 2000),
    "Λ from 5 to 25, d = 10": (np.linspace(25, 5, 10), 2000),
    # Of which one half is the reference; the other is as few as `an.diagnose` takes.
    "the same, 400 pairs": (np.linspace(25, 5, 10), 400),
    "Λ = 100 and 15, d = 20": (np.array([100.0] * 10 + [15.0] * 10), 2000),
    "Λ = 10, d = 3": (np.full(3, 10.0), 2000),
}


def sampler(concentration: np.ndarray, pairs: int, **parts: object) -> Callable[[int], Pairs]:
    """Returns a function from a seed to pairs of latents, of a process with these parts."""
    conditional = parts.get("conditional", an.conditionals.Anisotropic(concentration))
    marginal = parts.get("marginal", an.marginals.Uniform())
    process = an.LatentProcess(an.Sphere(len(concentration)), marginal, conditional, lambda z: z)
    draw = jax.jit(lambda key: an.sample_pairs(key, process, pairs))

    def sample(seed: int) -> Pairs:
        drawn = draw(jax.random.key(seed))
        return np.asarray(drawn.view1, float), np.asarray(drawn.view2, float)

    return sample


@functools.cache
def sound() -> Callable[[int], Pairs]:
    """The first process that breaks nothing, compiled once."""
    return sampler(LAMBDA, PAIRS)


def uneven(size: float) -> Callable[[int], Pairs]:
    """Λ is `1 + size` times as large on one side of the last dimension as on the other."""
    low, high = sound(), sampler((1.0 + size) * LAMBDA, PAIRS)

    def sample(seed: int) -> Pairs:
        one, other = low(seed), high(seed + 10_000)
        mixed = np.where(np.arange(PAIRS) % 2, 1, 0).astype(bool)
        # Anchors are uniform on either side alone, and half of each process is kept.
        flip = [np.where(x[0][:, -1:] * sign < 0, -1.0, 1.0) for x, sign in ((one, 1), (other, -1))]
        parts = [np.where(mixed[:, None], other[i] * flip[1], one[i] * flip[0]) for i in (0, 1)]
        return parts[0], parts[1]

    return sample


def changed(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[int], Pairs]:
    """Pairs of the first sound process, both views changed alike."""
    sample = sound()
    return lambda seed: tuple(map(change, sample(seed)))


def folded(share: float) -> Callable[[int], Pairs]:
    """An encoder that loses the last factor's sign for this share of the inputs."""

    def change(x: np.ndarray) -> np.ndarray:
        # By where the input lies along the first factor: a pair may be folded in one view only.
        chosen = x[:, 0] < np.quantile(x[:, 0], share) if share < 1 else np.ones(len(x), bool)
        return np.concatenate(
            [x[:, :-1], np.where(chosen, np.abs(x[:, -1]), x[:, -1])[:, None]], axis=1
        )

    return changed(change)


def turned(degrees: float) -> Callable[[int], Pairs]:
    """An encoder that mixes a factor of Λ = 25 with one of Λ = 5 by an angle."""
    angle = np.radians(degrees)
    turn = np.eye(10)
    turn[np.ix_([0, 9], [0, 9])] = [
        [np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)],
    ]  # fmt: skip
    return changed(lambda x: x @ turn)


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def shrunk(left: float) -> Callable[[int], Pairs]:
    """An encoder whose last output has only this share of its size."""

    def change(x: np.ndarray) -> np.ndarray:
        return unit(x * np.append(np.ones(9), left))

    return changed(change)


def shifted(size: float) -> Callable[[int], Pairs]:
    """A second view that is always moved along the last dimension, in standard deviations."""
    sample = sound()

    def draw(seed: int) -> Pairs:
        one, other = sample(seed)
        return one, unit(other + np.append(np.zeros(9), size / np.sqrt(LAMBDA[-1])))

    return draw


def shuffled(share: float) -> Callable[[int], Pairs]:
    """A second view of which so many rows belong to other anchors."""
    sample = sound()

    def draw(seed: int) -> Pairs:
        one, other = sample(seed)
        rows = np.random.default_rng(seed).permutation(PAIRS)[: round(share * PAIRS)]
        moved = other.copy()
        moved[rows] = other[np.roll(rows, 1)]
        return one, moved

    return draw


def peaked(lacking: float) -> Callable[[int], Pairs]:
    """Noise whose exponent is `2 - lacking`, of the same variance 1/15 whatever the exponent."""
    p = 2.0 - lacking
    concentration = p * (15 * special.gamma(3 / p) / special.gamma(1 / p)) ** (p / 2)
    noise = an.conditionals.GeneralizedNormal(np.full(10, concentration), p)
    return sampler(LAMBDA, PAIRS, conditional=noise)


def two_modes(distance: float) -> Callable[[int], Pairs]:
    """The last dimension has Λ = 25 and two modes, so many standard deviations apart."""
    narrow = an.conditionals.Anisotropic(np.append(LAMBDA[:9], 25.0))
    offset = np.append(np.zeros(9), distance / (2 * np.sqrt(25.0)))
    return sampler(LAMBDA, PAIRS, conditional=an.conditionals.Bimodal(narrow, offset))


@functools.cache
def crowded(kappa: float) -> Callable[[int], Pairs]:
    """Anchors from a von Mises–Fisher distribution, compiled once; of 0 it is the uniform one."""
    if kappa == 0:
        return sound()
    return sampler(LAMBDA, PAIRS, marginal=an.marginals.VonMisesFisher(kappa))


@dataclasses.dataclass(frozen=True)
class Draw:
    """What the checks are given.

    Attributes:
      anchors: [n, d].
      positives: [n, d].
      reference: anchors of another set, [m, d]; None where no check needs it.
      concentration: the true Λ, as the learned one, [d].
    """

    anchors: np.ndarray
    positives: np.ndarray
    reference: np.ndarray | None
    concentration: np.ndarray

    @functools.cached_property
    def fit(self) -> Fit:
        """Λ fitted to the pairs."""
        return fit_concentration(self.anchors, self.positives)

    @property
    def names(self) -> list[str]:
        """Of the dimensions."""
        return [str(k) for k in range(self.anchors.shape[1])]


@dataclasses.dataclass(frozen=True)
class Violation:
    """What breaks a check.

    Attributes:
      what: is broken, and how its size is measured.
      sizes: from none to large.
      pairs: from a size to a function from a seed to pairs.
      reference: the same for the set that anchors are compared with; None without one.
      learned: from a size to the Λ̂ of training.
    """

    what: str
    sizes: tuple[float, ...]
    pairs: Callable[[float], Callable[[int], Pairs]]
    reference: Callable[[float], Callable[[int], Pairs]] | None = None
    learned: Callable[[float], np.ndarray] = lambda size: LAMBDA

    def draws(self, size: float) -> Callable[[int], Draw]:
        """Returns a function from a seed to what the checks are given."""
        sample, learned = self.pairs(size), self.learned(size)
        other = None if self.reference is None else self.reference(size)

        def draw(seed: int) -> Draw:
            one, two = map(unit, sample(seed))
            # Of the same seed the reference would share its randomness with the anchors.
            reference = None if other is None else other(seed + 10_000)[0]
            return Draw(one, two, reference, learned)

        return draw


VIOLATIONS = {
    "collapse": Violation(
        "what one output has lost of its size",
        (0, 0.5, 0.8, 0.85, 0.9, 0.95, 0.99),
        lambda size: shrunk(1 - size),
    ),
    "injective": Violation(
        "share of inputs for which a factor is folded",
        (0, 0.02, 0.05, 0.1, 0.3, 0.5, 0.7, 1),
        folded,
    ),
    "support": Violation("κ of von Mises–Fisher anchors", (0, 1, 2, 3, 5, 10, 15), crowded),
    "uniform": Violation("κ of von Mises–Fisher anchors", (0, 0.1, 0.2, 0.3, 0.5, 1, 1.5), crowded),
    "pairing": Violation(
        "share of rows that belong to another anchor",
        (0, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95, 1),
        shuffled,
    ),
    "shape": Violation(
        "how far the exponent of the noise is below 2", (0, 0.1, 0.2, 0.3, 0.5, 0.8, 1.2), peaked
    ),
    "one mode": Violation(
        "distance of two modes, in standard deviations of each", (0, 2, 3, 3.5, 4, 5, 6), two_modes
    ),
    "centre": Violation(
        "shift of the second view, in standard deviations",
        (0, 0.03, 0.06, 0.1, 0.2, 0.3, 0.5),
        shifted,
    ),
    "axes": Violation(
        "angle between output and factor, in degrees", (0, 2, 3, 4, 6, 10, 20, 30), turned
    ),
    "constant Λ": Violation(
        "how much larger Λ is on one side", (0, 0.1, 0.25, 0.4, 0.6, 1, 2, 3), uneven
    ),
    "learned Λ": Violation(
        "how much too large one Λ̂ of the ten is",
        (0, 0.05, 0.1, 0.15, 0.25, 0.5, 1),
        lambda size: sound(),
        learned=lambda size: LAMBDA * np.append(np.ones(9), 1 + size),
    ),
    "negatives": Violation(
        f"Λ of all ten factors, with {NEGATIVES} negatives",
        (10, 25, 40, 55, 70, 100),
        lambda size: sampler(np.full(10, float(size)), PAIRS),
    ),
    "domain shift": Violation(
        "κ of a von Mises–Fisher reference",
        (0, 0.1, 0.2, 0.3, 0.5, 1, 1.5),
        lambda size: sound(),
        reference=crowded,
    ),
}


# As `an.diagnose` makes them, each alone: all of them on so many draws would take hours.
CHECKS: dict[str, Callable[[Draw], Finding]] = {
    "collapse": lambda draw: marginal.check_collapse(draw.anchors, draw.names),
    "injective": lambda draw: marginal.check_injective(draw.anchors, draw.names),
    "support": lambda draw: marginal.check_support(draw.anchors, draw.anchors, draw.names),
    "uniform": lambda draw: marginal.check_uniform(draw.anchors, draw.names),
    "pairing": lambda draw: conditional.check_pairing(draw.fit, draw.names),
    "shape": lambda draw: conditional.check_shape(draw.fit, draw.names),
    "one mode": lambda draw: conditional.check_modes(draw.fit, draw.names),
    "centre": lambda draw: conditional.check_centre(draw.fit, draw.names),
    "axes": lambda draw: conditional.check_axes(draw.fit, draw.names),
    "constant Λ": lambda draw: conditional.check_constant(draw.fit, draw.names),
    "learned Λ": lambda draw: conditional.check_learned(draw.fit, draw.concentration, draw.names),
    "negatives": lambda draw: check_negatives(
        draw.anchors, draw.positives, draw.fit.scale, NEGATIVES
    ),
    "domain shift": lambda draw: shift.check_shift(draw.anchors, draw.reference),
}
# No test, and no violation: a large Λ in many dimensions does need more negatives than a batch has.
NO_FALSE_ALARM = "negatives"

# How alarms and verdicts are drawn.
KINDS = (
    ("alarm", {"color": "#0072b2", "marker": "o", "ms": 4, "lw": 1.5}),
    ("verdict violated", {"color": "#d55e00", "marker": "s", "ms": 3.5, "lw": 1.5, "ls": ":"}),
)


class Results:
    """Draws that are kept in a file, a line each."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._rows = {(row["check"], row["of"], row["seed"]): row for row in map(json.loads, lines)}

    def fill(self, of: str, checks: list[str], draw: Callable[[int], Draw], seeds: range) -> None:
        """Makes the checks on draws of `of` that are missing."""
        for seed in seeds:
            missing = [check for check in checks if (check, of, seed) not in self._rows]
            given = draw(seed) if missing else None
            for check in missing:
                finding = CHECKS[check](given)
                row = {
                    "check": check,
                    "of": of,
                    "seed": seed,
                    "alarm": finding.is_alarm,
                    "violated": finding.verdict == "violated",
                }
                self._rows[check, of, seed] = row
                with self._path.open("a") as file:
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def all_of(self, check: str, of: str | None = None) -> Iterator[dict]:
        """Yields the draws of a check, of one process or size or of all."""
        for row in self._rows.values():
            if row["check"] == check and of in (None, row["of"]):
                yield row


def interval(hits: list[bool]) -> tuple[float, float, float]:
    """Returns a share in per cent, and its 95 % interval (Clopper and Pearson)."""
    found = stats.binomtest(sum(hits), len(hits)).proportion_ci()
    return 100 * sum(hits) / len(hits), 100 * found.low, 100 * found.high


def halves(concentration: np.ndarray, pairs: int) -> Callable[[int], Draw]:
    """Returns a function from a seed to a draw of which one half is the reference."""
    sample = sampler(concentration, pairs)

    def draw(seed: int) -> Draw:
        one, other = sample(seed)
        return Draw(one[::2], other[::2], one[1::2], concentration)

    return draw


def make_alarms(results: Results, checks: list[str], repeats: int) -> None:
    """Draws from processes that break nothing, and prints the share of alarms."""
    checks = [check for check in checks if check != NO_FALSE_ALARM]
    for number, (name, (concentration, pairs)) in enumerate(SOUND.items()):
        # Seeds that no other process uses: of equal ones they would share their anchors.
        first = number * 1_000_000
        results.fill(name, checks, halves(concentration, pairs), range(first, first + repeats))
    print("False alarms in per cent; half of the pairs are the reference\n")
    print("| check | " + " | ".join(SOUND) + " | all | draws |")
    print("|---" * (len(SOUND) + 3) + "|")
    for check in checks:
        cells = [
            f"{interval([row['alarm'] for row in results.all_of(check, name)])[0]:.1f}"
            for name in SOUND
        ]
        alarms = [row["alarm"] for row in results.all_of(check)]
        share, low, high = interval(alarms)
        cells += [f"{share:.1f} [{low:.1f}, {high:.1f}]", str(len(alarms))]
        print(f"| {check} | " + " | ".join(cells) + " |")


def make_power(results: Results, checks: list[str], repeats: int, figure: str | None) -> None:
    """Draws from processes that break a check by more and more, prints and draws the alarms."""
    for check in checks:
        violation = VIOLATIONS[check]
        for size in violation.sizes:
            results.fill(f"{size:g}", [check], violation.draws(size), range(repeats))
    print(f"Alarms (violated) in per cent, {PAIRS} pairs\n")
    print("| check | what is broken | size: alarms (violated) |\n|---|---|---|")
    shares: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
    for check in checks:
        cells = []
        shares[check] = {"alarm": [], "violated": []}
        for size in VIOLATIONS[check].sizes:
            rows = list(results.all_of(check, f"{size:g}"))
            for kind, found in shares[check].items():
                found.append(interval([row[kind] for row in rows]))
            alarm, violated = (found[-1][0] for found in shares[check].values())
            cells.append(f"{size:g}: {alarm:.0f} ({violated:.0f})")
        print(f"| {check} | {VIOLATIONS[check].what} | {', '.join(cells)} |", flush=True)
    if figure is not None:
        draw_power(shares, figure)


def draw_power(shares: dict[str, dict[str, list[tuple[float, float, float]]]], path: str) -> None:
    """One panel for each check: shares of alarms and of verdicts by the size of the violation."""
    columns = 2
    rows = -(-len(shares) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(7, 1.95 * rows), layout="constrained", sharey=True, squeeze=False
    )
    for ax in axes.flat[len(shares) :]:
        ax.axis("off")
    for number, (ax, (check, found)) in enumerate(zip(axes.flat, shares.items(), strict=False)):
        sizes = VIOLATIONS[check].sizes
        for values, (label, style) in zip(found.values(), KINDS, strict=True):
            share, low, high = np.array(values).T
            ax.errorbar(
                sizes, share, yerr=(share - low, high - share), label=label, capsize=2, **style
            )
        ax.axhline(5, color="#66717f", lw=1, ls=(0, (4, 3)), label="5 %")
        ax.set_title(check, loc="left", fontsize=11, fontweight="bold")
        ax.set_xlabel("\n".join(textwrap.wrap(VIOLATIONS[check].what, 44)), fontsize=9)
        ax.set(ylim=(-4, 104), yticks=(0, 50, 100))
        ax.spines[["top", "right"]].set_visible(False)
        if number % columns == 0:
            ax.set_ylabel("% of draws")
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.savefig(path, dpi=130)


def dip_quantiles(pairs: int = PAIRS, samples: int = 10_000) -> None:
    rng = np.random.default_rng(0)
    dips = np.sqrt(pairs) * np.array(
        [dip_statistic(rng.uniform(size=pairs)) for _ in range(samples)]
    )
    for share in (0.5, 0.1, 0.01):
        print(f"{share:g}: {np.quantile(dips, 1 - share):.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("alarms", "power", "dip"))
    parser.add_argument("--repeats", type=int, help="draws of each process or size")
    parser.add_argument("--checks", help=f"some of {', '.join(CHECKS)} alone")
    parser.add_argument("--results", type=Path, default=Path("runs/diagnose"), help="a folder")
    parser.add_argument("--figure", help="where power is drawn")
    arguments = parser.parse_args()
    checks = arguments.checks.split(",") if arguments.checks else list(CHECKS)
    if unknown := set(checks) - set(CHECKS):
        parser.error(f"no check {', '.join(sorted(unknown))}; there are {', '.join(CHECKS)}")
    results = Results(arguments.results / f"{arguments.part}.jsonl")
    if arguments.part == "alarms":
        make_alarms(results, checks, arguments.repeats or ALARM_REPEATS)
    elif arguments.part == "power":
        make_power(results, checks, arguments.repeats or POWER_REPEATS, arguments.figure)
    else:
        dip_quantiles()


if __name__ == "__main__":
    main()
