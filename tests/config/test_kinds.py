"""Sections that come in kinds: every key has a use, or is refused with who would use it.

The cases are generated from the schema, so that a new kind or key is tried as soon as it exists.
"""

import dataclasses

import pytest

from aninfonce_jax import config as config_lib
from aninfonce_jax.config import parse
from aninfonce_jax.config.kinds import KNOWN
from aninfonce_jax.config.schema import Config, ConfigError, EvalConfig

SECTIONS = parse.section_types()
# kind -> keys with their defaults, for every section.
KEYS = {
    section: {
        kind: {f.name: f for f in dataclasses.fields(cls) if f.name != "kind"}
        for cls in parse.classes_of(types)
        for kind in parse.kinds_of(cls)
    }
    for section, types in SECTIONS.items()
}
STRANGE = [
    (section, kind, key)
    for section, kinds in KEYS.items()
    for kind in kinds
    for key in dict.fromkeys(key for keys in kinds.values() for key in keys)
    if key not in kinds[kind]
]
# What makes a run of each kind valid.
NEEDED = {
    "images": {"source.folder": "x", "encoder.dim": 3},
    "matched_images": {"source.folder": "x", "encoder.dim": 3, "source.augment": "crop_only"},
    "decode": {"source.folder": "x"},
    "elbo": {
        "source.kind": "images",
        "source.folder": "x",
        "encoder.dim": 4,
        "encoder.output": "none",
    },
    "processes": {
        "objective.kind": "ensemble",
        "objective.members.0.kind": "aninfonce",
        "source.members.0.layout": "linear",
    },
    "image_ensemble": {
        "source.folder": "x",
        "encoder.dim": 3,
        "objective.kind": "ensemble",
        "objective.members.0.kind": "infonce",
        "source.members.0.augment": "crop_only",
    },
    "ensemble": {
        "objective.members.0.kind": "lp",
        "source.kind": "processes",
        "source.members.0.layout": "linear",
    },
    "process_with_negatives": {"objective.kind": "hard_negatives"},
    "hard_negatives": {"source.kind": "process_with_negatives"},
    "vicreg": {"encoder.output": "none"},
    "sigreg": {"encoder.output": "none"},
    "diet": {"source.kind": "images", "source.folder": "x", "encoder.dim": 3},
    "augself": {"source.kind": "images", "source.folder": "x", "encoder.dim": 3},
    "resnet": {"source.kind": "images", "source.folder": "x", "optimizer.kind": "adam"},
}


def needed_by(kind):
    """What makes a run of a kind valid, or of kinds whose names begin alike."""
    return NEEDED.get(kind, NEEDED.get(kind[:6], {}))


def message(function, *args):
    with pytest.raises(ConfigError) as caught:
        function(*args)
    text = str(caught.value)
    assert text.isprintable()
    return text


def default_of(section, key):
    """A value that is right for the kinds that have the key."""
    field = next(keys[key] for keys in KEYS[section].values() if key in keys)
    return {} if field.default is dataclasses.MISSING else field.default


def test_every_section_with_kinds_is_tried():
    assert set(KEYS) == {"source", "encoder", "objective", "optimizer"}
    assert set(KEYS["source"]) == set(KNOWN)
    assert len(STRANGE) > 80


@pytest.mark.parametrize(("section", "kind", "key"), STRANGE)
def test_a_key_of_another_kind_is_refused_with_who_uses_it(section, kind, key):
    # Even with its default: what is written down has a meaning, or is a mistake.
    value = default_of(section, key)
    text = message(config_lib.from_dict, {section: {"kind": kind, key: value}})
    name = f"{section}.{key}"
    assert text.startswith(f"config key '{name}' is not used by {section}.kind='{kind}', only by ")
    users, _, own = text.partition("only by ")[2].partition("; ")
    assert users.split(", ") == [k for k, keys in KEYS[section].items() if key in keys]
    assert own == f"'{kind}' has the keys: {', '.join(KEYS[section][kind]) or 'none'}"
    # The same on a command line, where the kind is that of a file or of another flag.
    if not isinstance(value, dict):
        file = {section: {"kind": kind}}
        assert message(config_lib.resolve, file, {name: value}) == text
        flags = {f"{section}.kind": kind, name: value}
        assert message(config_lib.resolve, config_lib.default_config(), flags) == text


@pytest.mark.parametrize(
    ("section", "kind"), [(section, kind) for section in KEYS for kind in KEYS[section]]
)
def test_every_kind_has_its_defaults_and_takes_all_its_keys(section, kind):
    config = config_lib.default_config(**{section: kind})
    assert config[section].kind == kind
    assert set(config[section]) == {"kind", *KEYS[section][kind]}
    needed = needed_by(kind)
    (run,) = config_lib.resolve(config, needed).runs.values()
    assert config_lib.from_dict(config_lib.to_dict(run)) == run
    assert getattr(config_lib.defaults_like(run), section).kind == kind


@pytest.mark.parametrize("section", KEYS)
def test_a_kind_that_does_not_exist(section):
    for kind in ("", "vit", 3, None, ["mlp"], {"a": 1}):
        text = message(config_lib.from_dict, {section: {"kind": kind}})
        options = ", ".join(map(repr, KEYS[section]))
        assert text.startswith(f"config.{section}.kind must be one of {options}; got ")
        assert message(config_lib.resolve, {}, {f"{section}.kind": kind}) == text
    with pytest.raises(ConfigError, match="unknown kind 'vit'; choose one of "):
        config_lib.default_config(**{section: "vit"})


def test_default_config_has_sections():
    with pytest.raises(ConfigError, match="unknown section 'train'; choose source, encoder, obj"):
        config_lib.default_config(train="fast")
    config = config_lib.default_config()
    assert config_lib.from_dict(config) == Config()
    assert config.compare == ()


# --- Kinds that a command line changes ---


def resolve_one(values, overrides):
    (run,) = config_lib.resolve(values, overrides).runs.values()
    return run


def test_a_changed_kind_keeps_what_both_have_and_drops_the_rest():
    file = config_lib.default_config(optimizer="sgd")
    file.optimizer.momentum = 0.5
    file.optimizer.learning_rate = 0.125
    file.objective.concentration_start = 3.0
    file.objective.negatives = "both"
    run = resolve_one(file, {"optimizer.kind": "adam", "objective.kind": "lp"})
    assert (run.optimizer.kind, run.optimizer.learning_rate) == ("adam", 0.125)
    assert (run.objective.kind, run.objective.negatives) == ("lp", "both")
    assert run.objective.exponent == 2.0
    # What the command line says is not dropped, and must have a use.
    flags = {"optimizer.kind": "adam", "optimizer.momentum": 0.5}
    assert "'optimizer.momentum' is not used by optimizer.kind='adam'" in message(
        config_lib.resolve, file, flags
    )


def test_a_changed_kind_has_its_own_defaults():
    """A file spells out the defaults of its kinds; they say nothing about another kind."""
    file = config_lib.default_config()
    assert file.encoder.dim == 0
    flags = {"source.kind": "images", "source.folder": "x", "optimizer.kind": "adam"}
    assert resolve_one(file, flags | {"encoder.kind": "resnet18"}).encoder.dim == 128
    file.encoder.dim = 7
    assert resolve_one(file, flags | {"encoder.kind": "resnet18"}).encoder.dim == 7
    # What belongs to the old source alone goes with it.
    file.eval.samples = 4096
    assert resolve_one(file, flags).eval == EvalConfig()
    assert "eval.samples=99 has no use" in message(
        config_lib.resolve, file, flags | {"eval.samples": 99}
    )


@pytest.mark.parametrize("flags", [{"objective.kind": "lp"}, {"compare": ("lp", "supervised")}])
def test_a_mistake_in_the_file_is_not_dropped(flags):
    for key, expected in (
        ("temprature", "unknown config key 'objective.temprature'; did you mean"),
        ("train_temperature", "'objective.train_temperature' is not used by"),
    ):
        file = {"objective": {"kind": "aninfonce", key: True}}
        assert expected in message(config_lib.resolve, file, flags)


@pytest.mark.parametrize("wrong", [3, [[]], [None], ({"a": 1},), "infonce", {"a": 1}])
def test_what_is_no_list_of_kinds_is_refused(wrong):
    for flags in ({}, {"seed": 3}):
        assert "config.compare" in message(config_lib.resolve, {"compare": wrong}, flags)
    assert "compare" in message(config_lib.resolve, {"compare": wrong}, {"objective.kind": "lp"})


# --- Comparisons ---


def test_a_comparison_may_hold_the_keys_of_every_compared_kind():
    objective = {"temperature": 0.5, "concentration_start": 2.0, "negatives": "both"}
    values = {"compare": ("infonce", "aninfonce", "lp", "supervised"), "objective": objective}
    runs = config_lib.runs_of(values)
    assert (runs["infonce"].objective.temperature, runs["lp"].objective.temperature) == (0.5, 0.5)
    assert runs["aninfonce"].objective.concentration_start == 2.0
    assert {runs[k].objective.negatives for k in ("infonce", "aninfonce", "lp")} == {"both"}
    for kind, run in runs.items():
        assert set(config_lib.to_dict(run)["objective"]) == {"kind", *KEYS["objective"][kind]}


@pytest.mark.parametrize("kind", ["vicreg", "sigreg"])
def test_a_sphere_has_no_room_for_a_variance_of_one_in_every_output(kind):
    text = message(config_lib.runs_of, {"objective": {"kind": kind}})
    assert f"objective.kind='{kind}' asks every output for a variance of 1" in text
    assert text.endswith("set encoder.output='none'")


@pytest.mark.parametrize(
    ("kind", "source", "words"),
    [
        (
            "diet",
            "process",
            "has a class for each example of a data set, and source.kind=",
        ),
        ("diet", "decoded_views", "draws new ones without end; use source.kind='images'"),
        ("augself", "process", "predicts how views were augmented, and source.kind='process'"),
        ("augself", "matched_images", "'matched_images' augments none"),
        ("augself", "decoder", "augments none; use source.kind='images' or 'decoded_views'"),
    ],
)
def test_a_source_that_does_not_know_what_an_objective_needs_is_refused(kind, source, words):
    flags = {"objective.kind": kind, "source.kind": source} | needed_by(source)
    text = message(config_lib.resolve, {}, flags)
    assert text.startswith(f"objective.kind='{kind}' ")
    assert words in text


@pytest.mark.parametrize("kinds", [("infonce",), ("infonce", "aninfonce")])
def test_a_key_that_no_compared_kind_uses_is_refused(kinds):
    values = {"compare": kinds, "objective": {"exponent": 3.0}}
    text = message(config_lib.runs_of, values)
    assert text.startswith(
        f"config key 'objective.exponent' is not used by compare={kinds}, only by lp; they have "
        "the keys: negatives, hardness"
    )
    assert message(config_lib.resolve, {"compare": kinds}, {"objective.exponent": 3.0}) == text
    assert message(config_lib.resolve, {}, {"compare": kinds, "objective.exponent": 3.0}) == text
    with pytest.raises(ConfigError, match=r"did you mean 'objective\.t"):
        config_lib.runs_of({"compare": kinds, "objective": {"temprature": 3.0}})


def test_a_compared_kind_has_its_ranges_and_rules():
    values = {"compare": ("aninfonce", "infonce"), "objective": {"temperature": -1.0}}
    assert "config.objective.temperature must be above 0" in message(config_lib.runs_of, values)
    values = {"compare": ("lp", "infonce"), "encoder": {"output": "box"}}
    assert "objective.normalize=True would undo" in message(config_lib.runs_of, values)
    values["objective"] = {"normalize": False}
    assert len(config_lib.runs_of(values)) == 2


def test_a_kind_beside_a_comparison_has_no_use():
    """It would be passed over in silence: a comparison says itself what is trained."""
    file = config_lib.default_config()
    file.compare = ("aninfonce", "infonce")
    for kind in ("lp", "infonce"):
        text = message(config_lib.resolve, file, {"objective.kind": kind})
        assert text == (
            f"objective.kind='{kind}' has no use beside compare=('aninfonce', 'infonce'); "
            "to train it alone, add --config.compare="
        )
        run = resolve_one(file, {"objective.kind": kind, "compare": ()})
        assert run.objective.kind == kind


# --- Keys of the evaluation, by what the source knows ---

OTHER_VALUES = {"readout_strength": "drawn", "readout_context": "augmented"}


@pytest.mark.parametrize("kind", KNOWN)
@pytest.mark.parametrize("field", dataclasses.fields(EvalConfig), ids=lambda field: field.name)
def test_a_key_of_the_evaluation_needs_what_the_source_knows(kind, field):
    needs = field.metadata["needs"]
    flags = {"source.kind": kind} | needed_by(kind)
    name = f"eval.{field.name}"
    value = OTHER_VALUES.get(field.name) or field.default + 100
    # The default is what a config that says nothing has.
    assert config_lib.flatten(resolve_one({}, flags | {name: field.default}))[name] == field.default
    if not needs or needs in KNOWN[kind]:
        assert config_lib.flatten(resolve_one({}, flags | {name: value}))[name] == value
    else:
        text = message(config_lib.resolve, {}, flags | {name: value})
        assert text == (
            f"{name}={value!r} has no use with source.kind='{kind}', of which "
            f"{' and '.join(KNOWN[kind])} are known and {needs} are not; leave it out"
        )


# --- Kinds that go together ---


@pytest.mark.parametrize("widths", [(1,), (3, 1, 3)])
def test_units_that_are_paired_are_at_least_two(widths):
    text = message(config_lib.resolve, {}, {"encoder.widths": widths})
    assert text == (
        f"encoder.widths={widths} has a layer of one unit, and encoder.init='looks_linear' pairs "
        "units; use at least 2, or encoder.init='orthogonal'"
    )
    resolve_one({}, {"encoder.widths": widths, "encoder.init": "orthogonal"})


def test_an_mlp_takes_images():
    flags = {"source.kind": "images", "source.folder": "x"}
    run = resolve_one({}, flags | {"encoder.dim": 8, "encoder.widths": (16,)})
    assert (run.encoder.kind, run.encoder.dim) == ("mlp", 8)
    assert message(config_lib.resolve, {}, flags) == (
        "encoder.dim=0 means the number of latent factors, which source.kind='images' does not "
        "tell; set encoder.dim"
    )


def test_a_regression_gives_as_many_numbers_as_there_are_factors():
    flags = {"objective.kind": "supervised"}
    assert resolve_one({}, flags | {"encoder.dim": 10}).encoder.dim == 10
    assert "regresses the 10 latent factors; encoder.dim=3 must be 0 or 10" in message(
        config_lib.resolve, {}, flags | {"encoder.dim": 3}
    )
