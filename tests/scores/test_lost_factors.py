"""Encoders that lost a factor, and some that did not; nothing is told of the truth."""

import numpy as np
import pytest

import aninfonce_jax as an

SAMPLES = 4096


def on_sphere(dim, seed=0):
    z = np.random.default_rng(seed).normal(size=(SAMPLES, dim))
    return z / np.linalg.norm(z, axis=1, keepdims=True)


def turned(x, seed=1):
    return x @ np.linalg.qr(np.random.default_rng(seed).normal(size=(x.shape[1],) * 2))[0]


def with_last(z, values):
    """An encoder with something else in place of the last factor, at a factor's size."""
    return np.column_stack([z[:, :-1], values / (values.std() * np.sqrt(z.shape[1]))])


def found(*arguments, **settings):
    return {t.name for t in an.lost_factor_traces(*arguments, **settings) if t.found}


@pytest.mark.parametrize("dim", [2, 3, 10, 20, 64])
@pytest.mark.parametrize("seed", [0, 1])
def test_an_encoder_that_found_every_factor_leaves_no_trace(dim, seed):
    z = on_sphere(dim, seed)
    noise = np.random.default_rng(seed + 10).normal(size=z.shape) / np.sqrt(dim)
    for embeddings in (turned(z), 3 * z + 0.5 * noise):
        assert found(embeddings) == set()


@pytest.mark.parametrize("turn", [lambda x: x, turned])
@pytest.mark.parametrize("dim", [5, 10])
@pytest.mark.parametrize(
    ("take", "traces"),
    [
        (lambda z: np.abs(z[:, -1]), {"one-sided", "told"}),
        (lambda z: np.abs(z[:, -1] - 0.1), {"one-sided", "told"}),  # away from the equator
        (lambda z: z[:, 0] ** 2 - np.mean(z[:, 0] ** 2), {"told"}),
        (lambda z: z[:, 0] * z[:, 1], {"told"}),
        (lambda z: z[:, 0] * z[:, 1] * z[:, 2], {"told"}),
        (lambda z: z[:, 0] + 0.1 * z[:, 1], {"empty"}),  # two outputs carry the same
    ],
)
def test_a_lost_factor_leaves_its_trace_wherever_it_is(dim, turn, take, traces):
    z = on_sphere(dim)
    assert found(turn(with_last(z, take(z)))) >= traces


def test_an_output_that_is_empty_and_outputs_that_are_the_same_are_told_apart():
    z = on_sphere(6)
    traces = an.lost_factor_traces(z * [1, 1, 1, 1, 1, 0.02])
    empty = next(trace for trace in traces if trace.name == "empty")
    assert empty.found
    assert "carry the same" not in empty.words
    doubled = an.lost_factor_traces(with_last(z, z[:, 1]))
    assert [t.words for t in doubled if "outputs 2 and 6 carry the same" in t.words]
    constant = an.lost_factor_traces(np.column_stack([z, np.zeros(SAMPLES)]))
    assert "empty" in {t.name for t in constant if t.found}


def test_embeddings_in_few_places_are_bunched():
    places = on_sphere(6)[:12]
    assert "bunched" in found(np.repeat(places, 100, axis=0))


def test_outputs_off_the_sphere_have_scales_of_their_own():
    z = np.random.default_rng(0).uniform(size=(SAMPLES, 5)) * [1, 100, 0.01, 1, 1]
    assert found(z, on_sphere=False) == set()
    z[:, 4] = (z[:, 0] - 0.5) ** 2
    assert found(z, on_sphere=False) == {"told"}


def test_what_leaves_no_trace_in_embeddings_is_seen_by_the_observations():
    z = on_sphere(5)
    wild = with_last(z, np.sin(60 * z[:, 0]) * np.sign(z[:, 1]))
    seen = turned(np.where(turned(z) > 0, 1, 0.5) * turned(z), seed=2)
    assert found(wild) == set()
    assert found(wild, seen) == {"unread"}
    assert found(z, seen) == set()


def test_too_few_samples_leave_out_what_they_can_not_tell():
    names = [t.name for t in an.lost_factor_traces(on_sphere(10)[:100], on_sphere(10)[:100])]
    assert names == ["one-sided", "empty", "bunched"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((np.ones(5),), r"two samples or more, got shape \(5,\)"),
        ((np.ones((5, 1)),), r"two dimensions or more, got \(5, 1\)"),
        ((np.full((5, 2), np.nan),), "10 values that are not finite"),
        ((np.zeros((5, 2)),), "must not be zero"),
        ((np.ones((5, 2)), np.ones((4, 2))), r"the 5 rows of the embeddings, got \(4, 2\)"),
        ((np.ones((5, 2)), np.full((5, 2), np.inf)), "observations must be finite"),
    ],
)
def test_bad_input_is_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        an.lost_factor_traces(*arguments)
