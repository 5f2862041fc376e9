"""What a run is: typed, checked values, made from a config file and a command line.

The ConfigDict stops here. Everything else takes the frozen dataclasses of `config.schema`, so a
misspelt key can't silently become a default. Every check runs before anything compiles and
names what was expected, what came, and what to do. Nothing in this package imports jax or
numpy, so that `--help` and a bad flag answer at once.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from aninfonce_jax.config import checks
from aninfonce_jax.config.checks import check_backend, check_devices
from aninfonce_jax.config.parse import (
    KIND,
    Leaf,
    check_used,
    default_kind,
    default_section,
    fields_used,
    leaves,
    parse_section,
    read_override,
    section_types,
)
from aninfonce_jax.config.parse import flatten as _flatten
from aninfonce_jax.config.schema import Comparison, Config, ConfigError
from aninfonce_jax.config.values import nearest, shown

__all__ = [
    "Leaf",
    "Resolved",
    "check_backend",
    "check_devices",
    "default_config",
    "defaults_like",
    "difference",
    "fingerprint",
    "fingerprint_values",
    "flatten",
    "flatten_values",
    "for_evaluation",
    "from_dict",
    "leaves",
    "read_override",
    "resolve",
    "runs_of",
    "to_dict",
]

# A warm-up that does not fit into its run takes the first of so many steps.
_STEPS_PER_WARMUP_STEP = 10
# Deeper than any section: values that hold themselves are not followed without end.
_DEPTH = 8
# Sections and fields that may differ when a run is resumed: they change what is written
# down, or on how many devices, but not the result.
_FREE_ON_RESUME = (
    "log.",
    "checkpoint.",
    "train.devices",
    "train.slices",
    "train.hang_timeout",
    "source.title",
    "source.folder",
    "source.workers",
    "source.threads",
)


def default_config(**kinds: str) -> ConfigDict:
    """Returns every field with its default, for config files to change.

    Args:
      **kinds: of source, encoder, objective and optimizer, where not the default:
        `default_config(source="images", encoder="resnet18", optimizer="lars")`.
    """
    sections = section_types()
    if unknown := sorted(set(kinds) - set(sections)):
        raise ConfigError(f"unknown section {unknown[0]!r}; choose {', '.join(sections)}")
    chosen = {name: default_section(sections[name], kind) for name, kind in kinds.items()}
    return ConfigDict(to_dict(Config(**chosen)) | dataclasses.asdict(Comparison()))


def defaults_like(config: Config) -> Config:
    """Returns the defaults of the kinds that a config has chosen."""
    sections = section_types()
    kinds = {name: default_section(sections[name], getattr(config, name).kind) for name in sections}
    return Config(**kinds)


def to_dict(config: Config) -> dict[str, Any]:
    """Returns the nested plain values of a config; `from_dict` reads them back."""
    return dataclasses.asdict(config)


def flatten(config: Config) -> dict[str, Any]:
    """Returns the values by dotted name, such as {"train.steps": 10000}."""
    return _flatten(to_dict(config))


def flatten_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested values, those of a config or others, by dotted name."""
    return _flatten(json.loads(json.dumps(values)))


def from_dict(values: Mapping[str, Any]) -> Config:
    """Returns the checked config of a single run.

    Raises:
      ConfigError: on an unknown key, one that has no use, a wrong type, an impossible value,
        values that do not go together, or a comparison of several runs.
    """
    runs = runs_of(values)
    if len(runs) > 1:
        raise ConfigError(f"expected a single run, got a comparison of {', '.join(runs)}")
    return next(iter(runs.values()))


def runs_of(values: Mapping[str, Any]) -> dict[str, Config]:
    """Returns the runs that nested values ask for, by the kind of their objective, checked.

    The objective's section may hold the keys of every kind that is compared; each run gets
    those that its own kind uses.
    """
    runs = _parse_runs(_plain(values))
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


def resolve(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> Resolved:
    """Returns what a command asks for: a config file's values, some of them changed.

    Only the whole is checked: what a file leaves open, an override may settle. Where an
    override chooses another kind, what the file says for the old kind alone is dropped.

    Args:
      values: of the file.
      overrides: dotted names with their values.

    Raises:
      ConfigError: as `from_dict`.
    """
    known = leaves()
    whole = _plain(values)
    for name in overrides:
        if name not in known:
            raise ConfigError(f"unknown config key {shown(name)}; {nearest(name, list(known))}")
    for section in section_types():
        if f"{section}.{KIND}" in overrides or (section == "objective" and "compare" in overrides):
            _drop_unused(whole, section, overrides)
    if f"source.{KIND}" in overrides and isinstance(whole.get("eval"), dict):
        unused = checks.unused_evaluation(overrides[f"source.{KIND}"])
        whole["eval"] = {k: v for k, v in whole["eval"].items() if k not in unused}
    for name, value in overrides.items():
        _set(whole, name, value)
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
    return Resolved(runs, bool(whole.get("compare")), tuple(dict.fromkeys(notes)))


def for_evaluation(config: Config, overrides: Mapping[str, Any]) -> Config:
    """Returns a trained run's config with changes that leave what was trained as it is.

    Args:
      config: of the run.
      overrides: dotted names with their values; new ones of `eval`, or free on resuming.

    Raises:
      ConfigError: if another field is to change.
    """
    runs = resolve(to_dict(config), overrides).runs
    changed = next(iter(runs.values()))
    before, after = _result_values(config), _result_values(changed)
    fixed = [
        name
        for name in before | after
        if before.get(name) != after.get(name) and not name.startswith("eval.")
    ]
    if fixed or len(runs) > 1:
        raise ConfigError(
            f"{', '.join(fixed) or 'compare'} can't be changed for a run that is trained; "
            "leave it out, or train another run"
        )
    return changed


def fingerprint(config: Config) -> str:
    """Returns a hash of all that the result of a run depends on."""
    return fingerprint_values(to_dict(config))


def fingerprint_values(values: Mapping[str, Any]) -> str:
    """Returns the fingerprint of the config that `to_dict` made these nested values of.

    It is that of the version that wrote them, which may have had fewer fields.
    """
    flat = _flatten(values)
    text = json.dumps({name: flat[name] for name in flat if _matters(name)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns the fields that matter to the result in which nested values differ.

    A field that one of them does not have is None there.
    """
    flat = [_flatten(json.loads(json.dumps(values))) for values in (old, new)]
    before, after = ({name: x[name] for name in x if _matters(name)} for x in flat)
    return {
        name: (before.get(name), after.get(name))
        for name in before | after
        if before.get(name) != after.get(name)
    }


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


def _drop_unused(whole: dict[str, Any], section: str, overrides: Mapping[str, Any]) -> None:
    """Drops from a file's section what only its old kinds, not the new ones, have a use for.

    What has the old kind's default goes too: files spell out all of them, and the new kind has
    its own. A key that the file's kinds have no use for is an error of the file, and stays.
    """
    given = whole.get(section, {})
    if not isinstance(given, Mapping):
        return
    types = section_types()[section]
    old = [given.get(KIND, default_kind(types))]
    new = [overrides.get(f"{section}.{KIND}", old[0])]
    if section == "objective":
        old += _items(whole.get("compare"))
        new = _items(overrides.get("compare", whole.get("compare"))) or new
    defaults, used = fields_used(types, old[:1]), fields_used(types, new)
    dropped = fields_used(types, old)
    whole[section] = {
        key: value
        for key, value in given.items()
        if key == KIND
        or key not in dropped
        or (key in used and shown(value) != shown(defaults.get(key)))
    }


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


def _plain(values: Any, depth: int = 0) -> dict[str, Any]:
    """Returns a copy of nested values as plain dictionaries, to be changed."""
    if isinstance(values, ConfigDict):
        values = values.to_dict()
    if not isinstance(values, Mapping):
        raise ConfigError(f"a config must be a section with keys, got {shown(values)}")
    return {
        key: _plain(value, depth + 1)
        if isinstance(value, Mapping | ConfigDict) and depth < _DEPTH
        else value
        for key, value in values.items()
    }


def _set(whole: dict[str, Any], name: str, value: Any) -> None:
    *sections, key = name.split(".")
    inside: Any = whole
    for depth, section in enumerate(sections, start=1):
        inside = inside.setdefault(section, {})
        if not isinstance(inside, dict):
            raise ConfigError(
                f"config.{'.'.join(sections[:depth])} must be a section with keys, "
                f"got {shown(inside)}"
            )
    inside[key] = value


def _result_values(config: Config) -> dict[str, Any]:
    return {name: value for name, value in flatten(config).items() if _matters(name)}


def _matters(name: str) -> bool:
    """Returns whether the result of a run depends on a field."""
    return not name.startswith(_FREE_ON_RESUME)
