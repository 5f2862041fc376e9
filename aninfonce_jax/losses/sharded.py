"""A loss on arrays that are sharded under `jit`."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike

from aninfonce_jax.losses.scale import AxisName
from aninfonce_jax.types import LossOutput


def over_mesh(
    loss: Callable[..., LossOutput], mesh: Mesh, axis_name: AxisName
) -> Callable[..., LossOutput]:
    """Returns `loss` for global arrays, computed by every device on its own rows.

    Use it inside `jit`, where the encoder is partitioned automatically, and differentiate
    as if there were one device: nothing is to be averaged or rescaled.

        loss = an.over_mesh(an.aninfonce_loss, mesh, "data")
        out = loss(view1, view2, concentration)

        loss = an.over_mesh(an.infonce_loss, mesh, "data")
        out = loss(view1, view2, temperature=temperature)

    Args:
      loss: a loss of two views and further parameters that takes `axis_name`.
      mesh: the devices.
      axis_name: the axis, or axes, of `mesh` that the batch is spread over.

    Returns:
      A function of view1, view2 [batch, dim], whose rows the mesh must divide, and of the
      loss's other arguments, by position or keyword. An array of `negatives` is spread by
      rows like the views. Its `per_anchor` lists anchors device by device.

    Raises:
      ValueError: an axis that the mesh does not have or, when called, rows that it does not
        divide.
    """
    axes = (axis_name,) if isinstance(axis_name, str) else axis_name
    missing = [name for name in axes if name not in mesh.axis_names]
    if missing:
        raise ValueError(
            f"axis_name must name axes of the mesh, {list(mesh.axis_names)}, got {missing[0]!r}"
        )
    devices = math.prod(mesh.shape[name] for name in axes)
    rows: Any = P(axis_name)
    whole: Any = P()

    def spread(view1: ArrayLike, view2: ArrayLike, *parameters: Any, **keywords: Any) -> LossOutput:
        arrays = {"view1": jnp.asarray(view1), "view2": jnp.asarray(view2)}
        if not isinstance(keywords.get("negatives", "both"), str):
            arrays["negatives"] = jnp.asarray(keywords.pop("negatives"))
        for name, array in arrays.items():
            count = array.shape[0] if array.ndim else 1
            if count % devices:
                raise ValueError(
                    f"{name} must have rows that the {devices} devices along "
                    f"axis_name={axis_name!r} divide, got {count}; drop or add some"
                )
        # Arrays may have gradients, and shard_map must see those. Anything else is known now,
        # and the loss can check it.
        by_position = {i: x for i, x in enumerate(parameters) if isinstance(x, jax.Array)}
        by_name = {name: x for name, x in keywords.items() if isinstance(x, jax.Array)}

        def local(arrays: Any, by_position: Any, by_name: Any) -> LossOutput:
            view1, view2, *bank = arrays
            others = (by_position.get(i, x) for i, x in enumerate(parameters))
            settings = keywords | by_name | ({"negatives": bank[0]} if bank else {})
            return loss(view1, view2, *others, axis_name=axis_name, **settings)

        outputs = LossOutput(
            loss=whole, per_anchor=rows, alignment=whole, uniformity=whole, metrics=whole
        )
        mapped = jax.shard_map(local, mesh=mesh, in_specs=(rows, whole, whole), out_specs=outputs)
        return mapped(tuple(arrays.values()), by_position, by_name)

    return spread
