import dataclasses

import numpy as np
import pytest

from aninfonce_jax import config as config_lib
from aninfonce_jax.config_schema import Config, ConfigError


def with_value(name, value):
    """The default config with one dotted key replaced."""
    values = config_lib.to_dict(Config())
    *sections, last = name.split(".")
    section = values
    for part in sections:
        section = section[part]
    section[last] = value
    return values


def message(values):
    with pytest.raises(ConfigError) as caught:
        config_lib.from_dict(values)
    text = str(caught.value)
    assert "\n" not in text
    return text


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
        ("dgp", 3, "config.dgp must be a section with keys, got 3"),
        ("dgp.dim", 1, "a sphere needs dgp.dim of at least 2, got 1"),
        ("dgp.space", "torus", "config.dgp.space must be one of 'sphere', 'box', 'real'"),
        ("dgp.space", "box", "dgp.conditional='anisotropic' is defined on the sphere"),
        ("dgp.conditional", "vmf", "has one concentration for all factors; set dgp.concentration"),
        ("dgp.mixing.slope", 1.5, "config.dgp.mixing.slope must be at most 1, got 1.5"),
        ("dgp.radius", 0.0, "config.dgp.radius must be above 0, got 0.0"),
        ("dgp.concentration.low", 30.0, "low=30.0 must not exceed dgp.concentration.high=25.0"),
        ("dgp.concentration.high", float("nan"), "must be a finite number, got nan"),
        ("dgp.concentration.values", [1.0], "only read with dgp.concentration.layout='explicit'"),
        ("dgp.concentration.layout", "explicit", "one Λ for each of dgp.dim=10 factors, got 0"),
        ("encoder.widths", 5, "config.encoder.widths must be a tuple, got 5"),
        ("encoder.widths", (5, "x"), "config.encoder.widths[1] must be of type int, got 'x'"),
        ("encoder.widths", (5, 0), "config.encoder.widths[1] must be at least 1, got 0"),
        ("encoder.output", "box", "objective.normalize=True would undo encoder.output='box'"),
        ("optimizer.b2", 1.0, "config.optimizer.b2 must be below 1, got 1.0"),
        ("optimizer.final_fraction", 2.0, "final_fraction must be at most 1, got 2.0"),
        ("optimizer.warmup_steps", 10**9, "must be below train.steps="),
        ("eval.samples", 20, "eval.samples=20 is too few to score dgp.dim=10 factors"),
        ("compare", ("infonce", "infonce"), "config.compare names an objective twice"),
        ("compare", ("simclr",), "config.compare[0] must be one of 'aninfonce'"),
    ],
)
def test_bad_value_gets_one_clear_line(name, value, expected):
    assert expected in message(with_value(name, value))


def test_explicit_concentration():
    values = with_value(
        "dgp.concentration", {"layout": "explicit", "values": [1, 2] * 5, "low": 1.0}
    )
    assert config_lib.from_dict(values).dgp.concentration.values == (1.0, 2.0) * 5
    values["dgp"]["concentration"]["values"][3] = -2
    assert "config.dgp.concentration.values[3] must be above 0, got -2.0" in message(values)


def test_uniform_on_the_reals_is_refused():
    values = with_value("dgp.space", "real")
    values["dgp"]["conditional"] = "normal"
    assert "'uniform' does not exist on dgp.space='real'" in message(values)


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


@pytest.mark.parametrize(("key", "value"), [("objective.kind", "lp"), ("compare", ("lp",))])
def test_the_lp_loss_has_one_strategy(key, value):
    values = with_value(key, value)
    values["objective"]["strategy"] = "ring"
    assert "the Lp loss has no objective.strategy='ring'" in message(values)


def test_what_is_compared_is_checked_in_place_of_the_objective():
    values = with_value("compare", ("infonce", "aninfonce"))
    values["objective"] |= {"kind": "lp", "strategy": "ring"}
    assert list(config_lib.expand(config_lib.from_dict(values))) == ["infonce", "aninfonce"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("encoder.kind", "mlp", "needs an encoder of pictures; set encoder.kind to a ResNet"),
        ("encoder.output", "sphere", "a ResNet has no encoder.output='sphere'"),
        ("encoder.rotation", True, "no encoder.rotation"),
        ("encoder.projector", (0,), "config.encoder.projector[0] must be at least 1, got 0"),
        ("encoder.width", 0.0, "config.encoder.width must be above 0, got 0.0"),
        ("objective.kind", "supervised", "regresses the latents of a process"),
        ("compare", ("infonce", "supervised"), "regresses the latents of a process"),
        ("data.folder", "", "say where folder is with --config.data.folder=DIR"),
        ("data.image_size", 4, "config.data.image_size must be at least 8, got 4"),
        ("data.augment", "rand", "config.data.augment must be one of 'simclr'"),
        ("data.max_bad_share", 1.5, "config.data.max_bad_share must be at most 1, got 1.5"),
        ("optimizer.name", "muon", "use lars, sgd, adam or adamw with pictures"),
        ("eval.train_images", 1, "leaves nothing to choose a penalty on"),
        ("eval.readout_strength", "half", "must be one of 'upper', 'extreme', 'drawn'"),
    ],
)
def test_bad_value_of_a_run_on_pictures(image_config, name, value, expected):
    with pytest.raises(ConfigError) as caught:
        image_config(**{name.replace(".", "__"): value})
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_resnet_needs_pictures(small_config):
    with pytest.raises(ConfigError, match=r"takes pictures; name them in data.name"):
        small_config(encoder__kind="resnet18")


def test_pictures_are_fed_one_step_at_a_time(image_config):
    config = image_config()
    assert config_lib.dispatch_steps(config) == 1
    assert config.embedding_dim == 8


def test_where_pictures_are_does_not_change_a_run(image_config, tmp_path):
    here, there = image_config(), image_config(data__folder=str(tmp_path), data__workers=2)
    assert config_lib.fingerprint(here) == config_lib.fingerprint(there)
    assert config_lib.difference(here, there) == {}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("train.steps", 2**31, "must be at most 2147483647 (devices count in 32 bits), got 2147"),
        ("train.steps", 10**400, "must be at most 2147483647 (devices count in 32 bits), got 1000"),
        pytest.param(
            "train.steps", 10**5000, "a value of type int that can't be printed", id="5001 digits"
        ),
        ("seed", 2**64, "config.seed must be at most 4294967295 (a seed has 32 bits)"),
        ("dgp.radius", 1e308, "config.dgp.radius must be at most 1000000000.0 (its fourth power"),
        ("dgp.radius", 10**400, "config.dgp.radius must be a finite number, got 1000"),
        ("objective.concentration_start", 1e308, "must be at most 1000000000.0"),
        ("objective.temperature", 1e-300, "temperature=1e-300 is 0 in float32"),
        ("optimizer.learning_rate", 1e39, "must be at most 1e+38 (float32 ends there)"),
        ("optimizer.b2", 0.99999999999, "config.optimizer.b2 must be below 1, got 0.99999999999"),
        ("encoder.widths", (8,) * 101, "must have at most 100 items, got 101"),
        ("name", "x" * 5000, "config.name must have at most 4096 characters, got 5000"),
        ("name", "a\nb", "must be text without control characters, got 'a\\nb'"),
        ("data.folder", "a\0b", "must be text without control characters, got 'a\\x00b'"),
        ("dgp.space", ["sphere"], "must be one of 'sphere', 'box', 'real'; got ['sphere']"),
    ],
)
def test_a_value_beyond_its_range_gets_one_short_line(name, value, expected):
    text = message(with_value(name, value))
    assert expected in text
    assert len(text) < 300


def test_ends_of_a_box_must_differ_in_float32():
    values = with_value("dgp", {"box_low": 1e8, "box_high": 1e8 + 1})
    assert "must be below dgp.box_high=100000001.0, also in float32" in message(values)


def test_numbers_of_numpy_become_plain_ones():
    values = with_value("train.steps", np.int64(700))
    values["dgp"]["radius"] = np.float32(0.5)
    config = config_lib.from_dict(values)
    assert type(config.train.steps) is int
    assert type(config.dgp.radius) is float
    assert config_lib.fingerprint(config)


def test_only_the_whole_of_a_file_and_its_overrides_is_checked():
    values = with_value("data.name", "folder")
    values["encoder"] |= {"kind": "resnet10", "output": "none"}
    values["optimizer"]["name"] = "adam"
    assert "data.folder is empty" in message(values)
    config, notes = config_lib.resolve(values, {"data.folder": "pictures"})
    assert config.data.folder == "pictures"
    assert notes == ()


def test_a_warm_up_is_shortened_to_fit_a_short_trial():
    overrides = {"train.steps": 20, "optimizer.warmup_steps": 20}
    config, notes = config_lib.resolve(config_lib.default_config(), overrides)
    assert config.optimizer.warmup_steps == 2
    assert notes == ("optimizer.warmup_steps is shortened from 20 to 2, a tenth of train.steps=20",)
    # What is written down is what is used, and the same flags lead there again.
    again = config_lib.from_dict(config_lib.to_dict(config))
    assert config_lib.for_evaluation(again, overrides) == config == again
    short, notes = config_lib.resolve(config_lib.default_config(), {"train.steps": 1})
    assert short.optimizer.warmup_steps == 0
    long, notes = config_lib.resolve(config_lib.default_config(), {"train.steps": 101})
    assert (long.optimizer.warmup_steps, notes) == (100, ())


def test_expand_gives_one_run_per_objective():
    config = config_lib.from_dict(with_value("compare", ("aninfonce", "infonce")))
    runs = config_lib.expand(config)
    assert list(runs) == ["aninfonce", "infonce"]
    assert [run.objective.kind for run in runs.values()] == ["aninfonce", "infonce"]
    assert all(run.compare == () for run in runs.values())
    assert list(config_lib.expand(Config())) == ["aninfonce"]


def test_difference_ignores_what_does_not_change_the_result():
    config = Config()
    logged = dataclasses.replace(config, log=dataclasses.replace(config.log, every=7))
    assert config_lib.difference(config, logged) == {}
    assert config_lib.fingerprint(config) == config_lib.fingerprint(logged)
    seeded = dataclasses.replace(config, seed=3)
    assert config_lib.difference(config, seeded) == {"seed": (0, 3)}
    assert config_lib.fingerprint(config) != config_lib.fingerprint(seeded)


def test_every_field_has_a_meaning():
    fields = list(config_lib.field_help())
    assert len(fields) == len(config_lib.flatten(Config())) > 50
    assert all(meaning and kind for _, _, kind, meaning in fields)


def test_a_trained_run_can_be_evaluated_in_another_way_but_not_changed():
    config = Config()
    same = {"train.steps": config.train.steps, "seed": config.seed}
    changed = config_lib.for_evaluation(
        config, same | {"eval.samples": 96, "data.folder": "elsewhere", "train.devices": 1}
    )
    assert (changed.eval.samples, changed.data.folder) == (96, "elsewhere")
    assert changed.train.steps == config.train.steps
    with pytest.raises(ConfigError, match=r"^train.steps can't be changed for a run that is"):
        config_lib.for_evaluation(config, {"train.steps": 9000, "eval.samples": 96})
