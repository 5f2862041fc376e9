"""From nested values to typed sections and back, with every key accounted for.

A section with a `kind` is parsed into the class of that kind. A key which that class does not
have is an error that says who would have a use for it.

A field may also be a list of sections, each with a kind of its own. Its items are named by their
place: `members.0.kind` is that of the first.
"""

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Union

from aninfonce_jax.config.schema import Comparison, Config, ConfigError
from aninfonce_jax.config.values import (
    check_length,
    nearest,
    parse_value,
    read_text,
    shown,
    type_name,
)

KIND = "kind"
# Stands for the place of an item of a list of sections.
ITEM = "N"
_PLACE = re.compile(r"(?<=\.)\d+(?=\.)")


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A field that holds a value, as it may be named on a command line.

    Attributes:
      name: dotted, such as "objective.temperature"; "N" for the place in a list of sections.
      default: that of the first kind that has it.
      type: what values it takes, for the help.
      help: what it means.
      kinds: of its section that have it; () for a section without kinds.
      field: of the dataclass.
      others: kinds that have another default, with theirs.
    """

    name: str
    default: Any
    type: str
    help: str
    kinds: tuple[str, ...]
    field: dataclasses.Field[Any]
    others: tuple[tuple[tuple[str, ...], Any], ...] = ()


def classes_of(section: Any) -> tuple[Any, ...]:
    """Returns the dataclasses that a section's type may be: one, or one for some kinds each."""
    if typing.get_origin(section) in (Union, types.UnionType):
        return typing.get_args(section)
    return (section,) if dataclasses.is_dataclass(section) else ()


def kinds_of(cls: Any) -> tuple[str, ...]:
    """Returns the kinds that a section's class stands for; () if it has none."""
    kind = next((field.type for field in dataclasses.fields(cls) if field.name == KIND), None)
    return typing.get_args(kind)


@functools.cache
def leaves() -> dict[str, Leaf]:
    """Returns every field that holds a value, of every kind, by dotted name."""
    found: dict[str, Leaf] = {}
    for root in (Config, Comparison):
        for leaf in _leaves(root, "", ()):
            known = found.get(leaf.name)
            if known is None:
                found[leaf.name] = leaf
            elif leaf.name.endswith(f".{KIND}"):
                found[leaf.name] = dataclasses.replace(
                    known, kinds=known.kinds + leaf.kinds, type=f"{known.type}|{leaf.type}"
                )
            else:
                other = ((leaf.kinds, leaf.default),) if leaf.default != known.default else ()
                found[leaf.name] = dataclasses.replace(
                    known, kinds=known.kinds + leaf.kinds, others=known.others + other
                )
    return found


def _leaves(cls: Any, prefix: str, kinds: tuple[str, ...]) -> Iterator[Leaf]:
    for field in dataclasses.fields(cls):
        name = f"{prefix}{field.name}"
        sections = classes_of(field.type)
        item = section_item(field.type)
        if not sections:
            meaning = field.metadata["help"]
            shown_type = type_name(field.type) if item is None else "list of sections"
            yield Leaf(name, field.default, shown_type, meaning, kinds, field)
        for section in sections:
            yield from _leaves(section, f"{name}.", kinds_of(section) or kinds)
        for section in () if item is None else classes_of(item):
            yield from _leaves(section, f"{name}.{ITEM}.", kinds_of(section) or kinds)


def leaf_of(name: str) -> Leaf | None:
    """Returns the field that a dotted name stands for, with places where lists have items."""
    return None if ITEM in name.split(".") else leaves().get(_PLACE.sub(ITEM, name))


def section_type(name: str) -> Any:
    """Returns the type of the section, or of the list of sections, that has a dotted name."""
    found: Any = Config
    for step in name.split("."):
        if step.isdigit():
            found = section_item(found)
        else:
            fields = [x for cls in classes_of(found) for x in dataclasses.fields(cls)]
            found = next(field.type for field in fields if field.name == step)
    return found


def read_override(name: str, text: str) -> Any:
    """Returns the value that `--config.NAME=TEXT` stands for; its section checks its range."""
    leaf = leaf_of(name)
    assert leaf is not None, name
    if name.endswith(f".{KIND}"):
        return text
    if section_item(leaf.field.type) is None:
        return read_text(name, leaf.field.type, text)
    if text.strip() in ("", "()", "[]"):
        return ()
    raise ConfigError(
        f"config.{name} is a list of sections; leave out what is behind '=' to empty it, or set a "
        f"key of one of them: --config.{name}.0.{KIND}=..."
    )


def default_section(section: Any, kind: str) -> Any:
    """Returns the defaults of one kind of a section.

    Raises:
      ConfigError: there is no such kind.
    """
    for cls in classes_of(section):
        if kind in kinds_of(cls):
            return cls(kind=kind)
    every = [kind for cls in classes_of(section) for kind in kinds_of(cls)]
    raise ConfigError(f"unknown kind {shown(kind)}; choose one of {', '.join(every)}")


def parse_section(section: Any, values: Any, prefix: str = "") -> Any:
    """Returns the typed section of nested values.

    Args:
      section: its dataclass, or the union of those of its kinds.
      values: by key; what is missing has its default.
      prefix: the section's dotted name, with a dot behind it.

    Raises:
      ConfigError: values that are no section, an unknown key, one that the kind has no use
        for, a wrong type, or a value out of range.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(_no_section(prefix, values))
    cls = _class_for(section, values, prefix)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    parsed = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if key not in fields:
            raise ConfigError(_unknown(section, cls, values, prefix, key))
        if classes_of(fields[key].type):
            parsed[key] = parse_section(fields[key].type, value, f"{name}.")
        elif item := section_item(fields[key].type):
            parsed[key] = _parse_list(item, fields[key], value, name)
        else:
            parsed[key] = parse_value(name, fields[key], value)
    return cls(**parsed)


def _parse_list(
    item: Any, field: dataclasses.Field[Any], values: Any, name: str
) -> tuple[Any, ...]:
    """Returns the typed sections of a list of them."""
    if not isinstance(values, list | tuple):
        raise ConfigError(f"config.{name} must be a list of sections, got {shown(values)}")
    check_length(name, field, values)
    return tuple(parse_section(item, x, f"{name}.{i}.") for i, x in enumerate(values))


def section_item(expected: Any) -> Any:
    """Returns the type of the sections in a tuple of sections; None for any other type."""
    if typing.get_origin(expected) is not tuple:
        return None
    item = typing.get_args(expected)[0]
    return item if classes_of(item) else None


def _class_for(section: Any, values: Mapping[str, Any], prefix: str) -> Any:
    classes = classes_of(section)
    if len(classes) == 1 and not kinds_of(classes[0]):
        return classes[0]
    kind = values.get(KIND, default_kind(section))
    for cls in classes:
        if isinstance(kind, str) and kind in kinds_of(cls):
            return cls
    every = [repr(kind) for cls in classes for kind in kinds_of(cls)]
    raise ConfigError(f"config.{prefix}{KIND} must be one of {', '.join(every)}; got {shown(kind)}")


def default_kind(section: Any) -> str:
    """Returns the kind of a section that names none: that of its first class."""
    fields = dataclasses.fields(classes_of(section)[0])
    return str(next(field.default for field in fields if field.name == KIND))


def _unknown(section: Any, cls: Any, values: Mapping[str, Any], prefix: str, key: object) -> str:
    """Returns what to say of a key that a section does not have."""
    own = [field.name for field in dataclasses.fields(cls)]
    users = _users(section, key)
    if not users:
        return _unknown_everywhere(prefix, key, own)
    kind = values.get(KIND, default_kind(section))
    return _not_used(f"{prefix}{KIND}={kind!r}", f"{kind!r} has", prefix, key, users, own)


def check_used(
    section: Any, kinds: Sequence[str], values: Any, prefix: str, chosen_by: str
) -> None:
    """Checks that at least one of several kinds has a use for every key of a section.

    Args:
      section: the union of its kinds' dataclasses.
      kinds: those that are chosen.
      values: of the section, by key.
      prefix: the section's dotted name, with a dot behind it.
      chosen_by: what names the kinds, for the user.

    Raises:
      ConfigError: values that are no section, an unknown key, or one without a use.
    """
    if not isinstance(values, Mapping):
        raise ConfigError(_no_section(prefix, values))
    own = list(fields_used(section, kinds))
    for key in values:
        if key in own:
            continue
        users = _users(section, key)
        if not users:
            raise ConfigError(_unknown_everywhere(prefix, key, own))
        raise ConfigError(_not_used(chosen_by, "they have", prefix, key, users, own))


def _no_section(prefix: str, values: object) -> str:
    return f"config.{prefix.removesuffix('.')} must be a section with keys, got {shown(values)}"


def _users(section: Any, key: object) -> list[str]:
    """Returns the kinds of a section that have a key."""
    return [
        kind
        for cls in classes_of(section)
        if key in {field.name for field in dataclasses.fields(cls)}
        for kind in kinds_of(cls)
    ]


def _unknown_everywhere(prefix: str, key: object, own: Iterable[str]) -> str:
    name = f"{prefix}{key}"
    return f"unknown config key {shown(name)}; {nearest(name, [f'{prefix}{x}' for x in own])}"


def _not_used(
    by: str, who_has: str, prefix: str, key: object, users: Iterable[str], own: Iterable[str]
) -> str:
    has = ", ".join(field for field in own if field != KIND) or "none"
    return (
        f"config key {shown(f'{prefix}{key}')} is not used by {by}, only by {', '.join(users)}; "
        f"{who_has} the keys: {has}"
    )


def fields_used(section: Any, kinds: Iterable[object]) -> dict[str, Any]:
    """Returns the keys that at least one of some kinds of a section has, with a default."""
    wanted = {kind for kind in kinds if isinstance(kind, str)}
    return {
        field.name: field.default
        for cls in classes_of(section)
        if wanted & set(kinds_of(cls))
        for field in dataclasses.fields(cls)
    }


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns nested values by dotted name; items of a list of sections by their place."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{name}.")
        elif _is_sections(value):
            for place, item in enumerate(value):
                flat |= flatten(item, f"{name}.{place}.")
        else:
            flat[name] = value
    return flat


def _is_sections(value: Any) -> bool:
    is_list = isinstance(value, list | tuple) and len(value) > 0
    return is_list and all(isinstance(item, Mapping) for item in value)


def section_types() -> dict[str, Any]:
    """Returns the type of every section of a config that has kinds, by name."""
    return {
        field.name: field.type
        for field in dataclasses.fields(Config)
        if len(classes_of(field.type)) > 1
    }
