import dataclasses

import numpy as np
import pytest

from aninfonce_jax import config as config_lib
from aninfonce_jax.config.schema import Config, ConfigError


def with_value(name, value, **kinds):
    """The default config of some kinds with one dotted key replaced."""
    values = config_lib.default_config(**kinds).to_dict()
    *sections, last = name.split(".")
    section = values
    for part in sections:
        section = section[part]
    section[last] = value
    return values


def resolve_one(values, overrides):
    resolved = config_lib.resolve(values, overrides)
    (config,) = resolved.runs.values()
    return config, resolved.notes


def message(values):
    with pytest.raises(ConfigError) as caught:
        config_lib.runs_of(values)
    text = str(caught.value)
    assert "\n" not in text
    return text


MIXING = "source.mixing.layers"


def test_defaults_are_valid_and_survive_the_round_trip():
    config = config_lib.from_dict(config_lib.default_config())
    assert config == Config()
    assert config_lib.from_dict(config_lib.to_dict(config)) == config


def test_unknown_key_names_the_nearest():
    assert "unknown config key 'train.bacth_size'; did you mean 'train.batch_size'?" in message(
        with_value("train.bacth_size", 3)
    )


def test_unknown_key_without_neighbour_lists_the_known():
    assert "known keys: train.batch_size, train.devices" in message(with_value("train.zzz", 3))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("train.steps", "many", "config.train.steps must be of type int, got 'many'"),
        ("train.steps", 2.5, "config.train.steps must be of type int, got 2.5"),
        ("train.steps", True, "config.train.steps must be of type int, got True"),
        ("train.steps", 0, "config.train.steps must be at least 1, got 0"),
        ("train.batch_size", 1, "config.train.batch_size must be at least 2, got 1"),
        ("train.microbatches", 0, "config.train.microbatches must be at least 1, got 0"),
        ("objective.chunk_size", -1, "config.objective.chunk_size must be at least 0, got -1"),
        ("objective.hardness", -0.5, "config.objective.hardness must be at least 0, got -0.5"),
        ("train.batch_size", -8, "config.train.batch_size must be at least 2, got -8"),
        ("source", 3, "config.source must be a section with keys, got 3"),
        ("train", 3, "config.train must be a section with keys, got 3"),
        ("objective", 3, "config.objective must be a section with keys, got 3"),
        ("source.dim", 1, "a sphere needs source.dim of at least 2, got 1"),
        ("source.space", "torus", "config.source.space must be one of 'sphere', 'box', 'real'"),
        ("source.space", "box", "source.conditional='anisotropic' is defined on the sphere"),
        (
            "source.conditional",
            "vmf",
            "has one concentration for all factors; set source.concentration",
        ),
        ("source.mixing.slope", 1.5, "config.source.mixing.slope must be at most 1, got 1.5"),
        ("source.radius", 0.0, "config.source.radius must be above 0, got 0.0"),
        (
            "source.concentration.low",
            30.0,
            "low=30.0 must not exceed source.concentration.high=25.0",
        ),
        ("source.concentration.high", float("nan"), "must be a finite number, got nan"),
        (
            "source.concentration.values",
            [1.0],
            "has no use with source.concentration.layout='bimodal', only with 'explicit'",
        ),
        (
            "source.concentration.layout",
            "explicit",
            "one Λ for each of source.dim=10 factors, got 0",
        ),
        ("encoder.widths", 5, "config.encoder.widths must be a tuple, got 5"),
        ("encoder.widths", (5, "x"), "config.encoder.widths[1] must be of type int, got 'x'"),
        ("encoder.widths", (5, 0), "config.encoder.widths[1] must be at least 1, got 0"),
        ("encoder.output", "box", "objective.normalize=True would undo encoder.output='box'"),
        ("optimizer.b2", 1.0, "config.optimizer.b2 must be below 1, got 1.0"),
        ("optimizer.final_fraction", 2.0, "final_fraction must be at most 1, got 2.0"),
        ("optimizer.warmup_steps", 10**9, "must be below train.steps="),
        ("eval.samples", 20, "eval.samples=20 is too few to score source.dim=10 factors"),
        ("compare", ("infonce", "infonce"), "config.compare names an objective twice"),
        ("compare", ("simclr",), "config.compare[0] must be one of 'aninfonce'"),
    ],
)
def test_bad_value_gets_one_clear_line(name, value, expected):
    assert expected in message(with_value(name, value))


def test_explicit_concentration():
    values = with_value("source.concentration", {"layout": "explicit", "values": [1, 2] * 5})
    assert config_lib.from_dict(values).source.concentration.values == (1.0, 2.0) * 5
    values["source"]["concentration"]["values"][3] = -2
    assert "config.source.concentration.values[3] must be above 0, got -2.0" in message(values)


@pytest.mark.parametrize(
    ("name", "value", "other", "useful"),
    [
        ("source.box_low", -1.0, "source.space='sphere'", "'box'"),
        ("source.marginal_scale", 2.0, "source.marginal='uniform'", "'normal' or 'laplace'"),
        ("source.shell", 0.2, "source.sampler='exact'", "'paper'"),
        ("optimizer.final_fraction", 0.5, "optimizer.schedule='constant'", "'cosine'"),
    ],
)
def test_what_another_choice_leaves_without_a_use_is_refused(name, value, other, useful):
    values = with_value(name, value)
    if name.startswith("optimizer"):
        values["optimizer"]["schedule"] = "constant"
    text = message(values)
    assert text.startswith(f"{name}={value} has no use with {other}, only with {useful}")


def test_members_of_a_list_are_looked_at_too():
    flags = {
        "source.kind": "processes",
        "objective.kind": "ensemble",
        "source.members": ({"layout": "constant", "low": 2.0},),
        "objective.members": ({"kind": "aninfonce"},),
    }
    with pytest.raises(ConfigError, match=r"^source\.members\.0\.low=2\.0 has no use with"):
        config_lib.resolve({}, flags)


def test_uniform_on_the_reals_is_refused():
    values = with_value("source.space", "real")
    values["source"]["conditional"] = "normal"
    assert "'uniform' does not exist on source.space='real'" in message(values)


def test_integers_are_accepted_for_floats():
    config = config_lib.from_dict(with_value("optimizer.clip_norm", 1))
    assert isinstance(config.optimizer.clip_norm, float)


def test_devices_must_divide_the_batch():
    config = config_lib.from_dict(with_value("train.batch_size", 1001))
    with pytest.raises(ConfigError, match=r"batch_size=1001 can't be divided over 8 devices"):
        config_lib.check_devices(config, 8, hosts=1)
    config = config_lib.from_dict(with_value("train.devices", 4))
    assert config_lib.check_devices(config, 8, hosts=1) == 4
    with pytest.raises(ConfigError, match=r"train.devices=4 but this machine has 2"):
        config_lib.check_devices(config, 2, hosts=1)


def test_microbatches_divide_what_a_device_holds():
    config = config_lib.from_dict(with_value("train.microbatches", 3))
    with pytest.raises(ConfigError, match=r"microbatches=3 can't divide the 125 pairs of each"):
        config_lib.check_devices(config, 8, hosts=1)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("encoder.kind", "vit", "config.encoder.kind must be one of 'mlp', 'resnet10'"),
        ("encoder.output", "sphere", "'encoder.output' is not used by encoder.kind='resnet10'"),
        ("encoder.rotation", True, "'encoder.rotation' is not used by encoder.kind='resnet10'"),
        ("encoder.projector", (0,), "config.encoder.projector[0] must be at least 1, got 0"),
        ("encoder.width", 0.0, "config.encoder.width must be above 0, got 0.0"),
        ("objective.kind", "supervised", "regresses the latents of a process"),
        ("compare", ("aninfonce", "supervised"), "regresses the latents of a process"),
        ("source.folder", "", "say where folder is with --config.source.folder=DIR"),
        ("source.image_size", 4, "config.source.image_size must be at least 8, got 4"),
        ("source.augment", "rand", "config.source.augment must be one of 'simclr'"),
        ("source.max_bad_share", 1.5, "config.source.max_bad_share must be at most 1, got 1.5"),
        ("optimizer.kind", "muon", "use lars, sgd, adam or adamw with a ResNet"),
        ("eval.train_examples", 1, "leaves nothing to choose a penalty on"),
        ("eval.readout_strength", "half", "must be one of 'upper', 'extreme', 'drawn'"),
    ],
)
def test_bad_value_of_a_run_on_images(image_config, name, value, expected):
    with pytest.raises(ConfigError) as caught:
        image_config(**{name.replace(".", "__"): value})
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_resnet_needs_images():
    with pytest.raises(ConfigError) as caught:
        config_lib.from_dict({"encoder": {"kind": "resnet18"}, "optimizer": {"kind": "adam"}})
    assert str(caught.value) == (
        "encoder.kind='resnet18' takes images, and source.kind='process' gives none; use "
        "encoder.kind='mlp', or source.kind='images'"
    )


def test_where_images_are_does_not_change_a_run(image_config, tmp_path):
    here, there = image_config(), image_config(source__folder=str(tmp_path), source__workers=2)
    assert config_lib.fingerprint(here) == config_lib.fingerprint(there)
    assert config_lib.difference(*map(config_lib.to_dict, (here, there))) == {}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("train.steps", 2**31, "must be at most 2147483647 (devices count in 32 bits), got 2147"),
        ("train.steps", 10**400, "must be at most 2147483647 (devices count in 32 bits), got 1000"),
        pytest.param(
            "train.steps", 10**5000, "a value of type int that can't be printed", id="5001 digits"
        ),
        ("seed", 2**64, "config.seed must be at most 4294967295 (a seed has 32 bits)"),
        (
            "source.radius",
            1e308,
            "config.source.radius must be at most 1000000000.0 (its fourth power",
        ),
        ("source.radius", 10**400, "config.source.radius must be a finite number, got 1000"),
        ("objective.concentration_start", 1e308, "must be at most 1000000000.0"),
        ("objective.concentration_start", 1e-300, "concentration_start=1e-300 is 0 in float32"),
        ("optimizer.learning_rate", 1e39, "must be at most 1e+38 (float32 ends there)"),
        ("optimizer.b2", 0.99999999999, "config.optimizer.b2 must be below 1, got 0.99999999999"),
        ("encoder.widths", (8,) * 101, "must have at most 100 items, got 101"),
        ("name", "x" * 5000, "config.name must have at most 4096 characters, got 5000"),
        ("name", "a\nb", "must be text without control characters, got 'a\\nb'"),
        ("log.wandb_project", "a\0b", "without control characters, got 'a\\x00b'"),
        ("source.space", ["sphere"], "must be one of 'sphere', 'box', 'real'; got ['sphere']"),
    ],
)
def test_a_value_beyond_its_range_gets_one_short_line(name, value, expected):
    text = message(with_value(name, value))
    assert expected in text
    assert len(text) < 300


def test_ends_of_a_box_must_differ_in_float32():
    ends = {"box_low": 1e8, "box_high": 1e8 + 1}
    values = with_value("source", {"space": "box", "conditional": "normal", **ends})
    assert "must be below source.box_high=100000001.0, also in float32" in message(values)


def test_numbers_of_numpy_become_plain_ones():
    values = with_value("train.steps", np.int64(700))
    values["source"]["radius"] = np.float32(0.5)
    config = config_lib.from_dict(values)
    assert type(config.train.steps) is int
    assert type(config.source.radius) is float
    assert config_lib.fingerprint(config)


def test_only_the_whole_of_a_file_and_its_overrides_is_checked():
    values = config_lib.default_config(source="images", encoder="resnet10", optimizer="adam")
    assert "source.folder is empty" in message(values)
    config, notes = resolve_one(values, {"source.folder": "images"})
    assert config.source.folder == "images"
    assert notes == ()


def test_an_override_inside_of_what_is_no_section():
    for values, name in (({"train": 3}, "train.steps"), ({"source": {"mixing": ()}}, MIXING)):
        with pytest.raises(ConfigError, match=r"^config\.[a-z.]+ must be a section with keys, got"):
            config_lib.resolve(values, {name: 2})


def test_a_warm_up_is_shortened_to_fit_a_short_trial():
    overrides = {"train.steps": 20, "optimizer.warmup_steps": 20}
    config, notes = resolve_one(config_lib.default_config(), overrides)
    assert config.optimizer.warmup_steps == 2
    assert notes == ("optimizer.warmup_steps is shortened from 20 to 2, a tenth of train.steps=20",)
    # What is written down is what is used, and the same flags lead there again.
    again = config_lib.from_dict(config_lib.to_dict(config))
    assert config_lib.for_evaluation(again, overrides) == config == again
    short, notes = resolve_one(config_lib.default_config(), {"train.steps": 1})
    assert short.optimizer.warmup_steps == 0
    long, notes = resolve_one(config_lib.default_config(), {"train.steps": 101})
    assert (long.optimizer.warmup_steps, notes) == (100, ())


def test_a_comparison_gives_one_run_per_objective():
    values = with_value("compare", ("aninfonce", "infonce"))
    runs = config_lib.runs_of(values)
    assert list(runs) == ["aninfonce", "infonce"]
    assert [run.objective.kind for run in runs.values()] == ["aninfonce", "infonce"]
    for run in runs.values():
        assert config_lib.runs_of(config_lib.to_dict(run)) == {run.objective.kind: run}
    assert list(config_lib.runs_of({})) == ["aninfonce"]
    with pytest.raises(ConfigError, match="single run, got a comparison of aninfonce, infonce"):
        config_lib.from_dict(values)


def test_difference_ignores_what_does_not_change_the_result():
    config = Config()
    logged = dataclasses.replace(config, log=dataclasses.replace(config.log, every=7))
    seeded = dataclasses.replace(config, seed=3)
    plain, plain_logged, plain_seeded = map(config_lib.to_dict, (config, logged, seeded))
    assert config_lib.difference(plain, plain_logged) == {}
    assert config_lib.fingerprint(config) == config_lib.fingerprint(logged)
    assert config_lib.difference(plain, plain_seeded) == {"seed": (0, 3)}
    assert config_lib.fingerprint(config) != config_lib.fingerprint(seeded)


def test_a_field_that_one_kind_lacks_differs():
    lp, other = ({"objective": {"kind": kind}} for kind in ("lp", "supervised"))
    lp, other = (config_lib.to_dict(config_lib.from_dict(values)) for values in (lp, other))
    found = config_lib.difference(lp, other)
    assert found["objective.kind"] == ("lp", "supervised")
    assert found["objective.exponent"] == (2.0, None)


def test_every_field_has_a_meaning():
    leaves = config_lib.leaves()
    assert set(config_lib.flatten(Config())) | {"compare"} <= set(leaves)
    assert len(leaves) > 80
    assert all(leaf.help and leaf.type for leaf in leaves.values())


def test_a_trained_run_can_be_evaluated_in_another_way_but_not_changed(image_config):
    config = Config()
    same = {"train.steps": config.train.steps, "seed": config.seed}
    changed = config_lib.for_evaluation(config, same | {"eval.samples": 96, "train.devices": 1})
    assert (changed.eval.samples, changed.train.devices) == (96, 1)
    assert changed.train.steps == config.train.steps
    with pytest.raises(ConfigError, match=r"^train.steps can't be changed for a run that is"):
        config_lib.for_evaluation(config, {"train.steps": 9000, "eval.samples": 96})
    changed = config_lib.for_evaluation(image_config(), {"source.folder": "elsewhere"})
    assert changed.source.folder == "elsewhere"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"objective.kind": "infonce"}, "objective.kind"),
        ({"compare": ("infonce",)}, "objective.kind"),
        ({"compare": ("infonce", "aninfonce")}, "objective.kind"),
        ({"compare": ("aninfonce", "infonce")}, "compare"),
        ({"optimizer.kind": "lars"}, "optimizer.kind, optimizer.momentum"),
        ({"source.kind": "images", "source.folder": "x", "encoder.dim": 3}, "source.dim"),
    ],
)
def test_a_trained_run_keeps_its_kinds(overrides, expected):
    with pytest.raises(ConfigError) as caught:
        config_lib.for_evaluation(Config(), overrides)
    assert expected in str(caught.value)
    assert "can't be changed for a run that is trained" in str(caught.value)
