"""What every kind of section becomes: its values reach the parts of an experiment."""

import jax
import pytest

from aninfonce_jax.build import build_experiment, build_optimizer, build_source
from aninfonce_jax.config import parse
from aninfonce_jax.config.schema import ConfigError

OPTIMIZERS = parse.section_types()["optimizer"]


@pytest.mark.parametrize("kind", ["muon", "adamw", "adam", "sgd", "lars"])
def test_every_optimizer_is_made_of_its_section(kind):
    section = parse.default_section(OPTIMIZERS, kind)
    params = {"encoder": {"kernel": jax.numpy.ones((2, 2))}, "objective": {}}
    optimizer = build_optimizer(section, steps=200)
    updates, _ = optimizer.update(params, jax.jit(optimizer.init)(params), params)
    assert updates["encoder"]["kernel"].shape == (2, 2)


def test_images_are_fed_one_step_at_a_time(image_config):
    experiment = build_experiment(image_config(train__steps_per_dispatch=50))
    assert experiment.dispatch_steps == 1
    assert experiment.embedding_dim == 8
    assert experiment.encoder.layers == ("backbone", "projector")


def test_a_batch_needs_as_many_images(image_config):
    config = image_config(train__batch_size=64)
    with pytest.raises(ConfigError, match=r"batch_size=64 is more than the 60 images of .*train"):
        build_experiment(config)
    # What does not train, like a preview, may have fewer.
    assert build_source(config).name.endswith("train")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"kind": "diet"}, r"objective.kind='diet': .* there are 60 .*; set examples=60"),
        (
            {"kind": "augself", "predicted": ("crop", "blur")},
            r"objective.kind='augself': AugSelf can't predict 'blur', .* of: crop, flip, grey, jit",
        ),
        ({"kind": "augself", "predicted": ()}, "needs an augmentation to predict"),
    ],
)
def test_what_an_objective_needs_of_a_data_set_is_asked_before_training(
    image_config, changes, expected
):
    config = image_config(**{f"objective__{name}": value for name, value in changes.items()})
    with pytest.raises(ConfigError, match=expected):
        build_experiment(config)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"source__strength": 90.0}, "config.source can't be augmented so: "),
        ({"source__view_size": 32, "source__image_size": 16}, ""),
    ],
)
def test_augmentations_that_can_not_be(image_config, changes, expected):
    config = image_config(**changes)
    if not expected:
        assert build_source(config).example().shape == (2, 32, 32, 3)
        return
    with pytest.raises(ConfigError, match=expected):
        build_source(config)


def test_crops_keep_at_least_the_area_that_is_named(image_config):
    usual, smaller = (
        build_source(image_config(source__augment="crop_only", source__crop_area=area))
        for area in (0.0, 0.6)
    )
    assert (usual.spec.scale, smaller.spec.scale) == ((0.2, 1.0), (0.6, 1.0))
    assert smaller.augmentation == "crop_only, strength 1, crops from 60%"
    with pytest.raises(ConfigError, match=r"source.crop_area=0.6 has no use with source.augment="):
        image_config(source__augment="jitter_only", source__crop_area=0.6)


@pytest.mark.parametrize("kind", ["process", "process_with_negatives"])
def test_test_anchors_surround_the_pole_that_is_named(small_config, kind):
    vmf = {
        "source__kind": kind,
        "source__space": "sphere",
        "source__conditional": "vmf",
        "source__concentration__layout": "constant",
        "source__marginal": "vmf",
        "source__marginal_concentration": 50.0,
    }
    if kind != "process":
        vmf["objective__kind"] = "hard_negatives"

    def first_axis(**changes):
        latents = build_source(small_config(**vmf, **changes)).known.latents
        draws = [draw(jax.random.key(0), 64)[0] for draw in (latents.draw, latents.draw_shifted)]
        return [float(points[:, 0].mean()) for points in draws]

    assert first_axis(source__test_pole="south") == pytest.approx([0.97, -0.97], abs=0.02)
    assert first_axis(source__test_pole="north") == pytest.approx([0.97, 0.97], abs=0.02)
    assert build_source(small_config(**vmf)).known.latents.draw_shifted is None


def test_a_pole_needs_anchors_around_one(small_config):
    with pytest.raises(ConfigError, match=r"test_pole='south' has no use with source\.marginal="):
        small_config(source__test_pole="south")
