"""Counts the matrix products and convolutions of a program before it is compiled.

A compiler's own count takes a loop's body once, does not look into kernels, and does not
exist on GPUs. Here a loop counts as often as it runs, a kernel as often as its grid has cells, and
what each device computes for itself counts on all devices. In a choice by platform the right branch
counts, in any other the largest. A loop whose length only the data tell counts once. Everything
but products (norms, activations, the optimiser) is bound by memory and not counted.
"""

import collections
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

# FLOPs by how operands are multiplied, as `chips.Chip.flops` names it.
Flops = collections.Counter[str]


def count_flops(program: ClosedJaxpr, platform: str) -> Flops:
    """Returns the FLOPs of a traced program, over all devices.

    Args:
      program: as `jax.stages.Traced.jaxpr` gives it.
      platform: "cpu", "gpu" or "tpu", for code that has a branch for each.
    """
    return _count(program.jaxpr, platform)


def _count(jaxpr: Jaxpr, platform: str) -> Flops:
    total = Flops()
    for equation in jaxpr.eqns:
        for kind, flops in _count_one(equation, platform).items():
            total[kind] += flops
    return total


def _count_one(equation: Any, platform: str) -> Flops:
    params = equation.params
    match equation.primitive.name:
        case "dot_general":
            return Flops({_kind(equation): _product_flops(equation)})
        case "conv_general_dilated":
            return Flops({_kind(equation): _convolution_flops(equation)})
        case "cond":
            return _count_branch(params, platform)
        case "scan":
            return _times(params["length"], _count(params["jaxpr"].jaxpr, platform))
        case "shard_map":
            return _times(params["mesh"].size, _count(_inner(params["jaxpr"]), platform))
        case "pallas_call":
            cells = math.prod(int(side) for side in params["grid_mapping"].grid)
            return _times(cells, _count(_inner(params["jaxpr"]), platform))
        case _:
            total = Flops()
            for jaxpr in _inside(params.values()):
                total.update(_count(jaxpr, platform))
            return total


def _times(count: int, flops: Flops) -> Flops:
    return Flops({kind: count * value for kind, value in flops.items()})


def _count_branch(params: dict[str, Any], platform: str) -> Flops:
    branches = [_count(_inner(branch), platform) for branch in params["branches"]]
    platforms = params.get("branches_platforms")
    if platforms is not None:
        names = {"gpu": {"gpu", "cuda", "rocm"}}.get(platform, {platform})
        for branch, own in zip(branches, platforms, strict=True):
            if own is None or names & set(own):
                return branch
    return max(branches, key=lambda branch: sum(branch.values()))


def _inner(jaxpr: Any) -> Jaxpr:
    return jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr


def _inside(values: Any) -> Iterator[Jaxpr]:
    """Yields the programs among an equation's parameters."""
    for value in values:
        if isinstance(value, Jaxpr | ClosedJaxpr):
            yield _inner(value)
        elif isinstance(value, tuple | list):
            yield from _inside(value)


def _kind(equation: Any) -> str:
    """Returns how a product's operands are multiplied, as `chips.Chip.flops` names it."""
    widths = [jnp.dtype(x.aval.dtype).itemsize for x in equation.invars[:2]]
    if max(widths) <= 2:
        return "bfloat16"
    precision = equation.params.get("precision")
    given = set(precision) if isinstance(precision, tuple) else {precision}
    if max(widths) > 4 or jax.lax.Precision.HIGHEST in given:
        return "highest"
    return "high" if jax.lax.Precision.HIGH in given else "float32"


def _product_flops(equation: Any) -> int:
    left, right = (x.aval.shape for x in equation.invars[:2])
    (contracted, _), (batch, _) = equation.params["dimension_numbers"]
    shared = math.prod(left[axis] for axis in contracted)
    together = math.prod(left[axis] for axis in batch)
    return 2 * math.prod(left) * math.prod(right) // max(1, shared * together)


def _convolution_flops(equation: Any) -> int:
    """Counts the taps that meet a pixel: neither padding nor the holes of a dilated map."""
    params = equation.params
    numbers = params["dimension_numbers"]
    left, right = (x.aval.shape for x in equation.invars[:2])
    out = equation.outvars[0].aval.shape
    taps = 1
    for axis, (lhs, rhs, result) in enumerate(
        zip(numbers.lhs_spec[2:], numbers.rhs_spec[2:], numbers.out_spec[2:], strict=True)
    ):
        taps *= _taps(
            left[lhs],
            right[rhs],
            out[result],
            params["window_strides"][axis],
            params["padding"][axis][0],
            params["lhs_dilation"][axis],
            params["rhs_dilation"][axis],
        )
    features = right[numbers.rhs_spec[0]] * right[numbers.rhs_spec[1]]
    batch = left[numbers.lhs_spec[0]] // params["batch_group_count"]
    return int(2 * batch * features * taps)


def _taps(
    size: int, kernel: int, result: int, stride: int, pad: int, holes: int, spread: int
) -> int:
    """Returns how many pairs of a result's pixel and a tap meet a pixel, along one axis."""
    starts = np.arange(result) * stride - pad
    at = starts[:, None] + spread * np.arange(kernel)[None]
    return int(np.count_nonzero((at >= 0) & (at <= (size - 1) * holes) & (at % holes == 0)))
