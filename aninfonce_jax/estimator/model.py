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
from aninfonce_jax.estimator import export
from aninfonce_jax.estimator.saved import write_model
from aninfonce_jax.models.encoder import PARAMS, Encoder, embed
from aninfonce_jax.objectives.objective import Objective
from aninfonce_jax.placement import Placement
from aninfonce_jax.sources.arrays import as_fed, as_floats, release_pages
from aninfonce_jax.training.saved_trees import as_target
from aninfonce_jax.types import Array, Weights

# Rows that are encoded at a time: fewer of those that are large.
_MOST_ROWS = 1024
_BATCH_BYTES = 64 * 2**20
_BYTE = np.dtype(np.uint8)


class RowsError(ValueError):
    """Observations that a model does not take; its message is one line for the user."""


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
          RowsError: they are not what the model takes.
        """
        if self.resize and any(_is_other_image(row, self.shape) for row in rows):
            decoder = Decoder(self.shape[0], channels=self.shape[-1])
            given = np.stack([decoder(np.asarray(row)) for row in rows])
        else:
            try:
                given = np.asarray(rows)
            except ValueError as error:
                raise RowsError(f"rows must all have shape {self.shape}: {error}") from error
        if given.shape[1:] != self.shape:
            raise RowsError(
                f"rows of shape {self.shape} are expected, as the model was trained on, got "
                f"{given.shape[1:]}"
            )
        if self.observe is not None and given.dtype != _BYTE:
            raise RowsError(
                f"images are expected as uint8 [height, width, {self.shape[-1]}], got "
                f"{given.dtype}; of values from 0 to 1, (255 * x).astype(np.uint8)"
            )
        try:
            # What was trained on floats takes bytes as numbers like any others.
            return as_fed(given) if self.is_bytes else np.asarray(given, np.float32)
        except (TypeError, ValueError) as error:
            raise RowsError(f"rows must hold real numbers, got {given.dtype}: {error}") from error

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
      scores: of its last evaluation, for a model card.

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
        scores: Mapping[str, Any] | None = None,
    ) -> None:
        self.encoder = encoder
        self.objective = objective
        self.weights = weights
        self.rows = rows
        self.dim = dim
        self.devices = devices
        self.config = config
        self.scores = scores or {}
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
          RowsError: it holds other observations than the model was trained on, or NaN.
        """
        if not hasattr(x, "__len__") or not hasattr(x, "__getitem__"):
            raise RowsError(f"rows of shape {self.rows.shape} are expected, got {x!r}")
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
                raise RowsError(
                    f"X must be finite, got {found} in rows {start} to {start + len(fed) - 1}"
                )
            padded = np.concatenate([fed, np.zeros((size - len(fed), *fed.shape[1:]), fed.dtype)])
            release_pages(x)
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
        placed: Weights = self._placement.put_whole(self.typed_weights)
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

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes the model of a config's run into a folder, for `an.load`.

        Args:
          path: of the folder.
          overwrite: whether a model that is there already is replaced.
        """
        write_model(path, self._content, self.weights, overwrite=overwrite)

    def export(
        self,
        path: str | os.PathLike[str],
        format: export.Format = "safetensors",
        *,
        overwrite: bool = False,
    ) -> None:
        """Writes the model of a config's run into a folder, with a model card, for others.

        Args:
          path: of the folder.
          format: "safetensors": weights and settings as the Hugging Face Hub has them, which
            `an.load` opens too; "stablehlo": a program for `jax.export.deserialize`, with the
            weights in it, for CPU, TPU and CUDA; "onnx".
          overwrite: whether what was exported there before is replaced.

        Raises:
          ModelError: a package is missing, or the encoder can't be written so.
          FileExistsError: something is there and not to be replaced.
        """
        export.export_model(self, path, format, content=self._content, overwrite=overwrite)

    @property
    def _content(self) -> dict[str, Any]:
        """What is written of it besides the weights."""
        if self.config is None:
            raise ValueError(
                "a model of an estimator is saved and exported by the estimator: estimator.save"
            )
        return {"config": dict(self.config), "scores": dict(self.scores)}

    def embeddings(self, weights: Weights, rows: Array) -> Array:
        """Returns embeddings float32 [n, dim] of rows as they go to the device; traced."""
        variables = {PARAMS: weights.params["encoder"], **weights.model_state}
        found = embed(self.encoder, variables, self.rows.observations(rows))
        return self.objective.compared(found).astype(jnp.float32)

    @functools.cached_property
    def _embed(self) -> Callable[[Weights, Array], Array]:
        placement = self._placement
        return jax.jit(
            self.embeddings,
            in_shardings=(placement.whole, placement.split),
            out_shardings=placement.whole,
        )
