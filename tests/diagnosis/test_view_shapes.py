"""How the views of one example are spread: known shapes are told, and the theorem's own holds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import aninfonce_jax as an
from aninfonce_jax.diagnosis.view_shapes import view_shapes

EXAMPLES, VIEWS = 24, 400


def draw(seed=0, dim=3):
    return np.random.default_rng(seed).normal(size=(EXAMPLES, VIEWS, dim))


def test_known_shapes_are_told():
    views = draw(dim=4)
    views[..., 1] = np.exp(views[..., 1])  # leans to one side
    views[..., 2] += np.where(np.arange(VIEWS) % 2, 3.0, -3.0)  # two heaps
    views[..., 3] *= np.linspace(0.5, 4.5, EXAMPLES)[:, None]  # wider for some than for others
    shapes = view_shapes(views)
    assert (shapes.skewness[:, 1] > 1).all()
    assert (shapes.kurtosis[:, 1] > 1).all()
    assert (shapes.normal[:, 1:3] < 1e-6).all()
    assert (shapes.one_mode[:, 2] < 1e-6).all()
    assert (shapes.one_mode[:, (0, 1, 3)] > 0.05).all()
    np.testing.assert_allclose(shapes.width_ratios[[0, 3]], [1.1, 4.1 / 0.9], rtol=0.1)


def test_normal_views_are_refuted_as_often_as_the_level_says():
    shapes = view_shapes(draw(dim=20))
    assert 0.02 < np.mean(shapes.normal < 0.05) < 0.09
    assert not np.any(shapes.one_mode < 0.05)
    np.testing.assert_allclose(shapes.widths, 1, atol=0.2)
    assert np.abs(shapes.skewness).mean() < 0.15


def test_widths_are_shares_of_what_all_views_have():
    views = draw() + 3 * np.random.default_rng(1).normal(size=(EXAMPLES, 1, 3))
    total = views.reshape(-1, 3).std(axis=0)
    np.testing.assert_allclose(view_shapes(views).widths, views.std(axis=1) / total)


def test_the_conditional_of_the_theorem_itself():
    """On a sphere of ten dimensions, with Λ = 25 and 5: what a sound run would show.

    So wide a conditional ends where the sphere does, and is not normal: that alone is no alarm.
    """
    sphere = an.Sphere(10)
    conditional = an.conditionals.Anisotropic(np.repeat([25.0, 5.0], 5))
    anchors = an.marginals.Uniform().sample(jax.random.key(0), sphere, EXAMPLES)
    drawn = conditional.sample(jax.random.key(1), sphere, jnp.repeat(anchors, VIEWS, axis=0))
    shapes = view_shapes(np.asarray(drawn, np.float64).reshape(EXAMPLES, VIEWS, 10))
    assert np.abs(shapes.skewness).mean() < 0.2
    assert -0.4 < shapes.kurtosis.mean() < -0.1
    assert 0.3 < np.mean(shapes.normal < 0.05) < 0.6
    assert np.mean(shapes.one_mode < 0.05) < 0.01
    assert np.median(shapes.width_ratios) < 1.25


@pytest.mark.filterwarnings("error")
def test_outputs_that_do_not_vary_have_no_shape():
    views = draw(dim=2)
    views[:, :, 1] = 7.0
    views[0, :, 0] = 3.0
    shapes = view_shapes(views)
    assert shapes.widths[0, 0] == shapes.skewness[0, 0] == shapes.kurtosis[3, 1] == 0
    assert shapes.normal[0, 0] == shapes.one_mode[3, 1] == 1
    assert shapes.width_ratios[1] == 1
