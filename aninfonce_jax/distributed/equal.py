"""Refusing processes that would train something else than the others."""

import importlib.metadata
import platform
import sys
from collections.abc import Mapping
from typing import Any

from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.config.values import shown
from aninfonce_jax.distributed.peers import Peers

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
# Settings of jax, mostly from variables such as JAX_ENABLE_X64, that change programs or numbers.
_SETTINGS = (
    "jax_enable_x64",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_random_seed_offset",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_disable_jit",
)
# How many differences of a process are told.
_MOST_TOLD = 4


def versions() -> dict[str, str]:
    """Returns the versions of all that the numbers of a run depend on."""
    return {
        # Not from its metadata, which a copy that was never installed lacks.
        "aninfonce_jax": str(sys.modules["aninfonce_jax"].__version__),
        **{name: _version(name) for name in _PACKAGES},
        "Python": platform.python_version(),
    }


def settings() -> dict[str, str]:
    """Returns the settings of jax that the numbers of a run depend on.

    Processes that differ in them would begin with other weights each, or wait for each other in
    programs that do not fit together.
    """
    import jax

    return {name: str(getattr(jax.config, name, None)) for name in _SETTINGS}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def require_equal(peers: Peers, what: str, values: Mapping[str, Any]) -> None:
    """Raises ConfigError, in every process, if one has other values than process 0.

    Args:
      peers: all processes.
      what: is compared, for messages.
      values: of this process, by what they are.
    """

    def judge(all_values: list[dict[str, Any]]) -> str:
        first = all_values[0]
        for process, own in enumerate(all_values):
            names = [name for name in first | own if own.get(name) != first.get(name)]
            if names:
                told = [
                    f"{name} is {shown(own.get(name))} there and {shown(first.get(name))} here"
                    for name in names[:_MOST_TOLD]
                ]
                more = [f"{len(names) - _MOST_TOLD} more differ"] * (len(names) > _MOST_TOLD)
                return (
                    f"process {process} differs from process 0: {'; '.join(told + more)}; make "
                    "all processes alike"
                )
        return ""

    if peers.are_many and (problem := peers.decide(what, dict(values), judge)):
        raise ConfigError(problem)
