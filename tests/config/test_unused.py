"""What other choices leave without a use is refused with a line, and its default is not."""

import pytest

from aninfonce_jax import config as config_lib
from aninfonce_jax.config.schema import ConfigError

IMAGES = {"source.kind": "images", "source.folder": "x", "encoder.dim": 3}
RESNET = {**IMAGES, "encoder.kind": "resnet18", "optimizer.kind": "adam"}
ENSEMBLE = {
    "source.kind": "image_ensemble",
    "source.folder": "x",
    "encoder.dim": 3,
    "objective.kind": "ensemble",
    "objective.members.0.kind": "infonce",
}
BIMODAL = {"source.conditional": "bimodal"}
# A field and its value; what leaves it without a use, and what it is then said to have none with;
# what gives it a use.
CASES = {
    "tiles of dense scores": (
        ("objective.chunk_size", 64),
        ({"objective.strategy": "dense"}, "objective.strategy='dense', only with 'auto' or"),
        {"objective.strategy": "chunked"},
    ),
    "candidates for orthogonal matrices": (
        ("source.mixing.candidates", 10),
        ({"source.mixing.init": "orthogonal"}, "source.mixing.init='orthogonal', only with"),
        {"source.mixing.init": "uniform"},
    ),
    "matrices of no layers": (
        ("source.mixing.init", "orthogonal"),
        ({"source.mixing.layers": 0}, "source.mixing.layers=0, only with 1 or more"),
        {"source.mixing.layers": 1},
    ),
    "an activation between no layers": (
        ("source.mixing.activation", "elu"),
        ({"source.mixing.layers": 1}, "source.mixing.layers=1, only with 2 or more"),
        {"source.mixing.layers": 2},
    ),
    "a rotation that is not there": (
        ("optimizer.rotation_learning_rate", 0.5),
        ({}, "encoder.rotation=False"),
        {"encoder.rotation": True},
    ),
    "a dispatch of fed steps": (
        ("train.steps_per_dispatch", 5),
        (IMAGES, "source.kind='images', whose images are fed one step at a time"),
        {},
    ),
    "norms of no layers": (
        ("encoder.projector_norm", False),
        ({**RESNET, "encoder.projector": ()}, "encoder.projector=(), which has no hidden layers"),
        RESNET,
    ),
    "a context of no augmentations": (
        ("eval.readout_context", "augmented"),
        ({**IMAGES, "source.augment": "none"}, "source.augment='none', which does nothing else"),
        IMAGES,
    ),
    "jitter of a member that has none": (
        ("source.members.0.strength", 2.0),
        ({**ENSEMBLE, "source.members.0.augment": "crop_only"}, "augment='crop_only', only with"),
        {**ENSEMBLE, "source.members.0.augment": "jitter_only"},
    ),
    "a shell off the sphere": (
        ("source.sampler", "paper"),
        (
            {**BIMODAL, "source.space": "real", "source.marginal": "normal"},
            "source.space='real'",
        ),
        BIMODAL,
    ),
    # These depend on the objective.
    "the rate of no Λ̂": (
        ("optimizer.concentration_learning_rate", 0.5),
        ({"objective.kind": "infonce"}, "objective.kind='infonce', which learns no Λ̂ or"),
        {"objective.kind": "infonce", "objective.train_temperature": True},
    ),
    "Adam, which trains nothing": (
        ("optimizer.b2", 0.99),
        (
            {"objective.kind": "infonce", "optimizer.kind": "sgd"},
            "optimizer.kind='sgd' and objective.kind='infonce': Adam trains nothing",
        ),
        {"optimizer.kind": "sgd"},
    ),
    "a held-out loss that has no meaning": (
        ("eval.held_out_batches", 3),
        ({**IMAGES, "objective.kind": "diet"}, "objective.kind='diet', which has no held-out"),
        IMAGES,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_has_no_use_is_refused_and_its_default_is_not(case):
    (name, value), (idle, reason), useful = CASES[case]
    file = config_lib.default_config()
    with pytest.raises(ConfigError) as caught:
        config_lib.resolve(file, {**idle, name: value})
    assert str(caught.value).startswith(f"{name}={value!r} has no use with ")
    assert reason in str(caught.value)
    assert config_lib.resolve(file, idle).runs
    assert config_lib.resolve(file, {**useful, name: value}).runs


RATE = {"optimizer.concentration_learning_rate": 0.5}


def test_a_comparison_may_set_what_one_of_its_objectives_uses():
    file = config_lib.default_config()
    runs = config_lib.resolve(file, {"compare": ("infonce", "aninfonce"), **RATE}).runs
    assert [run.optimizer.concentration_learning_rate for run in runs.values()] == [0.5, 0.5]
    # Each of them can be read again on its own, as its work directory has it.
    assert all(config_lib.from_dict(config_lib.to_dict(run)) == run for run in runs.values())
    with pytest.raises(ConfigError, match=r"concentration_learning_rate=0\.5 has no use"):
        config_lib.resolve(file, {"compare": ("infonce", "lp"), **RATE})


@pytest.mark.parametrize("case", [name for name in CASES if "objective.kind" in CASES[name][1][1]])
def test_a_file_may_not_set_what_its_own_objective_has_no_use_for(case):
    (name, value), (idle, _), useful = CASES[case]

    def file(settings):
        kinds = {key.removesuffix(".kind"): x for key, x in settings.items() if "kind" in key}
        config = config_lib.default_config(**kinds)
        rest = {key: x for key, x in settings.items() if "kind" not in key}
        config.update_from_flattened_dict({**rest, name: value})
        return config

    with pytest.raises(ConfigError, match="has no use with"):
        config_lib.resolve(file(idle), {})
    assert config_lib.resolve(file(useful), {}).runs
    # Some flag does not make it right; that the flags choose another objective does.
    with pytest.raises(ConfigError, match="has no use with"):
        config_lib.resolve(file(idle), {"train.steps": 9})
    assert config_lib.resolve(file(idle), {"objective.kind": "aninfonce"}).runs


def test_a_run_of_a_comparison_can_be_evaluated_with_what_the_others_use():
    file = config_lib.default_config(objective="infonce", optimizer="adam")
    file.compare = ("infonce", "aninfonce")
    file.optimizer.concentration_learning_rate = 0.5
    for run in config_lib.resolve(file, {}).runs.values():
        again = config_lib.from_dict(config_lib.to_dict(run))
        assert config_lib.for_evaluation(again, {"eval.samples": 96}).eval.samples == 96


def test_a_file_may_serve_several_objectives():
    file = config_lib.default_config()
    file.optimizer.concentration_learning_rate = 0.5
    assert config_lib.resolve(file, {"objective.kind": "infonce"}).runs
    with pytest.raises(ConfigError, match=r"concentration_learning_rate=0\.5 has no use"):
        config_lib.resolve(file, {"objective.kind": "infonce", **RATE})


@pytest.mark.parametrize(
    "objective",
    [
        {"objective.kind": "tricl"},
        {"objective.kind": "hard_negatives", "source.kind": "process_with_negatives"},
        {**IMAGES, "objective.kind": "diet", "optimizer.kind": "muon"},
        {**IMAGES, "objective.kind": "elbo", "encoder.dim": 4, "encoder.output": "none"},
    ],
    ids=lambda own: own["objective.kind"],
)
def test_whatever_has_that_rate_may_have_it_set(objective):
    assert config_lib.resolve(config_lib.default_config(), {**objective, **RATE}).runs
