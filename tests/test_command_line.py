import re
import shlex
from pathlib import Path

import pytest

from aninfonce_jax import cli
from aninfonce_jax import config as config_lib
from aninfonce_jax.command_line import (
    MODES,
    PROGRAM,
    default_workdir,
    help_text,
    parse,
    repeat_command,
)
from aninfonce_jax.config.file import load_config
from aninfonce_jax.config.schema import Config, ConfigError


def resolved(arguments):
    command = parse(arguments)
    return command, config_lib.resolve(load_config(command.config), command.overrides)


def repeated(text):
    """The config of a command that a run has recorded."""
    words = shlex.split(text)
    assert tuple(words[:3]) == PROGRAM
    (run,) = resolved(words[3:])[1].runs.values()
    return run


def message(arguments):
    with pytest.raises(ConfigError) as caught:
        config_lib.resolve({}, parse(arguments).overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-config.trian.steps=5"], "unknown flag '-config.trian.steps'; did you mean '--config.t"),
        (["-config.train.steps=5"], "did you mean '--config.train.steps'?"),
        (["--train.steps=5"], "did you mean '--config.train.steps'?"),
        (["--noconfig.log.tensorboard"], "write --config.log.tensorboard=false"),
        (["--nomode"], "unknown flag '--nomode'"),
        (["--flagfile=/nope"], "unknown flag '--flagfile'"),
        (["--flagfile", "/nope"], "unknown flag '--flagfile'"),
        (["--undefok=config.x", "--config.x=3"], "unknown flag '--undefok'"),
        (["--only_check_args"], "unknown flag '--only_check_args'"),
        (["--run_with_pdb"], "unknown flag '--run_with_pdb'"),
        (["--helpfull"], "unknown flag '--helpfull'; did you mean '--help'?"),
        (["--conf=x"], "unknown flag '--conf'"),
        (["--work=x"], "unknown flag '--work'"),
        (["--config.lr=3"], "unknown flag '--config.lr'"),
        (["--config.train=3"], "unknown flag '--config.train'"),
        (["--config.="], "unknown flag '--config.'"),
        (["--config." + "x" * 5000 + "=1"], "unknown flag '--config.xxx"),
        (["--config.nmae=a b"], "did you mean '--config.name'?"),
        (["@file"], "unexpected argument '@file'"),
        ([""], "unexpected argument ''"),
        (["--", "x"], "unknown flag '--'"),
        (["-1"], "unknown flag '-1'"),
        (["--config.train.steps"], "--config.train.steps: expected one argument; see --help"),
        (["--config"], "--config: expected one argument"),
        (["--config.name=a\0b"], "holds a NUL character"),
        (["--workdir=a\0b"], "holds a NUL character"),
        (["--workdir=caf\udce9"], "--workdir must be UTF-8, which file names and reports need"),
        (["--workdir", ""], "--workdir names a folder"),
        (["--profile=5"], "--profile must be START:STOP in steps"),
        (["--profile=7:7"], "START below STOP, such as 100:110; got '7:7'"),
        (["--profile=-1:7"], "--profile must be START:STOP in steps"),
        (["--profile=1:2", "--mode=eval"], "has no use without --mode=train"),
        (["--workdir=,"], "--workdir names a folder"),
        (["--config.train.steps=10**400"], "must be a whole number, got '10**400'"),
        (["--config.train.steps=1e3"], "must be a whole number, got '1e3'"),
        (["--config.train.steps=" + "9" * 5000], "(5,002 characters)"),
        (["--config.train.steps="], "must be a whole number, got ''"),
        (["--config.source.radius=one"], "config.source.radius must be a number, got 'one'"),
        (["--config.source.radius=1e400"], "must be a finite number, got inf"),
        (["--config.log.tensorboard=maybe"], "must be true or false, got 'maybe'"),
        (["--config.log.tensorboard", "extra"], "must be true or false, got 'extra'"),
        (["--config.encoder.widths=((8))"], "widths[0] must be a whole number, got '(8)'"),
        (["--config.encoder.widths=8,,8"], "widths[1] must be a whole number, got ''"),
        (["--config.encoder.widths=" + "(" * 5000], "widths[0] must be a whole number"),
        (["--config.compare=infonce,simclr"], "config.compare[1] must be one of"),
        (
            ["--mode="],
            "--mode must be one of train, eval, report, diagnose, preview, compile, sweep; got ''",
        ),
        (["--topology=v5e:4x4"], "--topology='v5e:4x4' has no use without --mode=compile"),
        (["--mode=compile", "--compiles=-1"], "--compiles must be a number from 0 to 9999"),
        (["--progress=fast"], "--progress must be one of auto, rich, plain, off; got 'fast'"),
    ],
)
def test_bad_flags_get_one_short_line(arguments, expected):
    text = message(arguments)
    assert expected in text
    assert len(text) < 300


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        (["--config.train.steps", "200"], "train.steps", 200),
        (["--config.train.steps=1", "--config.train.steps=2"], "train.steps", 2),
        (["--config.encoder.widths=8", "--config.encoder.widths=16"], "encoder.widths", (16,)),
        (["--config.encoder.widths=(8,8)"], "encoder.widths", (8, 8)),
        (["--config.encoder.widths=[8, 8]"], "encoder.widths", (8, 8)),
        (["--config.encoder.widths", "8,16"], "encoder.widths", (8, 16)),
        (["--config.encoder.widths=(8,)"], "encoder.widths", (8,)),
        (["--config.encoder.widths=()"], "encoder.widths", ()),
        (["--config.encoder.widths="], "encoder.widths", ()),
        (["--config.compare=infonce,aninfonce"], "compare", ("infonce", "aninfonce")),
        (["--config.compare=('infonce','lp')"], "compare", ("infonce", "lp")),
        (['--config.compare=("infonce",)'], "compare", ("infonce",)),
        (["--config.source.concentration.values=1,2.5"], "source.concentration.values", (1.0, 2.5)),
        (["--config.log.tensorboard"], "log.tensorboard", True),
        (["--config.log.tensorboard=False"], "log.tensorboard", False),
        (["--config.log.tensorboard=0"], "log.tensorboard", False),
        (["--config.name="], "name", ""),
        (["--config.name=--config.seed=3"], "name", "--config.seed=3"),
        (["--config.source.box_low", "-1"], "source.box_low", -1.0),
    ],
)
def test_values(arguments, key, value):
    assert parse(arguments).overrides == {key: value}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--config.train.steps", "200"],
        ["--config.train.steps=20", "--config.seed", "3"],
        ["--config.compare=lp,infonce", "--config.objective.temperature=0.5"],
        ["--config.compare=lp,infonce", "--config.objective.exponent=3"],
        ["--config.compare=()", "--config.objective.kind=supervised"],
        ["--config.optimizer.kind=sgd", "--config.optimizer.momentum=0.5"],
        ["--config=configs/cifar10_cpu.py", "--config.objective.concentration_start=3"],
        ["--config=configs/cifar10_cpu.py", "--config.encoder.kind=mlp"],
        ["--config.compare=('infonce',)"],
        ["--config=configs/synthetic.py:linear", "--config.encoder.widths=(8, 8)"],
        ["--config.encoder.widths=8", "--config.encoder.widths=16"],
        ['--config.name=it\'s "two" words; $HOME `x` \\ é Λ 蟻 [/b]'],
        ["--config.name=--mode=eval", "--workdir=elsewhere", "--progress=off"],
    ],
)
def test_the_recorded_command_repeats_exactly_one_run(arguments):
    command, whole = resolved(arguments)
    runs = whole.runs
    texts = [repeat_command(command, whole, run) for run in runs.values()]
    assert len(set(texts)) == len(texts)
    for text, run in zip(texts, runs.values(), strict=True):
        assert repeated(text) == run
        assert config_lib.fingerprint(repeated(text)) == config_lib.fingerprint(run)
        assert "workdir" not in text


def test_a_single_run_is_recorded_as_it_was_given():
    command, whole = resolved(["--config=configs/synthetic.py", "--config.train.steps", "200"])
    (run,) = whole.runs.values()
    assert repeat_command(command, whole, run) == (
        "python -m aninfonce_jax.main --config=configs/synthetic.py --config.train.steps=200"
    )


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("configs/synthetic.py:linear", "synthetic-linear-"),
        ("configs/synthetic.py:.. \n[x]", "synthetic-.._x_-"),
        ("a/config.py:" + "x" * 500, "config-" + "x" * 80 + "-"),
    ],
)
def test_a_new_folder_is_named_after_the_config_and_stays_below_runs(name, stem):
    folder = default_workdir(name)
    assert folder.parts[0] == "runs"
    assert len(folder.parts) == 2
    assert folder.name.startswith(stem)


def test_every_mode_and_exit_code_is_documented():
    page = (Path(__file__).parent.parent / "docs" / "running.md").read_text()
    rows = [re.match(r"\| `?(\w+)`?( \(default\))? \|", line) for line in page.splitlines()]
    named = {row[1] for row in rows if row}
    codes = (cli.EXIT_FAILED, cli.EXIT_USAGE, cli.EXIT_PREEMPTED, cli.EXIT_PEER_LOST)
    assert named >= {*MODES, *map(str, codes), str(cli.EXIT_NO_READER)}


def test_help_tells_the_default_of_every_kind():
    text = " ".join(help_text().split())
    assert "encoder.dim = 0 (int; mlp, resnet10, resnet18, resnet34, resnet50; resnet10, " in text
    assert "resnet50: 128) dimension of the embeddings" in text


def test_help_lists_every_key_in_80_columns():
    lines = help_text().splitlines()
    assert all(len(line) <= 80 for line in lines)
    first_words = {line.split()[0] for line in lines if line.split()}
    assert set(config_lib.leaves()) <= first_words
    assert set(config_lib.flatten(Config())) <= set(config_lib.leaves())
    for flag in ("--config", "--mode", "--workdir", "--progress", "--help"):
        assert flag in first_words
