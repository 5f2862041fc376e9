"""What devices send each other: keys, gradients that go home, means and maxima.

The gradients of a log-sum-exp are written by hand, as those of the sum over devices of what each
device makes of its own rows. That is what `pmap` and `shard_map` mean by the gradient of a mapped
function, so the result composes with everything around it. Parameters such as Λ stay outside:
they scale queries and bias beforehand, where JAX's own rules are right in every mode.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from aninfonce_jax.losses.plan import AxisName, Plan, axis_size
from aninfonce_jax.losses.tiles import Points, ScoredPoints
from aninfonce_jax.types import Array

_Sent = TypeVar("_Sent", Points, ScoredPoints)


def mean(x: Array, axis_name: AxisName | None, weights: Array | None = None) -> Array:
    """Returns the mean over this device's values and over devices, weighted or not.

    The mean of values that all have weight zero is zero.
    """
    if weights is not None:
        of_all = total(weights, axis_name)
        return total(x * weights, axis_name) / jnp.where(of_all == 0, 1, of_all)
    own = jnp.mean(x)
    return own if axis_name is None else lax.pmean(own, axis_name)


def total(x: Array, axis_name: AxisName | None) -> Array:
    """Returns the sum over this device's values and over devices."""
    own = jnp.sum(x)
    return own if axis_name is None else lax.psum(own, axis_name)


def maximum(x: Array, axis_name: AxisName | None) -> Array:
    """Returns the maximum over this device's values and over devices, without gradient."""
    own = lax.stop_gradient(jnp.max(x))
    return own if axis_name is None else lax.pmax(own, axis_name)


def _send(plan: Plan, points: _Sent, collective: Callable[[Array], Array]) -> _Sent:
    """Hands points to other devices, in as few bytes as the products make use of."""

    def as_bfloat16(x: Array) -> Array:
        return collective(x.astype(jnp.bfloat16)).astype(x.dtype)

    def as_tf32(x: Array) -> Array:
        halves, scale = _in_halves(x)
        return collective(halves).astype(x.dtype) * collective(scale)

    are_rounded = plan.precision == lax.Precision.DEFAULT and plan.power is None
    if are_rounded and points.vectors.dtype == jnp.float32:
        # The products would round them so anyway: nothing is lost.
        vectors = lax.platform_dependent(
            points.vectors, tpu=as_bfloat16, cuda=as_tf32, default=collective
        )
    else:
        vectors = collective(points.vectors)
    return type(points)(vectors, *jax.tree.map(collective, points[1:]))


def _in_halves(x: Array) -> tuple[Array, Array]:
    """Returns `x` [rows, dim] as float16 times a power of two for each row, [rows, 1].

    Float16 has the ten bits behind the point that TF32 keeps, but too few exponents. So each row
    is scaled until its largest entry lies just below float16's largest number. Only entries 2²⁹
    times smaller then lose bits, which is nothing to a product with the row.
    """
    largest = jnp.max(jnp.abs(lax.stop_gradient(x)), axis=1, keepdims=True)
    largest = jnp.maximum(largest, 2.0**-100)
    exponent = lax.bitcast_convert_type(largest, jnp.int32) & 0x7F800000
    scale = lax.bitcast_convert_type(exponent, jnp.float32) * 2.0**-14
    return (x / scale).astype(jnp.float16), scale


# --- Keys of other devices: gathered ---


def gather(plan: Plan, points: _Sent) -> _Sent:
    """Returns the points of all devices, in an order that `send_home` knows.

    If there are several axes, points are gathered along the slowest one first. There a device
    receives only the points of its counterparts; the faster axes then bring those of all devices.
    """

    def everyone(x: Array) -> Array:
        for name in _axes(plan):
            x = lax.all_gather(x, name, tiled=True)
        return x

    return _send(plan, points, everyone) if _axes(plan) else points


def send_home(plan: Plan, gradients: Points) -> Points:
    """Sums over devices, and leaves to each the gradients of its own keys."""

    def own(x: Array) -> Array:
        for name in reversed(_axes(plan)):
            x = lax.psum_scatter(x, name, tiled=True)
        return x

    return jax.tree.map(own, gradients)


def _axes(plan: Plan) -> tuple[str, ...]:
    """Returns the mapped axes that the keys are spread over, the slowest first."""
    if plan.axis_name is None:
        return ()
    return (plan.axis_name,) if isinstance(plan.axis_name, str) else plan.axis_name


# --- Keys of other devices: around a ring ---


def pass_on(plan: Plan, x: Array) -> Array:
    """Hands an array to the next device of the ring.

    Over several axes that is the next one along the last axis: with the slowest axis first, a
    hop crosses it between the last device of a slice and the first of the next, and nowhere else.
    """
    assert plan.axis_name is not None
    size = axis_size(plan.axis_name)
    route = [(device, (device + 1) % size) for device in range(size)]
    return lax.ppermute(x, plan.axis_name, route)


def around(plan: Plan, points: _Sent, start: Any, visit: Callable[[Any, _Sent], Any]) -> Any:
    """Folds `visit` over the points of every device, beginning with this one's.

    The next points are sent before the visit, which does not need them, so that the
    transfer and the computation overlap.
    """
    assert plan.axis_name is not None
    send = functools.partial(pass_on, plan)

    def hop(carry: tuple[_Sent, Any], _: None) -> tuple[tuple[_Sent, Any], None]:
        points, state = carry
        following = _send(plan, points, send)
        return (following, visit(state, points)), None

    hops = axis_size(plan.axis_name) - 1
    (points, state), _ = lax.scan(hop, (points, start), length=hops)
    return visit(state, points)
