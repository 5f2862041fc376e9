"""Every config field with every kind of wrong value, and command lines made by a grammar.

The cases are generated from the schema, so that a new field is attacked as soon as it exists.
Each must give a valid config, or one line that names the key; nothing is trained.
"""

import copy
import decimal
import fractions
import itertools
import json
import math
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aninfonce_jax import config as config_lib
from aninfonce_jax import main as main_lib
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.modes import train as train_mode

CYCLE: list[object] = []
CYCLE.append(CYCLE)


class Hostile:
    """Fails wherever it can."""

    def __repr__(self):
        raise RuntimeError("no repr")

    def __eq__(self, other):
        raise RuntimeError("no comparison")

    __hash__ = None


WRONG = [
    *(None, True, False, Ellipsis, NotImplemented, int, len, Hostile(), Hostile),
    *(-1, 0, 1, 2, 3, 7, 64, -(2**31), 2**31 - 1, 2**31, 2**32, 2**63, 2**64, 10**400, -(10**400)),
    *(10**5000, -0.0, 0.5, -0.5, 1.0, 2.5, 1e-46, 1e-308, 1e30, 1e39, 1e308, -1e308, 5e-324),
    *(math.nan, math.inf, -math.inf, 1j, decimal.Decimal("1"), fractions.Fraction(1, 3)),
    *(np.int64(5), np.float32(0.5), np.float64("nan"), np.bool_(True), np.zeros(3), np.zeros(())),
    *("", " ", "x", "0", "nan", "None", "[/b]", ":smile:", "\x1b[31m", "\0", "\n", "a\r\nb"),
    *("é", "\ud800", "\u202e", "{}", "%s", "../..", "x" * 10_000, b"x", bytearray(b"x")),
    *((), (1,), (-1,), (0,), (math.nan,), (1e308,), ("x",), ("infonce",), ("infonce",) * 2),
    *((10**400,), ((),), (None,), [None], [1, 2], [[1]], CYCLE, (8,) * 100_000, range(3)),
    *({}, {"x": 1}, {1: 2}, {"steps": {}}, {1}, frozenset(), iter(())),
]
TEXTS = [
    *("-1", "0", "1", "2", "2147483647", "2147483648", "9223372036854775808", "1" + "0" * 400),
    *("9" * 5000, "10**400", "1e3", "1e308", "-1e308", "1e400", "1e-46", "5e-324", "-0.0", "0x10"),
    *("nan", "inf", "-inf", "NaN", "1_000", "1,5", "1.5.2", "½", "٣", "+5", "--5", "1e", "None"),
    *("", " ", "x", "true", "FALSE", "maybe", "[/b]", "[red]x", ":x:", "é Λ 蟻", "'", '"', "\\"),
    *("\x1b[31m", "\0", "\n", "\ud800", "\u202e", "=", "==", "--mode=eval", "$(ls)", "`ls`", "%s"),
    *("()", "(", ")", "(8,8)", "[8]", "8,", ",", ",,", "(8", "8)", "(((8)))", "'8'", "(" * 5000),
    *("infonce", "infonce,infonce", "('infonce','lp')", "{}", "{'a': 1}", "x" * 10_000),
]
# A run of every set of keys, so that each key has a run that uses it.
BASES = {
    "process": {},
    "images": {
        "source": {"kind": "images", "folder": "images"},
        "encoder": {"kind": "resnet10"},
        "objective": {"kind": "infonce"},
        "optimizer": {"kind": "sgd"},
    },
    "matched images": {
        "source": {"kind": "matched_images", "folder": "images"},
        "encoder": {"kind": "resnet10"},
        "objective": {"kind": "infonce"},
        "optimizer": {"kind": "sgd"},
    },
    "lp": {"objective": {"kind": "lp"}, "optimizer": {"kind": "adam"}},
    "supervised": {"objective": {"kind": "supervised"}, "optimizer": {"kind": "lars"}},
    "vae": {
        "source": {"kind": "images", "folder": "images", "augment": "none"},
        "encoder": {"kind": "mlp", "dim": 20, "output": "none"},
        "objective": {"kind": "elbo"},
        "optimizer": {"kind": "adam"},
    },
    "decoder": {"source": {"kind": "decoder", "folder": "images"}},
    "hard negatives": {
        "source": {"kind": "process_with_negatives"},
        "objective": {"kind": "hard_negatives"},
    },
    "ensemble": {
        "source": {"kind": "processes", "members": [{}]},
        "objective": {"kind": "ensemble", "members": [{"kind": "aninfonce"}]},
    },
    "ensemble of others": {
        "source": {"kind": "processes", "members": [{}, {}]},
        "objective": {"kind": "ensemble", "members": [{"kind": "infonce"}, {"kind": "lp"}]},
    },
    "image ensemble": {
        "source": {"kind": "image_ensemble", "folder": "images", "members": [{}]},
        "encoder": {"kind": "resnet10"},
        "objective": {"kind": "ensemble", "members": [{"kind": "aninfonce"}]},
        "optimizer": {"kind": "adam"},
    },
    "tricl": {"objective": {"kind": "tricl"}},
    "vicreg": {"objective": {"kind": "vicreg"}, "encoder": {"output": "none"}},
    "sigreg": {"objective": {"kind": "sigreg"}, "encoder": {"output": "none"}},
    "diet": {
        "source": {"kind": "images", "folder": "images"},
        "encoder": {"kind": "resnet10"},
        "objective": {"kind": "diet", "examples": 60},
        "optimizer": {"kind": "adam"},
    },
    "augself": {
        "source": {"kind": "images", "folder": "images"},
        "encoder": {"kind": "resnet10"},
        "objective": {"kind": "augself"},
        "optimizer": {"kind": "adam"},
    },
    "comparison": {"compare": ("infonce", "aninfonce_no_l2")},
}
KEYS = list(config_lib.leaves())


def general(name):
    """Returns a key as the schema has it, with N where a list of sections has a place."""
    return re.sub(r"\.\d+\.", ".N.", name)


USED = {
    base: {
        key
        for run in config_lib.runs_of(values).values()
        for name in map(general, config_lib.flatten(run))
        for key in (name, name.partition(".N.")[0])
    }
    for base, values in BASES.items()
}
# Every key in all runs that use it, and in two that don't.
CASES = [
    (name, base)
    for name in KEYS
    for base in [
        *(base for base in BASES if name in USED[base]),
        *[base for base in BASES if name not in USED[base]][:2],
    ]
]


def with_value(base, name, value):
    """Returns the nested values of a base with one key replaced, wherever it belongs."""
    values = copy.deepcopy(base)
    inside = values
    *sections, last = name.split(".")
    for step, after in itertools.pairwise([*sections, last]):
        is_list = after == "N"
        inside = inside[0] if step == "N" else inside.setdefault(step, [{}] if is_list else {})
    inside[last] = value
    return values


def check_error(text, name):
    assert text.isprintable(), text
    assert len(text) < 700
    *sections, key = name.split(".")
    # Where a kind has no such section, or list of them, that is what is said.
    outer = [".".join(sections[:depth]) for depth in range(1, len(sections) + 1)]
    is_named = any(f"'{section}' is not used by" in text for section in outer)
    assert key in text or is_named, (name, text)


@pytest.mark.parametrize(("name", "base_name"), CASES)
def test_a_value_is_taken_as_it_is_or_refused_in_a_line(name, base_name):
    base = BASES[base_name]
    for value in WRONG:
        try:
            runs = config_lib.runs_of(with_value(base, name, value))
        except ConfigError as error:
            check_error(str(error), name)
            continue
        # What is taken is plain, finite, and survives being written down.
        for config in runs.values():
            saved = json.loads(json.dumps(config_lib.to_dict(config), allow_nan=False))
            assert config_lib.from_dict(saved) == config
        if name == "compare":
            assert tuple(runs) == tuple(value) or (not value and len(runs) == 1)
            continue
        own = name.replace(".N.", ".0.")
        taken = [flat[own] for flat in map(config_lib.flatten, runs.values()) if own in flat]
        assert taken
        assert {type(x) for x in taken} <= {int, float, bool, str, tuple}
        # A comparison says itself which kinds it has.
        if name != "objective.kind" or "compare" not in base:
            assert all(x == type(x)(value) for x in taken)


def test_every_key_has_a_run_that_uses_it():
    """Else the test above would only see it refused."""
    used = set().union(*USED.values())
    assert used | {"compare"} == set(KEYS)


@pytest.mark.parametrize("name", ["", "x", "train", "train.x", "train.steps.x", "x.y.z", "a" * 999])
def test_a_key_that_does_not_exist_is_refused_in_a_line(name):
    for value in WRONG:
        with pytest.raises(ConfigError) as caught:
            config_lib.resolve({}, {name: value})
        check_error(str(caught.value), name[:20])


@pytest.fixture
def attack(monkeypatch, capsys, tmp_path):
    """Returns a function that runs a command line, up to training, and checks how it ends."""
    configs = []

    def train(runs, workdir, command, peers):
        configs.append({name: run.config for name, run in runs.items()})
        return 0

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(train_mode, "train", train)

    def run(*arguments, key=None):
        """Returns the configs that would be trained, or None."""
        configs.clear()
        code = main_lib.main(["main", *arguments])
        out, err = capsys.readouterr()
        if code == 0:
            assert err == ""
            return configs[0] if configs else None
        assert code == 2
        assert out == ""
        assert err.startswith("aninfonce_jax: ")
        assert err.endswith("\n")
        text = err[:-1]
        assert text.isprintable(), text
        assert len(text) < 700
        assert key is None or key in text or key.rpartition(".")[2] in text, text
        return None

    return run


@pytest.mark.parametrize("name", KEYS)
def test_a_flag_is_taken_or_refused_in_a_line(name, attack):
    for index, text in enumerate(TEXTS):
        joined = attack(f"--config.{name}={text}", key=name)
        if index % 4:
            continue
        # The same in two words, except where the second looks like a flag.
        if not text.startswith("-"):
            assert attack(f"--config.{name}", text, key=name) == joined
        # Of several the last counts, for tuples too.
        assert attack(f"--config.{name}=1", f"--config.{name}={text}", key=name) == joined


MODES = st.sampled_from(["eval", "report", "train", "", "x"])
FLAG = st.one_of(
    st.sampled_from([f"config.{name}" for name in KEYS]),
    st.sampled_from(["config", "workdir", "progress", "help", "helpfull", "flagfile", "undefok"]),
    st.sampled_from(["noconfig.log.tensorboard", "pdb", "only_check_args", "v", "config.", ""]),
    st.text(max_size=12),
)
VALUE = st.one_of(st.sampled_from(TEXTS), st.text(max_size=30))
ARGUMENT = st.one_of(
    st.tuples(st.sampled_from(["--", "-", "", "---", "+"]), FLAG, st.just("="), VALUE).map("".join),
    st.tuples(st.sampled_from(["--", "-", "--no"]), FLAG).map("".join),
    MODES.map(lambda mode: f"--mode={mode}"),
    VALUE,
)


@settings(
    deadline=None,
    derandomize=True,
    max_examples=400,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(ARGUMENT, max_size=5))
def test_any_command_line_ends_in_a_line(attack, arguments):
    attack(*arguments)
