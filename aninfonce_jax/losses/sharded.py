"""A loss on arrays that are sharded under `jit`."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
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
    """

    def spread(view1: ArrayLike, view2: ArrayLike, *parameters: Any, **keywords: Any) -> LossOutput:
        rows: Any = P(axis_name)
        whole: Any = P()
        outputs = LossOutput(
            loss=whole, per_anchor=rows, alignment=whole, uniformity=whole, metrics=whole
        )
        # Arrays may have gradients, and shard_map must see those; settings it would not take.
        arrays = {
            name: value
            for name, value in keywords.items()
            if isinstance(value, jax.Array | np.ndarray)
        }
        settings = {name: value for name, value in keywords.items() if name not in arrays}

        def local(view1: ArrayLike, view2: ArrayLike, parameters: Any, arrays: Any) -> LossOutput:
            return loss(view1, view2, *parameters, axis_name=axis_name, **arrays, **settings)

        named = {name: rows if name == "negatives" else whole for name in arrays}
        return jax.shard_map(
            local, mesh=mesh, in_specs=(rows, rows, whole, named), out_specs=outputs
        )(view1, view2, parameters, arrays)

    return spread
