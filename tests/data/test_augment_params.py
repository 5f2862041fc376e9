import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from aninfonce_jax.data.augment_params import neutral_params, sample_params
from aninfonce_jax.data.augment_spec import JITTER_STEPS, PRESETS, AugmentSpec

SAMPLES = 20_000
# The keys are fixed. Of tests at this level, one in a thousand would fail with others.
LEVEL = 1e-3
FLAGS = {
    "cropped": "crop",
    "flipped": "flip",
    "jittered": "jitter",
    "greyed": "grey",
    "blurred": "blur",
    "solarised": "solarise",
}
NUMBERS = {"box": "cropped", "order": "jittered", "sigma": "blurred"} | dict.fromkeys(
    JITTER_STEPS, "jittered"
)
EVERYTHING = AugmentSpec(
    crop_probability=0.7,
    flip_probability=0.5,
    jitter_probability=0.8,
    brightness=0.4,
    contrast=0.3,
    saturation=1.2,
    hue=0.1,
    strength=0.9,
    grey_probability=0.2,
    blur_probability=0.6,
    solarise_probability=0.1,
)


@functools.partial(jax.jit, static_argnames=("spec", "height", "width", "samples"))
def draw(seed, spec, height=32, width=32, samples=SAMPLES):
    indices = jnp.arange(samples)
    with jax.numpy_dtype_promotion("strict"):
        return sample_params(jax.random.key(seed), spec, indices, height=height, width=width)


@pytest.fixture(scope="module")
def drawn():
    return jax.tree.map(np.asarray, draw(0, EVERYTHING))


def assert_uniform(values, low, high):
    assert values.min() >= low - 1e-6
    assert values.max() <= high + 1e-6
    assert stats.kstest(values, stats.uniform(low, high - low).cdf).pvalue > LEVEL


def test_shapes_and_types(drawn):
    for field in dataclasses.fields(drawn):
        values = getattr(drawn, field.name)
        tail = {"box": (4,), "order": (4,)}.get(field.name, ())
        assert values.shape == (SAMPLES, *tail)
        dtype = bool if field.name in FLAGS else np.int32 if field.name == "order" else np.float32
        assert values.dtype == dtype, field.name


def test_flags_occur_as_often_as_configured(drawn):
    for flag, operation in FLAGS.items():
        count = int(getattr(drawn, flag).sum())
        share = EVERYTHING.probability(operation)
        assert stats.binomtest(count, SAMPLES, share).pvalue > LEVEL, flag


def test_certain_and_impossible_operations():
    operations = dict.fromkeys(FLAGS.values())
    for share in (0.0, 1.0):
        spec = AugmentSpec(**{f"{name}_probability": share for name in operations})
        params = draw(1, spec, samples=1000)
        for flag in FLAGS:
            assert np.all(np.asarray(getattr(params, flag)) == bool(share))


def test_what_is_not_applied_reads_as_neutral(drawn):
    neutral = neutral_params(SAMPLES)
    for name, flag in NUMBERS.items():
        off = ~getattr(drawn, flag)
        assert 0 < off.sum() < SAMPLES
        np.testing.assert_array_equal(
            getattr(drawn, name)[off], np.asarray(getattr(neutral, name))[off]
        )
    chex.assert_trees_all_equal(neutral, neutral.neutralised())


def test_factors_are_uniform_in_their_ranges(drawn):
    on = drawn.jittered
    assert_uniform(drawn.brightness[on], 1 - 0.36, 1 + 0.36)
    assert_uniform(drawn.contrast[on], 1 - 0.27, 1 + 0.27)
    # A factor is never negative.
    assert_uniform(drawn.saturation[on], 0, 1 + 1.08)
    assert_uniform(drawn.hue[on], -0.09, 0.09)
    assert_uniform(drawn.sigma[drawn.blurred], 0.1, 2)


def test_all_orders_are_equally_likely(drawn):
    orders, counts = np.unique(drawn.order[drawn.jittered], axis=0, return_counts=True)
    assert len(orders) == 24
    np.testing.assert_array_equal(np.sort(orders, axis=1), np.tile(np.arange(4), (24, 1)))
    assert stats.chisquare(counts).pvalue > LEVEL


def test_parameters_are_independent_of_each_other(drawn):
    on = drawn.jittered & drawn.cropped & drawn.blurred
    columns = [drawn.flipped, drawn.greyed, drawn.solarised, drawn.brightness, drawn.contrast]
    columns += [drawn.saturation, drawn.hue, drawn.sigma, drawn.order[:, 0], drawn.order[:, 1]]
    width, height = drawn.box[:, 2] - drawn.box[:, 0], drawn.box[:, 3] - drawn.box[:, 1]
    columns += [width * height, width / height]
    correlation = np.corrcoef(np.stack([column[on] for column in columns]).astype(float))
    # The first two entries of a permutation do depend on each other.
    correlation[8, 9] = correlation[9, 8] = 0
    np.fill_diagonal(correlation, 0)
    pairs = len(columns) * (len(columns) - 1) / 2
    bound = stats.norm.isf(LEVEL / (2 * pairs)) / np.sqrt(on.sum())
    assert np.abs(correlation).max() < bound
    neighbours = np.corrcoef(drawn.brightness[:-1], drawn.brightness[1:])[0, 1]
    assert abs(neighbours) < stats.norm.isf(LEVEL / 2) / np.sqrt(SAMPLES)


def test_crops_that_always_fit_are_uniform_in_area_ratio_and_place():
    # Half of the area, at most 4:3: less than the image in either direction.
    spec = AugmentSpec(crop_probability=1.0, scale=(0.1, 0.5))
    left, top, right, bottom = np.asarray(draw(2, spec).box, np.float64).T
    width, height = right - left, bottom - top
    assert_uniform(width * height, 0.1, 0.5)
    assert_uniform(np.log(width / height), np.log(3 / 4), np.log(4 / 3))
    assert_uniform(left / (1 - width), 0, 1)
    assert_uniform(top / (1 - height), 0, 1)


@pytest.mark.parametrize("shape", [(32, 32), (30, 50)], ids=str)
def test_crops_that_may_not_fit_are_drawn_again(shape):
    height, width = shape
    spec = dataclasses.replace(PRESETS["simclr"], scale=(0.2, 1.0))
    rng = np.random.default_rng(0)
    areas = rng.uniform(*spec.scale, (SAMPLES, 30)) * height * width
    ratios = np.exp(rng.uniform(*np.log(spec.ratio), areas.shape))
    widths, heights = np.sqrt(areas * ratios), np.sqrt(areas / ratios)
    fits = (widths <= width) & (heights <= height)
    assert 0.2 < fits.mean() < 0.95
    first = np.arange(SAMPLES), np.argmax(fits, axis=1)

    box = np.asarray(draw(3, spec, height, width).box)
    assert np.all((box >= 0) & (box <= 1 + 1e-6))
    drawn_widths, drawn_heights = width * (box[:, 2] - box[:, 0]), height * (box[:, 3] - box[:, 1])
    # Ten attempts leave a trace of crops that never fitted: fewer than these tests could see.
    assert stats.ks_2samp(drawn_widths, widths[first]).pvalue > LEVEL
    assert stats.ks_2samp(drawn_heights, heights[first]).pvalue > LEVEL
    assert np.all(drawn_widths / drawn_heights > 3 / 4 - 1e-4)
    assert np.all(drawn_widths / drawn_heights < 4 / 3 + 1e-4)


@pytest.mark.parametrize(
    ("ratio", "box"),
    [
        ((2.0, 3.0), (0, 0.25, 1, 0.75)),
        ((0.2, 0.25), (0.375, 0, 0.625, 1)),
        # Here every attempt fits, up to rounding, and is the whole image.
        ((1.0, 1.0), (0, 0, 1, 1)),
    ],
    ids=str,
)
def test_a_crop_that_never_fits_is_the_largest_allowed_one(ratio, box):
    spec = AugmentSpec(crop_probability=1.0, scale=(1.0, 1.0), ratio=ratio)
    params = draw(4, spec, samples=100)
    np.testing.assert_allclose(params.box, np.tile(np.float32(box), (100, 1)), atol=1e-6)


def test_a_sample_depends_on_its_own_index_only():
    full = draw(5, EVERYTHING, samples=64)
    indices = jnp.array([40, 3, 63])
    some = jax.jit(
        lambda own: sample_params(jax.random.key(5), EVERYTHING, own, height=32, width=32)
    )(indices)
    chex.assert_trees_all_equal(some, jax.tree.map(lambda x: x[indices], full))
    assert np.unique(np.asarray(full.box), axis=0).shape[0] > 30


def test_parameters_by_operation_are_numbers_from_zero_to_one_or_flags(drawn):
    found = drawn.by_operation(EVERYTHING)
    assert list(found) == ["crop", "flip", "jitter", "grey", "blur", "solarise"]
    for name, values in found.items():
        assert values.shape == (SAMPLES, 4 if name in ("crop", "jitter") else 1)
        assert (values.min(), values.max()) >= (0, 0)
        assert values.max() <= 1
    left, top, right, bottom = drawn.box.T
    centres = (left + right) / 2, (top + bottom) / 2
    np.testing.assert_allclose(found["crop"].T, [*centres, right - left, bottom - top], rtol=1e-6)
    # Brightness is within 1 ± 0.36 and hue within ± 0.09; saturation's range ends at 0.
    expected = {0: (drawn.brightness - 0.64) / 0.72, 2: drawn.saturation / 2.08}
    expected[3] = (drawn.hue + 0.09) / 0.18
    for place, values in expected.items():
        np.testing.assert_allclose(found["jitter"][:, place], values, rtol=1e-4, atol=1e-6)
    for name, flag in (("flip", "flipped"), ("grey", "greyed"), ("solarise", "solarised")):
        np.testing.assert_array_equal(found[name][:, 0], getattr(drawn, flag))
        assert found[name].dtype == bool
    np.testing.assert_allclose(found["blur"][:, 0], drawn.sigma / 2.0, rtol=1e-6)


def test_operations_that_can_not_occur_have_no_parameters():
    spec = AugmentSpec(jitter_probability=1.0, hue=0.0)
    found = draw(0, spec, samples=4).by_operation(spec)
    assert list(found) == ["jitter"]
    np.testing.assert_array_equal(found["jitter"][:, 3], 0)
