"""What scores of recovered latents are given, in float64, or an error that says what is wrong."""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def samples(latents: npt.ArrayLike, features: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Returns latents and features in float64, if they are samples of the same observations."""
    z, h = real("latents", latents), real("features", features)
    for name, x in (("latents", z), ("features", h)):
        if x.ndim != 2:
            raise ValueError(
                f"{name} must have shape [samples, dim], got {x.shape}; for a single column "
                f"pass {name}[:, None]"
            )
        if x.shape[1] == 0:
            raise ValueError(f"{name} must have at least one column, got shape {x.shape}")
        if not np.isfinite(x).all():
            raise ValueError(
                f"{name} must be finite, got {np.count_nonzero(~np.isfinite(x))} NaN or infinite "
                f"of {x.size} values"
            )
    if len(z) != len(h):
        raise ValueError(
            f"latents and features must have the same number of rows, got {len(z)} and {len(h)}"
        )
    if len(z) < 2:
        raise ValueError(f"at least 2 samples are needed, got {len(z)}")
    return z, h


def real(name: str, values: npt.ArrayLike) -> FloatArray:
    """Returns `values` in float64."""
    try:
        given = np.asarray(values)
        # Types of other libraries, such as bfloat16, are of kind V and convert by themselves.
        if given.dtype.kind not in "biufV":
            raise TypeError(f"dtype {given.dtype}")
        return given.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{name} must be an array of real numbers, got {error}") from error


def at_least(name: str, value: object, least: int) -> None:
    """Raises TypeError unless `value` is an int, ValueError unless it is at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def near_one(x: FloatArray) -> FloatArray:
    """Returns numbers whose largest is between ½ and 1, by a power of 2, which rounds nothing.

    Squares of 1e200 would not be finite, and those of 1e-200 zero.
    """
    return np.ldexp(x, -np.frexp(np.max(np.abs(x), initial=0.0))[1])


def concentration(name: str, values: npt.ArrayLike) -> FloatArray:
    """Returns Λ, or Λ̂, in float64, if it can be one."""
    x = real(name, values)
    if x.ndim != 1 or x.size == 0:
        raise ValueError(f"{name} must be a vector of concentrations [dim], got shape {x.shape}")
    wrong = x[~(np.isfinite(x) & (x > 0))]
    if wrong.size:
        raise ValueError(f"{name} must be positive and finite, got {wrong[0]}")
    return x


def same_length(true: FloatArray, learned: FloatArray) -> None:
    """Raises ValueError unless there is one learned concentration for each true one."""
    if len(true) != len(learned):
        raise ValueError(
            f"true and learned concentrations must have the same length, got {len(true)} and "
            f"{len(learned)}"
        )


def square_map(matrix: npt.ArrayLike) -> FloatArray:
    """Returns a map from latents to features in float64, with entries below 1."""
    a = real("the map", matrix)
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError(f"the map must be square [dim, dim], got shape {a.shape}")
    if not np.isfinite(a).all():
        raise ValueError("the map must be finite, got NaN or infinite entries")
    # Nothing that is measured of a map depends on its scale, but squares have to exist.
    return near_one(a)
