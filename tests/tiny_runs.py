"""Runs of seconds through the real loop, for tests that need work directories as it writes them."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from training.toy_experiment import make_experiment

import aninfonce_jax as an
from aninfonce_jax.types import Intervention


def train(experiment: an.Experiment, folder: Path, command: str = "") -> Path:
    """Trains an experiment in a folder, which is returned."""
    placement = an.Placement.local(1)
    an.train(experiment, folder, placement=placement, progress="off", command=command)
    return folder


def train_pairs(folder: Path) -> Path:
    """Trains a run of which nothing but pairs is known."""
    return train(make_experiment(), folder)


def train_known(folder: Path) -> Path:
    """Trains a run of which everything is known, with an encoder of one layer."""

    def init(key, observations):
        return 0.5 * jax.random.normal(key, (observations.shape[1], 3))

    return train(
        an.Experiment(
            Chords(),
            an.FunctionEncoder(init, lambda weights, x: x @ weights),
            an.objectives.AnInfoNCE(negatives="both", normalize=True),
            optax.adam(1e-2),
            name="chords",
            steps=4,
            batch_size=16,
            steps_per_dispatch=2,
            evaluation=an.EvalConfig(
                every=2, held_out_batches=2, samples=64, readout_examples=20, views=20
            ),
            checkpoint=an.CheckpointConfig(every=4),
            log=an.LogConfig(every=2, tensorboard=False),
        ),
        folder,
    )


class _Batch(NamedTuple):
    observation: np.ndarray
    label: np.ndarray
    mask: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Labelled observations."""

    observations: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def choose(self, count: int, seed: int) -> "_Rows":
        order = np.random.default_rng(seed).permutation(len(self))[: count or None]
        return _Rows(self.observations[order], self.labels[order])

    def batches(self, rows: Any) -> "_Feed":
        return _Feed(self, rows.batch_size)


class _Feed(contextlib.AbstractContextManager):
    def __init__(self, rows: _Rows, size: int) -> None:
        self.unreadable: dict[int, str] = {}
        self._batches = iter(
            [self._padded(rows, start, size) for start in range(0, len(rows), size)]
        )

    def __iter__(self) -> "_Feed":
        return self

    def __next__(self) -> _Batch:
        return next(self._batches)

    def __exit__(self, *_: object) -> None:
        pass

    @staticmethod
    def _padded(rows: _Rows, start: int, size: int) -> _Batch:
        index = np.arange(start, start + size)
        inside = index % len(rows)
        return _Batch(rows.observations[inside], rows.labels[inside], index < len(rows))


class _Operations:
    """Two things that can be done to a chord, of names that the package has not seen."""

    names = ("louder", "reversed")
    averaged = ("louder", "reversed")

    def has_strength(self, name: str) -> bool:
        return name == "louder"

    def occurs(self, name: str) -> bool:
        return name == "louder"

    def intervene(self, key, batch, name, *, strength, context):
        del strength, context
        x = batch.observation
        factor = 1 + jax.random.uniform(key, (x.shape[0],))
        if name == "louder":
            return Intervention(x, x * factor[:, None], factor)
        return Intervention(x, x[:, ::-1], jnp.zeros(x.shape[0]))


class Chords(an.Source):
    """Sums of two tones of known loudness; the class says which is louder."""

    _TONES = np.sin(np.outer([0.3, 0.8], np.arange(8.0))).astype(np.float32)

    @property
    def known(self):
        rng = np.random.default_rng(0)
        latents = rng.normal(size=(60, 2)).astype(np.float32)
        rows = _Rows(latents @ self._TONES, (latents[:, 0] > latents[:, 1]).astype(np.int32))
        train, test = (
            _Rows(rows.observations[part], rows.labels[part])
            for part in (slice(40), slice(40, None))
        )
        return an.Known(
            latents=an.Latents(self._draw, concentration=np.array([9.0, 4.0])),
            examples=an.Examples(
                train, test, lambda batch: batch.observation, classes=2, views=self._louder
            ),
            interventions=_Operations(),
        )

    def samples(self, key, count):
        return np.asarray(jax.random.uniform(key, (count, 2, 4, 4, 1)))

    @staticmethod
    def _louder(key, batch):
        return _Operations().intervene(key, batch, "louder", strength="", context="").applied

    def _draw(self, key, count):
        latents = jax.random.normal(key, (count, 2))
        return latents, latents @ self._TONES

    def example(self):
        return jnp.zeros((2, 8))

    def pairs(self, key, fed, batch_size):
        del fed
        latents, noise = jax.random.split(key)
        first = jax.random.normal(latents, (batch_size, 2))
        second = first + 0.3 * jax.random.normal(noise, first.shape)
        return an.Pairs(first @ self._TONES, second @ self._TONES, first, second)
