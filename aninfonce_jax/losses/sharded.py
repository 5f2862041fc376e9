"""A loss on arrays that are sharded under `jit`."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike

from aninfonce_jax.losses import checks
from aninfonce_jax.losses.given import (
    Bank,
    PerAnchor,
    checked_labels,
    checked_mask,
    checked_weights,
)
from aninfonce_jax.losses.pairing import name_and_bank
from aninfonce_jax.losses.plan import AxisName
from aninfonce_jax.types import Array, LossOutput, PyTree

# Where parameters that have rows of their own are kept, by position.
_BY_POSITION = "parameters"


def over_mesh(
    loss: Callable[..., LossOutput], mesh: Mesh, axis_name: AxisName
) -> Callable[..., LossOutput]:
    """Returns `loss` for global arrays, computed by every device on its own rows.

    Use it inside `jit`, where the encoder is partitioned automatically, and differentiate
    as if there were one device: nothing is to be averaged or rescaled. Where there is only one,
    the loss is computed as it would be without a mesh.

        loss = an.over_mesh(an.aninfonce_loss, mesh, "data")
        out = loss(view1, view2, concentration)

        loss = an.over_mesh(an.infonce_loss, mesh, "data")
        out = loss(view1, view2, temperature=temperature)

    Args:
      loss: a loss of two views and further parameters that takes `axis_name`.
      mesh: the devices. Its axes are best of type `Auto`, which `jax.make_mesh` has to be
        told; those of type `Explicit` need `jax.set_mesh(mesh)` around the call, as soon as
        arrays that are spread over them are traced.
      axis_name: the axis, or axes, of `mesh` that the batch is spread over.

    Returns:
      A function of view1, view2 [batch, dim], whose rows the mesh must divide, and of the
      loss's other arguments, by position or keyword. Arrays of `negatives`, `weights`, `mask`
      and `labels` are spread by rows like the views. Its `per_anchor` lists anchors device by
      device.

    Raises:
      TypeError: a loss that can't be spread, or what is no mesh or axis.
      ValueError: an axis that the mesh does not have or, when called, rows that it does not
        divide, a mesh that is not the one set by `jax.set_mesh`, or traced arrays with
        explicit axes where none is set.

    Example:
      >>> mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
      >>> loss = an.over_mesh(an.aninfonce_loss, mesh, "data")
      >>> loss(jnp.eye(4), jnp.eye(4), jnp.ones(4)).per_anchor.shape
      (8,)
    """
    _check_loss(loss)
    if not isinstance(mesh, Mesh | AbstractMesh):
        raise TypeError(
            f"mesh must be a jax.sharding.Mesh, got {type(mesh).__name__}; make one with "
            f"jax.make_mesh((devices,), ('data',), axis_types=(jax.sharding.AxisType.Auto,))"
        )
    axes = (axis_name,) if isinstance(axis_name, str) else axis_name
    if not isinstance(axes, tuple) or not all(isinstance(name, str) for name in axes) or not axes:
        raise TypeError(
            f"axis_name must be a string or a tuple of strings, got {checks.shown(axis_name)}"
        )
    missing = [name for name in axes if name not in mesh.axis_names]
    if missing:
        raise ValueError(
            f"axis_name must name axes of the mesh, {list(mesh.axis_names)}, got {missing[0]!r}"
        )
    if len(set(axes)) < len(axes):
        raise ValueError(f"axis_name must name each axis once, got {axis_name!r}")
    devices = math.prod(mesh.shape[name] for name in axes)
    rows: Any = P(axis_name)
    whole: Any = P()

    def spread(view1: ArrayLike, view2: ArrayLike, *parameters: Any, **keywords: Any) -> LossOutput:
        if "axis_name" in keywords:
            raise TypeError("axis_name is set by over_mesh; leave it out of the call")
        _check_context(mesh)
        by_rows, name = _spread_by_rows(view1, view2, parameters, keywords)
        for argument, arrays in by_rows.items():
            for array in jax.tree.leaves(arrays):
                count = array.shape[0]
                if count % devices:
                    raise ValueError(
                        f"{argument} must have rows that the {devices} devices along "
                        f"axis_name={axis_name!r} divide, got {count}; drop or add some, or fill "
                        f"up and pass a mask"
                    )
        # Arrays may have gradients, and shard_map must see those. Anything else is known now,
        # and the loss can check it.
        by_position = {
            i: x
            for i, x in enumerate(parameters)
            if _has_arrays(x) and i not in by_rows[_BY_POSITION]
        }
        by_name = {name: x for name, x in keywords.items() if _has_arrays(x)}
        own_mesh = mesh
        if AxisType.Explicit in mesh.axis_types and jax.sharding.get_abstract_mesh().empty:
            own_mesh, (by_rows, by_position, by_name) = _with_auto_axes(
                mesh, (by_rows, by_position, by_name)
            )
        elif AxisType.Explicit in mesh.axis_types:
            # An array with explicit axes must arrive as it is to be cut; elsewhere JAX sees to it.
            sharding = NamedSharding(mesh, rows)
            by_rows = jax.tree.map(lambda x: jax.sharding.reshard(x, sharding), by_rows)

        def local(by_rows: Any, by_position: Any, by_name: Any) -> LossOutput:
            named = dict(by_rows)
            view1, view2 = named.pop("view1"), named.pop("view2")
            if name is not None:
                named["negatives"] = (name, named["negatives"])
            at = by_position | named.pop(_BY_POSITION)
            others = (at.get(i, x) for i, x in enumerate(parameters))
            settings = keywords | by_name | named
            return loss(view1, view2, *others, axis_name=axis_name, **settings)

        outputs = LossOutput(
            loss=whole, per_anchor=rows, alignment=whole, uniformity=whole, metrics=whole
        )
        specs = (rows, whole, whole)
        mapped = jax.shard_map(local, mesh=own_mesh, in_specs=specs, out_specs=outputs)
        return mapped(by_rows, by_position, by_name)

    return spread


def _spread_by_rows(
    view1: ArrayLike, view2: ArrayLike, parameters: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[dict[str, Any], str | None]:
    """Takes out of a loss's arguments what has a row for each pair, or for each key.

    Returns:
      Arrays, or values made of arrays, by argument, and the name that goes with explicit
      negatives, if one does. What is taken out of `keywords` is no longer there.
    """
    by_rows: dict[str, Any] = {
        "view1": checks.embeddings("view1", view1),
        "view2": checks.embeddings("view2", view2),
    }
    batch = by_rows["view1"].shape[0]
    checked = {"mask": checked_mask, "labels": checked_labels, "weights": checked_weights}
    for argument, check in checked.items():
        if keywords.get(argument) is not None:
            by_rows[argument] = check(argument, keywords.pop(argument), batch)
    name = None
    negatives = keywords.get("negatives")
    if negatives is not None and not isinstance(negatives, str):
        name, bank = name_and_bank(keywords.pop("negatives"))
        assert bank is not None
        vectors = checks.embeddings("negatives", bank.vectors)
        by_rows["negatives"] = Bank(
            vectors,
            checked_labels("labels of negatives", bank.labels, vectors.shape[0]),
            checked_mask("mask of negatives", bank.mask, vectors.shape[0]),
        )
    # A Λ of each anchor is spread over the devices like the anchors.
    own = {i: _as_arrays(x) for i, x in enumerate(parameters) if isinstance(x, PerAnchor)}
    for argument in [key for key, x in keywords.items() if isinstance(x, PerAnchor)]:
        by_rows[argument] = _as_arrays(keywords.pop(argument))
    return by_rows | {_BY_POSITION: own}, name


def _as_arrays(x: PerAnchor) -> PerAnchor:
    return jax.tree.map(lambda y: checks.as_array("concentration", y), x)


def _has_arrays(x: Any) -> bool:
    return bool(leaves := jax.tree.leaves(x)) and all(isinstance(y, jax.Array) for y in leaves)


def _check_loss(loss: Callable[..., LossOutput]) -> None:
    if not callable(loss):
        raise TypeError(f"loss must be a function, got {type(loss).__name__}")
    try:
        parameters = inspect.signature(loss).parameters
    except ValueError:  # some callables written in C have none
        return
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    if "axis_name" not in parameters and not takes_any:
        name = getattr(loss, "__name__", repr(loss))
        raise TypeError(
            f"{name} can't be spread over a mesh: it takes no axis_name; aninfonce_loss and "
            f"its like do, and any loss runs under plain jit, spread by the compiler"
        )


def _check_context(mesh: Mesh | AbstractMesh) -> None:
    """Refuses a mesh that JAX would refuse, deep inside."""
    context = jax.sharding.get_abstract_mesh()
    if AxisType.Manual in context.axis_types:
        return
    own = mesh if isinstance(mesh, AbstractMesh) else mesh.abstract_mesh
    if not context.empty and context != own:
        raise ValueError(
            f"over_mesh must be given the mesh that jax.set_mesh has set, {_shown(context)}, got "
            f"{_shown(own)}"
        )


def _with_auto_axes(mesh: Mesh | AbstractMesh, tree: PyTree) -> tuple[Mesh, PyTree]:
    """Returns the same devices and arrays with axes of which JAX asks nothing.

    Raises:
      ValueError: an array is traced with explicit axes. Its gradient would need them, and JAX
        has them only inside `jax.set_mesh`.
    """
    count = len(mesh.axis_names)

    def free(x: Array) -> Array:
        if AxisType.Explicit not in jax.typeof(x).sharding.mesh.axis_types:
            return x
        if isinstance(x, jax.core.Tracer):
            raise needs_context
        return jax.device_put(x, NamedSharding(auto, jax.typeof(x).sharding.spec))

    needs_context = ValueError(
        "a mesh with explicit axes needs jax.set_mesh(mesh) around the call; for axes that "
        "need nothing, make it with jax.make_mesh(shape, names, axis_types="
        f"(jax.sharding.AxisType.Auto,) * {count})"
    )
    if isinstance(mesh, AbstractMesh):
        raise needs_context
    auto = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * count)
    return auto, jax.tree.map(free, tree)


def _shown(mesh: AbstractMesh) -> str:
    axes = zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types, strict=True)
    return "(" + ", ".join(f"{name}={size} {kind.name}" for name, size, kind in axes) + ")"
