"""Fields that other choices leave without a use: whoever sets one gets a line, not silence.

A field that its section's kind does not use can't be set at all; see `parse`. Here are those that
have a use with some values of other fields only.
"""

import dataclasses
import functools
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from aninfonce_jax.config import kinds
from aninfonce_jax.config.kinds import KNOWN
from aninfonce_jax.config.schema import Config, ConfigError, EvalConfig
from aninfonce_jax.config.values import shown


class _Use(NamedTuple):
    """Whether a run has a use for a field, and what to say if it has none."""

    name: str
    exists: bool
    why_not: str


def check_used(config: Config) -> None:
    """Raises ConfigError if something is set that has no use in the run."""
    for name in ("source", "encoder", "objective", "optimizer"):
        _check_section(name, getattr(config, name))
    for use in _uses(config):
        if not use.exists:
            _check_usual(config, use)


def check_objectives_use(runs: Sequence[Config], names: Collection[str] | None) -> None:
    """Raises ConfigError if something is set that none of several runs has a use for.

    This is for fields that only some objectives use: one that is used by any of those which
    are compared may be set for all of them.

    Args:
      runs: what a command asks for.
      names: the dotted names of the fields that are looked at; None: all of them.
    """
    for uses in zip(*map(_uses_by_objective, runs), strict=True):
        is_asked = names is None or uses[0].name in names
        if is_asked and not any(use.exists for use in uses):
            _check_usual(runs[0], uses[0])


def check_evaluation(evaluation: EvalConfig, known: Collection[str]) -> None:
    """Raises ConfigError if a hand-made `EvalConfig` sets what a source has no use for.

    Args:
      evaluation: as it was made.
      known: what the source knows of its pairs, as `sources.Known` names it.
    """
    for key, need in unused_evaluation(known).items():
        value = getattr(evaluation, key)
        if value != getattr(EvalConfig(), key):
            raise ConfigError(
                f"evaluation.{key}={shown(value)} has no use with a source that does not know "
                f"{need} of its pairs; leave it out"
            )


def unused_evaluation(known: Collection[str]) -> dict[str, str]:
    """Returns the keys of `eval` that need what a source does not know, and what they need."""
    needs = {field.name: field.metadata["needs"] for field in dataclasses.fields(EvalConfig)}
    return {name: need for name, need in needs.items() if need and need not in known}


def _check_section(name: str, section: Any) -> None:
    """Checks that what is set in a section, and in those inside it, has a use."""
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        for place, inner in enumerate(value if isinstance(value, tuple) else (value,)):
            if dataclasses.is_dataclass(inner):
                within = f"{name}.{field.name}"
                _check_section(f"{within}.{place}" if isinstance(value, tuple) else within, inner)
        if not field.metadata["only_with"] or value == field.default:
            continue
        other, *useful = field.metadata["only_with"]
        chosen = getattr(section, other)
        if chosen not in useful:
            raise ConfigError(
                f"{name}.{field.name}={shown(value)} has no use with {name}.{other}={chosen!r}, "
                f"only with {' or '.join(map(repr, useful))}; leave it out"
            )


def _check_usual(config: Config, unused: _Use) -> None:
    """Checks that a field without a use has its default."""
    *sections, key = unused.name.split(".")
    section = functools.reduce(getattr, sections, config)
    usual = next(field.default for field in dataclasses.fields(section) if field.name == key)
    value = getattr(section, key)
    if value != usual:
        raise ConfigError(
            f"{unused.name}={shown(value)} has no use with {unused.why_not}; leave it out"
        )


def _uses(config: Config) -> Iterator[_Use]:
    """Yields what depends on other sections, or on more than one field."""
    source, encoder = config.source, config.encoder
    for name, need in unused_evaluation(KNOWN[source.kind]).items():
        known = " and ".join(KNOWN[source.kind])
        why = f"source.kind={source.kind!r}, of which {known} are known and {need} are not"
        yield _Use(f"eval.{name}", False, why)
    yield _Use("optimizer.rotation_learning_rate", _has_rotation(config), "encoder.rotation=False")
    yield _Use(
        "train.steps_per_dispatch",
        not isinstance(source, kinds.ImagesConfig),
        f"source.kind={source.kind!r}, whose images are fed one step at a time",
    )
    if isinstance(encoder, kinds.ResNetConfig):
        yield _Use(
            "encoder.projector_norm",
            encoder.projector != (),
            "encoder.projector=(), which has no hidden layers",
        )
    if isinstance(source, kinds.ImageSetConfig):
        yield _Use(
            "eval.readout_context",
            source.augment != "none",
            "source.augment='none', which does nothing else to an image",
        )
        yield _Use(
            "eval.views",
            source.augment != "none",
            "source.augment='none', with which all views of an example are alike",
        )
    if isinstance(source, kinds.FamilyConfig):
        yield _Use("source.sampler", source.space == "sphere", f"source.space={source.space!r}")
    if isinstance(source, kinds.ProcessConfig | kinds.ProcessesConfig):
        layers = source.mixing.layers
        for key, fewest in {"init": 1, "candidates": 1, "activation": 2, "slope": 2}.items():
            why = f"source.mixing.layers={layers}, only with {fewest} or more"
            yield _Use(f"source.mixing.{key}", layers >= fewest, why)


def _uses_by_objective(config: Config) -> Iterator[_Use]:
    """Yields what depends on the objective."""
    chosen = f"objective.kind={config.objective.kind!r}"
    yield _Use(
        "optimizer.concentration_learning_rate",
        _has_other_rate(config),
        f"{chosen}, which learns no Λ̂ or temperature",
    )
    has_adam = not isinstance(config.optimizer, kinds.MomentumConfig)
    for key in ("b1", "b2"):
        yield _Use(
            f"optimizer.{key}",
            has_adam or _has_rotation(config) or _has_other_rate(config),
            f"optimizer.kind={config.optimizer.kind!r} and {chosen}: Adam trains nothing",
        )
    yield _Use(
        "eval.held_out_batches",
        not isinstance(config.objective, kinds.DietConfig),
        f"{chosen}, which has no held-out loss",
    )


def _has_rotation(config: Config) -> bool:
    return isinstance(config.encoder, kinds.MLPConfig) and config.encoder.rotation


def _has_other_rate(config: Config) -> bool:
    """Returns whether something of the objective is trained at another rate than the encoder."""
    if config.optimizer.kind == "muon" and isinstance(
        config.objective, kinds.DietConfig | kinds.AugSelfConfig
    ):
        return True  # Muon is not for their heads
    return any(map(_learns, kinds.objectives_of(config.objective).values()))


def _learns(objective: kinds.ObjectiveConfig) -> bool:
    """Returns whether an objective has a Λ̂, a temperature or a decoder to train."""
    match objective:
        case kinds.InfoNCEConfig(train_temperature=is_trained):
            return is_trained
        case kinds.AnInfoNCENoL2Config() | kinds.HardNegativesConfig():
            return True
        case kinds.TriCLConfig() | kinds.ElboConfig():
            return True
        case _:
            return False
