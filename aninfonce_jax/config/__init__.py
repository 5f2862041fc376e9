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

from aninfonce_jax.config.checks import check_backend, check_devices
from aninfonce_jax.config.overrides import Resolved, as_plain, resolve, runs_of
from aninfonce_jax.config.parse import (
    Leaf,
    default_section,
    leaf_of,
    leaves,
    parse_section,
    read_override,
    section_types,
)
from aninfonce_jax.config.parse import flatten as _flatten
from aninfonce_jax.config.schema import Comparison, Config, ConfigError

__all__ = [
    "Leaf",
    "Resolved",
    "check_backend",
    "check_devices",
    "complete",
    "default_config",
    "defaults_like",
    "difference",
    "fingerprint",
    "fingerprint_values",
    "flatten",
    "flatten_values",
    "for_evaluation",
    "from_dict",
    "leaf_of",
    "leaves",
    "read_override",
    "resolve",
    "runs_of",
    "to_dict",
]

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


def for_evaluation(config: Config, overrides: Mapping[str, Any]) -> Config:
    """Returns a trained run's config with changes that leave what was trained as it is.

    Args:
      config: of the run.
      overrides: dotted names with their values; new ones of `eval`, or free on resuming.

    Raises:
      ConfigError: if another field is to change.
    """
    runs = resolve(to_dict(config), overrides, is_run=True).runs
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


def complete(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the nested values of a config with every field that they lack at its default.

    So a run that was begun before a field existed is the run that it would be now.

    Raises:
      ConfigError: on a key or a value that this version does not know.
    """
    config: Config = parse_section(Config, as_plain(values))
    return to_dict(config)


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


def _result_values(config: Config) -> dict[str, Any]:
    return {name: value for name, value in flatten(config).items() if _matters(name)}


def _matters(name: str) -> bool:
    """Returns whether the result of a run depends on a field."""
    return not name.startswith(_FREE_ON_RESUME)
