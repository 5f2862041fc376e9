import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from aninfonce_jax.training.rotation import adam_rotations


def random_orthogonal(seed, dim=5):
    return jnp.linalg.qr(jax.random.normal(jax.random.key(seed), (dim, dim)))[0]


def test_a_matrix_stays_orthogonal_and_finds_the_axes():
    """Maximises Σ λ (Qᵀ C Q)ᵢᵢ, whose optimum are the eigenvectors of C in order of λ."""
    axes = random_orthogonal(0)
    concentration = jnp.array([5.0, 4.8, 3.0, 2.0, 1.0])
    covariance = axes @ jnp.diag(1 / concentration) @ axes.T

    def loss(matrix):
        return jnp.sum(concentration * jnp.diag(matrix.T @ covariance @ matrix))

    optimizer = adam_rotations(0.02, 0.9, 0.99)

    def step(carry, _):
        matrix, state = carry
        updates, state = optimizer.update(jax.grad(loss)(matrix), state, matrix)
        return (optax.apply_updates(matrix, updates), state), None

    start = jnp.eye(5)
    (matrix, _), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, length=1000))(
        (start, optimizer.init(start))
    )
    np.testing.assert_allclose(matrix.T @ matrix, jnp.eye(5), atol=1e-4)
    np.testing.assert_allclose(jnp.abs(axes.T @ matrix), jnp.eye(5), atol=0.02)


def test_a_step_turns_by_the_learning_rate_in_every_plane():
    optimizer = adam_rotations(0.01, 0.9, 0.999)
    matrix = random_orthogonal(1)
    gradient = jax.random.normal(jax.random.key(2), (5, 5))
    updates, _ = optimizer.update(gradient, optimizer.init(matrix), matrix)
    turn = matrix.T @ (matrix + updates)
    generator = (turn - turn.T) / 2
    expected = -0.01 * jnp.sign(matrix.T @ gradient - gradient.T @ matrix)
    chex.assert_trees_all_close(generator, expected, atol=1e-3)


def test_params_are_needed():
    optimizer = adam_rotations(0.01, 0.9, 0.999)
    with pytest.raises(ValueError, match="needs the params to turn"):
        optimizer.update(jnp.eye(2), optimizer.init(jnp.eye(2)))
