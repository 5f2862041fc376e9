"""Observations less their mean, over their spread: both taken from the data, and kept."""

import dataclasses
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from aninfonce_jax.models.encoder import Encoder, Layers
from aninfonce_jax.sources.arrays import as_fed, release_pages
from aninfonce_jax.types import Array, PyTree

# What is read of an array at once.
_CHUNK_BYTES = 16 * 2**20
# How many constant columns are named.
_NAMED = 8


@dataclasses.dataclass(frozen=True, eq=False)
class Standardised:
    """An encoder that is given standardised observations.

    Attributes:
      encoder: what is given them.
      mean: float32, of each column, or of each channel where observations have several axes.
      scale: likewise, what they are divided by.
    """

    encoder: Encoder
    mean: np.ndarray
    scale: np.ndarray

    @property
    def layers(self) -> tuple[str, ...]:
        """Those of the encoder."""
        return self.encoder.layers

    def init(self, key: Array, observations: Array) -> dict[str, PyTree]:
        """See `Encoder`."""
        return self.encoder.init(key, self._standardise(observations))

    def apply(
        self,
        variables: Mapping[str, PyTree],
        observations: Array,
        *,
        train: bool,
        key: Array | None = None,
    ) -> tuple[Layers, dict[str, PyTree]]:
        """See `Encoder`."""
        return self.encoder.apply(variables, self._standardise(observations), train=train, key=key)

    def _standardise(self, observations: Array) -> Array:
        shape = (1,) * (observations.ndim - 1) + self.mean.shape
        return (observations - jnp.reshape(self.mean, shape)) / jnp.reshape(self.scale, shape)


def examine(arrays: Sequence[np.ndarray], what: str = "X") -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and standard deviation of each column, of one pass over the rows.

    A column is constant if its standard deviation is 0, which then is given as 1.

    Args:
      arrays: of rows [n, ...] alike.
      what: what messages call them.

    Raises:
      ValueError: a value is not finite, or all columns are constant.
    """
    # Less the first row: a mean that is large beside the spread would drown it, and what is
    # constant comes out as exactly 0.
    origin = as_columns(arrays[0][:1])[0].astype(np.float64)
    count, total, squares = 0, np.zeros_like(origin), np.zeros_like(origin)
    for columns in (as_columns(chunk) for array in arrays for chunk in chunks(array)):
        check_finite(columns, what)
        away = columns - origin
        count += len(away)
        total += away.sum(0)
        squares += np.square(away).sum(0)
    offset = total / count
    spread = np.sqrt(np.maximum(squares / count - np.square(offset), 0.0))
    is_constant = squares == 0
    if is_constant.all():
        raise _all_alike(what)
    if is_constant.any() and arrays[0].ndim == 2:
        named = ", ".join(map(str, np.flatnonzero(is_constant)[:_NAMED]))
        more = " …" if is_constant.sum() > _NAMED else ""
        warnings.warn(
            f"{is_constant.sum()} of {len(origin)} columns of {what} are constant ({named}{more}): "
            "they tell nothing; leave them out",
            stacklevel=4,
        )
    spread[is_constant | (spread == 0)] = 1.0
    return (origin + offset).astype(np.float32), spread.astype(np.float32)


def check_varies(rows: np.ndarray, what: str) -> None:
    """Raises ValueError if all rows are the same; reads no further than to the first other one."""
    if len(rows) > 1 and not any((chunk != rows[:1]).any() for chunk in chunks(rows)):
        raise _all_alike(what)


def _all_alike(what: str) -> ValueError:
    return ValueError(
        f"all columns of {what} are constant: nothing tells one row from another; check how it "
        "was read"
    )


def as_columns(rows: np.ndarray) -> np.ndarray:
    """Returns rows [n, ..., columns] as [m, columns], as floats that the device would see."""
    fed = as_fed(rows)
    floats = fed / np.float32(255) if fed.dtype == np.uint8 else fed
    return floats.reshape(-1, floats.shape[-1])


def chunks(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the rows of an array some at a time, so that a mapped one is never read whole."""
    size = max(1, _CHUNK_BYTES // max(1, array[:1].size * 8))
    for start in range(0, len(array), size):
        yield array[start : start + size]
        release_pages(array)


def check_finite(values: np.ndarray, what: str) -> None:
    """Raises ValueError if there is a NaN or an infinity in float32."""
    if not np.isfinite(values).all():
        found = "NaN" if np.isnan(values).any() else "inf, or a value too large for float32"
        raise ValueError(
            f"{what} must be finite, got {found}; leave out or fill in such rows first"
        )


def inner_encoder(encoder: Encoder) -> Encoder:
    """Returns what is given standardised observations; of any other encoder, itself."""
    return encoder.encoder if isinstance(encoder, Standardised) else encoder


def statistics_of(tree: Any) -> dict[str, list[float]]:
    """Returns mean and scale of a standardised encoder as JSON holds them; {} of any other."""
    if not isinstance(tree, Standardised):
        return {}
    return {"mean": tree.mean.tolist(), "scale": tree.scale.tolist()}
