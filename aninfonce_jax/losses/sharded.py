"""A loss on arrays that are sharded under `jit`."""

import functools
from collections.abc import Callable
from typing import Any

import jax
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

    Args:
      loss: a loss of two views and further parameters that takes `axis_name`.
      mesh: the devices.
      axis_name: the axis, or axes, of `mesh` that the batch is spread over.

    Returns:
      A function of view1, view2 [batch, dim], whose rows the mesh must divide, and of the
      loss's other positional arguments. Its `per_anchor` lists anchors device by device.
    """

    def spread(view1: ArrayLike, view2: ArrayLike, *parameters: Any) -> LossOutput:
        rows: Any = P(axis_name)
        whole: Any = P()
        outputs = LossOutput(
            loss=whole, per_anchor=rows, alignment=whole, uniformity=whole, metrics=whole
        )
        return jax.shard_map(
            functools.partial(loss, axis_name=axis_name),
            mesh=mesh,
            in_specs=(rows, rows, *(whole for _ in parameters)),
            out_specs=outputs,
        )(view1, view2, *parameters)

    return spread
