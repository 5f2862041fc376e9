"""Adam for orthogonal matrices: a step is a rotation, and each plane has its own pace."""

import jax
import jax.numpy as jnp
import optax

from aninfonce_jax.types import Array, PyTree


def adam_rotations(
    learning_rate: optax.ScalarOrSchedule, b1: float, b2: float
) -> optax.GradientTransformation:
    """Returns Adam on the angles by which orthogonal matrices are turned.

    A matrix Q, used as x @ Q, is turned within the planes of its output's axes: Q becomes
    Q exp(A) for a small antisymmetric A. Adam works on the gradient of A. So the angle
    between two axes is rescaled by the noise of its own gradient: a weak, consistent pull
    between two factors with close Λ is not drowned by the strong ones.

    Args:
      learning_rate: the largest turn per step, in radians.
      b1: Adam's β1.
      b2: Adam's β2.

    Returns:
      A transformation of params that are all orthogonal matrices [dim, dim].
    """
    adam = optax.adam(learning_rate, b1, b2)

    def init(params: PyTree) -> optax.OptState:
        return adam.init(params)

    def update(
        updates: PyTree, state: optax.OptState, params: PyTree | None = None
    ) -> tuple[PyTree, optax.OptState]:
        if params is None:
            raise ValueError("adam_rotations needs the params to turn")

        def angles(matrix: Array, gradient: Array) -> Array:
            product = matrix.T @ gradient
            return product - product.T

        steps, state = adam.update(jax.tree.map(angles, params, updates), state)
        return jax.tree.map(lambda q, step: q @ _rotation(step) - q, params, steps), state

    return optax.GradientTransformation(init, update)


def _rotation(generator: Array) -> Array:
    """Returns the rotation of an antisymmetric matrix of small angles, by Cayley's map."""
    eye = jnp.eye(generator.shape[0], dtype=generator.dtype)
    return jnp.linalg.solve(eye - generator / 2, eye + generator / 2)
