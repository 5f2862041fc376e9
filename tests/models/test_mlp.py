import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aninfonce_jax.config.schema import DgpConfig, EncoderConfig
from aninfonce_jax.models.mlp import build_encoder


def init(config, dim=4):
    encoder = build_encoder(config, DgpConfig(dim=dim))
    x = jax.random.normal(jax.random.key(1), (8, dim))
    return encoder, x, encoder.init_params(jax.random.key(0), x)


def test_the_papers_widths_by_default():
    _, _, params = init(EncoderConfig(), dim=10)
    widths = [params[f"Dense_{i}"]["kernel"].shape for i in range(7)]
    assert widths == [(10, 100), (100, 500), *[(500, 500)] * 3, (500, 100), (100, 10)]
    assert sum(x.size for x in jax.tree.leaves(params)) == 854_210


@pytest.mark.parametrize("activation", ["leaky_relu", "relu", "gelu", "silu"])
@pytest.mark.parametrize("output", ["sphere", "box", "none"])
def test_embeddings(activation, output):
    encoder, x, params = init(EncoderConfig((16, 8), activation, output=output))
    embeddings = jax.jit(encoder.apply)({"params": params}, x)
    chex.assert_shape(embeddings, (8, 4))
    chex.assert_type(embeddings, jnp.float32)
    chex.assert_trees_all_close(embeddings, encoder.apply({"params": params}, x), atol=1e-6)


def test_leaky_slope_is_the_papers():
    encoder, _, params = init(EncoderConfig((4,), output="none"))
    params = jax.tree.map(jnp.zeros_like, params)
    for layer in params.values():
        layer["kernel"] = jnp.eye(4)
    out = encoder.apply({"params": params}, jnp.array([[-1.0, 2.0, -3.0, 4.0]]))
    np.testing.assert_allclose(out, [[-0.01, 2.0, -0.03, 4.0]], rtol=1e-6)


def test_initialisations_have_their_scale():
    for name, expected in [("he_normal", 2 / 64), ("torch", 1 / (3 * 64)), ("orthogonal", 2 / 64)]:
        _, _, params = init(EncoderConfig((64, 64), init=name))
        kernel = params["Dense_1"]["kernel"]
        np.testing.assert_allclose(jnp.var(kernel), expected, rtol=0.1)
        if name == "orthogonal":
            np.testing.assert_allclose(kernel @ kernel.T, 2 * jnp.eye(64), atol=1e-4)


@pytest.mark.parametrize("activation", ["leaky_relu", "relu", "gelu", "silu"])
@pytest.mark.parametrize("widths", [(16, 8), (40, 64, 64, 40), (9, 21), (12,)])
def test_looks_linear_starts_as_the_identity(activation, widths):
    config = EncoderConfig(widths, activation, init="looks_linear", output="none")
    encoder, x, params = init(config)
    np.testing.assert_allclose(encoder.apply({"params": params}, x), x, atol=1e-4)


def test_looks_linear_through_a_narrow_layer_is_a_projection():
    config = EncoderConfig((8, 4, 8), init="looks_linear", output="none")
    encoder, x, params = init(config)
    once = encoder.apply({"params": params}, x)
    chex.assert_trees_all_close(encoder.apply({"params": params}, once), once, atol=1e-4)
    assert jnp.linalg.matrix_rank(once, rtol=1e-4) == 2


def test_looks_linear_depends_on_the_key():
    encoder, x, params = init(EncoderConfig((16,)))
    other = encoder.init_params(jax.random.key(5), x)
    assert not jnp.allclose(params["Dense_0"]["kernel"], other["Dense_0"]["kernel"])


def test_a_rotation_starts_as_none():
    plain, x, params = init(EncoderConfig((8,)))
    turning, _, turning_params = init(EncoderConfig((8,), rotation=True))
    matrix = turning_params.pop("rotation")["matrix"]
    chex.assert_trees_all_equal(matrix, jnp.eye(4))
    chex.assert_trees_all_equal(turning_params, params)
    turned = turning.apply({"params": params | {"rotation": {"matrix": -matrix}}}, x)
    chex.assert_trees_all_close(turned, -plain.apply({"params": params}, x))
