import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aninfonce_jax.data.augment import PRESETS, AugmentSpec, apply, neutral_params
from aninfonce_jax.data.interventions import (
    READOUTS,
    has_strength,
    intervene,
    intervention_params,
    occurs,
)

BATCH, HEIGHT, WIDTH, SIZE = 12, 10, 12, 8
# Of parameters without images.
SAMPLES = 256
SPEC = AugmentSpec(
    size=SIZE,
    crop_probability=0.8,
    scale=(0.3, 0.9),
    flip_probability=0.5,
    jitter_probability=0.5,
    strength=0.5,
    brightness=0.8,
    contrast=0.6,
    saturation=0.4,
    hue=0.2,
    grey_probability=0.3,
    blur_probability=0.5,
    sigma=(0.2, 1.5),
)
# Which field of the parameters a readout is about, and the ends of its range in SPEC.
FIELDS = {"grey": "greyed", "crop": "box", "blur": "sigma"}
ENDS = {
    "brightness": (0.6, 1.4),
    "contrast": (0.7, 1.3),
    "saturation": (0.8, 1.2),
    "hue": (-0.1, 0.1),
    "crop": (0.3, 0.9),
    "blur": (0.2, 1.5),
}
CHOICES = list(itertools.product(READOUTS, ["upper", "extreme", "drawn"], ["clean", "augmented"]))
KEY = jax.random.key(0)
jit_apply = jax.jit(apply, static_argnames="spec")
STATIC = ("spec", "readout", "strength", "context")
jit_intervene = jax.jit(intervene, static_argnames=STATIC)


@pytest.fixture(scope="module")
def images():
    # Not too colourful nor dark, so that no operation is undone by clipping.
    rng = np.random.default_rng(0)
    return rng.integers(60, 180, (BATCH, HEIGHT, WIDTH, 3), dtype=np.uint8)


def params_of(readout, strength="drawn", context="augmented", spec=SPEC, key=KEY):
    return intervention_params(
        key,
        spec,
        readout,
        jnp.arange(SAMPLES),
        height=HEIGHT,
        width=WIDTH,
        strength=strength,
        context=context,
    )


def strengths_of(readout, strength, spec=SPEC):
    _, applied = params_of(readout, strength, spec=spec)
    if readout == "crop":
        left, top, right, bottom = np.asarray(applied.box).T
        return (right - left) * (bottom - top)
    return np.asarray(getattr(applied, FIELDS.get(readout, readout)))


# --- Parameters ---


@pytest.mark.parametrize(("readout", "strength", "context"), CHOICES)
def test_one_field_differs_in_every_sample(readout, strength, context):
    without, applied = params_of(readout, strength, context)
    differing = {
        field.name
        for field in dataclasses.fields(without)
        if np.any(getattr(without, field.name) != getattr(applied, field.name))
    }
    name = FIELDS.get(readout, readout)
    assert differing == {name}
    # It takes effect, whether or not the context would have done the operation.
    for params in (without, applied):
        kept = getattr(params.neutralised(), name)
        np.testing.assert_array_equal(kept, getattr(params, name))
    unlike = np.asarray(getattr(without, name) != getattr(applied, name)).reshape(SAMPLES, -1)
    assert unlike.any(axis=1).all()
    neutral = getattr(neutral_params(SAMPLES), name)
    np.testing.assert_array_equal(getattr(without, name), neutral)


@pytest.mark.parametrize("readout", ENDS)
def test_drawn_strengths_fill_the_range_of_training(readout):
    low, high = ENDS[readout]
    got = strengths_of(readout, "drawn")
    assert np.all((got > low - 1e-5) & (got < high + 1e-5))
    assert np.ptp(got) > 0.9 * (high - low)


@pytest.mark.parametrize("readout", ENDS)
def test_extreme_strengths_are_at_the_ends(readout):
    low, high = ENDS[readout]
    got = strengths_of(readout, "extreme")
    if readout in FIELDS:
        np.testing.assert_allclose(got, low if readout == "crop" else high, rtol=1e-5)
    else:
        near_low = np.isclose(got, low)
        np.testing.assert_allclose(got[~near_low], high, rtol=1e-6)
        assert 0.4 < near_low.mean() < 0.6


def test_the_lower_end_of_a_factor_is_not_negative():
    spec = dataclasses.replace(SPEC, strength=2.0)
    assert set(strengths_of("brightness", "extreme", spec).tolist()) == {0.0, np.float32(2.6)}


def test_upper_strengths_go_one_way():
    assert set(strengths_of("brightness", "upper").tolist()) == {np.float32(1.4)}
    assert set(strengths_of("hue", "upper").tolist()) == {np.float32(0.1)}
    for readout in ("crop", "blur"):
        np.testing.assert_array_equal(
            strengths_of(readout, "upper"), strengths_of(readout, "extreme")
        )


def test_extreme_crops_differ_in_place_and_shape():
    _, applied = params_of("crop", "extreme")
    left, top, right, bottom = np.asarray(applied.box).T
    assert np.std(left) > 0.1
    assert np.std(top) > 0.1
    assert np.std((right - left) / (bottom - top)) > 0.1


def test_an_empty_range_gives_way_to_the_default():
    spec = AugmentSpec(size=SIZE, strength=0.0, hue=3.0, scale=(1.0, 1.0))
    assert set(strengths_of("brightness", "extreme", spec)) == set(np.float32([0.2, 1.8]))
    assert set(strengths_of("hue", "extreme", spec)) == set(np.float32([-0.2, 0.2]))
    np.testing.assert_allclose(strengths_of("crop", "extreme", spec), 0.08, rtol=1e-5)
    assert not any(occurs(spec, readout) for readout in READOUTS)


def test_what_occurs_in_training():
    assert all(occurs(SPEC, readout) for readout in READOUTS)
    cifar = {readout for readout in READOUTS if occurs(PRESETS["simclr_cifar"], readout)}
    assert cifar == set(READOUTS) - {"blur"}
    assert [r for r in READOUTS if occurs(PRESETS["crop_only"], r)] == ["crop"]
    assert not occurs(dataclasses.replace(SPEC, hue=0.0), "hue")


def test_the_context_is_clean_or_as_in_training():
    clean, _ = params_of("grey", context="clean")
    for field in dataclasses.fields(clean):
        value = getattr(neutral_params(SAMPLES), field.name)
        np.testing.assert_array_equal(getattr(clean, field.name), value)
    augmented, _ = params_of("grey")
    rates = {"cropped": 0.8, "flipped": 0.5, "jittered": 0.5, "blurred": 0.5}
    for name, rate in rates.items():
        assert np.mean(getattr(augmented, name)) == pytest.approx(rate, abs=0.1)


def test_readouts_share_a_context_in_which_grey_hides_no_colour():
    brightness, _ = params_of("brightness")
    hue, _ = params_of("hue")
    np.testing.assert_array_equal(brightness.box, hue.box)
    np.testing.assert_array_equal(brightness.contrast, hue.contrast)
    assert np.mean(brightness.greyed) == pytest.approx(0.3, abs=0.1)
    for readout in ("hue", "saturation"):
        assert not np.any(params_of(readout)[1].greyed)


def test_the_key_decides():
    for again, same in ((KEY, True), (jax.random.key(1), False)):
        trees = [params_of("hue", key=key) for key in (KEY, again)]
        equal = jax.tree.map(lambda a, b: bool(jnp.all(a == b)), *trees)
        assert all(jax.tree.leaves(equal)) == same


# --- Views ---


@pytest.mark.parametrize(("readout", "strength", "context"), CHOICES)
def test_every_choice_may_be_traced(images, readout, strength, context):
    # Compiling all of them would take a minute; how a view is made does not depend on strength.
    traced = jit_intervene.trace(KEY, images, SPEC, readout, strength=strength, context=context)
    for views in (traced.out_info.without, traced.out_info.applied):
        assert views.shape == (BATCH, SIZE, SIZE, 3)
        assert views.dtype == jnp.float32
    assert traced.out_info.strengths.shape == (BATCH,)


@pytest.mark.parametrize("readout", READOUTS)
def test_views_in_a_clean_context(images, readout):
    pair = jit_intervene(KEY, images, SPEC, readout, strength="extreme", context="clean")
    plain = apply(images, neutral_params(BATCH), SPEC, operations=())
    np.testing.assert_allclose(pair.without, plain, atol=1e-6)
    changes = np.abs(pair.without - pair.applied).max(axis=(1, 2, 3))
    assert np.all(changes > 0.01)
    assert has_strength(readout) == bool(np.any(pair.strengths != 0))


@pytest.mark.parametrize(("readout", "strength"), [("grey", "drawn"), ("blur", "extreme")])
def test_views_in_an_augmented_context(images, readout, strength):
    pair = jit_intervene(KEY, images, SPEC, readout, strength=strength, context="augmented")
    for params, views in zip(params_of(readout, strength), pair[:2], strict=True):
        own = jax.tree.map(lambda value: value[:BATCH], params)
        expected = jit_apply(images, own, SPEC)
        np.testing.assert_allclose(views, expected, atol=1e-5)
        assert np.all((views >= 0) & (views <= 1))
    assert np.all(np.abs(pair.without - pair.applied).max(axis=(1, 2, 3)) > 1e-3)


def test_strengths_are_those_of_the_applied_views(images):
    pair = jit_intervene(KEY, images, SPEC, "brightness", strength="extreme", context="clean")
    ratio = np.mean(pair.applied, axis=(1, 2, 3)) / np.mean(pair.without, axis=(1, 2, 3))
    np.testing.assert_allclose(ratio, pair.strengths, rtol=1e-3)


def test_an_image_is_drawn_for_by_its_number(images):
    def views(part, indices):
        return jit_intervene(
            KEY, part, SPEC, "grey", strength="drawn", context="augmented", indices=indices
        )

    forwards, backwards = jnp.arange(BATCH), jnp.arange(BATCH)[::-1]
    whole, turned = views(images, forwards), views(images[::-1], backwards)
    np.testing.assert_allclose(turned.applied[::-1], whole.applied, atol=1e-6)


# --- Bad input ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"readout": "flip"}, "readout must be one of 'grey', .*'blur', got 'flip'"),
        ({"strength": "weak"}, "strength must be one of 'upper', 'extreme', 'drawn', got 'weak'"),
        ({"context": "dirty"}, "context must be one of 'clean', 'augmented', got 'dirty'"),
        ({"indices": jnp.arange(3)}, r"one entry per image, \(12,\), got \(3,\)"),
        ({"images": jnp.zeros((4, 4, 3))}, r"\[batch, height, width, 3\], got \(4, 4, 3\)"),
    ],
)
def test_bad_input_is_refused(images, changes, message):
    given = {"images": images, "readout": "hue", "strength": "drawn", "context": "clean"}
    with pytest.raises(ValueError, match=message):
        intervene(KEY, spec=SPEC, **(given | changes))


@pytest.mark.parametrize("function", [has_strength, lambda readout: occurs(SPEC, readout)])
def test_unknown_readouts_are_refused(function):
    with pytest.raises(ValueError, match=r"readout must be one of .* got 'solarise'"):
        function("solarise")
