import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aninfonce_jax.models.heads import OutputNormalization, from_positive, to_positive


@settings(deadline=None, derandomize=True, max_examples=30)
@given(st.floats(1e-4, 1e4), st.sampled_from(["softplus", "exp"]))
def test_positive_parameters_round_trip(value, transform):
    positive = jnp.float32(value)
    with jax.numpy_dtype_promotion("strict"):
        again = to_positive(from_positive(positive, transform), transform)
    np.testing.assert_allclose(again, positive, rtol=1e-5)


def apply(kind, raw, params=None, **kwargs):
    module = OutputNormalization(kind, **kwargs)
    variables = module.init(jax.random.key(0), raw)
    if params is not None:
        variables = {"params": params}
    return module.apply(variables, raw)


RAW = jax.random.normal(jax.random.key(1), (32, 5)) * 3


def test_sphere_has_the_given_radius():
    out = apply("sphere", RAW, radius=2.0)
    chex.assert_shape(out, (32, 5))
    np.testing.assert_allclose(jnp.linalg.norm(out, axis=-1), 2.0, rtol=1e-6)


def test_learnable_sphere_scales_with_its_parameter():
    out = apply("learnable_sphere", RAW, {"log_scale": jnp.log(3.0)})
    np.testing.assert_allclose(jnp.linalg.norm(out, axis=-1), 3.0, rtol=1e-5)
    np.testing.assert_allclose(apply("learnable_sphere", RAW), apply("sphere", RAW), rtol=1e-6)


def test_box_stays_inside_and_keeps_order():
    out = apply("box", RAW, low=-1.0, high=3.0)
    assert -1.0 <= out.min() < 0.0
    assert 2.0 < out.max() <= 3.0
    np.testing.assert_array_equal(jnp.argsort(RAW[:, 0]), jnp.argsort(out[:, 0]))


def test_learnable_box_scales_around_its_centre():
    raw = jnp.zeros((1, 2))
    out = apply("learnable_box", raw + 50, {"log_scale": jnp.log(2.0)}, low=0.0, high=1.0)
    np.testing.assert_allclose(out, 1.5, rtol=1e-6)
    np.testing.assert_allclose(apply("learnable_box", raw, low=0.0, high=1.0), 0.5)


def test_none_is_the_identity():
    np.testing.assert_array_equal(apply("none", RAW), RAW)


@pytest.mark.parametrize("kind", ["sphere", "learnable_sphere", "box", "learnable_box", "none"])
def test_gradients_are_finite_at_zero(kind):
    grad = jax.grad(lambda raw: apply(kind, raw).sum())(jnp.zeros((3, 4)))
    chex.assert_tree_all_finite(grad)
