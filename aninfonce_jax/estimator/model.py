"""A trained model: from observations to embeddings, some rows at a time."""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.data.decode import Decoder
from aninfonce_jax.estimator.saved import write_model
from aninfonce_jax.models.encoder import PARAMS, Encoder, embed
from aninfonce_jax.objectives.objective import Objective
from aninfonce_jax.placement import Placement
from aninfonce_jax.sources.arrays import as_fed, as_floats
from aninfonce_jax.training.saved_trees import as_target
from aninfonce_jax.types import Array, Weights

# Rows that are encoded at a time: fewer of those that are large.
_MOST_ROWS = 1024
_BATCH_BYTES = 64 * 2**20
_BYTE = np.dtype(np.uint8)


@dataclasses.dataclass(frozen=True)
class RowSpec:
    """What observations a model takes.

    Attributes:
      shape: of one.
      is_bytes: whether it was trained on bytes, which then mean values from 0 to 1.
      observe: uint8 rows [batch, ...] -> observations, where that takes more; traced.
      resize: whether images of other sizes are brought to this one.
    """

    shape: tuple[int, ...]
    is_bytes: bool
    observe: Callable[[Array], Array] | None = None
    resize: bool = False

    def fed(self, rows: Sequence[Any]) -> np.ndarray:
        """Returns rows as they go to the device.

        Raises:
          ValueError: they are not what the model takes.
        """
        if self.resize and any(_is_other_image(row, self.shape) for row in rows):
            decoder = Decoder(self.shape[0], channels=self.shape[-1])
            given = np.stack([decoder(np.asarray(row)) for row in rows])
        else:
            given = np.asarray(rows)
        if given.shape[1:] != self.shape:
            raise ValueError(
                f"rows of shape {self.shape} are expected, as the model was trained on, got "
                f"{given.shape[1:]}"
            )
        if self.observe is not None and given.dtype != _BYTE:
            raise ValueError(
                f"images are expected as uint8 [height, width, {self.shape[-1]}], got "
                f"{given.dtype}; of values from 0 to 1, (255 * x).astype(np.uint8)"
            )
        # What was trained on floats takes bytes as numbers like any others.
        return as_fed(given) if self.is_bytes else np.asarray(given, np.float32)

    @property
    def fed_dtype(self) -> np.dtype:
        """In what rows go to the device."""
        return _BYTE if self.is_bytes else np.dtype(np.float32)

    def observations(self, rows: Array) -> Array:
        """Returns rows as the encoder takes them; traced."""
        return as_floats(rows) if self.observe is None else self.observe(rows)


def _is_other_image(row: Any, shape: tuple[int, ...]) -> bool:
    row = np.asarray(row)
    return row.dtype == _BYTE and row.ndim == 3 and row.shape != shape


class TrainedModel:
    """An encoder with its weights.

        model = an.load("runs/cifar10")
        embeddings = model.transform(images)

    Args:
      encoder: from observations to embeddings.
      objective: that it was trained by.
      weights: of both, arrays of NumPy.
      rows: what observations it takes.
      dim: of the embeddings.
      devices: how many share a batch; None: all of this process.
      config: values of the config that the run was made by, if it was.

    Attributes:
      concentration_: Λ̂ [dim], where the objective learns one, else None: how tightly each
        embedding is held between two views.
      dim: of the embeddings.
    """

    def __init__(
        self,
        encoder: Encoder,
        objective: Objective,
        weights: Weights,
        rows: RowSpec,
        dim: int,
        devices: int | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.encoder = encoder
        self.objective = objective
        self.weights = weights
        self.rows = rows
        self.dim = dim
        self.devices = devices
        self.config = config
        learned = objective.concentration(weights.params["objective"], dim)
        self.concentration_ = None if learned is None else np.asarray(learned)

    def __getstate__(self) -> dict[str, Any]:
        compiled = ("_placement", "_embed", "_placed")
        return {name: value for name, value in self.__dict__.items() if name not in compiled}

    def transform(self, x: Any) -> np.ndarray:
        """Returns embeddings float32 [n, dim] as the objective compares them.

        Args:
          x: observations [n, ...], an array in memory or mapped, of which some rows at a time
            are read; for models of images also a list of uint8 images of any sizes.

        Raises:
          ValueError: it holds other observations than the model was trained on, or NaN.
        """
        out = np.empty((len(x), self.dim), np.float32)
        start = 0
        for embeddings in self.transform_batches(x):
            out[start : start + len(embeddings)] = embeddings
            start += len(embeddings)
        return out

    def transform_batches(self, x: Any) -> Iterator[np.ndarray]:
        """Yields the embeddings of `transform` some rows at a time."""
        size = self.batch_size
        for start in range(0, len(x), size):
            fed = self.rows.fed(x[start : start + size])
            if fed.dtype != _BYTE and not np.isfinite(fed).all():
                found = "NaN" if np.isnan(fed).any() else "inf, or a value too large for float32"
                raise ValueError(
                    f"X must be finite, got {found} in rows {start} to {start + len(fed) - 1}"
                )
            padded = np.concatenate([fed, np.zeros((size - len(fed), *fed.shape[1:]), fed.dtype)])
            embeddings = self._embed(self._placed, self._placement.put_rows(padded))
            yield np.asarray(embeddings)[: len(fed)]

    @functools.cached_property
    def batch_size(self) -> int:
        """Rows that are encoded at a time, a multiple of the devices."""
        each = max(1, _BATCH_BYTES // (4 * int(np.prod(self.rows.shape))))
        return -(-min(_MOST_ROWS, each) // self._placement.size) * self._placement.size

    @functools.cached_property
    def _placement(self) -> Placement:
        return Placement.local(self.devices)

    @functools.cached_property
    def _placed(self) -> Weights:
        placed: Weights = jax.device_put(self.typed_weights, self._placement.whole)
        return placed

    @property
    def typed_weights(self) -> Weights:
        """The weights, with random keys where there are only their numbers in `weights`."""
        example = jnp.zeros((2, *self.observed_shape))
        variables = jax.eval_shape(self.encoder.init, jax.random.key(0), example)
        params = {**self.weights.params, "encoder": variables.pop(PARAMS)}
        target = Weights(params, variables)
        typed: Weights = jax.tree.map(as_target, self.weights, target)
        return typed

    @property
    def observed_shape(self) -> tuple[int, ...]:
        """The shape of an observation as the encoder takes it."""
        fed = jax.ShapeDtypeStruct((2, *self.rows.shape), self.rows.fed_dtype)
        return jax.eval_shape(self.rows.observations, fed).shape[1:]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model of a config's run into a folder, for `an.load`."""
        if self.config is None:
            raise ValueError("a model of an estimator is saved by the estimator: estimator.save")
        write_model(path, {"config": dict(self.config)}, self.weights)

    @functools.cached_property
    def _embed(self) -> Callable[[Weights, Array], Array]:
        def embeddings(weights: Weights, rows: Array) -> Array:
            variables = {PARAMS: weights.params["encoder"], **weights.model_state}
            found = embed(self.encoder, variables, self.rows.observations(rows))
            return self.objective.compared(found).astype(jnp.float32)

        placement = self._placement
        return jax.jit(
            embeddings,
            in_shardings=(placement.whole, placement.split),
            out_shardings=placement.whole,
        )
