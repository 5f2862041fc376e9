"""Lists of sections, from a file and from a command line: `objective.members`."""

import dataclasses
import typing
from typing import Literal

import numpy as np
import pytest
from later_schemas import replace_section
from ml_collections import ConfigDict

from aninfonce_jax import command_line
from aninfonce_jax import config as config_lib
from aninfonce_jax.config import fields
from aninfonce_jax.config import kinds as kinds_lib
from aninfonce_jax.config.kinds import AnInfoNCEConfig, InfoNCEConfig, LpConfig, ObjectiveConfig
from aninfonce_jax.config.schema import ConfigError


@dataclasses.dataclass(frozen=True)
class EnsembleConfig:
    """An objective that holds others, each of a kind of its own."""

    kind: Literal["ensemble"] = fields.field("ensemble", "what is minimised")
    members: tuple[InfoNCEConfig | AnInfoNCEConfig | LpConfig, ...] = fields.field(
        (), "its members", max_items=3
    )
    agreement: float = fields.field(0.5, "how much they must agree", fields.Range(0, 1))


@pytest.fixture(autouse=True)
def ensembles(monkeypatch):
    # In the place of the package's own, which has other keys.
    kinds = [cls for cls in typing.get_args(ObjectiveConfig) if cls is not kinds_lib.EnsembleConfig]
    replace_section(
        monkeypatch, "objective", typing.Union[(*kinds, EnsembleConfig)], AnInfoNCEConfig()
    )


def resolve(values, *flags):
    command = command_line.parse([f"--config.{flag}" for flag in flags])
    resolved = config_lib.resolve(values, command.overrides)
    (run,) = resolved.runs.values()
    return command, resolved, run


def members(values, *flags):
    return resolve(values, *flags)[2].objective.members


def message(values, *flags):
    with pytest.raises(ConfigError) as caught:
        resolve(values, *flags)
    return str(caught.value)


def file(*sections):
    return {"objective": {"kind": "ensemble", "members": list(sections)}}


TWO = file({"temperature": 0.5}, {"kind": "lp", "exponent": 3.0})


@pytest.mark.parametrize("make", [dict, ConfigDict])
def test_a_file_lists_sections_of_different_kinds(make):
    expected = (InfoNCEConfig(temperature=0.5), LpConfig(exponent=3.0))
    assert members(make(TWO)) == expected
    nested = {"objective": {"kind": "ensemble", "members": (make({}),)}}
    assert members(nested) == (InfoNCEConfig(),)


def test_a_command_line_changes_one_key_of_one_item():
    assert members(TWO, "objective.members.0.temperature=2") == (
        InfoNCEConfig(temperature=2.0),
        LpConfig(exponent=3.0),
    )
    assert members(TWO, "objective.members.1.exponent=1.5")[1] == LpConfig(exponent=1.5)
    switched = members(TWO, "objective.members.0.train_temperature")[0]
    assert switched == InfoNCEConfig(temperature=0.5, train_temperature=True)
    assert file({"temperature": 0.5}, {"kind": "lp", "exponent": 3.0}) == TWO


def test_another_kind_drops_what_only_the_old_one_had():
    assert members(TWO, "objective.members.1.kind=aninfonce")[1] == AnInfoNCEConfig()
    # Both kinds have it, and the file says something of its own.
    kept = members(TWO, "objective.members.0.kind=lp")[0]
    assert kept == LpConfig(temperature=0.5)


def test_a_list_grows_at_its_end_and_can_begin_anew():
    grown = members(TWO, "objective.members.2.kind=aninfonce")
    assert grown == (*members(TWO), AnInfoNCEConfig())
    # In any order.
    flags = ("members.1.kind=lp", "members.0.kind=aninfonce", "members=", "agreement=0.1")
    new = members(TWO, *(f"objective.{flag}" for flag in flags))
    assert new == (AnInfoNCEConfig(), LpConfig())
    assert members(TWO, "objective.members=()") == ()
    whole = members({}, "objective.kind=ensemble", "objective.members.0.temperature=3")
    assert whole == (InfoNCEConfig(temperature=3.0),)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            ["objective.members.0.exponent=2"],
            "config key 'objective.members.0.exponent' is not used by "
            "objective.members.0.kind='infonce', only by lp; 'infonce' has the keys: negatives, ",
        ),
        (
            ["objective.members.1.temperature=-1"],
            "config.objective.members.1.temperature must be above 0, got -1.0",
        ),
        (
            ["objective.members.0.temperature=hot"],
            "config.objective.members.0.temperature must be a number, got 'hot'",
        ),
        (
            ["objective.members.0.kind=star"],
            "config.objective.members.0.kind must be one of 'infonce', 'aninfonce', 'lp'; got",
        ),
        (
            ["objective.members.4.kind=lp"],
            "config.objective.members.4 has no place: there are 2 sections before it; the next is "
            "objective.members.2",
        ),
        (
            ["objective.members.2.kind=lp", "objective.members.3.kind=lp"],
            "config.objective.members must have at most 3 items, got 4",
        ),
        (
            ["objective.members=infonce,lp"],
            "config.objective.members is a list of sections; leave out what is behind '='",
        ),
        (
            ["objective.members.0.temprature=1"],
            "unknown flag '--config.objective.members.0.temprature'; did you mean "
            "'--config.objective.members.N.temperature'?",
        ),
        (["objective.members.N.kind=lp"], "unknown flag '--config.objective.members.N.kind'; "),
        (["objective.members.0=lp"], "unknown flag '--config.objective.members.0'; "),
        (
            ["objective.kind=lp", "objective.members.0.kind=lp"],
            "config key 'objective.members' is not used by objective.kind='lp', only by ensemble; ",
        ),
    ],
)
def test_a_bad_item_gets_one_line(flags, expected):
    assert message(TWO, *flags).startswith(expected)


@pytest.mark.parametrize("wrong", [3, "lp", {"kind": "lp"}, [3], np.array([1, 2])])
def test_what_is_no_list_of_sections_is_said(wrong):
    values = {"objective": {"kind": "ensemble", "members": wrong}}
    flag = "objective.members.0.kind=lp"
    assert "must be a" in message(values)
    assert "must be a" in message(values, flag)


def test_a_run_of_members_is_written_down_and_told_from_others():
    _, _, run = resolve(TWO)
    values = config_lib.to_dict(run)
    assert config_lib.from_dict(values) == run
    assert config_lib.flatten(run)["objective.members.1.exponent"] == 3.0
    other = config_lib.to_dict(resolve(TWO, "objective.members.1.exponent=4")[2])
    assert config_lib.difference(values, other) == {"objective.members.1.exponent": (3.0, 4.0)}
    # Written before a field was known.
    del values["objective"]["members"][0]["chunk_size"]
    assert config_lib.complete(values) == config_lib.to_dict(run)


def test_the_command_that_repeats_it_names_its_items():
    command, resolved, run = resolve(TWO, "objective.members.1.exponent=4")
    text = command_line.repeat_command(command, resolved, run)
    assert text.endswith("--config.objective.members.1.exponent=4")


def test_the_help_shows_the_keys_of_items():
    text = command_line.help_text()
    assert "objective.members = ()  (list of sections; ensemble)" in text
    assert "objective.members.N.temperature = 1.0  (float; infonce, lp)" in text
