"""One log-sum-exp over the keys of every device: the part of a loss that sees all pairs.

Strategies differ in where scores live and how keys travel, never in values or gradients:

    dense     all scores of this device's rows at once; keys are gathered
    chunked   a tile of scores at a time; keys are gathered
    pallas    as chunked, in fused TPU kernels
    gather    keys are gathered; scores as suits size and platform
    ring      keys travel from neighbour to neighbour, so that no device ever holds more
              than two devices' keys; scores as suits size and platform
    auto      ring where gathered keys would be large, else the like of gather

On one device, with `axis_name` None, there is nothing to gather: dense, chunked and pallas
remain, and auto chooses between them.

The gradient is written by hand, as the gradient of the sum over devices of what each device
makes of its own rows. That is what `pmap` and `shard_map` mean by the gradient of a mapped
function, so the result composes with everything around it. Parameters such as Λ stay
outside: they scale queries and bias beforehand, where JAX's own rules are right in every
mode.
"""

import dataclasses
import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal, TypeVar, get_args

import jax
import jax.numpy as jnp
from jax import lax

from aninfonce_jax.losses import tiles
from aninfonce_jax.losses.tiles import KeyGradients, Keys, Members, Partial, Points, Queries
from aninfonce_jax.types import Array

AxisName = str | tuple[str, ...]
Strategy = Literal["auto", "dense", "chunked", "gather", "ring", "pallas"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)
# "fused" is the kernels where they exist, on TPU, and chunked elsewhere.
_Tile = Literal["dense", "chunked", "pallas", "fused"]
_Travelling = TypeVar("_Travelling", Keys, Points, Members)

# Scores up to this many are computed at once: 32 MiB of float32, twice over.
_DENSE_SCORES = 2**23
# Chunked keeps this many, for to compute so few again takes longer than to fetch them. Of
# rows with more keys than so many times their number, to hold all keys would cost more.
_KEPT_SCORES = 2**22
_KEPT_KEYS_PER_ROW = 8
# Gathered keys beyond this many bytes travel around the ring instead.
_GATHERED_BYTES = 2**27
_CHUNK_SIZE = 1024


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a log-sum-exp is computed; decided before anything is traced.

    Attributes:
      strategy: the name under which the choice is reported, never "auto".
      axis_name: the mapped axis that the keys are spread over, or None.
      ring: whether keys travel around a ring rather than being gathered.
      tile: how the scores of one device's rows are computed.
      chunk_size: side of a tile of scores, where tiles are not a kernel's; of dense ones,
        that of all scores with one device's keys.
      precision: of the matrix products.
    """

    strategy: str
    axis_name: AxisName | None
    ring: bool
    tile: _Tile
    chunk_size: int
    precision: lax.Precision


def make_plan(
    queries: int,
    keys: int,
    dim: int,
    *,
    axis_name: AxisName | None,
    strategy: str,
    chunk_size: int | None,
    precision: lax.Precision,
    wide: bool,
    symmetric: bool,
    kernels: bool | None,
) -> Plan:
    """Chooses how to compute a log-sum-exp.

    Args:
      queries: rows of this device.
      keys: keys of this device.
      dim: length of a query.
      axis_name: the mapped axis that the keys are spread over, or None.
      strategy: one of `STRATEGIES`.
      chunk_size: side of a tile; None chooses.
      precision: of the matrix products.
      wide: whether the computation is in float64, which the kernels do not know.
      symmetric: whether the queries are the keys, so that tiles take half of the scores.
      kernels: whether kernels can run where the arrays are, from `kernels_fit`.

    Raises:
      TypeError: an axis that is no name.
      ValueError: an unknown strategy or axis, a strategy that needs an axis without one, or
        kernels where there are none.
    """
    if strategy not in STRATEGIES:
        raise ValueError(
            f"strategy must be one of {', '.join(map(repr, STRATEGIES))}, got {strategy!r}"
        )
    if axis_name is None and strategy in ("gather", "ring"):
        raise ValueError(
            f"strategy={strategy!r} needs axis_name, the mapped axis that the batch is spread "
            f"over; on one device use 'dense', 'chunked' or 'auto'"
        )
    if strategy == "pallas" and jax.default_backend() == "gpu":
        raise ValueError("strategy='pallas' is for TPU; on GPU use 'chunked' or 'auto'")
    if wide and strategy == "pallas":
        raise ValueError("strategy='pallas' computes in float32, got float64; use 'chunked'")
    in_kernels = precision in (lax.Precision.DEFAULT, lax.Precision.HIGHEST)
    if strategy == "pallas" and not in_kernels:
        raise ValueError(
            f"strategy='pallas' knows precision DEFAULT and HIGHEST, got {precision}; use 'chunked'"
        )
    if strategy == "pallas" and kernels is False:
        raise ValueError(
            "strategy='pallas' can't be spread over devices by the compiler, and the views are "
            "on a mesh; use an.over_mesh, axis_name inside jax.shard_map over all axes of the "
            "mesh, or 'chunked'"
        )
    devices = 1 if axis_name is None else axis_size(axis_name)
    if strategy == "auto" and axis_name is not None:
        gathered = devices * keys * dim * 4
        strategy = "ring" if gathered > _GATHERED_BYTES else "gather"
    ring = strategy == "ring"
    scores = queries * (keys if ring else devices * keys)
    tile: _Tile
    if strategy in ("dense", "pallas"):
        tile = strategy  # type: ignore[assignment]
    elif strategy == "chunked":
        few = scores <= min(_KEPT_SCORES, _KEPT_KEYS_PER_ROW * queries**2)
        tile = "dense" if few and chunk_size is None and not symmetric else "chunked"
    elif chunk_size is None and scores <= _DENSE_SCORES:
        tile = "dense"
    elif (
        wide
        or not in_kernels
        or not kernels
        or (axis_name is None and jax.default_backend() != "tpu")
    ):
        tile = "chunked"
    else:
        tile = "pallas" if axis_name is None else "fused"
    if strategy == "auto":
        strategy = tile
    return Plan(
        strategy=strategy,
        axis_name=axis_name,
        ring=ring,
        tile=tile,
        chunk_size=max(queries, keys) if tile == "dense" else chunk_size or _CHUNK_SIZE,
        precision=precision,
    )


def kernels_fit(x: Array) -> bool | None:
    """Returns whether a kernel can work on `x`; None where that is not known yet.

    The compiler can't cut a kernel into one for each device. So there must be one device, or
    every axis of the mesh must be mapped. Without a mesh, arrays that are traced may turn out
    to be on any number of devices.
    """
    mesh = jax.typeof(x).sharding.mesh
    if not mesh.empty:
        return mesh.size == 1 or set(mesh.manual_axes) == set(mesh.axis_names)
    return True if jax.device_count() == 1 else None


def axis_size(axis_name: AxisName) -> int:
    """Returns the number of devices along a mapped axis.

    Raises:
      TypeError: what can't be a name.
      ValueError: where no such axis is mapped.
    """
    names = (axis_name,) if isinstance(axis_name, str) else axis_name
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        raise TypeError(
            f"axis_name must be a string, a tuple of strings, or None, got {axis_name!r}"
        )
    try:
        return lax.axis_size(axis_name)
    except NameError as error:
        raise ValueError(
            f"axis_name={axis_name!r} is not a mapped axis here; call the loss inside "
            f"jax.shard_map or jax.pmap over that axis, or leave axis_name=None on one device"
        ) from error


def masked_logsumexp(plan: Plan, queries: Queries, keys: Keys) -> tuple[Array, Array]:
    """Row-wise log-sum-exp, and maximum, of <query, key> + bias over unmasked keys.

    Args:
      plan: how.
      queries: this device's rows.
      keys: this device's keys; every row sees the keys of all devices.

    Returns:
      The log-sum-exp, [queries], and the maximum, [queries], which has no gradient.
    """
    return _logsumexp(plan, *tiles.vary_alike((queries, keys)))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _logsumexp(plan: Plan, queries: Queries, keys: Keys) -> tuple[Array, Array]:
    return _forward(plan, queries, keys)[0]


def _forward(plan: Plan, queries: Queries, keys: Keys) -> tuple[tuple[Array, Array], Any]:
    if plan.ring:
        partial, saved = ring_forward(plan, queries, keys), None
    else:
        partial, saved = tile_forward(plan, queries, gather(plan, keys))
    total = tiles.logsumexp(partial)
    # Of the whole scores only the dense form keeps anything.
    residual = (saved, partial.total) if plan.tile == "dense" and not plan.ring else total
    return (total, partial.best), (queries, keys, residual)


def _backward(plan: Plan, residuals: Any, cotangents: tuple[Array, Array]) -> tuple[Queries, Keys]:
    queries, keys, residual = residuals
    cotangent = cotangents[0]
    if plan.ring:
        d_queries, d_keys = _ring_backward(plan, queries, keys, residual, cotangent)
    else:
        gathered = gather(plan, keys)
        if plan.tile == "dense":
            numerators, total = residual
            d_queries, d_gathered = tiles.dense_backward(
                queries, gathered, numerators, total, cotangent, plan.precision
            )
        else:
            d_queries, d_gathered = tile_backward(plan, queries, gathered, residual, cotangent)
        d_keys = _scatter(plan, d_gathered)
    return Queries(d_queries, None), Keys(d_keys.vectors, d_keys.bias, None)


_logsumexp.defvjp(_forward, _backward)


# --- Scores of one device's rows with the keys at hand ---


def tile_forward(plan: Plan, queries: Queries, keys: Keys) -> tuple[Partial, Array | None]:
    """Returns the log-sum-exp over `keys`, and what the dense form saves for the gradient."""
    if plan.tile == "dense":
        return tiles.dense_forward(queries, keys, plan.precision)
    chunked = functools.partial(
        tiles.chunked_forward, chunk_size=plan.chunk_size, precision=plan.precision
    )

    def fused(queries: Queries, keys: Keys, *, interpret: bool) -> Partial:
        return Partial(
            *kernels().forward(
                queries.vectors,
                keys.vectors,
                keys.bias,
                queries.number,
                keys.number,
                precision=plan.precision,
                interpret=interpret,
            )
        )

    return on_platform(plan, chunked, fused)(queries, keys), None


def tile_backward(
    plan: Plan, queries: Queries, keys: Keys, logsumexp: Array, cotangent: Array
) -> tuple[Array, KeyGradients]:
    """Returns gradients of queries and keys, from scores that are computed again."""
    chunked = functools.partial(
        tiles.chunked_backward, chunk_size=plan.chunk_size, precision=plan.precision
    )

    def fused(
        queries: Queries, keys: Keys, logsumexp: Array, cotangent: Array, *, interpret: bool
    ) -> tuple[Array, KeyGradients]:
        d_queries, d_vectors, d_bias = kernels().backward(
            queries.vectors,
            keys.vectors,
            keys.bias,
            queries.number,
            keys.number,
            logsumexp,
            cotangent,
            precision=plan.precision,
            interpret=interpret,
        )
        return d_queries, KeyGradients(d_vectors, d_bias)

    return on_platform(plan, chunked, fused)(queries, keys, logsumexp, cotangent)


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


def _send(plan: Plan, points: _Travelling, collective: Callable[[Array], Array]) -> _Travelling:
    """Hands points to other devices, in as few bytes as the products make use of."""

    def rounded(x: Array) -> Array:
        return collective(x.astype(jnp.bfloat16)).astype(x.dtype)

    if plan.precision == lax.Precision.DEFAULT:
        # A TPU's products would round them to bfloat16 anyway, so nothing is lost.
        vectors = lax.platform_dependent(points.vectors, tpu=rounded, default=collective)
    else:
        vectors = collective(points.vectors)
    return type(points)(vectors, *jax.tree.map(collective, points[1:]))


# --- Keys of other devices: gathered ---


def gather(plan: Plan, points: _Travelling) -> _Travelling:
    """Returns the points of all devices."""
    if plan.axis_name is None:
        return points
    return _send(plan, points, lambda x: lax.all_gather(x, plan.axis_name, tiled=True))


def _scatter(plan: Plan, gradients: KeyGradients) -> KeyGradients:
    """Sums over devices, and leaves to each the gradients of its own keys."""
    if plan.axis_name is None:
        return gradients
    return jax.tree.map(lambda x: lax.psum_scatter(x, plan.axis_name, tiled=True), gradients)


# --- Keys of other devices: around a ring ---


def _pass_on(plan: Plan, x: Array) -> Array:
    """Hands an array to the next device of the ring."""
    assert plan.axis_name is not None
    size = axis_size(plan.axis_name)
    route = [(device, (device + 1) % size) for device in range(size)]
    return lax.ppermute(x, plan.axis_name, route)


def around(
    plan: Plan, points: _Travelling, start: Any, visit: Callable[[Any, _Travelling], Any]
) -> Any:
    """Folds `visit` over the points of every device, beginning with this one's.

    The next points are sent before the visit, which does not need them, so that the
    transfer and the computation overlap.
    """
    assert plan.axis_name is not None
    pass_on = functools.partial(_pass_on, plan)

    def hop(carry: tuple[_Travelling, Any], _: None) -> tuple[tuple[_Travelling, Any], None]:
        points, state = carry
        following = _send(plan, points, pass_on)
        return (following, visit(state, points)), None

    hops = axis_size(plan.axis_name) - 1
    (points, state), _ = lax.scan(hop, (points, start), length=hops)
    return visit(state, points)


def ring_forward(plan: Plan, queries: Queries, keys: Keys) -> Partial:
    """Returns the log-sum-exp over the keys of all devices."""

    def visit(partial: Partial, keys: Keys) -> Partial:
        return tiles.merge(partial, tile_forward(plan, queries, keys)[0])

    start = tiles.vary_like(tiles.empty_like(queries), keys.vectors)
    return around(plan, keys, start, visit)


def _ring_backward(
    plan: Plan, queries: Queries, keys: Keys, logsumexp: Array, cotangent: Array
) -> tuple[Array, KeyGradients]:
    """Returns the gradients of queries and keys.

    The gradients of keys follow them a hop behind: on arrival they wait only for the sum
    at the end of a visit, so their transfer overlaps with the computation too. After the
    last visit they are one hop from home.
    """
    pass_on = functools.partial(_pass_on, plan)

    def visit(gradients: tuple[Array, KeyGradients], keys: Keys) -> tuple[Array, KeyGradients]:
        d_queries, d_keys = gradients
        arrived = jax.tree.map(pass_on, d_keys)
        more_queries, more_keys = tile_backward(plan, queries, keys, logsumexp, cotangent)
        return d_queries + more_queries, jax.tree.map(jnp.add, arrived, more_keys)

    nothing = (
        jnp.zeros_like(queries.vectors),
        KeyGradients(
            jnp.zeros_like(keys.vectors), None if keys.bias is None else jnp.zeros_like(keys.bias)
        ),
    )
    start = tiles.vary_like(tiles.vary_like(nothing, keys.vectors), queries.vectors)
    d_queries, d_keys = around(plan, keys, start, visit)
    return d_queries, jax.tree.map(pass_on, d_keys)
