"""What older versions of jax call differently; the rest of the package never asks for a version.

Each function prefers the present name. The other branch can go when the lower bound of jax
in setup.cfg passes the version that its comment names.
"""

from typing import Any

import jax
from jax import lax

from aninfonce_jax.types import Array


def abstract_platform(device: Any) -> str:
    """Returns the platform of a mesh's abstract device, such as "tpu"."""
    if hasattr(device, "platform"):
        return str(device.platform)
    # jax 0.7 tells the kind alone: "cpu", "TPU v4", or the name of a GPU.
    kind = device.device_kind.lower()
    return next((platform for platform in ("cpu", "tpu") if kind.startswith(platform)), "gpu")


def varying_axes(x: Array) -> frozenset[str]:
    """Returns the axes of a checked `shard_map` along which `x` may differ; else none."""
    kind: Any = jax.typeof(x)
    # Before jax 0.10 the set itself was the attribute.
    return kind.manual_axis_type.varying if hasattr(kind, "manual_axis_type") else kind.vma


def shape_varying_over(shape: tuple[int, ...], dtype: Any, axes: frozenset[str]) -> Any:
    """Returns the `ShapeDtypeStruct` of an array that differs along these mesh axes."""
    if hasattr(jax.sharding, "ManualAxisType"):
        varying = jax.sharding.ManualAxisType(varying=axes)
        return jax.ShapeDtypeStruct(shape, dtype, manual_axis_type=varying)
    # Before jax 0.10 the set itself was the argument.
    return jax.ShapeDtypeStruct(shape, dtype, vma=axes)  # type: ignore[call-arg]


def as_varying(x: Array, axes: tuple[str, ...]) -> Array:
    """Marks `x`, the same on every device along these mesh axes, as one that may differ."""
    if hasattr(lax, "pcast"):
        return lax.pcast(x, axes, to="varying")
    # Before jax 0.8.
    return lax.pvary(x, axes)  # type: ignore[attr-defined]


def coordination() -> Any:
    """Returns the client of the store that processes under `jax.distributed` share.

    jax has no public name for it; Orbax and others take it from here, too. None where
    `jax.distributed` is not initialised.
    """
    from jax._src import distributed

    return distributed.global_state.client


def place_among_processes() -> tuple[int, int]:
    """Returns which process this is, and of how many, as `jax.distributed` was told.

    `jax.process_index` would ask the devices, for which every process waits for all others.
    """
    from jax._src import distributed

    return distributed.global_state.process_id, distributed.global_state.num_processes
