"""Linear readouts of frozen features: which class, was it done or not, how strongly.

    probe = class_accuracy(Labelled(h, y), Labelled(h_val, y_val), Labelled(h_test, y_test), 10)
    probe.accuracy

A probe is fitted on one set, its penalty chosen on a second and scored on a third.
Features are standardised first, so that their scale plays no part. Everything is
deterministic.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from aninfonce_jax.scores import intervals
from aninfonce_jax.scores.labelled import (
    Labelled,
    MissingClassError,
    check_every_class,
    check_same_width,
    checked_classes,
    checked_numbers,
)
from aninfonce_jax.scores.logistic import (
    MAX_ITERATIONS,
    logistic_path,
    path_scores,
    predicted_classes,
    principal_axes,
)

__all__ = [
    "CLASS_PENALTIES",
    "RIDGE_PENALTIES",
    "Labelled",
    "MissingClassError",
    "Probe",
    "RegressionProbe",
    "binary_accuracy",
    "class_accuracy",
    "strength_r2",
]

FloatArray = npt.NDArray[np.float64]

# Penalties on the squared weights, relative to the mean loss of a sample.
CLASS_PENALTIES = tuple(10.0**power for power in range(-6, 1))
# In closed form more of them cost nothing.
RIDGE_PENALTIES = tuple(10.0 ** (power / 2) for power in range(-12, 9))
# A feature whose spread is smaller than this share of its mean is constant but for rounding.
_CONSTANT = 1e-6


@dataclasses.dataclass(frozen=True)
class Probe:
    """How well classes can be read.

    Attributes:
      accuracy: on the test set, the mean of the classes' recalls, over the classes that
        occur there. With equally many samples per class this is the share of correct
        answers; otherwise a rare class counts as much as a frequent one, and guessing
        scores 1 / classes.
      penalty: the one chosen. At an end of the grid a wider grid may do better.
      validation_accuracy: the same as `accuracy`, on the validation set.
      converged: whether the fit with that penalty ended before the limit of iterations.
      correct: whether each sample of the test set was told correctly, [samples].
    """

    accuracy: float
    penalty: float
    validation_accuracy: float
    converged: bool
    correct: npt.NDArray[np.bool_] = dataclasses.field(compare=False)


@dataclasses.dataclass(frozen=True)
class RegressionProbe:
    """How well a number can be read.

    Attributes:
      r2: on the test set, 1 - Σ(error²) / Σ((target - its mean)²); below zero where the
        probe does worse than that mean.
      penalty: the one chosen.
      validation_r2: the same as `r2`, on the validation set.
      interval: of `r2`, over the test set; see `intervals`.
    """

    r2: float
    penalty: float
    validation_r2: float
    interval: list[float]


def class_accuracy(
    train: Labelled,
    validation: Labelled,
    test: Labelled,
    classes: int,
    *,
    penalties: Sequence[float] = CLASS_PENALTIES,
    max_iterations: int = MAX_ITERATIONS,
) -> Probe:
    """Reads classes by multinomial logistic regression.

    Every class has the same weight in the loss, however often it occurs. The penalty with the
    highest accuracy on the validation set is chosen; if several have it, the one with the smallest
    loss there.

    Args:
      train: to fit.
      validation: to choose the penalty.
      test: to score.
      classes: how many there are.
      penalties: λ in mean loss + λ / 2 * Σ(weight²); the offsets are free.
      max_iterations: of L-BFGS, per penalty.

    Raises:
      ValueError: shapes that do not fit, features that are not finite, labels outside
        0 ... classes - 1, or a class that does not occur in the training set.
    """
    sets = {"train": train, "validation": validation, "test": test}
    checked = {name: checked_classes(name, given, classes) for name, given in sets.items()}
    features, labels = zip(*checked.values(), strict=True)
    check_same_width(dict(zip(sets, features, strict=True)))
    check_every_class("train", labels[0], classes)
    descending = _descending(penalties)
    inputs = _standardised(*features)
    weights, offsets, converged = logistic_path(
        inputs[0], labels[0], descending, classes=classes, max_iterations=max_iterations
    )
    accuracy, loss = path_scores(weights, offsets, inputs[1], labels[1])
    best = max(range(len(descending)), key=lambda i: (accuracy[i], -loss[i]))
    predicted = predicted_classes(weights[best], offsets[best], inputs[2])
    correct = np.asarray(predicted) == labels[2]
    return Probe(
        accuracy=_mean_recall(correct, labels[2]),
        penalty=float(descending[best]),
        validation_accuracy=float(accuracy[best]),
        converged=bool(converged[best]),
        correct=correct,
    )


def binary_accuracy(train: Labelled, validation: Labelled, test: Labelled) -> Probe:
    """Reads whether something was done (1 or True) or not: `class_accuracy` of two classes."""
    return class_accuracy(train, validation, test, 2)


def strength_r2(
    train: Labelled,
    validation: Labelled,
    test: Labelled,
    *,
    penalties: Sequence[float] = RIDGE_PENALTIES,
) -> RegressionProbe:
    """Reads a number by ridge regression, in float64.

    Args:
      train: to fit.
      validation: to choose the penalty, by R².
      test: to score.
      penalties: λ in mean(error²) + λ Σ(weight²); the offset is free.

    Raises:
      ValueError: shapes that do not fit, values that are not finite, or targets that are
        all equal.
    """
    sets = {"train": train, "validation": validation, "test": test}
    checked = {name: checked_numbers(name, given) for name, given in sets.items()}
    features, targets = zip(*checked.values(), strict=True)
    check_same_width(dict(zip(sets, features, strict=True)))
    descending = _descending(penalties)
    inputs = _standardised(*features)
    offset = targets[0].mean()
    variances, axes = principal_axes(inputs[0])
    slopes = axes.T @ (inputs[0].T @ (targets[0] - offset)) / len(targets[0])
    # [feature_dim, penalties]
    weights = axes @ (slopes[:, None] / (variances[:, None] + descending))
    validation_r2 = _r2(targets[1], offset + inputs[1] @ weights)
    best = int(np.argmax(validation_r2))
    predictions = offset + inputs[2] @ weights[:, [best]]
    return RegressionProbe(
        r2=float(_r2(targets[2], predictions)[0]),
        penalty=float(descending[best]),
        validation_r2=float(validation_r2[best]),
        interval=intervals.r2_intervals(targets[2][:, None], predictions, [[1.0]])[0],
    )


def _mean_recall(correct: npt.NDArray[np.bool_], labels: npt.NDArray[np.int32]) -> float:
    """Returns the mean over the classes that occur of their share of correct answers."""
    counts = np.bincount(labels)
    hits = np.bincount(labels, weights=correct)
    return float(np.mean(hits[counts > 0] / counts[counts > 0]))


def _standardised(train: npt.NDArray, *others: npt.NDArray) -> list[npt.NDArray]:
    """Subtracts from every set train's mean and divides by its spread, per feature.

    Features that are constant in train become zero everywhere: nothing is known of them.
    """
    mean = train.mean(axis=0, dtype=np.float64)
    centred = [x - mean.astype(x.dtype) for x in (train, *others)]
    squares = np.einsum("ij,ij->j", centred[0], centred[0], dtype=np.float64)
    spread = np.sqrt(squares / len(train))
    varies = spread > _CONSTANT * np.abs(mean)
    factor = np.where(varies, 1 / np.where(varies, spread, 1.0), 0.0)
    return [x * factor.astype(x.dtype) for x in centred]


def _r2(targets: FloatArray, predictions: FloatArray) -> FloatArray:
    errors = np.sum((targets[:, None] - predictions) ** 2, axis=0)
    return 1 - errors / np.sum((targets - targets.mean()) ** 2)


def _descending(penalties: Sequence[float]) -> FloatArray:
    values = np.asarray(penalties, np.float64)
    if values.ndim != 1 or not values.size or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(f"penalties must be positive and finite numbers, got {penalties!r}")
    return -np.sort(-values)
