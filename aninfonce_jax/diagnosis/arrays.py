"""Arrays of any library as NumPy's, and checked."""

from typing import Any

import numpy as np
import numpy.typing as npt

from aninfonce_jax.scores.checked import near_one

FloatArray = npt.NDArray[np.float64]


class PairsError(ValueError):
    """Pairs that nothing can be said of; its message is one line for the user."""


def as_embeddings(name: str, given: Any, least: int) -> FloatArray:
    """Returns embeddings [n, dim] in float64.

    Takes NumPy and JAX arrays, what `np.asarray` takes, and what offers DLPack and lies in
    host memory (torch tensors among it).

    Args:
      name: what they are called in messages.
      given: the embeddings.
      least: rows that are needed.

    Raises:
      TypeError: it is no array of real numbers in reach.
      PairsError: another shape, too few rows, zero rows, or values that are not finite.
    """
    array = _as_numpy(name, given)
    if array.ndim != 2 or array.shape[1] < 2:
        raise PairsError(
            f"{name} must have shape [pairs, dim] with at least 2 dimensions, got {array.shape}"
        )
    if len(array) < least:
        raise PairsError(
            f"{name} must have at least {least} rows, got {len(array)}; encode more pairs"
        )
    if not np.isfinite(array).all():
        raise PairsError(
            f"{name} must be finite, got {np.count_nonzero(~np.isfinite(array))} NaN or infinite "
            f"of {array.size}; the encoder may have diverged"
        )
    if not np.any(array, axis=1).all():
        raise PairsError(f"{name} must have no rows of zeros: they have no direction")
    return near_one(array)  # only directions and relative lengths matter


def _as_numpy(name: str, given: Any) -> FloatArray:
    try:
        # DLPack does not take all types of NumPy's arrays, nor those that are read-only. Arrays of
        # jax may lie on devices, where it does not reach; np.asarray fetches them.
        known = isinstance(given, np.ndarray) or hasattr(given, "sharding")
        by_dlpack = hasattr(given, "__dlpack__") and not known
        found = np.from_dlpack(given) if by_dlpack else np.asarray(given)
        # Types of other libraries, such as bfloat16, are of kind V and convert by themselves.
        if found.dtype.kind not in "biufV":
            raise TypeError(f"dtype {found.dtype}")
        return found.astype(np.float64)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise TypeError(
            f"{name} must be an array of real numbers in host memory, got {error}; for torch pass "
            "tensor.detach().cpu().float()"
        ) from error
