"""What a run is: typed, checked values, made from an ml_collections ConfigDict.

The ConfigDict stops here. Everything below this module takes the frozen dataclasses of
`config_schema`, so a misspelt key can't silently become a default. Every check runs before
anything compiles and names what was expected, what came, and what to do. Neither module
imports jax or numpy, so that `--help` and a bad flag answer at once.
"""

import dataclasses
import difflib
import hashlib
import json
import math
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from ml_collections import ConfigDict

from aninfonce_jax.config_schema import Config, ConfigError, DgpConfig

# Where a run keeps its resolved config, inside its work directory.
CONFIG_FILE = "config.json"

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
        yield name, value, _type_name(field.type), field.metadata["help"]


def from_dict(values: Mapping[str, Any]) -> Config:
    """Returns the checked config of a ConfigDict or a nested dictionary.

    Raises:
      ConfigError: on an unknown key, a wrong type, an impossible value, or values that
        do not go together.
    """
    if isinstance(values, ConfigDict):
        values = values.to_dict()
    config = _parse_section(Config, values, "")
    _require(
        len(set(config.compare)) == len(config.compare),
        f"config.compare names an objective twice: {config.compare}",
    )
    for run in expand(config).values():
        _check(run)
    return config


def check_override_names(arguments: list[str]) -> None:
    """Raises ConfigError for a `--config.key=value` argument whose key does not exist."""
    known = list(flatten(Config()))
    for argument in arguments:
        if argument.startswith("--config."):
            name = argument.removeprefix("--config.").split("=", 1)[0]
            if name not in known:
                raise ConfigError(f"unknown config key {name!r}; {_nearest(name, known)}")


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
    text = json.dumps(_result_values(config), sort_keys=True)
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
    values = ConfigDict(to_dict(config))
    values.update_from_flattened_dict(overrides)
    changed = from_dict(values)
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
    return {
        name: value
        for name, value in flatten(config).items()
        if not name.startswith(_FREE_ON_RESUME)
    }


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
            raise ConfigError(f"unknown config key {name!r}; {_nearest(name, known)}")
        expected = fields[key].type
        if dataclasses.is_dataclass(expected):
            if not isinstance(value, Mapping):
                raise ConfigError(f"config.{name} must be a section with keys, got {value!r}")
            parsed[key] = _parse_section(expected, value, f"{name}.")
        else:
            parsed[key] = _parse_value(name, expected, value)
    return section(**parsed)


def _parse_value(name: str, expected: Any, value: Any) -> Any:
    origin = typing.get_origin(expected)
    if origin is Literal:
        options = typing.get_args(expected)
        if value not in options:
            raise ConfigError(
                f"config.{name} must be one of {', '.join(map(repr, options))}; got {value!r}"
            )
        return value
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"config.{name} must be a tuple, got {value!r}")
        item = typing.get_args(expected)[0]
        return tuple(_parse_value(f"{name}[{i}]", item, x) for i, x in enumerate(value))
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        raise ConfigError(
            f"config.{name} must be of type {expected.__name__}, "
            f"got {value!r} of type {type(value).__name__}"
        )
    if expected is float and not math.isfinite(value):
        raise ConfigError(f"config.{name} must be a finite number, got {value}")
    return value


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    if close:
        return f"did you mean {close[0]!r}?"
    if len(known) > 20:
        return "--help lists all keys"
    return f"known keys: {', '.join(sorted(known))}"


def _type_name(expected: Any) -> str:
    origin = typing.get_origin(expected)
    if origin is Literal:
        return "|".join(typing.get_args(expected))
    if origin is tuple:
        return f"tuple of {_type_name(typing.get_args(expected)[0])}"
    return str(expected.__name__)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def _check(config: Config) -> None:
    """Checks a single run; those of a comparison differ in their objective."""
    _check_ranges(config)
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
    for i, width in enumerate(encoder.projector):
        _require(width >= 1, f"config.encoder.projector[{i}] must be at least 1, got {width}")


# Dotted name -> (smallest value allowed, largest, whether the smallest is itself allowed).
_RANGES: dict[str, tuple[float, float, bool]] = {
    "seed": (0, 2**32 - 1, True),
    "dgp.dim": (1, math.inf, True),
    "dgp.radius": (0, math.inf, False),
    "dgp.marginal_scale": (0, math.inf, False),
    "dgp.marginal_exponent": (0, math.inf, False),
    "dgp.marginal_concentration": (0, math.inf, False),
    "dgp.conditional_exponent": (0, math.inf, False),
    "dgp.bimodal_offset": (0, math.inf, True),
    "dgp.shell": (0, math.inf, False),
    "dgp.concentration.high": (0, math.inf, False),
    "dgp.concentration.low": (0, math.inf, False),
    "dgp.mixing.layers": (0, math.inf, True),
    "dgp.mixing.slope": (0, 1, False),
    "dgp.mixing.candidates": (1, math.inf, True),
    "data.image_size": (8, math.inf, True),
    "data.view_size": (0, math.inf, True),
    "data.strength": (0, math.inf, True),
    "data.workers": (0, math.inf, True),
    "data.threads": (1, math.inf, True),
    "data.max_bad_share": (0, 1, True),
    "encoder.width": (0, math.inf, False),
    "encoder.dim": (1, math.inf, True),
    "objective.hardness": (0, math.inf, True),
    "objective.chunk_size": (0, math.inf, True),
    "objective.concentration_start": (0, math.inf, False),
    "objective.concentration_jitter": (0, math.inf, True),
    "objective.temperature": (0, math.inf, False),
    "objective.exponent": (0, math.inf, False),
    "optimizer.learning_rate": (0, math.inf, False),
    "optimizer.concentration_learning_rate": (0, math.inf, True),
    "optimizer.rotation_learning_rate": (0, math.inf, True),
    "optimizer.warmup_steps": (0, math.inf, True),
    "optimizer.final_fraction": (0, 1, True),
    "optimizer.b1": (0, 1, True),
    "optimizer.b2": (0, 1, True),
    "optimizer.momentum": (0, 1, True),
    "optimizer.weight_decay": (0, math.inf, True),
    "optimizer.clip_norm": (0, math.inf, True),
    "optimizer.ema_decay": (0, 1, True),
    "train.steps": (1, math.inf, True),
    "train.batch_size": (2, math.inf, True),
    "train.steps_per_dispatch": (1, math.inf, True),
    "train.microbatches": (1, math.inf, True),
    "train.devices": (0, math.inf, True),
    "eval.every": (1, math.inf, True),
    "eval.samples": (2, math.inf, True),
    "eval.floor_batches": (1, math.inf, True),
    "eval.train_images": (0, math.inf, True),
    "eval.test_images": (0, math.inf, True),
    "eval.readout_images": (16, math.inf, True),
    "eval.batch_size": (1, math.inf, True),
    "eval.neighbours": (1, math.inf, True),
    "checkpoint.every": (1, math.inf, True),
    "checkpoint.keep": (1, math.inf, True),
    "log.every": (1, math.inf, True),
}


def _check_ranges(config: Config) -> None:
    values = flatten(config)
    for name, (low, high, closed) in _RANGES.items():
        value = values[name]
        if value < low or value > high or (value == low and not closed):
            bound = f"{'at least' if closed else 'above'} {low}"
            if high < math.inf:
                bound += f" and at most {high}"
            raise ConfigError(f"config.{name} must be {bound}, got {value}")
    for i, width in enumerate(config.encoder.widths):
        _require(width >= 1, f"config.encoder.widths[{i}] must be at least 1, got {width}")
    for name in ("b1", "b2", "momentum", "ema_decay"):
        value = values[f"optimizer.{name}"]
        _require(value < 1, f"config.optimizer.{name} must be below 1, got {value}")


def _check_dgp(dgp: DgpConfig) -> None:
    on_sphere = dgp.space == "sphere"
    _require(not on_sphere or dgp.dim >= 2, f"a sphere needs dgp.dim of at least 2, got {dgp.dim}")
    _require(
        dgp.box_low < dgp.box_high,
        f"dgp.box_low={dgp.box_low} must be below dgp.box_high={dgp.box_high}",
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
        _require(min(values) > 0, f"every Λ must be positive, got {min(values)}")
    else:
        _require(
            not concentration.values,
            "dgp.concentration.values is only read with dgp.concentration.layout='explicit', "
            f"got layout {concentration.layout!r}",
        )
