"""What a part of an experiment that was made in code tells of itself, as JSON holds it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

# Longer ones are data or weights, not settings.
_LONGEST = 256
# What Flax keeps in every module for itself.
_OF_FLAX = ("parent", "name")


def describe_part(part: Any) -> dict[str, Any]:
    """Returns the class of a source, an encoder or an objective, and its settings.

    Settings are the fields of a dataclass, as deep as dataclasses go, which Linen's modules are
    too: numbers, texts, and short vectors such as a Λ. Anything else is told by its class.
    """
    told: dict[str, Any] = {"kind": type(part).__name__}
    if dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            if field.name not in _OF_FLAX:
                told[field.name] = _describe(getattr(part, field.name))
    return told


def _describe(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | Mapping) and len(value) > _LONGEST:
        return f"{len(value)} items"
    if isinstance(value, list | tuple):
        return [_describe(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _describe(item) for name, item in value.items()}
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        # A matrix may be computed, and differ in its last bits on another machine.
        if value.ndim < 2 and value.size <= _LONGEST and value.dtype.kind in "biuf":
            return value.tolist()
        return f"{value.dtype}{list(value.shape)}"
    # A class, or a function.
    return getattr(value, "__name__", None) or describe_part(value)
