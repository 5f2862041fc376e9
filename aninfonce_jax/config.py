"""What a run is: typed, checked values, made from an ml_collections ConfigDict.

The ConfigDict stops here. Everything below this module takes the frozen dataclasses of
`config_schema`, so a misspelt key can't silently become a default. Every check runs before
anything compiles and names what was expected, what came, and what to do. Neither module
imports jax or numpy, so that `--help` and a bad flag answer at once.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from aninfonce_jax.config_schema import Config, ConfigError, DgpConfig
from aninfonce_jax.config_values import (
    as_float32,
    nearest,
    parse_text,
    parse_value,
    shown,
    type_name,
)

# Of a view's side, in pixels: a ResNet halves it three times.
_SMALLEST_VIEW = 8
# A warm-up that does not fit into its run takes the first of so many steps.
_STEPS_PER_WARMUP_STEP = 10

# Sections and fields that may differ when a run is resumed: they change what is written
# down, or on how many devices, but not the result.
_FREE_ON_RESUME = (
    "log.",
    "checkpoint.",
    "train.devices",
    "data.title",
    "data.folder",
    "data.workers",
    "data.threads",
)


def default_config() -> ConfigDict:
    """Returns every field with its default, for config files to change."""
    return ConfigDict(to_dict(Config()))


def to_dict(config: Config) -> dict[str, Any]:
    """Returns the nested plain values of a config; `from_dict` reads them back."""
    return dataclasses.asdict(config)


def flatten(config: Config) -> dict[str, Any]:
    """Returns the values by dotted name, such as {"train.steps": 10000}."""
    return {name: value for name, value, _ in _leaves(config)}


def field_help() -> Iterator[tuple[str, Any, str, str]]:
    """Yields the dotted name, default, allowed type and meaning of every field."""
    for name, value, field in _leaves(Config()):
        yield name, value, type_name(field.type), field.metadata["help"]


def from_dict(values: Mapping[str, Any]) -> Config:
    """Returns the checked config of a ConfigDict or a nested dictionary.

    Raises:
      ConfigError: on an unknown key, a wrong type, an impossible value, or values that
        do not go together.
    """
    config = _parse(values)
    _check_runs(config)
    return config


def parse_override(name: str, text: str) -> Any:
    """Returns the checked value that `--config.NAME=TEXT` stands for, or raises ConfigError."""
    return parse_text(name, _FIELDS[name], text)


def resolve(
    values: Mapping[str, Any], overrides: Mapping[str, Any]
) -> tuple[Config, tuple[str, ...]]:
    """Returns what a command asks for: a config file's values, some of them changed.

    Only the whole is checked: what a file leaves open, an override may settle.

    Args:
      values: of the file.
      overrides: dotted names with their values.

    Returns:
      The config, and a line for each value that had to be fitted to the others.

    Raises:
      ConfigError: as `from_dict`.
    """
    whole = to_dict(_parse(values))
    for name, value in overrides.items():
        if name not in _FIELDS:
            raise ConfigError(f"unknown config key {shown(name)}; {nearest(name, list(_FIELDS))}")
        *sections, key = name.split(".")
        functools.reduce(dict.__getitem__, sections, whole)[key] = value
    config, notes = _with_short_warmup(_parse(whole))
    _check_runs(config)
    return config, notes


def _parse(values: Mapping[str, Any]) -> Config:
    if isinstance(values, ConfigDict):
        values = values.to_dict()
    config: Config = _parse_section(Config, values, "")
    return config


def _check_runs(config: Config) -> None:
    _require(
        len(set(config.compare)) == len(config.compare),
        f"config.compare names an objective twice: {config.compare}",
    )
    for run in expand(config).values():
        _check(run)


def _with_short_warmup(config: Config) -> tuple[Config, tuple[str, ...]]:
    """Shortens a warm-up that would not end: a short trial should not need a second flag."""
    warmup, steps = config.optimizer.warmup_steps, config.train.steps
    if warmup < steps:
        return config, ()
    short = steps // _STEPS_PER_WARMUP_STEP
    optimizer = dataclasses.replace(config.optimizer, warmup_steps=short)
    note = (
        f"optimizer.warmup_steps is shortened from {warmup} to {short}, a tenth of "
        f"train.steps={steps}"
    )
    return dataclasses.replace(config, optimizer=optimizer), (note,)


def check_devices(config: Config, available: int, hosts: int) -> int:
    """Returns how many of a host's available devices to use, or raises ConfigError."""
    # Each host would train a copy of its own, on the same batches.
    _require(
        hosts == 1,
        f"runs on several hosts are not supported yet, got {hosts} processes; "
        "the losses themselves are: docs/scaling.md",
    )
    devices = config.train.devices or available
    if devices > available:
        raise ConfigError(
            f"train.devices={devices} but this machine has {available}; "
            "lower it, or set it to 0 for all of them"
        )
    if config.train.batch_size % devices:
        raise ConfigError(
            f"train.batch_size={config.train.batch_size} can't be divided over {devices} devices; "
            f"choose a multiple of {devices}, or set train.devices"
        )
    parts = config.train.microbatches
    if config.train.batch_size // devices % parts:
        raise ConfigError(
            f"train.microbatches={parts} can't divide the {config.train.batch_size // devices} "
            f"pairs of each device; choose a divisor, or another train.batch_size"
        )
    return devices


def check_backend(config: Config, backend: str) -> None:
    """Raises ConfigError if a run asks for what its devices can't do."""
    _require(
        config.objective.strategy != "pallas" or backend == "tpu",
        f"objective.strategy='pallas' is for TPU and this is a {backend}; use 'auto' or 'chunked'",
    )


def expand(config: Config) -> dict[str, Config]:
    """Returns the single runs that a config asks for, by name."""
    kinds = config.compare or (config.objective.kind,)
    return {
        kind: dataclasses.replace(
            config, compare=(), objective=dataclasses.replace(config.objective, kind=kind)
        )
        for kind in kinds
    }


def fingerprint(config: Config) -> str:
    """Returns a hash of all that the result of a run depends on."""
    return fingerprint_values(to_dict(config))


def fingerprint_values(values: Mapping[str, Any]) -> str:
    """Returns the fingerprint of the config that `to_dict` made these nested values of.

    It is that of the version that wrote them, which may have had fewer fields.
    """
    flat = _flatten_values(values)
    text = json.dumps({name: flat[name] for name in flat if _matters(name)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def difference(old: Config, new: Config) -> dict[str, tuple[Any, Any]]:
    """Returns the fields, of those that matter to the result, in which two configs differ."""
    before, after = _result_values(old), _result_values(new)
    return {name: (before[name], after[name]) for name in before if before[name] != after[name]}


def for_evaluation(config: Config, overrides: Mapping[str, Any]) -> Config:
    """Returns a trained run's config with changes that leave what was trained as it is.

    Args:
      config: of the run.
      overrides: dotted names with their values; new ones of `eval`, or free on resuming.

    Raises:
      ConfigError: if another field is to change.
    """
    changed, _ = resolve(to_dict(config), overrides)
    fixed = [name for name in difference(config, changed) if not name.startswith("eval.")]
    if fixed:
        raise ConfigError(
            f"{', '.join(fixed)} can't be changed for a run that is trained; "
            "leave it out, or train another run"
        )
    return changed


def dispatch_steps(config: Config) -> int:
    """Returns how many steps at most go into one call to the device.

    The loop asks for fewer where it must look at the state in between. Pictures come from
    the host, a batch for every call.
    """
    return 1 if config.has_images else config.train.steps_per_dispatch


def _result_values(config: Config) -> dict[str, Any]:
    return {name: value for name, value in flatten(config).items() if _matters(name)}


def _matters(name: str) -> bool:
    """Returns whether the result of a run depends on a field."""
    return not name.startswith(_FREE_ON_RESUME)


def _flatten_values(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flatten_values(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _leaves(section: Any, prefix: str = "") -> Iterator[tuple[str, Any, dataclasses.Field[Any]]]:
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if dataclasses.is_dataclass(value):
            yield from _leaves(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", value, field


def _parse_section(section: Any, values: Mapping[str, Any], prefix: str) -> Any:
    fields = {field.name: field for field in dataclasses.fields(section)}
    parsed = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if key not in fields:
            known = [f"{prefix}{field}" for field in fields]
            raise ConfigError(f"unknown config key {shown(name)}; {nearest(name, known)}")
        expected = fields[key].type
        if dataclasses.is_dataclass(expected):
            if not isinstance(value, Mapping):
                raise ConfigError(f"config.{name} must be a section with keys, got {shown(value)}")
            parsed[key] = _parse_section(expected, value, f"{name}.")
        else:
            parsed[key] = parse_value(name, fields[key], value)
    return section(**parsed)


_FIELDS = {name: field for name, _, field in _leaves(Config())}


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def _check(config: Config) -> None:
    """Checks a single run; those of a comparison differ in their objective."""
    if config.has_images:
        _check_images(config)
    else:
        _check_process(config)
    objective, encoder = config.objective, config.encoder
    _require(
        not objective.normalize or encoder.output in ("sphere", "none"),
        f"objective.normalize=True would undo encoder.output={encoder.output!r}; "
        "set objective.normalize=False or encoder.output='sphere'",
    )
    _require(
        objective.kind != "lp"
        or (objective.strategy in ("auto", "dense") and not objective.hardness),
        f"the Lp loss has no objective.strategy={objective.strategy!r} and no hardness; "
        "leave them at 'auto' and 0",
    )
    _require(
        config.optimizer.warmup_steps < config.train.steps,
        f"optimizer.warmup_steps={config.optimizer.warmup_steps} must be below "
        f"train.steps={config.train.steps}",
    )


def _check_process(config: Config) -> None:
    _check_dgp(config.dgp)
    _check_concentration(config.dgp)
    _require(
        config.encoder.kind == "mlp",
        f"encoder.kind={config.encoder.kind!r} takes pictures; name them in data.name, or use "
        "encoder.kind='mlp'",
    )
    _require(
        config.eval.samples >= 8 * config.dgp.dim,
        f"eval.samples={config.eval.samples} is too few to score dgp.dim={config.dgp.dim} factors; "
        f"use at least {8 * config.dgp.dim}",
    )


def _check_images(config: Config) -> None:
    data, encoder = config.data, config.encoder
    _require(
        encoder.kind != "mlp",
        f"data.name={data.name!r} needs an encoder of pictures; set encoder.kind to a ResNet",
    )
    _require(
        encoder.output == "none" and not encoder.rotation,
        f"a ResNet has no encoder.output={encoder.output!r} and no encoder.rotation; set 'none' "
        "and False: the loss normalises",
    )
    _require(
        config.objective.kind != "supervised",
        "objective.kind='supervised' regresses the latents of a process, which pictures lack; "
        "the class readouts are the supervised scores here",
    )
    _require(
        data.folder != "",
        f"data.folder is empty; say where {data.name} is with --config.data.folder=DIR",
    )
    _require(
        config.optimizer.name != "muon",
        "optimizer.name='muon' is for MLPs; use lars, sgd, adam or adamw with pictures",
    )
    _require(
        config.eval.train_images != 1,
        "eval.train_images=1 leaves nothing to choose a penalty on; raise it, or use 0 for all",
    )
    _require(
        data.view_size == 0 or data.view_size >= _SMALLEST_VIEW,
        f"data.view_size={data.view_size} is too small to train on; use 0 or at least "
        f"{_SMALLEST_VIEW}",
    )


def _check_dgp(dgp: DgpConfig) -> None:
    on_sphere = dgp.space == "sphere"
    _require(not on_sphere or dgp.dim >= 2, f"a sphere needs dgp.dim of at least 2, got {dgp.dim}")
    _require(
        as_float32(dgp.box_low) < as_float32(dgp.box_high),
        f"dgp.box_low={dgp.box_low} must be below dgp.box_high={dgp.box_high}, also in float32",
    )
    for role, kind in (("marginal", dgp.marginal), ("conditional", dgp.conditional)):
        _require(
            on_sphere or kind not in ("anisotropic", "vmf"),
            f"dgp.{role}={kind!r} is defined on the sphere, got dgp.space={dgp.space!r}; "
            "use a normal, laplace or generalized_normal there",
        )
    layout = dgp.concentration.layout
    _require(
        dgp.conditional != "vmf" or layout == "constant",
        "dgp.conditional='vmf' has one concentration for all factors; set "
        f"dgp.concentration.layout='constant', got {layout!r}",
    )
    _require(
        dgp.space != "real" or dgp.marginal != "uniform",
        "dgp.marginal='uniform' does not exist on dgp.space='real'; use normal or laplace",
    )


def _check_concentration(dgp: DgpConfig) -> None:
    concentration = dgp.concentration
    _require(
        concentration.low <= concentration.high,
        f"dgp.concentration.low={concentration.low} must not exceed "
        f"dgp.concentration.high={concentration.high}",
    )
    if concentration.layout == "explicit":
        values = concentration.values
        _require(
            len(values) == dgp.dim,
            f"dgp.concentration.values needs one Λ for each of dgp.dim={dgp.dim} factors, "
            f"got {len(values)}",
        )
    else:
        _require(
            not concentration.values,
            "dgp.concentration.values is only read with dgp.concentration.layout='explicit', "
            f"got layout {concentration.layout!r}",
        )
