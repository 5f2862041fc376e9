"""What an estimator is given: arrays and frames, checked in scikit-learn's words."""

from typing import Any

import numpy as np

from aninfonce_jax.sources.arrays import refuse_masked

# Attributes that only `fit` sets end so.
_FITTED = "model_"


def as_array(x: Any, what: str = "X") -> np.ndarray:
    """Returns observations [n, ...] as numbers; an array in memory, or mapped, stays what it is.

    Raises:
      TypeError, ValueError: they are none.
    """
    if hasattr(x, "toarray"):
        raise TypeError(
            f"{what} is a sparse matrix, and dense rows are needed; use X.toarray(), or project "
            "them first"
        )
    refuse_masked(x, what)
    try:
        array = x if isinstance(x, np.ndarray) else np.asarray(x)
        if array.dtype.kind == "O":
            array = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"{what} must be an array [n, ...] of real numbers, of rows that are all alike: {error}"
        ) from error
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported: {what} must hold real numbers")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{what} must hold real numbers, got dtype {array.dtype}")
    if array.ndim < 2:
        raise ValueError(
            f"{what} must be [n, ...], one observation a row, got shape {array.shape}. Reshape "
            "your data: reshape(-1, 1) if it has a single column, reshape(1, -1) if it is one row"
        )
    for axis, kind in enumerate(("sample", "feature")):
        if array.shape[axis] == 0:
            raise ValueError(
                f"Found array {what} with 0 {kind}(s) (shape={array.shape}) while a minimum of 1 "
                "is required."
            )
    return array


def feature_names(x: Any) -> np.ndarray | None:
    """Returns the names of the columns of a frame, if all are texts; None of anything else."""
    columns = getattr(x, "columns", None)
    if columns is None:
        return None
    names = np.asarray(columns, dtype=object)
    return names if all(isinstance(name, str) for name in names) else None


def check_same_order(first: np.ndarray | None, second: np.ndarray | None) -> None:
    """Raises ValueError if two frames have the same columns in another order."""
    # Other names may well be those of the other device, or of the other eye.
    if first is None or second is None or sorted(first) != sorted(second):
        return
    for place, (one, other) in enumerate(zip(first, second, strict=True)):
        if one != other:
            raise ValueError(
                f"view1 and view2 have the same columns in another order, got {one!r} and "
                f"{other!r} in place {place}; reorder one of them: view2[view1.columns]"
            )


def check_features(x: np.ndarray, given: np.ndarray | None, estimator: Any) -> None:
    """Raises ValueError if rows have other columns than those of `fit`."""
    name, expected = type(estimator).__name__, estimator.n_features_in_
    found = int(np.prod(x.shape[1:]))
    if found != expected and x.ndim == 2:
        raise ValueError(
            f"X has {found} features, but {name} is expecting {expected} features as input"
        )
    fitted = getattr(estimator, "feature_names_in_", None)
    if fitted is None or given is None or list(fitted) == list(given):
        return
    unseen, missing = sorted(set(given) - set(fitted)), sorted(set(fitted) - set(given))
    message = "The feature names should match those that were passed during fit.\n"
    if unseen:
        message += "Feature names unseen at fit time:\n" + "".join(f"- {x}\n" for x in unseen)
    if missing:
        message += "Feature names seen at fit time, yet now missing:\n"
        message += "".join(f"- {x}\n" for x in missing)
    if not unseen and not missing:
        message += "Feature names must be in the same order as they were in fit.\n"
    raise ValueError(message)


def is_fitted(estimator: Any) -> bool:
    """Whether an estimator was fitted."""
    return hasattr(estimator, _FITTED)
