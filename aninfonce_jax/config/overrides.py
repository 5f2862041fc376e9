"""From a config file's values and a command line's to the runs that they ask for."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from aninfonce_jax.config import checks, unused
from aninfonce_jax.config.kinds import KNOWN
from aninfonce_jax.config.parse import (
    KIND,
    Leaf,
    check_used,
    default_kind,
    fields_used,
    leaf_of,
    leaves,
    parse_section,
    section_item,
    section_type,
    section_types,
)
from aninfonce_jax.config.schema import Comparison, Config, ConfigError
from aninfonce_jax.config.values import nearest, shown

# A warm-up that does not fit into its run is shortened to one step in so many.
_STEPS_PER_WARMUP_STEP = 10
# Deeper than any section: values that hold themselves are not followed without end.
_DEPTH = 8


def runs_of(values: Mapping[str, Any]) -> dict[str, Config]:
    """Returns the runs that nested values ask for, by the kind of their objective, checked.

    The objective's section may hold the keys of every kind that is compared; each run gets
    those that its own kind uses.
    """
    runs = _parse_runs(as_plain(values))
    for run in runs.values():
        checks.check(run)
    return runs


@dataclasses.dataclass(frozen=True)
class Resolved:
    """What a command asks for.

    Attributes:
      runs: by name.
      is_comparison: whether they were asked for side by side.
      notes: a line for each value that had to be fitted to the others.
    """

    runs: dict[str, Config]
    is_comparison: bool
    notes: tuple[str, ...]


def resolve(
    values: Mapping[str, Any], overrides: Mapping[str, Any], *, is_run: bool = False
) -> Resolved:
    """Returns what a command asks for: a config file's values, some of them changed.

    Only the whole is checked: what a file leaves open, an override may settle. Where an
    override chooses another kind, what the file says for the old kind alone is dropped.

    Args:
      values: of the file.
      overrides: dotted names with their values.
      is_run: whether the values are those of a run that was resolved before: it has what the
        other objectives of its comparison use.

    Raises:
      ConfigError: as `from_dict`.
    """
    whole = as_plain(values)
    # Lists before their items, and items in the order of their places.
    ordered = sorted(overrides, key=_by_depth)
    lists = [name for name in ordered if section_item(_known(name).field.type) is not None]
    for name in lists:
        _set(whole, name, overrides[name])
    chosen = [name.removesuffix(f".{KIND}") for name in ordered if name.endswith(f".{KIND}")]
    for section in dict.fromkeys(chosen + ["objective"] * ("compare" in overrides)):
        _drop_unused(whole, section, overrides)
    if f"source.{KIND}" in overrides and isinstance(whole.get("eval"), dict):
        kind = overrides[f"source.{KIND}"]
        idle = unused.unused_evaluation(KNOWN.get(kind, ()) if isinstance(kind, str) else ())
        whole["eval"] = {k: v for k, v in whole["eval"].items() if k not in idle}
    for name in ordered:
        if name not in lists:
            _set(whole, name, overrides[name])
    if _items(whole.get("compare")) and f"objective.{KIND}" in overrides:
        raise ConfigError(
            f"objective.{KIND}={shown(overrides[f'objective.{KIND}'])} has no use beside "
            f"compare={shown(whole['compare'])}; to train it alone, add --config.compare="
        )
    runs, notes = {}, []
    for name, run in _parse_runs(whole).items():
        runs[name], note = _with_short_warmup(run)
        checks.check(runs[name])
        notes += note
    # A file is not to blame for what it sets for the kinds that it names itself.
    is_for_others = is_run or "compare" in overrides or bool(chosen)
    unused.check_objectives_use([*runs.values()], overrides if is_for_others else None)
    return Resolved(runs, bool(whole.get("compare")), tuple(dict.fromkeys(notes)))


def _parse_runs(values: dict[str, Any]) -> dict[str, Config]:
    comparison: Comparison = parse_section(Comparison, {"compare": values.get("compare", ())})
    compared = comparison.compare
    values = {key: value for key, value in values.items() if key != "compare"}
    if len(set(compared)) < len(compared):
        raise ConfigError(f"config.compare names an objective twice: {compared}")
    if not compared:
        config: Config = parse_section(Config, values)
        return {config.objective.kind: config}
    given = values.get("objective", {})
    section = section_types()["objective"]
    check_used(section, compared, given, "objective.", f"compare={compared}")
    runs: dict[str, Config] = {}
    for kind in compared:
        used = fields_used(section, [kind])
        own = {key: value for key, value in given.items() if key in used} | {KIND: kind}
        runs[kind] = parse_section(Config, values | {"objective": own})
    return runs


def _known(name: str) -> Leaf:
    leaf = leaf_of(name)
    if leaf is None:
        raise ConfigError(f"unknown config key {shown(name)}; {nearest(name, list(leaves()))}")
    return leaf


def _by_depth(name: str) -> tuple[int, list[int]]:
    steps = name.split(".")
    return len(steps), [int(step) for step in steps if step.isdigit()]


def _drop_unused(whole: dict[str, Any], section: str, overrides: Mapping[str, Any]) -> None:
    """Drops from a file's section what only its old kinds, not the new ones, have a use for.

    What has the old kind's default goes too: files spell out all of them, and the new kind has
    its own. A key that the file's kinds have no use for is an error of the file, and stays.
    """
    given = _section(whole, section)
    if given is None:
        return
    types = section_type(section)
    old = [given.get(KIND, default_kind(types))]
    new = [overrides.get(f"{section}.{KIND}", old[0])]
    if section == "objective":
        old += _items(whole.get("compare"))
        new = _items(overrides.get("compare", whole.get("compare"))) or new
    defaults, used = fields_used(types, old[:1]), fields_used(types, new)
    dropped = fields_used(types, old)
    for key, value in list(given.items()):
        is_usual = shown(value) == shown(defaults.get(key))
        if key != KIND and key in dropped and (key not in used or is_usual):
            del given[key]


def _section(whole: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Returns the section of a dotted name; None if there is none, or something else."""
    found: Any = whole
    for step in name.split("."):
        if isinstance(found, list) and step.isdigit() and int(step) < len(found):
            found = found[int(step)]
        else:
            found = found.get(step) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _items(values: Any) -> list[Any]:
    """Returns the items of a list; [] of anything else, which its own check will refuse."""
    return list(values) if isinstance(values, list | tuple) else []


def _with_short_warmup(config: Config) -> tuple[Config, list[str]]:
    """Shortens a warm-up that would not end: a short trial should not need a second flag."""
    warmup, steps = config.optimizer.warmup_steps, config.train.steps
    if warmup < steps:
        return config, []
    short = steps // _STEPS_PER_WARMUP_STEP
    optimizer = dataclasses.replace(config.optimizer, warmup_steps=short)
    note = (
        f"optimizer.warmup_steps is shortened from {warmup} to {short}, a tenth of "
        f"train.steps={steps}"
    )
    return dataclasses.replace(config, optimizer=optimizer), [note]


def as_plain(values: Any, depth: int = 0) -> dict[str, Any]:
    """Returns a copy of nested values as plain dictionaries and lists of them, to be changed."""
    if isinstance(values, ConfigDict):
        values = values.to_dict()
    if not isinstance(values, Mapping):
        raise ConfigError(f"a config must be a section with keys, got {shown(values)}")
    return {key: _as_plain_value(value, depth) for key, value in values.items()}


def _as_plain_value(value: Any, depth: int) -> Any:
    if depth >= _DEPTH:
        return value
    if isinstance(value, Mapping | ConfigDict):
        return as_plain(value, depth + 1)
    if isinstance(value, list | tuple) and any(isinstance(x, Mapping | ConfigDict) for x in value):
        return [_as_plain_value(item, depth + 1) for item in value]
    return value


def _set(whole: dict[str, Any], name: str, value: Any) -> None:
    """Sets the value of a dotted name; the place behind the last item of a list is a new one."""
    *sections, key = name.split(".")
    inside: Any = whole
    for depth, step in enumerate(sections, start=1):
        here = ".".join(sections[:depth])
        if step.isdigit():
            inside = _item(inside, int(step), here)
        else:
            is_list = depth < len(sections) and sections[depth].isdigit()
            inside = _inside(inside, step, here, is_list)
    inside[key] = value


def _inside(outer: dict[str, Any], step: str, name: str, is_list: bool) -> Any:
    """Returns a section or a list of sections, made if it is not there."""
    found = outer.setdefault(step, [] if is_list else {})
    if is_list and isinstance(found, tuple) and not found:
        found = outer[step] = []
    if not isinstance(found, list if is_list else dict):
        expected = "a list of sections" if is_list else "a section with keys"
        raise ConfigError(f"config.{name} must be {expected}, got {shown(found)}")
    return found


def _item(items: list[Any], place: int, name: str) -> Any:
    if place > len(items):
        raise ConfigError(
            f"config.{name} has no place: there are {len(items)} sections before it; the next is "
            f"{name.rpartition('.')[0]}.{len(items)}"
        )
    if place == len(items):
        items.append({})
    if not isinstance(items[place], dict):
        raise ConfigError(f"config.{name} must be a section with keys, got {shown(items[place])}")
    return items[place]
