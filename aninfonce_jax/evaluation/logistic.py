"""Multinomial logistic regression along a path of penalties, on the device."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from aninfonce_jax.types import Array

FloatArray = npt.NDArray[np.float64]

TOLERANCE = 1e-4
MAX_ITERATIONS = 200
# Accelerators would otherwise round the factors to bfloat16, too coarse for a line search.
_matmul = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
_cross_entropy = optax.softmax_cross_entropy_with_integer_labels


def logistic_path(
    features: npt.ArrayLike,
    labels: npt.ArrayLike,
    penalties: npt.ArrayLike,
    *,
    classes: int,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
) -> tuple[Array, Array, Array]:
    """Fits a multinomial logistic regression per penalty, each from the previous one's end.

    The whole path is one compiled call on one device; fits of equal shapes share it.

    Args:
      features: [samples, feature_dim], each with mean zero and of order one.
      labels: [samples], from 0 to classes - 1, each of which must occur.
      penalties: [penalties], best from strong to weak.
      classes: how many there are.
      tolerance: L-BFGS ends at a smaller norm of the gradient, in coordinates in which
        the curvature at the start is one.
      max_iterations: per penalty.

    Returns:
      Weights [penalties, feature_dim, classes], offsets [penalties, classes], and whether
      the tolerance was reached, [penalties].
    """
    x = np.asarray(features, np.float32)
    # Along principal axes the curvature is known and the weights' squared sum the same. With
    # the axes scaled by it the fit takes a tenth of the iterations.
    variances, axes = principal_axes(x)
    rotation = axes.astype(np.float32)
    inputs = np.concatenate([x @ rotation, np.ones((len(x), 1), np.float32)], axis=1)
    weights, converged = _fit_path(
        inputs,
        np.asarray(labels, np.int32),
        np.append(variances, 1.0).astype(np.float32),
        np.asarray(penalties, np.float32),
        np.float32(tolerance),
        np.int32(max_iterations),
        classes=classes,
    )
    return _matmul(rotation, weights[:, :-1]), weights[:, -1], converged


@functools.partial(jax.jit, static_argnames="classes")
def _fit_path(
    inputs: Array,
    labels: Array,
    variances: Array,
    penalties: Array,
    tolerance: Array,
    max_iterations: Array,
    *,
    classes: int,
) -> tuple[Array, Array]:
    """Fits weights [penalties, columns, classes]; the last column is one, its weights free."""
    share = 1.0 / (classes * jnp.bincount(labels, length=classes))
    sample_weights = share[labels]
    penalised = jnp.arange(inputs.shape[1]) < inputs.shape[1] - 1
    solver = optax.lbfgs()

    def fit(start: Array, penalty: Array) -> tuple[Array, tuple[Array, Array]]:
        column_penalty = jnp.where(penalised, penalty, 0.0)[:, None]
        # The curvature where all classes are equally likely.
        scale = jax.lax.rsqrt(variances[:, None] / classes + column_penalty)

        def objective(scaled: Array) -> Array:
            weights = scale * scaled
            losses = _cross_entropy(_matmul(inputs, weights), labels)
            return jnp.sum(sample_weights * losses) + jnp.sum(column_penalty * weights**2) / 2

        value_and_grad = optax.value_and_grad_from_state(objective)

        def proceed(carry: tuple) -> tuple:
            scaled, state, _, iteration = carry
            value, grad = value_and_grad(scaled, state=state)
            update, state = solver.update(
                grad, state, scaled, value=value, grad=grad, value_fn=objective
            )
            norm = jnp.linalg.norm(optax.tree.get(state, "grad"))
            return scaled + update, state, norm, iteration + 1

        def unfinished(carry: tuple) -> Array:
            *_, norm, iteration = carry
            return (norm > tolerance) & (iteration < max_iterations)

        scaled = start / scale
        begin = scaled, solver.init(scaled), jnp.full((), jnp.inf, scaled.dtype), 0
        scaled, _, norm, _ = jax.lax.while_loop(unfinished, proceed, begin)
        return scale * scaled, (scale * scaled, norm <= tolerance)

    start = jnp.zeros((inputs.shape[1], classes), inputs.dtype)
    return jax.lax.scan(fit, start, penalties)[1]


def path_scores(
    weights: Array, offsets: Array, features: npt.NDArray, labels: npt.NDArray[np.int32]
) -> tuple[FloatArray, FloatArray]:
    """Returns accuracy and loss, [penalties] each, means over the classes that occur.

    Args:
      weights: [penalties, feature_dim, classes].
      offsets: [penalties, classes].
      features: [samples, feature_dim].
      labels: [samples].
    """
    counts = np.bincount(labels, minlength=offsets.shape[1])
    occurs = counts > 0
    # Divided here, in float64, because rounding must not break ties between penalties.
    sums = [np.asarray(x, np.float64) for x in _class_sums(weights, offsets, features, labels)]
    hits, losses = (np.mean(x[:, occurs] / counts[occurs], axis=1) for x in sums)
    return hits, losses


@jax.jit
def predicted_classes(weights: Array, offsets: Array, features: Array) -> Array:
    """Returns the class that a fit takes for the likeliest, [samples].

    Args:
      weights: [feature_dim, classes].
      offsets: [classes].
      features: [samples, feature_dim].
    """
    return jnp.argmax(_matmul(features, weights) + offsets[None], axis=1)


@jax.jit
def _class_sums(
    weights: Array, offsets: Array, features: Array, labels: Array
) -> tuple[Array, Array]:
    """Returns correct answers and summed losses of each class, [penalties, classes] each."""

    def score(own: tuple[Array, Array]) -> tuple[Array, Array]:
        logits = _matmul(features, own[0]) + own[1][None]
        hits = (jnp.argmax(logits, axis=1) == labels).astype(jnp.int32)
        losses = _cross_entropy(logits, labels)
        zeros = jnp.zeros(offsets.shape[1], jnp.int32)
        return zeros.at[labels].add(hits), zeros.astype(losses.dtype).at[labels].add(losses)

    # One after the other, for the logits of all penalties may not fit into memory at once.
    return jax.lax.map(score, (weights, offsets))


def principal_axes(features: npt.NDArray) -> tuple[FloatArray, FloatArray]:
    """Returns variances [feature_dim] and axes [feature_dim, feature_dim], one per column.

    Args:
      features: [samples, feature_dim], each with mean zero.
    """
    variances, axes = np.linalg.eigh(np.float64(features.T @ features) / len(features))
    # Rounding makes those of a singular matrix slightly negative.
    return np.maximum(variances, 0.0), axes
