"""Images that a decoder makes of known latents, with real ones beside them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aninfonce_jax.build import build_source
from aninfonce_jax.data.augment_spec import AugmentSpec
from aninfonce_jax.dgp.spaces import Real, Sphere
from aninfonce_jax.sources.decoded import DecoderMixing, decoding_scale

KEY = jax.random.key(0)


@pytest.fixture
def decoded(decoded_config):
    return build_source(decoded_config())


@pytest.fixture
def views(decoded_config):
    return build_source(decoded_config(source__kind="decoded_views"))


def test_pairs_are_their_latents_decoded(decoded):
    pairs = draw_pairs(decoded, 5)
    assert pairs.view1.shape == pairs.view2.shape == (5, 8, 8, 1)
    mixing = decoded.process.mixing
    images = mixing.decode(mixing.params, pairs.latents2)
    np.testing.assert_allclose(pairs.view2, images, rtol=1e-6)
    assert float(jnp.abs(pairs.view1 - pairs.view2).max()) > 0


def test_it_knows_the_latents_and_of_real_images_classes_and_interventions(decoded, views):
    for source in (decoded, views):
        known = source.known
        assert known.examples.classes == 10
        assert (len(known.examples.train), len(known.examples.test)) == (60, 30)
        # Of what can be done to grey images.
        assert known.interventions.names == ("brightness", "contrast", "crop", "blur")
        latents, images = known.latents.draw(KEY, 4)
        assert (latents.shape, images.shape) == ((4, 3), (4, 8, 8, 1))
        assert source.example().shape == (2, 8, 8, 1)
        assert source.fed(16) is None
        assert source.row_form.shape == (8, 8, 1)
    np.testing.assert_array_equal(decoded.known.latents.concentration, [25.0, 25.0, 5.0])
    # Nobody knows the Λ of augmentations.
    assert views.known.latents.concentration is None


def draw_pairs(source, count):
    return jax.jit(source.pairs, static_argnums=(1, 2))(KEY, None, count)


def test_augmented_pairs_are_views_of_one_decoded_image(views):
    pairs = draw_pairs(views, 6)
    np.testing.assert_array_equal(pairs.latents1, pairs.latents2)
    assert pairs.view1.shape == (6, 8, 8, 1)
    assert float(jnp.abs(pairs.view1 - pairs.view2).max()) > 0
    plain = dataclasses.replace(views.images, spec=AugmentSpec(size=8))
    unchanged = draw_pairs(dataclasses.replace(views, images=plain), 6)
    np.testing.assert_array_equal(unchanged.view1, unchanged.view2)
    images = views.draw(jax.random.split(KEY)[0], 6)[1]
    np.testing.assert_allclose(unchanged.view1, images, atol=1e-6)


def test_samples_and_a_preview_show_both_views(decoded):
    samples = decoded.samples(KEY, 3)
    assert samples.shape == (3, 2, 8, 8, 1)
    np.testing.assert_allclose(samples[:, 0], draw_pairs(decoded, 3).view1, rtol=1e-5)
    sheet = decoded.preview(KEY, 3)
    assert [*sheet.columns] == ["anchor", "positive"]
    assert sheet.columns["anchor"][0].shape == (3, 8, 8, 3)
    assert decoded.fingerprint() == decoded.fingerprint()


def test_latents_are_brought_to_where_those_of_the_prior_lie():
    # A draw of N(0, 1) in each of 4 directions has a length of about 2.
    assert decoding_scale(Sphere(4)) == 2.0
    assert decoding_scale(Sphere(4, radius=2.0)) == 1.0
    assert decoding_scale(Real(7)) == 1.0
    mixing = DecoderMixing({"shift": jnp.ones(())}, 2.0, lambda params, z: z + params["shift"])
    np.testing.assert_array_equal(mixing(jnp.ones((1, 2))), [[3.0, 3.0]])
