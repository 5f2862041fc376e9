"""Configs as a later version might have them: the schema with a field or a kind more."""

import dataclasses

from aninfonce_jax import command_line
from aninfonce_jax import config as config_lib
from aninfonce_jax.config import fields, overrides, parse
from aninfonce_jax.config.schema import Config


def add_field(monkeypatch, section, name, default):
    """Adds a field to a section of every config."""
    field = fields.field(default, "a field of a later version", fields.Range(0, 10))
    usual = next(field.type for field in dataclasses.fields(Config) if field.name == section)
    newer = dataclasses.make_dataclass(
        "Newer", [(name, type(default), field)], bases=(usual,), frozen=True
    )
    replace_section(monkeypatch, section, newer, newer())


def replace_section(monkeypatch, section, types, default):
    """Gives a section of every config other types."""
    config = dataclasses.make_dataclass(
        "Config", [(section, types, fields.field(default, ""))], bases=(Config,), frozen=True
    )
    for module in (config_lib, overrides, parse):
        monkeypatch.setattr(module, "Config", config)
    # What is remembered is of the schema as it was.
    for module in (config_lib, overrides, parse):
        monkeypatch.setattr(module, "leaves", parse.leaves.__wrapped__)
    monkeypatch.setattr(command_line, "_parser", command_line._parser.__wrapped__)
