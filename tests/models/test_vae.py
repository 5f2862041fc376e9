"""The parts of a variational autoencoder against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from aninfonce_jax.models import vae


def test_the_divergence_is_that_of_two_normal_distributions():
    means, log_variances = jnp.array([[0.3, -1.2]]), jnp.array([[0.5, -0.7]])
    # By integration over each latent, on a grid.
    x = np.linspace(-15, 15, 200_001)
    expected = 0.0
    for mean, log_variance in zip(means[0], log_variances[0], strict=True):
        log_p = scipy.stats.norm.logpdf(x, float(mean), float(np.exp(log_variance / 2)))
        integrand = np.exp(log_p) * (log_p - scipy.stats.norm.logpdf(x))
        expected += np.trapezoid(integrand, x)
    found = vae.divergence_from_prior(means, log_variances)
    np.testing.assert_allclose(found, [expected], rtol=1e-4)


def test_the_surprise_of_black_and_white_pixels_is_that_of_coins():
    shares = np.array([[0.9, 0.2, 0.5]], np.float32)
    logits = jnp.log(shares / (1 - shares))
    found = vae.pixel_surprise(logits, jnp.array([[1.0, 0.0, 1.0]]))
    np.testing.assert_allclose(found, [-np.log(0.9) - np.log(0.8) - np.log(0.5)], rtol=1e-5)
    # Certain and wrong is bad, but finite.
    assert np.isfinite(vae.pixel_surprise(jnp.full((1, 1), 1e4), jnp.zeros((1, 1)))).all()


def test_draws_have_the_moments_of_the_posterior():
    outputs = jnp.tile(jnp.array([[1.0, -2.0, 0.0, np.log(9.0)]]), (20_000, 1))
    means, log_variances = vae.split_posterior(outputs)
    draws = vae.draw_latents(jax.random.key(0), means, log_variances)
    np.testing.assert_allclose(draws.mean(axis=0), [1.0, -2.0], atol=0.1)
    np.testing.assert_allclose(draws.std(axis=0), [1.0, 3.0], atol=0.1)


@pytest.mark.parametrize("shape", [(4, 4, 1), (3, 5, 3)])
def test_a_decoder_makes_images_of_its_shape(shape):
    module = vae.ImageDecoder((8, 6), shape)
    variables = module.init(jax.random.key(0), jnp.zeros((1, 2)))
    assert module.apply(variables, jnp.ones((7, 2))).shape == (7, *shape)
    # Three fully connected layers.
    assert [*variables["params"]] == ["Dense_0", "Dense_1", "Dense_2"]
