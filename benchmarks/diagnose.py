"""False alarms and power of every check of `an.diagnose`, on processes whose truth is known.

    python benchmarks/diagnose.py alarms   # the tables of docs/diagnose.md: false alarms
    python benchmarks/diagnose.py alarms --checks=injective,axes --repeats=400
    python benchmarks/diagnose.py power    # and power
    python benchmarks/diagnose.py dip      # the quantiles that the dip test compares with

A draw counts as an alarm if a check refutes its assumption (violated, or significant though
small); false alarms are those of the check on processes without any violation.
"""

import argparse
import functools
from collections.abc import Callable

import jax
import numpy as np
from scipy import stats

import aninfonce_jax as an
from aninfonce_jax.diagnosis import conditional, marginal, shift
from aninfonce_jax.diagnosis.dip import dip_statistic
from aninfonce_jax.diagnosis.findings import Finding
from aninfonce_jax.diagnosis.score_matching import fit_concentration

Pairs = tuple[np.ndarray, np.ndarray]
ALARM_REPEATS, POWER_REPEATS = 60, 20
PAIRS = 2000
LAMBDA = np.array([25.0] * 5 + [5.0] * 5)
# Processes that break nothing, by their name.
SOUND = {
    "Λ = 25 and 5, d = 10": (LAMBDA, 2000),
    "Λ from 5 to 25, d = 10": (np.linspace(25, 5, 10), 2000),
    "the same, 500 pairs": (np.linspace(25, 5, 10), 500),
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


def shrunk(left: float) -> Callable[[int], Pairs]:
    """An encoder whose last output has only this share of its size."""

    def change(x: np.ndarray) -> np.ndarray:
        moved = x * np.append(np.ones(9), left)
        return moved / np.linalg.norm(moved, axis=1, keepdims=True)

    return changed(change)


def shifted(size: float) -> Callable[[int], Pairs]:
    """A second view that is always moved along the last dimension, in standard deviations."""
    sample = sound()

    def draw(seed: int) -> Pairs:
        one, other = sample(seed)
        moved = other + np.append(np.zeros(9), size / np.sqrt(LAMBDA[-1]))
        return one, moved / np.linalg.norm(moved, axis=1, keepdims=True)

    return draw


def violations() -> dict[str, tuple[str, list[tuple[str, Callable[[int], Pairs]]]]]:
    """Returns what breaks each check, in growing sizes."""
    vmf = an.marginals.VonMisesFisher
    noise, bimodal = an.conditionals.GeneralizedNormal, an.conditionals.Bimodal
    offset = np.append(np.zeros(9), 1.0)
    narrow = an.conditionals.Anisotropic(np.append(LAMBDA[:9], 25.0))
    return {
        "uniform": (
            "anchors from a von Mises–Fisher with κ",
            [(f"{k:g}", sampler(LAMBDA, PAIRS, marginal=vmf(k))) for k in (0.3, 1.0, 3.0)],
        ),
        "support": (
            "κ of the same",
            [(f"{k:g}", sampler(LAMBDA, PAIRS, marginal=vmf(k))) for k in (3.0, 10.0, 30.0)],
        ),
        "injective": (
            "share of inputs for which a factor is folded",
            [(f"{share:g}", folded(share)) for share in (0.1, 0.5, 1.0)],
        ),
        "collapse": (
            "what is left of one output's size",
            [(f"{left:g}", shrunk(left)) for left in (0.5, 0.1, 0.01)],
        ),
        "shape": (
            "exponent p of the noise (2 is right)",
            [
                (f"{p:g}", sampler(LAMBDA, PAIRS, conditional=noise(np.full(10, scale), p)))
                for p, scale in ((1.5, 14.0), (1.0, 7.0), (0.7, 4.0))
            ],
        ),
        "one mode": (
            "distance of two modes, in standard deviations of each",
            [
                (f"{2 * o * 5:g}", sampler(LAMBDA, PAIRS, conditional=bimodal(narrow, o * offset)))
                for o in (0.3, 0.4, 0.6)
            ],
        ),
        "centre": (
            "shift of the second view, in standard deviations",
            [(f"{size:g}", shifted(size)) for size in (0.1, 0.3, 1.0)],
        ),
        "axes": (
            "angle between output and factor, in degrees",
            [(f"{degrees:g}", turned(degrees)) for degrees in (3, 10, 45)],
        ),
        "constant Λ": (
            "how much larger Λ is on one side",
            [(f"{size:g}", uneven(size)) for size in (0.25, 1.0, 3.0)],
        ),
        "negatives": (
            "Λ of all ten factors, 1023 negatives",
            [(f"{k:g}", sampler(np.full(10, k), PAIRS)) for k in (10.0, 25.0, 100.0)],
        ),
    }


def seeds_of(process: int, repeats: int) -> range:
    """Returns seeds that no other process uses: of equal ones they would share their anchors."""
    return range(process * 1_000_000, process * 1_000_000 + repeats)


def verdicts(
    sample: Callable[[int], Pairs], seeds: range, **given: object
) -> dict[str, tuple[float, float]]:
    """Returns per check the share of alarms, and of verdicts that it is violated."""
    found: dict[str, list[tuple[bool, bool]]] = {}
    for seed in seeds:
        one, other = sample(seed)
        known = dict(given)
        if known.pop("halve", False):
            known["reference"], one, other = one[1::2], one[::2], other[::2]
        for finding in an.diagnose(one, other, **known).findings:
            pair = (finding.is_alarm, finding.verdict == "violated")
            found.setdefault(finding.check, []).append(pair)
    return {check: tuple(np.mean(pairs, axis=0)) for check, pairs in found.items()}


# Checks that can be made alone, from anchors, positives and a reference: many draws take long.
SINGLE: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray, list[str]], Finding]] = {
    "injective": lambda u, v, other, names: marginal.check_injective(u, names),
    "axes": lambda u, v, other, names: conditional.check_axes(fit_concentration(u, v), names),
    "constant Λ": lambda u, v, other, names: conditional.check_constant(
        fit_concentration(u, v), names
    ),
    "domain shift": lambda u, v, other, names: shift.check_shift(u, other),
}


def single_alarms(checks: list[str], repeats: int) -> None:
    """Prints the false alarms of some checks, each with the 95 % interval over all draws."""
    print(f"False alarms in per cent, of {repeats} draws each\n")
    print("| check | " + " | ".join(SOUND) + " | all |")
    print("|---" * (len(SOUND) + 2) + "|")
    found: dict[str, list[list[bool]]] = {check: [] for check in checks}
    for process, (concentration, pairs) in enumerate(SOUND.values()):
        sample = sampler(concentration, pairs)
        names = [str(k) for k in range(len(concentration))]
        for check in checks:
            found[check].append([])
        for seed in seeds_of(process, repeats):
            one, other = sample(seed)
            halves = one[::2], other[::2], one[1::2], names
            for check in checks:
                found[check][-1].append(SINGLE[check](*halves).is_alarm)
    for check, alarms in found.items():
        shares = [100 * float(np.mean(own)) for own in alarms]
        together = stats.binomtest(int(np.sum(alarms)), int(np.size(alarms))).proportion_ci()
        row = [f"{share:.1f}" for share in shares]
        row.append(f"{np.mean(shares):.1f} [{100 * together.low:.1f}, {100 * together.high:.1f}]")
        print(f"| {check} | " + " | ".join(row) + " |", flush=True)


def dip_quantiles(pairs: int = PAIRS, samples: int = 10_000) -> None:
    rng = np.random.default_rng(0)
    dips = np.sqrt(pairs) * np.array(
        [dip_statistic(rng.uniform(size=pairs)) for _ in range(samples)]
    )
    for share in (0.5, 0.1, 0.01):
        print(f"{share:g}: {np.quantile(dips, 1 - share):.4f}")


def print_alarms(repeats: int) -> None:
    print(
        f"False alarms in per cent, of {repeats} draws each; half of the pairs are the reference\n"
    )
    alarms = {}
    for process, (name, (concentration, pairs)) in enumerate(SOUND.items()):
        given = {"concentration": concentration, "halve": True}
        seeds = seeds_of(process, repeats)
        alarms[name] = verdicts(sampler(concentration, pairs), seeds, **given)
        # No test: a large Λ in many dimensions does need more negatives than a batch has.
        del alarms[name]["negatives"]
    print("| check | " + " | ".join(alarms) + " | all |")
    print("|---" * (len(alarms) + 2) + "|")
    for check in next(iter(alarms.values())):
        shares = [100 * found[check][0] for found in alarms.values()]
        row = [f"{share:.0f}" for share in shares] + [f"{np.mean(shares):.1f}"]
        print(f"| {check} | " + " | ".join(row) + " |", flush=True)


def print_power(repeats: int) -> None:
    print(f"Alarms (violated) in per cent, of {repeats} draws of {PAIRS} pairs each\n")
    print("| check | what is broken | size: alarms (violated) |\n|---|---|---|")
    for check, (what, sizes) in violations().items():
        cells = []
        for size, sample in sizes:
            alarm, violated = verdicts(sample, range(repeats))[check]
            cells.append(f"{size}: {100 * alarm:.0f} ({100 * violated:.0f})")
        print(f"| {check} | {what} | {', '.join(cells)} |", flush=True)
    cells = []
    for size in (0.3, 1.0, 3.0):
        sample, other = sound(), sampler(LAMBDA, PAIRS, marginal=an.marginals.VonMisesFisher(size))
        found = [
            an.diagnose(*sample(seed), reference=other(seed + 10_000)[0])["domain shift"]
            for seed in range(repeats)
        ]
        alarm = np.mean([finding.is_alarm for finding in found])
        violated = np.mean([finding.verdict == "violated" for finding in found])
        cells.append(f"{size:g}: {100 * alarm:.0f} ({100 * violated:.0f})")
    what = "reference from a von Mises–Fisher with κ"
    print(f"| domain shift | {what} | {', '.join(cells)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("alarms", "power", "dip"))
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--checks", help=f"for alarms: some of {', '.join(SINGLE)} alone")
    arguments = parser.parse_args()
    if arguments.part == "alarms" and arguments.checks:
        single_alarms(arguments.checks.split(","), arguments.repeats or ALARM_REPEATS)
    elif arguments.part == "alarms":
        print_alarms(arguments.repeats or ALARM_REPEATS)
    elif arguments.part == "power":
        print_power(arguments.repeats or POWER_REPEATS)
    else:
        dip_quantiles()


if __name__ == "__main__":
    main()
