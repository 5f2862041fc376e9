import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aninfonce_jax.dgp import mixing as mixing_module
from aninfonce_jax.dgp.mixing import InvertibleMLP, draw_mixing

ACTIVATIONS = ["leaky_relu", "elu", "smooth_leaky_relu", "softplus", "none"]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_inverse_undoes_the_mixing(activation):
    mixing = draw_mixing(jax.random.key(0), 4, activation=activation, candidates=200)
    latents = jax.random.normal(jax.random.key(1), (50, 4))
    with jax.numpy_dtype_promotion("strict"):
        observations = mixing(latents)
        chex.assert_trees_all_close(mixing.inverse(observations), latents, atol=2e-4)
    if activation != "none":
        bent = mixing(2.0 * latents) - 2.0 * observations
        assert float(jnp.abs(bent).max()) > (1e-3 if activation != "leaky_relu" else -1.0)


@settings(deadline=None, max_examples=20, derandomize=True)
@given(slope=st.floats(0.01, 1.0), y=st.lists(st.floats(-1e3, 1e3), min_size=8, max_size=8))
def test_smooth_leaky_relu_is_inverted_everywhere(slope, y):
    with jax.enable_x64(True):
        y = jnp.array(y, jnp.float64)
        x = mixing_module._invert_smooth_leaky_relu(y, slope)
        back = slope * x + (1 - slope) * jax.nn.softplus(x)
        np.testing.assert_allclose(back, y, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("activation", "expected"),
    [
        ("leaky_relu", [-0.4, 3.0]),
        ("elu", [np.expm1(-2.0), 3.0]),
        ("smooth_leaky_relu", [-0.4 + 0.8 * np.log1p(np.exp(-2)), 0.6 + 0.8 * np.log1p(np.exp(3))]),
        ("softplus", [np.log1p(np.exp(-2)), np.log1p(np.exp(3))]),
        ("none", [-2.0, 3.0]),
    ],
)
def test_activation_is_between_layers_only(activation, expected):
    mixing = InvertibleMLP(jnp.stack([jnp.eye(2), 10.0 * jnp.eye(2)]), activation, 0.2)
    observed = mixing(jnp.array([[-2.0, 3.0]]))[0]
    np.testing.assert_allclose(observed, 10.0 * np.array(expected), rtol=1e-5)


def test_no_layers_are_the_identity():
    mixing = draw_mixing(jax.random.key(0), 3, layers=0)
    latents = jnp.arange(6.0).reshape(2, 3)
    chex.assert_trees_all_equal(mixing(latents), latents)
    chex.assert_trees_all_equal(mixing.inverse(latents), latents)


@pytest.mark.parametrize("chunks_per_call", [2, 4])
def test_best_conditioned_candidate_wins_in_every_layer(monkeypatch, chunks_per_call):
    # The same draws, ranked by singular values in NumPy, in chunks of 64 and all at once.
    key, dim, layers, candidates = jax.random.key(3), 4, 2, 150
    monkeypatch.setattr(mixing_module, "_CHUNK_ENTRIES", 64 * layers * dim**2)
    monkeypatch.setattr(mixing_module, "_CHUNKS_PER_CALL", chunks_per_call)
    weights = mixing_module._best_conditioned(key, dim, layers, candidates)
    traced = jax.jit(mixing_module._best_conditioned, static_argnums=(1, 2, 3))
    chex.assert_trees_all_equal(traced(key, dim, layers, candidates), weights)
    draws = np.concatenate(
        [
            jax.random.uniform(jax.random.fold_in(key, i), (layers, 64, dim, dim), minval=-1.0)
            for i in range(3)
        ],
        axis=1,
    )[:, :candidates]
    draws /= np.linalg.norm(draws, axis=2, keepdims=True)
    best = np.argmin(np.linalg.cond(draws.astype(np.float64)), axis=1)
    np.testing.assert_allclose(weights, draws[np.arange(layers), best], atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(weights, axis=1), 1.0, rtol=1e-5)


def test_the_papers_mixing_is_well_conditioned():
    mixing = draw_mixing(jax.random.key(0), 10)
    chex.assert_shape(mixing.weights, (3, 10, 10))
    assert np.linalg.cond(mixing.weights).max() < 4.6


def test_orthogonal_layers():
    mixing = draw_mixing(jax.random.key(0), 5, layers=2, init="orthogonal")
    gram = jnp.einsum("lij,lkj->lik", mixing.weights, mixing.weights)
    np.testing.assert_allclose(gram, np.stack([np.eye(5)] * 2), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": "relu"}, "Unknown mixing activation 'relu'; choose from leaky_relu"),
        ({"slope": 0.0}, r"slope must be in \(0, 1\] for an invertible mixing, got 0.0"),
        ({"init": "normal"}, "Unknown mixing init 'normal'; choose 'uniform' or 'orthogonal'"),
        ({"layers": -1}, "layers >= 0 and candidates >= 1, got 3, -1 and 1"),
    ],
)
def test_impossible_mixings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        draw_mixing(jax.random.key(0), 3, **{"candidates": 1, **options})
