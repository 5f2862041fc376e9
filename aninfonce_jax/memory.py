"""What a run needs of memory at the least, so that an impossible one is refused at once.

An estimate counts only what must be held at the same time whatever the compiler does: it is
a lower bound, and a run that fits is never refused. One that is let through may still turn
out to be too large.
"""

import dataclasses
import itertools
import os
import resource
from collections.abc import Mapping
from pathlib import Path

from aninfonce_jax.config import kinds
from aninfonce_jax.config.schema import Config, ConfigError

_FLOAT = 4
# As in `dgp.mixing`: entries of candidate matrices that are held at once.
_CANDIDATE_ENTRIES = 2**22
# Arrays of the encoder's size that an optimiser keeps between steps.
_OPTIMIZER_COPIES = {"adam": 2, "adamw": 2, "sgd": 1, "lars": 1, "muon": 1}
# Blocks per stage of each ResNet, and the convolutions of a block: channels, as a multiple
# of the stage's, and side of the kernel.
_BLOCKS = {"resnet10": (1, 1, 1, 1), "resnet18": (2, 2, 2, 2)}
_BLOCKS |= {"resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}
_PLAIN = ((1, 3), (1, 3))
_BOTTLENECK = ((1, 1), (1, 3), (4, 1))


@dataclasses.dataclass(frozen=True)
class Part:
    """Something that is held in memory.

    Attributes:
      what: it is, for the user.
      keys: of the config that make it smaller.
      bytes: of one device.
    """

    what: str
    keys: str
    bytes: int


def estimate(config: Config, devices: int) -> dict[str, list[Part]]:
    """Returns what each device holds at the least, for every phase of a run.

    Args:
      config: the run.
      devices: over which a batch is spread.

    Returns:
      The parts that are held at the same time, for each phase: "set-up", "training" and
      "evaluation".
    """
    network = _network(config)
    rows = 2 * config.train.batch_size // (devices * config.train.microbatches)
    copies = 1 + _OPTIMIZER_COPIES[config.optimizer.kind] + (config.train.ema_decay > 0)
    state = Part("parameters and optimiser", network.keys, copies * _FLOAT * network.parameters)
    head = _head(config, copies)
    step = [
        state,
        head,
        Part(
            "activations of a batch",
            f"train.batch_size and {network.keys}, or raise train.microbatches",
            rows * network.activation_bytes,
        ),
        Part("batch", "train.batch_size and source.image_size", _batch_bytes(config, devices)),
        Part("scores of all pairs", _score_keys(config), _score_bytes(config, devices)),
        _metrics(config),
    ]
    return {
        "set-up": [_mixing(config)],
        "training": step,
        "evaluation": [state, head, _evaluation(config, network, devices)],
    }


def _head(config: Config, copies: int) -> Part:
    """Returns what networks of the objective take, as often as the encoder's parameters."""
    match config.objective:
        case kinds.DietConfig() as diet:
            parameters, keys = diet.examples * config.encoder.dim, "objective.examples"
        case kinds.AugSelfConfig() as augself:
            # Between the hidden layers; the other two depend on encoder and augmentations.
            parameters, keys = len(augself.predicted) * augself.width**2, "objective.width"
        case _:
            parameters, keys = 0, ""
    return Part("parameters of the objective", keys, copies * _FLOAT * parameters)


def _metrics(config: Config) -> Part:
    """Returns the metrics of all steps of a call to the device, or since the last row of them."""
    each = _FLOAT * (2 if config.objective.kind == "supervised" else 8)
    # Where the host feeds images, a call is one step.
    is_fed = isinstance(config.source, kinds.ImagesConfig)
    call = 1 if is_fed else config.train.steps_per_dispatch
    key = "train.steps_per_dispatch" if call > config.log.every else "log.every"
    steps = min(max(call, config.log.every), config.train.steps)
    return Part("metrics of every step", key, each * steps)


def check_fits(config: Config, devices: int, *, hosts: int = 1, training: bool = True) -> None:
    """Raises ConfigError, before anything is allocated, if a run can't fit into memory.

    Args:
      config: the run.
      devices: how many the run uses.
      hosts: how many processes they belong to.
      training: whether it is to be trained, or only evaluated.
    """
    import jax

    phases = estimate(config, devices)
    if not training:
        del phases["training"]
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    if limit is not None:
        refuse_beyond(limit, "each device", phases, 1)
    elif (host := host_memory()) is not None:
        # Devices of the CPU share its memory.
        refuse_beyond(host, "this machine", phases, devices // hosts)


def refuse_beyond(limit: int, owner: str, phases: Mapping[str, list[Part]], sharing: int) -> None:
    """Raises ConfigError if a phase needs too much.

    Args:
      limit: bytes that there are.
      owner: who has them, for the user.
      phases: from `estimate`.
      sharing: devices that share the limit.
    """
    for parts in phases.values():
        need = sharing * sum(part.bytes for part in parts)
        if need > limit:
            largest = max(parts, key=lambda part: part.bytes)
            raise ConfigError(
                f"this run needs at least {_size(need)} of memory ({largest.what}: "
                f"{_size(sharing * largest.bytes)}) and {owner} has {_size(limit)}; lower "
                f"{largest.keys}"
            )


def host_memory() -> int | None:
    """Returns how many bytes this process may hold, swap included; None where unknown."""
    limits = [
        _physical_memory(),
        *_cgroup_limits(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")),
    ]
    soft = resource.getrlimit(resource.RLIMIT_DATA)[0]
    limits.append(None if soft == resource.RLIM_INFINITY else soft)
    known = [limit for limit in limits if limit is not None]
    return min(known) if known else None


def _physical_memory() -> int | None:
    try:
        total: int = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):  # a system that does not tell
        return None
    return total + _swap()


def _swap() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # another system than Linux
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("SwapTotal:"))


def _cgroup_limits(root: Path, membership: Path) -> list[int | None]:
    """Returns the limits of the control groups that this process is in; containers set them."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found: list[int | None] = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":  # version 2
            for folder in _parents(root, group):
                most, swap = (_number(folder / f"memory{x}.max") for x in ("", ".swap"))
                # Without a limit of its own, a group may use all swap.
                found.append(None if most is None else most + (_swap() if swap is None else swap))
        elif "memory" in controllers.split(","):
            for folder in _parents(root / "memory", group):
                most = _number(folder / "memory.limit_in_bytes")
                found.append(None if most is None else most + _swap())
    return found


def _parents(root: Path, group: str) -> list[Path]:
    """Returns the folders of a control group and of those around it."""
    folder = root / group.lstrip("/")
    return [path for path in (folder, *folder.parents) if path.is_relative_to(root)]


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no such file, or "max"
        return None


@dataclasses.dataclass(frozen=True)
class _Network:
    """Size of an encoder.

    Attributes:
      keys: of the config that make it smaller.
      parameters: numbers that are trained.
      activation_bytes: kept for the gradient, of one row.
      widest_bytes: the largest that one row has at a time.
    """

    keys: str
    parameters: int
    activation_bytes: int
    widest_bytes: int


def _network(config: Config) -> _Network:
    match config.encoder:
        case kinds.MLPConfig() as mlp:
            return _mlp(mlp, config.source)
        case kinds.ResNetConfig() as resnet:
            return _resnet(resnet, _view_side(config.source))


def _view_side(source: kinds.SourceConfig) -> int:
    """Returns the side of an observation in pixels; 0 if it is no image."""
    return source.view_side if isinstance(source, kinds.ImageSetConfig) else 0


def _mlp(mlp: kinds.MLPConfig, source: kinds.SourceConfig) -> _Network:
    dim = mlp.dim
    if isinstance(source, kinds.AnchorsConfig):
        inputs, dim = source.dim, dim or source.dim
    if isinstance(source, kinds.ImageSetConfig):
        inputs = source.channels * source.view_side**2
    # As in `models.mlp`: the paper's widths, where none are given.
    hidden = mlp.widths or tuple(n * dim for n in (10, 50, 50, 50, 50, 10))
    keys = "encoder.widths" if mlp.widths else "source.dim or set encoder.widths"
    return _Network(
        keys=keys,
        parameters=_dense((inputs, *hidden, dim)),
        activation_bytes=_FLOAT * sum(hidden),
        widest_bytes=_FLOAT * max(hidden),
    )


def _dense(widths: tuple[int, ...]) -> int:
    return sum((inside + 1) * outside for inside, outside in itertools.pairwise(widths))


def _resnet(encoder: kinds.ResNetConfig, side: int) -> _Network:
    number = _FLOAT if encoder.dtype == "float32" else _FLOAT // 2
    channels = max(8, round(64 * encoder.width))
    imagenet = encoder.stem == "imagenet"
    parameters = 3 * channels * (49 if imagenet else 9)
    side = -(-side // 2) if imagenet else side
    maps = [channels * side**2]
    side = -(-side // 2) if imagenet else side
    inside = channels
    layers = _BOTTLENECK if encoder.kind == "resnet50" else _PLAIN
    for stage, blocks in enumerate(_BLOCKS[encoder.kind]):
        side = -(-side // 2) if stage else side
        for _ in range(blocks):
            # With `remat`, the last of a block's convolutions is computed again.
            for index, (multiple, kernel) in enumerate(layers):
                outside = multiple * channels * 2**stage
                parameters += inside * outside * kernel**2
                if not encoder.remat or index < len(layers) - 1:
                    maps.append(outside * side**2)
                inside = outside
    head = (inside, *encoder.projector, encoder.dim)
    return _Network(
        keys="encoder.width, encoder.projector or encoder.dim",
        parameters=parameters + _dense(head),
        activation_bytes=number * sum(maps),
        widest_bytes=number * max(maps),
    )


def _mixing(config: Config) -> Part:
    source, entries = config.source, 0
    if isinstance(source, kinds.ProcessConfig | kinds.ProcessesConfig):
        entries = source.mixing.layers * source.dim**2
        if entries and source.mixing.init == "uniform":
            # The candidates of a chunk, and their Gram matrices.
            chunk = max(1, min(source.mixing.candidates, _CANDIDATE_ENTRIES // entries))
            entries *= 2 * chunk
    return Part("drawing the mixing", "source.dim", _FLOAT * entries)


def _observation_bytes(source: kinds.SourceConfig) -> int:
    """Returns what a pair takes before it is encoded."""
    match source:
        case kinds.ImagesConfig() as images:
            return images.channels * images.image_size**2
        case kinds.ProcessConfig() | kinds.ProcessesConfig() as process:
            return 2 * process.dim * _FLOAT
        case kinds.DecoderConfig() | kinds.DecodedViewsConfig() as decoded:
            return 2 * _FLOAT * decoded.channels * decoded.image_size**2


def _batch_bytes(config: Config, devices: int) -> int:
    return config.train.batch_size // devices * _observation_bytes(config.source)


def _score_keys(config: Config) -> str:
    is_diet = isinstance(config.objective, kinds.DietConfig)
    return "train.batch_size or objective.examples" if is_diet else "train.batch_size"


def _score_bytes(config: Config, devices: int) -> int:
    """Returns what the scores of a loss take that holds them all."""
    objective = config.objective
    if isinstance(objective, kinds.DietConfig):
        return _FLOAT * config.train.batch_size // devices * objective.examples
    views = 2 if getattr(objective, "negatives", "") == "both" else 1
    keys = views * config.train.batch_size
    queries = keys // devices
    is_dense = getattr(objective, "strategy", "") == "dense"
    if is_dense or (isinstance(objective, kinds.LpConfig) and objective.exponent != 2):
        return _FLOAT * queries * keys
    return 0


def _evaluation(config: Config, network: _Network, devices: int) -> Part:
    source = config.source
    parts = []
    if isinstance(source, kinds.ImageSetConfig):
        rows = -(-config.eval.batch_size // devices)
        row = source.channels * source.image_size**2 + network.widest_bytes
        parts.append(Part("images encoded at a time", "eval.batch_size", rows * row))
    if isinstance(source, kinds.AnchorsConfig):
        # Latents, observations and features, all on one device.
        row = _FLOAT * 2 * source.dim + _observation_bytes(source) // 2 + network.widest_bytes
        samples = config.eval.samples * row // devices
        parts.append(Part("samples to evaluate with", "eval.samples", samples))
    # One after the other.
    return max(parts, key=lambda part: part.bytes)


def _size(count: int) -> str:
    value = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:,.4g} PiB"
