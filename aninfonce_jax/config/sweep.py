"""Many runs of one config: a grid or a list over any of its fields, times seeds.

A sweep is what a file's `sweep()` returns, plain values:

    def sweep():
        return {
            "grid": {"source.concentration.high": (10.0, 25.0, 100.0)},  # every combination
            "points": [{"objective.kind": "aninfonce"}, {"objective.kind": "infonce"}],
            "seeds": (0, 1, 2),
            "x": "source.concentration.high",  # along which figures are drawn
            "scores": ("r2_style",),           # which ones; by default those that are known
            "targets": {"r2": (0.9,)},         # steps until a score is first reached
        }

Every entry of `points`, a dictionary of fields that go together, is combined with every
combination of the grid, and with every seed. All of it is optional but one of the first two.
"""

import dataclasses
import hashlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aninfonce_jax.config.overrides import resolve
from aninfonce_jax.config.parse import ITEM, leaf_of, leaves, section_item
from aninfonce_jax.config.schema import Config, ConfigError
from aninfonce_jax.config.values import nearest, shown

_KEYS = ("grid", "points", "seeds", "x", "scores", "targets")
SEED = "seed"
# More runs than anybody means; a grid grows by multiplication.
_MOST_POINTS = 10_000
_NAME_LENGTH = 100


@dataclasses.dataclass(frozen=True)
class Point:
    """One run of a sweep.

    Attributes:
      name: of its folder, made of what is varied.
      values: what is varied, the seed included, by dotted name.
      config: the run.
      notes: a line for each value that had to be fitted to the others.
    """

    name: str
    values: Mapping[str, Any]
    config: Config
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Runs that differ in a few fields.

    Attributes:
      points: the runs.
      fields: what is varied besides the seed, in the order of the file.
      x: the field along which figures are drawn; "" if none was named.
      scores: those to draw; () for all that are known.
      targets: score -> values whose first step is looked for.
    """

    points: tuple[Point, ...]
    fields: tuple[str, ...]
    x: str = ""
    scores: tuple[str, ...] = ()
    targets: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)


def make_sweep(
    values: Mapping[str, Any], spec: Mapping[str, Any], overrides: Mapping[str, Any]
) -> Sweep:
    """Returns the runs of a sweep, each of them checked.

    Args:
      values: of the config that is varied.
      spec: what `sweep()` returned.
      overrides: changes to every run, by dotted name.

    Raises:
      ConfigError: an unknown field, an empty grid, a field that is set twice, or a run that
        could not be trained.
    """
    unknown = [key for key in spec if key not in _KEYS]
    if unknown:
        raise ConfigError(
            f"unknown key {shown(unknown[0])} of a sweep; {nearest(str(unknown[0]), list(_KEYS))}"
        )
    lists, grid = _points(spec.get("points", [{}])), _grid(spec.get("grid", {}))
    seeds = _items("seeds", spec["seeds"]) if "seeds" in spec else ()
    fields = list(dict.fromkeys(name for one in (*lists, grid) for name in one))
    _check_fields(fields, overrides, has_seeds=bool(seeds))
    if not fields and not seeds:
        raise ConfigError("a sweep needs something to vary: grid, points or seeds")
    size = len(lists) * math.prod(map(len, grid.values())) * max(len(seeds), 1)
    if size > _MOST_POINTS:
        raise ConfigError(f"a sweep has at most {_MOST_POINTS:,} runs, got {size:,}; thin its grid")
    points = list(_resolved(values, _combined(lists, grid, seeds), overrides))
    _check_distinct(points)
    x = spec.get("x", "")
    if x and x not in (*fields, SEED):
        raise ConfigError(f"x={shown(x)} of a sweep is not among what it varies: {fields}")
    return Sweep(tuple(points), tuple(fields), x, _names(spec.get("scores", ())), _targets(spec))


def as_text(value: Any) -> str:
    """Returns a value as `--config.KEY=` takes it."""
    if isinstance(value, list | tuple):
        return ",".join(map(as_text, value))
    return str(value)


def _combined(
    lists: Sequence[Mapping[str, Any]], grid: Mapping[str, Sequence[Any]], seeds: Sequence[Any]
) -> Iterator[dict[str, Any]]:
    for one, *rest in itertools.product(lists, *grid.values(), seeds or (None,)):
        *own, seed = rest
        found = {**one, **dict(zip(grid, own, strict=True))}
        yield found if seed is None else {**found, SEED: seed}


def _resolved(
    values: Mapping[str, Any], combined: Iterator[dict[str, Any]], overrides: Mapping[str, Any]
) -> Iterator[Point]:
    for own in combined:
        try:
            resolved = resolve(values, {**overrides, **own})
        except ConfigError as error:
            raise ConfigError(f"at {_described(own)}: {error}") from error
        if resolved.is_comparison:
            raise ConfigError(
                "a sweep varies single runs, and this config compares several; vary "
                "objective.kind, with --config.compare= to leave the comparison"
            )
        (run,) = resolved.runs.values()
        yield Point(_folder(own), own, run, resolved.notes)


def _check_fields(fields: Sequence[str], overrides: Mapping[str, Any], *, has_seeds: bool) -> None:
    for name in fields:
        leaf = leaf_of(name) if isinstance(name, str) else None
        if leaf is None:
            raise ConfigError(
                f"a sweep varies fields of the config, and {shown(name)} is none; "
                f"{nearest(str(name), list(leaves()))}"
            )
        if section_item(leaf.field.type) is not None:
            raise ConfigError(
                f"{name} is a list of sections; vary keys of its items, such as {name}.0.kind"
            )
    for name in (*fields, *((SEED,) if has_seeds else ())):
        if name in overrides:
            raise ConfigError(
                f"--config.{name} is varied by the sweep; leave it out, or take it from the sweep"
            )
    if has_seeds and SEED in fields:
        raise ConfigError("a sweep names its seeds twice: in seeds, and as a field; keep one")


def _check_distinct(points: Sequence[Point]) -> None:
    names = [point.name for point in points]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"a sweep names the same run twice: {twice}")


def _points(found: Any) -> list[Mapping[str, Any]]:
    items = _items("points", found)
    for item in items:
        if not isinstance(item, Mapping):
            raise ConfigError(
                f"points of a sweep are dictionaries of fields and values, got {shown(item)}"
            )
    return items


def _grid(found: Any) -> dict[str, list[Any]]:
    if not isinstance(found, Mapping):
        raise ConfigError(f"grid of a sweep maps fields to lists of values, got {shown(found)}")
    return {name: _items(f"grid of a sweep, {name},", own) for name, own in found.items()}


def _items(what: str, found: Any) -> list[Any]:
    if isinstance(found, str | Mapping) or not hasattr(found, "__iter__"):
        raise ConfigError(f"{what} must be a list of values, got {shown(found)}")
    items = list(itertools.islice(found, _MOST_POINTS + 1))
    if not items:
        raise ConfigError(f"{what} is empty; give it at least one value, or leave it out")
    return items


def _names(found: Any) -> tuple[str, ...]:
    names = (found,) if isinstance(found, str) else found
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"scores of a sweep are names of scores, got {shown(found)}")
    return tuple(names)


def _targets(spec: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    found = spec.get("targets", {})
    if not isinstance(found, Mapping):
        raise ConfigError(f"targets of a sweep map scores to values, got {shown(found)}")
    targets = {name: tuple(_items(f"targets of {name}", own)) for name, own in found.items()}
    for name, own in targets.items():
        if not all(_is_number(value) and math.isfinite(value) for value in own):
            raise ConfigError(f"targets of {name} must be finite numbers, got {shown(own)}")
    return targets


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _described(own: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={as_text(value)}" for name, value in own.items())


def _folder(own: Mapping[str, Any]) -> str:
    """Returns a folder's name for a run: short, the same whatever else the sweep holds."""
    text = "+".join(f"{_short(name)}={as_text(value)}" for name, value in own.items())
    plain = re.sub(r"[^\w.=,+-]+", "_", text)
    if plain == text and len(plain) <= _NAME_LENGTH:
        return plain
    digest = hashlib.sha256(_described(own).encode()).hexdigest()[:8]
    return f"{plain[: _NAME_LENGTH - 9]}-{digest}"


def _short(name: str) -> str:
    """Returns the last parts of a dotted name that tell it from all other fields."""
    steps = name.split(".")
    # Items of lists have names of their own, with places in them.
    others = [other for other in leaves() if other != name and ITEM not in other.split(".")]
    for count in range(1, len(steps)):
        short = ".".join(steps[-count:])
        if not any(other.endswith(f".{short}") or other == short for other in others):
            return short
    return name
