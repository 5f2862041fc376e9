"""Which code computes a tile of scores, once it is known where the program will run."""

import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
from jax import lax

from aninfonce_jax.losses.plan import Plan


def kernels() -> ModuleType:
    """Returns the module of that name."""
    # Pallas takes a second to import, and small losses never need it.
    return importlib.import_module("aninfonce_jax.losses.kernels")


def on_platform(
    plan: Plan, chunked: Callable[..., Any], fused: Callable[..., Any]
) -> Callable[..., Any]:
    """Returns what computes a tile on the platform that will run it.

    The choice is left to lowering, for code may be traced on one platform and compiled for
    another.

    Args:
      plan: how tiles are to be computed.
      chunked: computes them with JAX's own operations.
      fused: computes them in kernels, and takes `interpret`.
    """
    if plan.tile in ("dense", "chunked"):
        return chunked
    branches: dict[str, Callable[..., Any]] = {"tpu": functools.partial(fused, interpret=False)}
    if plan.tile == "fused":
        branches["default"] = chunked
    else:
        branches["cpu"] = functools.partial(fused, interpret=True)

    @jax.custom_jvp
    def compute(*arguments: Any) -> Any:
        return lax.platform_dependent(*arguments, **branches)

    # Kernels have no derivative of their own; both compute the same.
    compute.defjvp(functools.partial(jax.jvp, chunked))
    return compute
