import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aninfonce_jax.models.heads import OutputNormalization
from aninfonce_jax.models.mlp import MLP, paper_widths


def init(
    widths, activation="leaky_relu", init="looks_linear", rotation=False, output="sphere", dim=4
):
    encoder = MLP(widths, dim, activation, init, rotation, OutputNormalization(output))
    x = jax.random.normal(jax.random.key(1), (8, dim))
    return encoder, x, encoder.init(jax.random.key(0), x)["params"]


def test_the_papers_widths():
    _, _, params = init(paper_widths(10), dim=10)
    widths = [params[f"Dense_{i}"]["kernel"].shape for i in range(7)]
    assert widths == [(10, 100), (100, 500), *[(500, 500)] * 3, (500, 100), (100, 10)]
    assert sum(x.size for x in jax.tree.leaves(params)) == 854_210


@pytest.mark.parametrize("activation", ["leaky_relu", "relu", "gelu", "silu"])
@pytest.mark.parametrize("output", ["sphere", "box", "none"])
def test_embeddings(activation, output):
    encoder, x, params = init((16, 8), activation, output=output)
    embeddings = jax.jit(encoder.apply)({"params": params}, x)
    chex.assert_shape(embeddings, (8, 4))
    chex.assert_type(embeddings, jnp.float32)
    chex.assert_trees_all_close(embeddings, encoder.apply({"params": params}, x), atol=1e-6)


def test_leaky_slope_is_the_papers():
    encoder, _, params = init((4,), output="none")
    params = jax.tree.map(jnp.zeros_like, params)
    for layer in params.values():
        layer["kernel"] = jnp.eye(4)
    out = encoder.apply({"params": params}, jnp.array([[-1.0, 2.0, -3.0, 4.0]]))
    np.testing.assert_allclose(out, [[-0.01, 2.0, -0.03, 4.0]], rtol=1e-6)


def test_initialisations_have_their_scale():
    for name, expected in [("he_normal", 2 / 64), ("torch", 1 / (3 * 64)), ("orthogonal", 2 / 64)]:
        _, _, params = init((64, 64), init=name)
        kernel = params["Dense_1"]["kernel"]
        np.testing.assert_allclose(jnp.var(kernel), expected, rtol=0.1)
        if name == "orthogonal":
            np.testing.assert_allclose(kernel @ kernel.T, 2 * jnp.eye(64), atol=1e-4)


@pytest.mark.parametrize("activation", ["leaky_relu", "relu", "gelu", "silu"])
@pytest.mark.parametrize("widths", [(16, 8), (40, 64, 64, 40), (9, 21), (12,)])
def test_looks_linear_starts_as_the_identity(activation, widths):
    encoder, x, params = init(widths, activation, init="looks_linear", output="none")
    np.testing.assert_allclose(encoder.apply({"params": params}, x), x, atol=1e-4)


def test_looks_linear_through_a_narrow_layer_is_a_projection():
    encoder, x, params = init((8, 4, 8), init="looks_linear", output="none")
    once = encoder.apply({"params": params}, x)
    chex.assert_trees_all_close(encoder.apply({"params": params}, once), once, atol=1e-4)
    assert jnp.linalg.matrix_rank(once, rtol=1e-4) == 2


def test_looks_linear_depends_on_the_key():
    encoder, x, params = init((16,))
    other = encoder.init(jax.random.key(5), x)["params"]
    assert not jnp.allclose(params["Dense_0"]["kernel"], other["Dense_0"]["kernel"])


def test_a_rotation_starts_as_none():
    plain, x, params = init((8,))
    turning, _, turning_params = init((8,), rotation=True)
    matrix = turning_params.pop("rotation")["matrix"]
    chex.assert_trees_all_equal(matrix, jnp.eye(4))
    chex.assert_trees_all_equal(turning_params, params)
    turned = turning.apply({"params": params | {"rotation": {"matrix": -matrix}}}, x)
    chex.assert_trees_all_close(turned, -plain.apply({"params": params}, x))


@pytest.mark.parametrize("kernel_init", ["looks_linear", "torch"])
def test_what_is_no_vector_is_flattened(kernel_init):
    images = jax.random.uniform(jax.random.key(0), (6, 5, 5, 3))
    encoder = MLP((20,), 4, "relu", kernel_init, False, OutputNormalization("none"))
    params = encoder.init(jax.random.key(0), images)
    embeddings = encoder.apply(params, images)
    chex.assert_shape(embeddings, (6, 4))
    chex.assert_trees_all_equal(embeddings, encoder.apply(params, images.reshape(6, -1)))
