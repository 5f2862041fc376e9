"""An estimator in JSON: all that a model needs besides its weights to be made again."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from aninfonce_jax.estimator import parts
from aninfonce_jax.estimator.model import RowSpec
from aninfonce_jax.estimator.prepare import Prepared, row_spec
from aninfonce_jax.estimator.standardise import Standardised, inner_encoder, statistics_of
from aninfonce_jax.models.encoder import Encoder
from aninfonce_jax.objectives.objective import Objective
from aninfonce_jax.sources.source import Source
from aninfonce_jax.types import Array, Pairs, PyTree

# Stands for what was an object, which whoever loads the model passes again.
GIVEN = "given"


class GivenError(ValueError):
    """A model was made with an object of one's own, which must be passed again."""


@dataclasses.dataclass(frozen=True)
class Remade:
    """The parts of a model that follow from its description."""

    encoder: Encoder
    objective: Objective
    rows: RowSpec
    names: np.ndarray | None


def describe(params: Mapping[str, Any], prepared: Prepared) -> dict[str, Any]:
    """Returns what is written of an estimator that is trained on prepared data.

    Args:
      params: of the estimator.
      prepared: its data.
    """
    rows = row_spec(prepared)
    names = prepared.names
    objective = parts.make_objective(params["objective"])
    objective = objective.for_run(prepared.source, prepared.encoder)
    return {
        "dim": int(params["dim"]),
        "encoder": _name(params["encoder"]),
        "network": parts.describe_network(inner_encoder(prepared.encoder)),
        "objective": parts.describe_objective(objective) or GIVEN,
        "optimizer": _name(params["optimizer"]),
        **{name: as_json(params[name]) for name in ("learning_rate", "held_out", "standardise")},
        "shape": list(rows.shape),
        "is_bytes": rows.is_bytes,
        "resize": rows.resize,
        "names": None if names is None else [str(name) for name in names],
        "statistics": statistics_of(prepared.encoder),
        "data": prepared.source.fingerprint(),
    }


def remake(described: Mapping[str, Any], given: Mapping[str, Any]) -> Remade:
    """Returns the parts of a described model.

    Args:
      described: as `describe` returned it.
      given: objects for what was one: "encoder", "objective".

    Raises:
      GivenError: one is missing.
    """
    dim, shape = described["dim"], tuple(described["shape"])
    network = described.get("network", parts.earlier_network(dim, shape))
    encoder = parts.make_encoder(choose("encoder", described, given), dim, shape, network)
    if described["statistics"]:
        values = {
            name: np.asarray(own, np.float32) for name, own in described["statistics"].items()
        }
        encoder = Standardised(encoder, **values)
    parts.check_dim(encoder, described["dim"], shape)
    objective = choose("objective", described, given)
    if isinstance(objective, dict):
        objective = parts.read_objective(objective)
    names = described["names"]
    return Remade(
        encoder,
        parts.make_objective(objective),
        RowSpec(shape, described["is_bytes"], resize=described["resize"]),
        None if names is None else np.asarray(names, dtype=object),
    )


def choose(name: str, described: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """Returns a part as described, or the object for what was one."""
    if described[name] != GIVEN:
        return described[name]
    if given.get(name) is None:
        raise GivenError(
            f"the model has {'an' if name[0] in 'eo' else 'a'} {name} of one's own, whose code is "
            f"not saved; pass it: an.load(path, {name}=...)"
        )
    return given[name]


def as_json(value: Any) -> Any:
    """Returns an argument as JSON holds it; an object is passed again when a model is loaded."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value.item() if isinstance(value, np.generic) else GIVEN


def _name(given: Any) -> str:
    return given if isinstance(given, str) else GIVEN


@dataclasses.dataclass(frozen=True)
class Shapes(Source):
    """Stands for data that is not at hand: a run can be restored, but not trained."""

    shape: tuple[int, ...]

    def example(self) -> Array:
        """Returns two empty observations."""
        return jnp.zeros((2, *self.shape))

    def pairs(self, key: Array, fed: PyTree, batch_size: int) -> Pairs:
        """Raises RuntimeError: there are none."""
        raise RuntimeError("a model that was loaded has no pairs; pass them to fit")
