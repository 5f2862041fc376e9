"""The one place where it is decided how a loss is computed, before anything is traced.

A loss contrasts anchors with keys, and only the log-sum-exp over keys sees all pairs, or another
reduction of them (`reductions.py`). A `Plan` says three things about it:

    contrast       what is scored with what
      each other           anchors are each other's keys, and a point has one gradient
      each other, halved   as before, from the scores on and above the diagonal
      given keys           rows with keys that are not the rows, or all scores at once
      bank                 rows with more keys than are to be made ready at once
    keys           where the keys of other devices are
      here                 there are no others
      gathered             every device receives all keys
      ring                 keys travel from neighbour to neighbour, so that no device ever
                           holds more than two devices' keys
    tile           how the scores of one device's rows with the keys at hand are computed
      dense                all at once, kept for the gradient
      chunked              a tile at a time, computed again for the gradient
      pallas               as chunked, in fused TPU kernels
      fused                as pallas where the program is compiled for a TPU, else as chunked

Plans differ in time and memory, never in values or gradients.
"""

import dataclasses
from typing import Any, Literal, NamedTuple, get_args

import jax
from jax import lax

from aninfonce_jax.compat import abstract_platform
from aninfonce_jax.losses import checks
from aninfonce_jax.losses.reductions import Reduction
from aninfonce_jax.types import Array

AxisName = str | tuple[str, ...]
Strategy = Literal["auto", "dense", "chunked", "gather", "ring", "pallas"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)

_Contrast = Literal["each other", "each other, halved", "given keys", "bank"]
_Keys = Literal["here", "gathered", "ring"]
_Tile = Literal["dense", "chunked", "pallas", "fused"]

# Scores up to this many are computed at once: 32 MiB of float32, twice over.
_DENSE_SCORES = 2**23
# On one CPU, points that are each other's keys take half of the scores from this many on: fewer
# stay in the processor's cache, and are quicker to keep.
_HALVED_SCORES = 2**21
# Chunked keeps up to this many scores, because computing so few of them twice takes longer than
# fetching them from memory. But it holds no more keys than this many times the rows.
_KEPT_SCORES = 2**22
_KEPT_KEYS_PER_ROW = 8
# Gathered keys beyond this many bytes travel around the ring instead.
_GATHERED_BYTES = 2**27
_CHUNK_SIZE = 1024
# A GPU is handed the kernels of each tile one by one, which for smaller tiles takes longer than
# the work in them.
_GPU_CHUNK_SIZE = 8192
# Smaller tiles leave less to compute twice along the diagonal.
_HALVED_CHUNK_SIZE = 512


class Settings(NamedTuple):
    """What a user asks for; see `contrast.aninfonce_loss`."""

    axis_name: AxisName | None = None
    strategy: str = "auto"
    chunk_size: int | None = None
    precision: lax.Precision = lax.Precision.HIGHEST
    hardness: float = 0.0
    debias: float = 0.0

    @property
    def devices(self) -> int:
        """The number of devices that the batch is spread over."""
        return 1 if self.axis_name is None else axis_size(self.axis_name)


class Problem(NamedTuple):
    """What is to be contrasted, on one device.

    Attributes:
      rows: how many anchors.
      keys: how many keys.
      dim: length of a vector.
      each_other: whether the anchors are the keys.
      wide: whether the computation is in float64, which the kernels do not know.
      kernels: whether kernels can run where the arrays are; None where that is not known.
      platform: where they are, as far as is known: "cpu", "gpu" or "tpu".
      reduction: what becomes of the scores of a row.
      power: p, where scores are of Lp distances and no products; see `tiles.Form`.
    """

    rows: int
    keys: int
    dim: int
    each_other: bool
    wide: bool
    kernels: bool | None
    platform: str
    reduction: Reduction = "logsumexp"
    power: float | None = None


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a log-sum-exp is computed; the module's docstring says what the values mean.

    Attributes:
      strategy: the name under which the choice is reported, never "auto".
      contrast: what is scored with what.
      keys: where the keys of other devices are.
      tile: how the scores with the keys at hand are computed.
      axis_name: the mapped axis that the keys are spread over; None where they are all here.
      chunk_size: side of a tile of scores, where tiles are not a kernel's; of dense ones,
        that of all scores with one device's keys.
      precision: of the matrix products.
      reduction: what becomes of the scores of a row.
      power: p, where scores are of Lp distances.
    """

    strategy: str
    contrast: _Contrast
    keys: _Keys
    tile: _Tile
    axis_name: AxisName | None
    chunk_size: int
    precision: lax.Precision
    reduction: Reduction = "logsumexp"
    power: float | None = None


def checked_settings(
    axis_name: Any,
    strategy: Any,
    chunk_size: Any,
    precision: Any,
    hardness: Any,
    debias: Any = 0.0,
) -> Settings:
    """Returns what a user asks for, once it is known to make sense by itself.

    Raises:
      TypeError: an axis that is no name, or a number that is none.
      ValueError: an unknown strategy, axis or precision, a number out of range, or a strategy
        that needs an axis without one.
    """
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        raise ValueError(
            f"strategy must be one of {', '.join(map(repr, STRATEGIES))}, got "
            f"{checks.shown(strategy)}"
        )
    if axis_name is None and strategy in ("gather", "ring"):
        raise ValueError(
            f"strategy={strategy!r} needs axis_name, the mapped axis that the batch is spread "
            f"over; on one device use 'dense', 'chunked' or 'auto'"
        )
    if axis_name is not None:
        axis_size(axis_name)  # raises where the axis is not mapped
    if chunk_size is not None:
        chunk_size = checks.whole_number("chunk_size", chunk_size, "an int or None")
    return Settings(
        axis_name=axis_name,
        strategy=strategy,
        chunk_size=chunk_size,
        precision=checks.precision(precision),
        hardness=checks.hardness(hardness),
        debias=checks.debias(debias),
    )


def make_plan(problem: Problem, settings: Settings) -> Plan:
    """Decides how a log-sum-exp is computed.

    An axis of one device is as good as none: the keys are all here, and whatever is quickest on
    one device is done.

    Raises:
      ValueError: kernels where there are none.
    """
    _check_kernels(problem, settings)
    devices = settings.devices
    keys = _where_keys_are(problem, settings, devices)
    tile = _choose_tile(problem, settings, keys, devices)
    contrast = _choose_contrast(problem, settings, keys, tile)
    strategy: str = settings.strategy
    if keys == "here":
        strategy = tile
    elif strategy == "auto":
        strategy = "ring" if keys == "ring" else "gather"
    return Plan(
        strategy=strategy,
        contrast=contrast,
        keys=keys,
        tile=tile,
        axis_name=None if keys == "here" else settings.axis_name,
        chunk_size=_choose_chunk_size(problem, settings, contrast, tile),
        precision=settings.precision,
        reduction=problem.reduction,
        power=problem.power,
    )


def _check_kernels(problem: Problem, settings: Settings) -> None:
    if settings.strategy != "pallas":
        return
    if problem.platform == "gpu":
        raise ValueError("strategy='pallas' is for TPU; on GPU use 'chunked' or 'auto'")
    if problem.reduction == "softplus" or problem.power is not None:
        raise ValueError(
            "strategy='pallas' computes log-sum-exps of products, not a sigmoid loss nor Lp "
            "distances with p other than 2; use 'chunked'"
        )
    if problem.wide:
        raise ValueError("strategy='pallas' computes in float32, got float64; use 'chunked'")
    if not _in_kernels(settings.precision):
        raise ValueError(
            f"strategy='pallas' knows precision DEFAULT and HIGHEST, got {settings.precision}; "
            f"use 'chunked'"
        )
    if problem.kernels is False:
        raise ValueError(
            "strategy='pallas' can't be spread over devices by the compiler, and the views are "
            "on a mesh; use an.over_mesh, axis_name inside jax.shard_map over all axes of the "
            "mesh, or 'chunked'"
        )


def _in_kernels(precision: lax.Precision) -> bool:
    return precision in (lax.Precision.DEFAULT, lax.Precision.HIGHEST)


def _where_keys_are(problem: Problem, settings: Settings, devices: int) -> _Keys:
    if devices == 1:
        return "here"
    gathered_bytes = devices * problem.keys * problem.dim * 4
    travel = settings.strategy == "auto" and gathered_bytes > _GATHERED_BYTES
    return "ring" if travel or settings.strategy == "ring" else "gathered"


def _choose_tile(problem: Problem, settings: Settings, keys: _Keys, devices: int) -> _Tile:
    alone = keys == "here"
    scores = problem.rows * problem.keys * (devices if keys == "gathered" else 1)
    if settings.strategy == "dense":
        return "dense"
    # Kernels compute log-sum-exps; sums over keys of the same label are computed beside them.
    in_kernels = problem.reduction == "logsumexp" and problem.power is None
    if settings.strategy == "pallas":
        return "pallas" if in_kernels else "chunked"
    if settings.strategy == "chunked":
        few = scores <= min(_KEPT_SCORES, _KEPT_KEYS_PER_ROW * problem.rows**2)
        halved = alone and problem.each_other
        return "dense" if few and settings.chunk_size is None and not halved else "chunked"
    if settings.chunk_size is None and scores <= _DENSE_SCORES:
        halved = alone and problem.each_other and problem.platform == "cpu"
        return "chunked" if halved and scores > _HALVED_SCORES else "dense"
    able = in_kernels and problem.kernels and _in_kernels(settings.precision)
    if problem.wide or not able:
        return "chunked"
    if alone:
        return "pallas" if problem.platform == "tpu" else "chunked"
    return "fused"


def _choose_contrast(problem: Problem, settings: Settings, keys: _Keys, tile: _Tile) -> _Contrast:
    alone = keys == "here"
    if not problem.each_other:
        return "bank" if alone and tile != "dense" else "given keys"
    if alone and settings.strategy == "dense":
        # Scores of points with each other take one product less, but hold two matrices of
        # scores, and "dense" promises one.
        return "given keys"
    return "each other, halved" if alone and tile == "chunked" else "each other"


def _choose_chunk_size(
    problem: Problem, settings: Settings, contrast: _Contrast, tile: _Tile
) -> int:
    if tile == "dense":
        return max(problem.rows, problem.keys)
    if settings.chunk_size is not None:
        return settings.chunk_size
    if problem.platform == "gpu":
        return _GPU_CHUNK_SIZE
    halved = contrast == "each other, halved" and problem.platform == "cpu"
    # So few points that they make one tile are best taken as one.
    return _HALVED_CHUNK_SIZE if halved and problem.rows > _CHUNK_SIZE else _CHUNK_SIZE


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


def platform_of(x: Array) -> str:
    """Returns the platform that `x` is on, or where it will be as far as is known."""
    # A mesh may be of devices that are not attached, for which a program is only compiled.
    device = getattr(jax.typeof(x).sharding.mesh, "abstract_device", None)
    platform = jax.default_backend() if device is None else abstract_platform(device)
    return "gpu" if platform in ("cuda", "rocm") else platform


def axis_size(axis_name: AxisName) -> int:
    """Returns the number of devices along a mapped axis.

    Raises:
      TypeError: what can't be a name.
      ValueError: where no such axis is mapped.
    """
    names = (axis_name,) if isinstance(axis_name, str) else axis_name
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        raise TypeError(
            f"axis_name must be a string, a tuple of strings, or None, got "
            f"{checks.shown(axis_name)}"
        )
    try:
        return lax.axis_size(axis_name)
    except NameError as error:
        raise ValueError(
            f"axis_name={axis_name!r} is not a mapped axis here; call the loss inside "
            f"jax.shard_map or jax.pmap over that axis, or leave axis_name=None on one device"
        ) from error
