"""`an.load`: a saved model, or the work directory of any run; its data need not be there."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from aninfonce_jax import config as config_lib
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.build import build_shapes
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.estimator import card, parts
from aninfonce_jax.estimator.description import GIVEN, GivenError, Shapes, choose, remake
from aninfonce_jax.estimator.estimator import AnInfoNCE
from aninfonce_jax.estimator.model import RowsError, RowSpec, TrainedModel
from aninfonce_jax.estimator.saved import (
    MODEL_FILE,
    Form,
    ModelError,
    find_form,
    read_model,
    read_weights,
)
from aninfonce_jax.estimator.training import snapshot_tree
from aninfonce_jax.placement import Placement
from aninfonce_jax.remote import AnyPath
from aninfonce_jax.training.experiment import Experiment
from aninfonce_jax.training.trained import best_weights, latest_weights
from aninfonce_jax.types import Weights

# Errors that the user can mend: another model, or other rows.
USER_ERRORS = (ConfigError, GivenError, ModelError, RowsError)


def load(
    path: str | os.PathLike[str],
    *,
    encoder: Any = None,
    objective: Any = None,
    optimizer: Any = None,
) -> AnInfoNCE | TrainedModel:
    """Opens a saved model, or the work directory of a run; its data need not be there.

    Args:
      path: what `save` or `export(path, "safetensors")` wrote, the `workdir` of an estimator, or
        that of any run of a config.
      encoder: where the model was trained with a module or functions of one's own: these again.
      objective: likewise.
      optimizer: likewise, for the work directory of an estimator.

    Returns:
      The estimator or, of a run of a config, its `TrainedModel`.

    Raises:
      ModelError: what is there can't be used.
      WorkdirError, CheckpointError: a work directory can't be, or has no checkpoint yet.

    Example:
      >>> x = np.random.default_rng(0).normal(size=(100, 3))
      >>> model = an.AnInfoNCE(dim=2, steps=2).fit(x, x + 0.1)
      >>> model.save("my-model")
      >>> np.array_equal(an.load("my-model").transform(x), model.transform(x))
      True
    """
    given = {"encoder": encoder, "objective": objective, "optimizer": optimizer}
    folder = workdir_lib.locate(path)
    form = find_form(folder) if isinstance(folder, Path) else None
    if isinstance(folder, Path) and form is not None:
        try:
            return _load_saved(folder, form, given)
        except USER_ERRORS:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if any(part is not None for part in given.values()):  # perhaps their mistake
                raise
            raise ModelError(
                f"{folder / form.model_file} is damaged, or of another version "
                f"({type(error).__name__}: {error}); save the model again"
            ) from error
    if workdir_lib.has_config(folder):
        return _load_workdir(folder, given)
    problem = "holds no model" if folder.exists() else "does not exist"
    if folder.is_file():
        problem = "is a file, and a model is a folder"
    if folder.is_dir():
        below = sorted(path.name for path in folder.iterdir() if workdir_lib.has_config(path))
        if below:
            raise ModelError(f"{folder} holds {len(below)} runs; name one: {', '.join(below)}")
    raise ModelError(
        f"{folder} {problem}: expected what model.save() wrote ({MODEL_FILE}), or the work "
        f"directory of a run ({workdir_lib.CONFIG_FILE})"
    )


def _load_saved(folder: Path, form: Form, given: Mapping[str, Any]) -> AnInfoNCE | TrainedModel:
    content = read_model(folder, form)
    scores = content.get("scores", {})
    if "config" in content:
        try:
            config = config_lib.from_dict(content["config"])
        except ConfigError as error:
            raise ModelError(
                f"{folder / form.model_file} is of another version: {error}"
            ) from error
        experiment = build_shapes(config)
        weights = read_weights(folder, form, content, _shapes(experiment))
        return _of_config(experiment, weights, content["config"], scores)
    # Only the weights of this experiment are used: any optimiser will do.
    experiment = _experiment(content["estimator"], optimizer="adam", ema_decay=0.0, given=given)
    weights = read_weights(folder, form, content, _shapes(experiment))
    params = dict(content["params"])
    if params["objective"] == GIVEN:  # perhaps one of ours, whose settings are known
        params["objective"] = remake(content["estimator"], given).objective
    if params["optimizer"] == GIVEN:  # needed to train on, and asked for then
        params["optimizer"] = given["optimizer"]
    params = {name: choose_param(name, params, given) for name in params}
    model = AnInfoNCE(**params)
    return _fitted(model, content["estimator"], given, weights, content["fitted"], scores)


def _load_workdir(folder: AnyPath, given: Mapping[str, Any]) -> AnInfoNCE | TrainedModel:
    saved = workdir_lib.read_saved(folder)
    values = saved.values
    scores = card.scores_to_keep(workdir_lib.read_eval(folder, saved.hash).scores)
    placement = Placement.local(1)
    if not workdir_lib.is_made_in_code(values):
        experiment = build_shapes(workdir_lib.read_config(folder))
        _, weights = latest_weights(folder, experiment, placement)
        return _of_config(experiment, snapshot_tree(weights), values, scores)
    described = values.get("settings", {}).get("estimator")
    if described is None:
        raise ModelError(
            f"{folder} holds an experiment that was made in code, of parts that are not written "
            "down; restore it there, an.train(experiment, workdir), or save an estimator"
        )
    params = {
        "dim": described["dim"],
        **{name: described[name] for name in ("encoder", "optimizer", "learning_rate")},
        "steps": values["steps"],
        "batch_size": values["batch_size"],
        "ema_decay": values["ema_decay"],
        "early_stopping": values["patience"] > 0,
        "seed": values["seed"],
        # A run of before these were written down has the defaults.
        **{name: described[name] for name in ("held_out", "standardise") if name in described},
    }
    experiment = _experiment(
        described,
        optimizer=choose("optimizer", described, given),
        ema_decay=values["ema_decay"],
        given=given,
    )
    step, weights = best_weights(folder, experiment, placement)
    rows = workdir_lib.read_metrics(folder / workdir_lib.METRICS_FILE)
    params = {name: choose_param(name, params, given) for name in params}
    model = AnInfoNCE(objective=remake(described, given).objective, **params)
    model.set_curves(rows, step)
    attributes = {"batch_size_": values["batch_size"]}
    return _fitted(model, described, given, snapshot_tree(weights), attributes, scores)


def choose_param(name: str, params: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """Returns an argument as saved, or the object that was passed in its place."""
    return choose(name, params, given) if name in given else params[name]


def _experiment(
    described: Mapping[str, Any], *, optimizer: Any, ema_decay: float, given: Mapping[str, Any]
) -> Experiment:
    """Returns an experiment whose state has the shapes of the described run."""
    remade = remake(described, given)
    return Experiment(
        Shapes(remade.rows.shape),
        remade.encoder,
        remade.objective,
        parts.make_updates(optimizer, described["learning_rate"], steps=1),
        ema_decay=ema_decay,
    )


def _shapes(experiment: Experiment) -> Weights:
    weights: Weights = jax.eval_shape(experiment.init_state).weights
    return weights


def _fitted(
    model: AnInfoNCE,
    described: Mapping[str, Any],
    given: Mapping[str, Any],
    weights: Weights,
    attributes: Mapping[str, Any],
    scores: Mapping[str, Any],
) -> AnInfoNCE:
    remade = remake(described, given)
    trained = TrainedModel(
        remade.encoder,
        remade.objective,
        weights,
        remade.rows,
        described["dim"],
        scores=scores,
    )
    model.set_model(trained, described)
    for name, value in attributes.items():
        setattr(model, name, float("nan") if value is None else value)
    return model


def _of_config(
    experiment: Experiment,
    weights: Weights,
    values: Mapping[str, Any],
    scores: Mapping[str, Any],
) -> TrainedModel:
    compared = jax.eval_shape(
        experiment.objective.compared,
        jax.ShapeDtypeStruct((1, experiment.embedding_dim), "float32"),
    )
    return TrainedModel(
        experiment.encoder,
        experiment.objective,
        weights,
        RowSpec(*experiment.source.row_form),
        compared.shape[1],
        config=dict(values),
        scores=scores,
    )
