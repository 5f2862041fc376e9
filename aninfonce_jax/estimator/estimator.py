"""The estimator: `fit` on pairs of one's own, `transform` to embeddings."""

import contextlib
import dataclasses
import functools
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.config.schema import CheckpointConfig, EvalConfig, LogConfig
from aninfonce_jax.estimator import export, parts
from aninfonce_jax.estimator.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    NotFittedError,
    TransformerMixin,
)
from aninfonce_jax.estimator.checks import as_array, check_features, feature_names, is_fitted
from aninfonce_jax.estimator.description import as_json, describe
from aninfonce_jax.estimator.model import TrainedModel
from aninfonce_jax.estimator.prepare import Prepared, as_source, prepare, row_spec
from aninfonce_jax.estimator.saved import write_model
from aninfonce_jax.estimator.scoring import loss_of
from aninfonce_jax.estimator.sizes import PATIENCE, choose_sizes, is_number
from aninfonce_jax.estimator.standardise import inner_encoder
from aninfonce_jax.estimator.training import ContinuedExperiment, Start, snapshot_tree
from aninfonce_jax.placement import Placement, local_count
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.runs import train
from aninfonce_jax.scores import registry
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.training.session import DivergedError
from aninfonce_jax.training.trained import best_weights
from aninfonce_jax.types import Weights

_LARGEST_SEED = 2**32
# What a saved estimator keeps of a fit, besides its model.
_KEPT = ("n_iter_", "loss_curve_", "held_out_curve_", "held_out_loss_", "batch_size_")


class AnInfoNCE(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Learns embeddings from positive pairs, and how tightly each is held between views.

        model = an.AnInfoNCE(dim=8)
        model.fit(view1, view2)
        embeddings = model.transform(x)

    Args:
      dim: dimension of the embeddings.
      encoder: "mlp", "conv1d", "resnet10", "resnet18", "resnet34", "resnet50"; a Linen or NNX
        module, or functions (init, apply), whose embeddings must have `dim` dimensions. "auto":
        by the shape of the observations.
      objective: "aninfonce_no_l2", or "aninfonce" and "infonce" on the unit sphere, "lp"; or an
        `an.Objective`.
      pairs: makes pairs of one array: a function of X, or of X and `labels`, such as
        `an.pairs.time_lagged` and `an.pairs.grouped`. None: both views are given.
      steps: optimiser steps at most; None: chosen.
      batch_size: pairs of a step, over all devices; None: chosen by how many there are.
      optimizer: "muon", "adam", "adamw", or one of optax.
      learning_rate: of the encoder; None: what is usual for the optimiser.
      ema_decay: of the averaged weights that are kept; 0: the latest are.
      held_out: share of the pairs that is set aside to score on.
      early_stopping: whether a run ends once the held-out loss does not become better; the best
        weights are kept in any case.
      standardise: whether observations are standardised, column by column.
      workdir: where to keep checkpoints and metrics: the same call again goes on from there.
      warm_start: whether another `fit` goes on from the weights of the one before.
      verbose: 0: silent; 1: a progress line.
      seed: of everything random.
      random_state: scikit-learn's name of the seed; takes its place if it is given.

    Attributes:
      concentration_: Λ̂ [dim], where the objective learns one: how tightly each embedding is
        held between two views.
      loss_curve_: training loss at every logged step.
      held_out_curve_: (step, loss) of every evaluation on the pairs set aside.
      held_out_loss_: of the weights that are kept; NaN where nothing is set aside.
      n_iter_: step of the weights that are kept.
      batch_size_: pairs of a step.
      n_features_in_: values of an observation.
      feature_names_in_: names of the columns, of a frame that has them.
      model_: the `an.TrainedModel`.

    Example:
      >>> view1 = np.random.default_rng(0).normal(size=(100, 3))
      >>> view2 = view1 + 0.1 * np.random.default_rng(1).normal(size=view1.shape)
      >>> model = an.AnInfoNCE(dim=2, steps=2).fit(view1, view2)
      >>> model.transform(view1).shape, model.concentration_.shape
      ((100, 2), (2,))
    """

    def __init__(
        self,
        dim: int = 8,
        *,
        encoder: Any = "auto",
        objective: Any = "aninfonce_no_l2",
        pairs: Any = None,
        steps: int | None = None,
        batch_size: int | None = None,
        optimizer: Any = "muon",
        learning_rate: float | None = None,
        ema_decay: float = 0.98,
        held_out: float = 0.1,
        early_stopping: bool = True,
        standardise: bool = True,
        workdir: str | os.PathLike[str] | None = None,
        warm_start: bool = False,
        verbose: int = 0,
        seed: int = 0,
        random_state: Any = None,
    ) -> None:
        self.dim = dim
        self.encoder = encoder
        self.objective = objective
        self.pairs = pairs
        self.steps = steps
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.ema_decay = ema_decay
        self.held_out = held_out
        self.early_stopping = early_stopping
        self.standardise = standardise
        self.workdir = workdir
        self.warm_start = warm_start
        self.verbose = verbose
        self.seed = seed
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Trains on pairs, and keeps the best weights.

        Args:
          X: first views [n, ...]; a source; or an iterator of pairs. With a `pairs` rule, what
            the rule takes.
          y: second views, alike; with a rule that takes `labels`, these.

        Raises:
          TypeError, ValueError: they are no pairs, or an argument of the estimator is wrong.
          DivergedError: the loss stopped being finite.
          Preempted: it was asked to stop; in a `workdir`, the same call goes on.
        """
        start = None
        if self.warm_start and is_fitted(self):
            start = Start(self.model_.weights)
        prepared = self._prepare(X, y)
        if start is not None:
            self._check_like_before(prepared.shape)
        return self._train(prepared, start)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Goes over pairs once, from where the model stands; arguments as those of `fit`.

        Rates are constant, nothing is held out, and the optimiser's state is that of the
        `partial_fit` before. The encoder is that of the model, whatever the argument is now.

        Raises:
          TypeError, ValueError: as `fit`, or pairs and `dim` are others than before.
        """
        is_first = not is_fitted(self)
        prepared = self._prepare(X, y, is_partial=True)
        if is_first:
            return self._train(prepared, None, is_partial=True)
        self._check_like_before(prepared.shape)
        if self.dim != self.model_.dim:
            raise ValueError(
                f"partial_fit goes on with embeddings of {self.model_.dim} dimensions, got "
                f"dim={self.dim}; call fit for another model, or set dim back"
            )
        prepared = dataclasses.replace(prepared, encoder=self.model_.encoder)
        start = Start(self.model_.weights, getattr(self, "_opt_state", None))
        return self._train(prepared, start, is_partial=True)

    def transform(self, X: Any) -> np.ndarray:
        """Returns embeddings float32 [n, dim] of observations [n, ...].

        Some rows at a time are read: an array may be mapped and larger than memory.

        Raises:
          NotFittedError: `fit` comes first.
          ValueError: observations are others than those of `fit`, or not finite.
        """
        self._require_fitted()
        rows = X
        if not (self.model_.rows.resize and isinstance(X, list)):
            rows = as_array(X)
            check_features(rows, feature_names(X), self)
        return self.model_.transform(rows)

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> np.ndarray:
        """Fits, and returns the embeddings of X, the first views."""
        return self.fit(X, y, **fit_params).transform(X)

    def score(self, X: Any, y: Any = None) -> float:
        """Returns minus the loss on pairs, so that higher is better; arguments as those of `fit`.

        Like the held-out loss, it is that of batches of the size of training, or of all pairs
        where they are fewer.
        """
        self._require_fitted()
        if not self.model_.objective.tells_of_others:
            raise ValueError(
                f"{type(self.model_.objective).__name__} has no loss on pairs that it was not "
                "trained on; score its embeddings instead"
            )
        source = as_source(X, y, self.pairs)
        self._check_like_before(tuple(source.example().shape[1:]))
        return -loss_of(self.model_, source, self.batch_size_, self._seed())

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes the model into a folder, for `an.load`.

        Args:
          path: of the folder.
          overwrite: whether a model that is there already is replaced.

        Raises:
          NotFittedError: `fit` comes first.
          FileExistsError: a model is there and not to be replaced, or something else is.
        """
        write_model(path, self._content(), self.model_.weights, overwrite=overwrite)

    def export(
        self,
        path: str | os.PathLike[str],
        format: export.Format = "safetensors",
        *,
        overwrite: bool = False,
    ) -> None:
        """Writes the model into a folder, with a model card, for others: see `TrainedModel.export`.

        Args:
          path: of the folder.
          format: "safetensors", "stablehlo" or "onnx".
          overwrite: whether what was exported there before is replaced.

        Raises:
          NotFittedError: `fit` comes first.
          ModelError: a package is missing, or the encoder can't be written so.
          FileExistsError: something is there and not to be replaced.
        """
        content = self._content()
        export.export_model(self.model_, path, format, content=content, overwrite=overwrite)

    def _content(self) -> dict[str, Any]:
        """Returns what is written of it besides the weights."""
        self._require_fitted()
        params = {name: as_json(value) for name, value in self.get_params(deep=False).items()}
        # What only another `fit` would need.
        seed = self.random_state if isinstance(self.random_state, int) else None
        own = {"pairs": None, "workdir": None, "random_state": seed}
        return {
            "estimator": self._description,
            "params": {**params, **own},
            "fitted": {name: getattr(self, name) for name in _KEPT},
            "scores": dict(self.model_.scores),
        }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        tags.non_deterministic = False
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return is_fitted(self)

    @property
    def _n_features_out(self) -> int:
        return self.model_.dim

    def _require_fitted(self) -> None:
        if not is_fitted(self):
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with pairs "
                "first"
            )

    def _seed(self) -> int:
        given = self.seed if self.random_state is None else self.random_state
        if hasattr(given, "randint"):
            return int(given.randint(2**31))
        if hasattr(given, "integers"):
            return int(given.integers(2**31))
        if not hasattr(given, "__index__") or not 0 <= int(given) < _LARGEST_SEED:
            raise ValueError(f"seed must be a whole number from 0 to 2³² - 1, got {given!r}")
        return int(given)

    def _check_like_before(self, shape: tuple[int, ...]) -> None:
        """Raises ValueError if observations have another shape than those of `fit`."""
        expected = self.model_.rows.shape
        if shape != expected:
            found = int(np.prod(shape))
            raise ValueError(
                f"X has {found} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input: rows of shape {expected}"
            )

    def _prepare(self, X: Any, y: Any, *, is_partial: bool = False) -> Prepared:
        if not hasattr(self.dim, "__index__") or isinstance(self.dim, bool) or self.dim < 1:
            raise ValueError(f"dim must be a whole number, at least 1, got {self.dim!r}")
        # A word such as "no" would count as yes.
        for name in ("early_stopping", "standardise", "warm_start"):
            value = getattr(self, name)
            if not isinstance(value, bool | np.bool_):
                raise ValueError(f"{name} must be True or False, got {value!r}")
        if not hasattr(self.verbose, "__index__") or self.verbose < 0:
            raise ValueError(f"verbose must be 0 or 1, got {self.verbose!r}")
        # Pairs are set aside to be scored by their loss.
        sets_aside = not is_partial and parts.make_objective(self.objective).tells_of_others
        return prepare(
            as_source(X, y, self.pairs),
            names=feature_names(X),
            encoder=self.encoder,
            dim=int(self.dim),
            standardises=self.standardise,
            sizes=functools.partial(
                choose_sizes,
                batch_size=self.batch_size,
                steps=1 if is_partial else self.steps,
                held_out=self.held_out if sets_aside else 0.0,
                devices=local_count(),
            ),
        )

    def _experiment(
        self, prepared: Prepared, start: Start | None, *, is_partial: bool = False
    ) -> Experiment:
        sizes, seed = prepared.sizes, self._seed()
        steps = prepared.passes if is_partial else sizes.steps
        if not is_number(self.ema_decay) or not 0 <= self.ema_decay < 1:
            raise ValueError(f"ema_decay must be from 0 to below 1, got {self.ema_decay!r}")
        every = steps if is_partial else min(sizes.every, steps)
        return ContinuedExperiment(
            prepared.source,
            prepared.encoder,
            parts.make_objective(self.objective),
            parts.make_updates(
                self.optimizer,
                self.learning_rate,
                steps,
                is_of_mlp=bool(parts.describe_network(inner_encoder(prepared.encoder))),
                is_continued=is_partial,
            ),
            name="estimator",
            seed=seed + (self._calls if is_partial else 0),
            steps=steps,
            batch_size=sizes.batch_size,
            ema_decay=0.0 if is_partial else self.ema_decay,
            patience=PATIENCE if self.early_stopping and not is_partial else 0,
            evaluation=EvalConfig(every=every, held_out_batches=sizes.held_out_batches),
            checkpoint=CheckpointConfig(every=every, keep=1),
            log=LogConfig(every=max(1, every // 2), tensorboard=False),
            settings={"estimator": describe(self.get_params(deep=False), prepared)},
            start=start,
        )

    @property
    def _calls(self) -> int:
        """How often `partial_fit` went over pairs, so that each pass has an order of its own."""
        return getattr(self, "_partial_fits", 0)

    def _train(self, prepared: Prepared, start: Start | None, *, is_partial: bool = False) -> Self:
        experiment = self._experiment(prepared, start, is_partial=is_partial)
        placement = Placement.local(prepared.sizes.devices)
        with self._folder(is_partial) as folder:
            result = train(
                experiment,
                folder,
                placement=placement,
                progress="auto" if self.verbose else "off",
                label="fit",
            )
            rows = workdir_lib.read_metrics(folder / workdir_lib.METRICS_FILE)
            if is_partial:
                step, weights = int(result.state.step), result.state.weights
                self._opt_state = snapshot_tree(result.state.opt_state)
                self._partial_fits = self._calls + 1
            else:
                step, weights = best_weights(folder, experiment, placement)
                self.__dict__.pop("_opt_state", None)
        self._set_fitted(prepared, experiment, snapshot_tree(weights), step, rows)
        return self

    @contextlib.contextmanager
    def _folder(self, is_partial: bool) -> Iterator[AnyPath]:
        """Gives the work directory; without one, a folder that is gone afterwards."""
        if self.workdir is not None and not is_partial:
            yield workdir_lib.locate(self.workdir)
            return
        with tempfile.TemporaryDirectory(prefix="aninfonce_jax-") as name:
            try:
                yield Path(name)
            except DivergedError as error:
                # Its own message names a checkpoint, which goes with this folder.
                raise DivergedError(
                    "loss or gradient was not finite; pass a lower learning_rate, or check the "
                    "range of the observations"
                ) from error

    def _set_fitted(
        self,
        prepared: Prepared,
        experiment: Experiment,
        weights: Weights,
        step: int,
        rows: Sequence[Mapping[str, Any]],
    ) -> None:
        model = TrainedModel(
            experiment.encoder, experiment.objective, weights, row_spec(prepared), int(self.dim)
        )
        self.set_model(model, experiment.settings["estimator"])
        self.set_curves(rows, step)
        self.batch_size_ = experiment.batch_size

    def set_model(self, model: TrainedModel, description: Mapping[str, Any]) -> None:
        """Takes over a trained model, with the description that it can be made of again."""
        self.model_ = model
        self._description = dict(description)
        self.concentration_ = model.concentration_
        self.n_features_in_ = int(np.prod(model.rows.shape))
        self.__dict__.pop("feature_names_in_", None)
        if description["names"] is not None:
            self.feature_names_in_ = np.asarray(description["names"], dtype=object)

    def set_curves(self, rows: Sequence[Mapping[str, Any]], step: int) -> None:
        """Takes over what a run has written of its losses, and the step that is kept."""
        loss = registry.LOSS.key
        self.n_iter_ = step
        self.loss_curve_ = [row[loss] for row in workdir_lib.rows_of(rows, "train")]
        evals = workdir_lib.rows_of(rows, "eval")
        held_out = [(row[registry.STEP], row[loss]) for row in evals]
        self.held_out_curve_ = [list(pair) for pair in held_out if pair[1] is not None]
        self.held_out_loss_ = dict(held_out).get(step) or float("nan")
