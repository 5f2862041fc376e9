"""Features with what is to be read from them, checked before anything is fitted."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from numpy.typing import DTypeLike


class MissingClassError(ValueError):
    """A class has no example to learn from."""


@dataclasses.dataclass(frozen=True)
class Labelled:
    """Features and what is to be read from them, row by row.

    Attributes:
      features: [samples, feature_dim].
      labels: [samples]; classes are integers from 0 on, strengths are numbers.
    """

    features: npt.ArrayLike
    labels: npt.ArrayLike


def checked_features(
    name: str, features: npt.ArrayLike, dtype: DTypeLike = np.float32
) -> npt.NDArray:
    """Returns features as an array [samples, feature_dim], finite and not empty.

    Args:
      name: what they are called in messages.
      features: what was given.
      dtype: of the result.

    Raises:
      TypeError: no real numbers.
      ValueError: anything else.
    """
    try:
        given = np.asarray(features)
        if given.dtype.kind == "c":  # whose imaginary part would be dropped
            raise TypeError(f"dtype {given.dtype}")
        x = given.astype(dtype, copy=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be an array of real numbers, got {error}") from error
    if x.ndim != 2:
        raise ValueError(
            f"{name} must have features of shape [samples, feature_dim], got {x.shape}; flatten "
            "each sample's, or pool them"
        )
    if 0 in x.shape:
        raise ValueError(f"{name} must have at least one sample and feature, got shape {x.shape}")
    if not np.isfinite(x).all():
        raise ValueError(
            f"{name} must have finite features, got {np.count_nonzero(~np.isfinite(x))} NaN or "
            f"infinite of {x.size}; the encoder may have diverged"
        )
    return x


def checked_classes(
    name: str, given: Labelled, classes: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """Returns features in float32 and class numbers from 0 to classes - 1.

    Args:
      name: what the set is called in messages.
      given: the set.
      classes: how many there are.

    Raises:
      ValueError: anything else, among it rows without a label (-1).
    """
    if classes < 2:
        raise ValueError(f"classes must be at least 2, got {classes}")
    x, y = checked_features(name, given.features), np.asarray(given.labels)
    _check_one_per_row(name, x, y)
    if y.dtype != bool and not np.issubdtype(y.dtype, np.integer):
        raise ValueError(f"{name} must have integers as labels of classes, got dtype {y.dtype}")
    if unlabelled := np.count_nonzero(y == -1):
        raise ValueError(
            f"{name} must have a label for every row, got {unlabelled} of {len(y)} without one "
            "(-1); leave these rows out"
        )
    outside = y[(y < 0) | (y >= classes)]
    if outside.size:
        raise ValueError(
            f"{name} must have labels from 0 to {classes - 1}, got {outside[0]}; number the "
            "classes from 0 on, or raise classes"
        )
    return x, y.astype(np.int32)


def checked_numbers(
    name: str, given: Labelled
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Returns features and numbers to predict, both in float64.

    Args:
      name: what the set is called in messages.
      given: the set.

    Raises:
      ValueError: anything else, among it numbers that are all equal.
    """
    x = checked_features(name, given.features, np.float64)
    y = np.asarray(given.labels, np.float64)
    _check_one_per_row(name, x, y)
    if len(y) < 2:
        raise ValueError(f"{name} must have at least 2 samples for an R², got {len(y)}")
    if not np.isfinite(y).all():
        raise ValueError(
            f"{name} must have finite labels, got {np.count_nonzero(~np.isfinite(y))} NaN or "
            f"infinite of {len(y)}; leave these rows out"
        )
    if np.ptp(y) == 0:
        raise ValueError(
            f"{name} must have labels that differ, got {y[0]:g} only; there is nothing to read"
        )
    return x, y


def check_same_width(sets: Mapping[str, npt.NDArray]) -> None:
    """Checks that features [samples, feature_dim] of several sets have one feature_dim.

    Args:
      sets: features by the name of their set.

    Raises:
      ValueError: they have not.
    """
    widths = {name: x.shape[1] for name, x in sets.items()}
    if len(set(widths.values())) > 1:
        listed = ", ".join(f"{name} {width}" for name, width in widths.items())
        raise ValueError(
            f"all sets must have the same features, got different numbers: {listed}; take them "
            "from the same layer"
        )


def check_every_class(name: str, labels: npt.NDArray[np.int32], classes: int) -> None:
    """Checks that each class occurs among labels [samples].

    Args:
      name: what the set is called in messages.
      labels: class numbers, checked.
      classes: how many there are.

    Raises:
      MissingClassError: one does not.
    """
    counts = np.bincount(labels, minlength=classes)
    if missing := np.flatnonzero(counts == 0).tolist():
        raise MissingClassError(
            f"{name} must have samples of all {classes} classes, got none of {_some(missing)}; "
            "take more samples, or renumber the classes"
        )


def _check_one_per_row(name: str, features: npt.NDArray, labels: npt.NDArray) -> None:
    if labels.shape != features.shape[:1]:
        raise ValueError(
            f"{name} must have one label per row, {features.shape[:1]}, got labels of shape "
            f"{labels.shape}"
        )


def _some(values: Sequence[int], most: int = 5) -> str:
    shown = ", ".join(map(str, values[:most]))
    return f"{shown} and {len(values) - most} more" if len(values) > most else shown
