import dataclasses

import pytest

from aninfonce_jax.data.augment_spec import OPERATIONS, PRESETS, AugmentSpec, preset


def test_presets_do_what_their_names_say():
    assert set(PRESETS) == {
        "simclr",
        "simclr_cifar",
        "crop_and_blur",
        "crop_only",
        "jitter_only",
        "none",
    }
    assert PRESETS["simclr"].operations == ("crop", "flip", "jitter", "grey", "blur")
    assert PRESETS["simclr_cifar"].operations == ("crop", "flip", "jitter", "grey")
    assert PRESETS["crop_and_blur"].operations == ("crop", "blur")
    assert PRESETS["crop_only"].operations == ("crop",)
    assert PRESETS["jitter_only"].operations == ("jitter",)
    assert PRESETS["none"].operations == ()
    assert {name: spec.size for name, spec in PRESETS.items()} == {
        "simclr": 224,
        "simclr_cifar": 32,
        "crop_and_blur": 32,
        "crop_only": 32,
        "jitter_only": 32,
        "none": 32,
    }


def test_a_preset_can_be_changed():
    spec = preset("simclr", size=96, strength=0.5)
    assert spec == dataclasses.replace(PRESETS["simclr"], size=96, strength=0.5)
    assert spec != PRESETS["simclr"]
    # A static argument of a jitted function must be hashable.
    assert hash(spec) != hash(PRESETS["simclr"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 0}, "size must be at least 1 pixel, got 0"),
        ({"interpolation": "nearest"}, "must be 'bilinear' or 'bicubic', got 'nearest'"),
        ({"flip_probability": 1.5}, "flip_probability must be between 0 and 1, got 1.5"),
        ({"grey_probability": -0.1}, "grey_probability must be between 0 and 1, got -0.1"),
        ({"blur_probability": float("nan")}, "blur_probability must be between 0 and 1, got nan"),
        ({"threshold": 128.0}, "threshold must be between 0 and 1, got 128.0"),
        ({"strength": -1.0}, "strength must be at least 0, got -1.0"),
        ({"contrast": float("inf")}, "contrast must be at least 0, got inf"),
        ({"hue": 0.3, "strength": 2.0}, r"at most 0.5, half a turn, got 2 \* 0.3 = 0.6; lower"),
        ({"scale": (0.5, 1.5)}, r"scale must be a tuple .* high <= 1, got \(0.5, 1.5\)"),
        ({"scale": (0.5, 0.1)}, r"0 < low <= high <= 1, got \(0.5, 0.1\)"),
        ({"scale": [0.5, 1.0]}, r"scale must be a tuple .* got \[0.5, 1.0\]"),
        ({"ratio": (0.0, 1.0)}, r"ratio must be a tuple .* a finite number, got \(0.0, 1.0\)"),
        ({"sigma": (0.1, float("inf"))}, r"sigma must be a tuple .* a finite number"),
        ({"sigma": (0.1,)}, r"got \(0.1,\)"),
    ],
)
def test_impossible_settings_are_refused_in_one_line(changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        AugmentSpec(**changes)
    assert "\n" not in str(caught.value)


def test_unknown_names_are_refused_with_the_choices():
    with pytest.raises(ValueError, match="'byol'; choose simclr, simclr_cifar, crop_and_blur"):
        preset("byol")
    with pytest.raises(ValueError, match="no field 'stregth'; it has size, crop_probability"):
        preset("simclr", stregth=2.0)


def test_every_operation_has_a_probability():
    for operation in OPERATIONS:
        spec = AugmentSpec(**{f"{operation}_probability": 1.0})
        assert spec.operations == (operation,)
