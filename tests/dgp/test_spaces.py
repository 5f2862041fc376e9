import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aninfonce_jax.dgp.spaces import Box, Product, Real, Sphere

COUNT = 50_000


@pytest.mark.parametrize("radius", [1.0, 2.5])
def test_uniform_on_the_sphere_has_no_preferred_direction(radius):
    with jax.numpy_dtype_promotion("strict"):
        points = Sphere(4, radius).uniform(jax.random.key(0), COUNT)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), radius, rtol=1e-5)
    np.testing.assert_allclose(points.mean(axis=0), 0.0, atol=5 * radius / np.sqrt(4 * COUNT))
    second = np.asarray(points.T @ points) / COUNT / radius**2
    np.testing.assert_allclose(second, np.eye(4) / 4, atol=5 * 0.25 / np.sqrt(COUNT))


def test_uniform_on_the_box_fills_it():
    points = np.asarray(Box(2, -1.0, 3.0).uniform(jax.random.key(0), COUNT))
    steps = (np.arange(COUNT) + 1) / COUNT
    for column in points.T:
        assert np.abs((np.sort(column) + 1.0) / 4.0 - steps).max() < 2.7 / np.sqrt(COUNT)


def test_projection():
    x = jnp.array([[3.0, 4.0], [-0.3, 1.2]])
    chex.assert_trees_all_close(Sphere(2, 10.0).project(x)[0], jnp.array([6.0, 8.0]))
    chex.assert_trees_all_close(Box(2).project(x), jnp.array([[1.0, 1.0], [0.0, 1.0]]))
    wrapped = Box(2, boundary="wrap").project(x)
    chex.assert_trees_all_close(wrapped, jnp.array([[0.0, 0.0], [0.7, 0.2]]), atol=1e-6)
    chex.assert_trees_all_equal(Real(2).project(x), x)


def test_centers():
    assert Sphere(3, 2.0).center().tolist() == [2.0, 0.0, 0.0]
    assert Box(2, 0.0, 3.0).center().tolist() == [1.5, 1.5]
    assert Real(2).center().tolist() == [0.0, 0.0]


def test_product_works_factor_by_factor():
    space = Product((Sphere(2), Box(1, 5.0, 6.0), Sphere(3, 2.0)))
    assert space.dim == 6
    points = space.uniform(jax.random.key(0), 100)
    chex.assert_shape(points, (100, 6))
    first, second, third = space.split(points)
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1.0, rtol=1e-5)
    assert bool(((second >= 5.0) & (second <= 6.0)).all())
    np.testing.assert_allclose(np.linalg.norm(third, axis=1), 2.0, rtol=1e-5)
    chex.assert_trees_all_close(space.project(points), points, atol=1e-6)
    assert space.center().tolist() == [1.0, 0.0, 5.5, 2.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sphere(1), "dim of at least 2, got 1"),
        (lambda: Sphere(3, 0.0), "positive, finite radius, got 0.0"),
        (lambda: Box(0), "dim of at least 1, got 0"),
        (lambda: Box(2, 1.0, 1.0), "finite low < high, got 1.0 and 1.0"),
        (lambda: Box(2, boundary="bounce"), "'reject' or 'wrap', got 'bounce'"),
        (lambda: Real(0), "dim of at least 1, got 0"),
        (lambda: Product(()), "at least one space, got none"),
        (lambda: Real(2).uniform(jax.random.key(0), 3), "no uniform distribution"),
    ],
)
def test_impossible_spaces_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
