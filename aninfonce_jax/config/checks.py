"""Which values go together, and with the machine."""

import dataclasses

from aninfonce_jax.config import kinds
from aninfonce_jax.config.kinds import KNOWN
from aninfonce_jax.config.schema import Config, ConfigError, EvalConfig
from aninfonce_jax.config.values import as_float32

# Of a view's side, in pixels: a ResNet halves it three times.
_SMALLEST_VIEW = 8


def check(config: Config) -> None:
    """Raises ConfigError if the values of a run do not go together."""
    match config.source:
        case kinds.ProcessConfig() as process:
            _check_process(process)
            _check_concentration(process)
            _require(
                config.eval.samples >= 8 * process.dim,
                f"eval.samples={config.eval.samples} is too few to score source.dim={process.dim} "
                f"factors; use at least {8 * process.dim}",
            )
        case kinds.ImagesConfig() as images:
            _check_images(images, config)
    match config.encoder:
        case kinds.MLPConfig() as mlp:
            _check_mlp(mlp, config)
        case kinds.ResNetConfig() as resnet:
            _check_resnet(resnet, config)
    match config.objective:
        case kinds.AnInfoNCEConfig(normalize=False, centring=centring):
            _require(
                centring == 0,
                f"objective.centring={centring} is for embeddings on the sphere; set "
                "objective.normalize=True, or objective.centring=0",
            )
    _check_evaluation(config)
    _require(
        config.optimizer.warmup_steps < config.train.steps,
        f"optimizer.warmup_steps={config.optimizer.warmup_steps} must be below "
        f"train.steps={config.train.steps}",
    )


def check_devices(config: Config, available: int, hosts: int = 1) -> int:
    """Returns over how many devices a run is spread, in all, or raises ConfigError.

    Args:
      config: the run.
      available: devices of each host.
      hosts: processes that share the run.
    """
    devices = config.train.devices or available
    _require(
        devices <= available,
        f"train.devices={devices} but this machine has {available}; "
        "lower it, or set it to 0 for all of them",
    )
    _require(
        hosts == 1 or devices == available,
        f"train.devices={devices} leaves devices of each of {hosts} processes unused, which have "
        f"{available}; set it to 0 for all of them",
    )
    devices *= hosts
    _require(
        config.train.batch_size % devices == 0,
        f"train.batch_size={config.train.batch_size} can't be divided over {devices} devices; "
        f"choose a multiple of {devices}, or set train.devices",
    )
    parts = config.train.microbatches
    _require(
        config.train.batch_size // devices % parts == 0,
        f"train.microbatches={parts} can't divide the {config.train.batch_size // devices} "
        f"pairs of each device; choose a divisor, or another train.batch_size",
    )
    return devices


def check_backend(config: Config, backend: str) -> None:
    """Raises ConfigError if a run asks for what its devices can't do."""
    _require(
        getattr(config.objective, "strategy", "") != "pallas" or backend == "tpu",
        f"objective.strategy='pallas' is for TPU and this is a {backend}; use 'auto' or 'chunked'",
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def unused_evaluation(source_kind: str) -> dict[str, str]:
    """Returns the keys of `eval` that a kind of source has no use for, and what they need."""
    known = KNOWN.get(source_kind, ()) if isinstance(source_kind, str) else ()
    needs = {field.name: field.metadata["needs"] for field in dataclasses.fields(EvalConfig)}
    return {name: need for name, need in needs.items() if need and need not in known}


def _check_evaluation(config: Config) -> None:
    """Checks that what is set for the evaluation has a use."""
    kind, usual = config.source.kind, EvalConfig()
    for name, needs in unused_evaluation(kind).items():
        value = getattr(config.eval, name)
        _require(
            value == getattr(usual, name),
            f"eval.{name}={value!r} has no use with source.kind={kind!r}, of which "
            f"{' and '.join(KNOWN[kind])} are known and {needs} are not; leave it out",
        )


def _check_mlp(mlp: kinds.MLPConfig, config: Config) -> None:
    _require(
        mlp.dim > 0 or isinstance(config.source, kinds.ProcessConfig),
        f"encoder.dim=0 means the number of latent factors, which source.kind="
        f"{config.source.kind!r} does not tell; set encoder.dim",
    )
    _require(
        not getattr(config.objective, "normalize", False) or mlp.output in ("sphere", "none"),
        f"objective.normalize=True would undo encoder.output={mlp.output!r}; "
        "set objective.normalize=False or encoder.output='sphere'",
    )
    if isinstance(config.objective, kinds.SupervisedConfig) and isinstance(
        config.source, kinds.ProcessConfig
    ):
        _require(
            mlp.dim in (0, config.source.dim),
            f"objective.kind='supervised' regresses the {config.source.dim} latent factors; "
            f"encoder.dim={mlp.dim} must be 0 or {config.source.dim}",
        )


def _check_resnet(resnet: kinds.ResNetConfig, config: Config) -> None:
    _require(
        isinstance(config.source, kinds.ImagesConfig),
        f"encoder.kind={resnet.kind!r} takes images, and source.kind={config.source.kind!r} gives "
        "none; use encoder.kind='mlp', or source.kind='images'",
    )
    _require(
        config.optimizer.kind != "muon",
        "optimizer.kind='muon' is for MLPs; use lars, sgd, adam or adamw with a ResNet",
    )


def _check_images(images: kinds.ImagesConfig, config: Config) -> None:
    _require(
        not isinstance(config.objective, kinds.SupervisedConfig),
        "objective.kind='supervised' regresses the latents of a process, which images lack; "
        "the class readouts are the supervised scores here",
    )
    _require(
        images.folder != "",
        f"source.folder is empty; say where {images.dataset} is with --config.source.folder=DIR",
    )
    _require(
        config.eval.train_examples != 1,
        "eval.train_examples=1 leaves nothing to choose a penalty on; raise it, or use 0 for all",
    )
    _require(
        images.view_size == 0 or images.view_size >= _SMALLEST_VIEW,
        f"source.view_size={images.view_size} is too small to train on; use 0 or at least "
        f"{_SMALLEST_VIEW}",
    )


def _check_process(process: kinds.ProcessConfig) -> None:
    on_sphere = process.space == "sphere"
    _require(
        not on_sphere or process.dim >= 2,
        f"a sphere needs source.dim of at least 2, got {process.dim}",
    )
    _require(
        as_float32(process.box_low) < as_float32(process.box_high),
        f"source.box_low={process.box_low} must be below source.box_high={process.box_high}, "
        "also in float32",
    )
    for role, kind in (("marginal", process.marginal), ("conditional", process.conditional)):
        _require(
            on_sphere or kind not in ("anisotropic", "vmf"),
            f"source.{role}={kind!r} is defined on the sphere, got source.space="
            f"{process.space!r}; use a normal, laplace or generalized_normal there",
        )
    layout = process.concentration.layout
    _require(
        process.conditional != "vmf" or layout == "constant",
        "source.conditional='vmf' has one concentration for all factors; set "
        f"source.concentration.layout='constant', got {layout!r}",
    )
    _require(
        process.space != "real" or process.marginal != "uniform",
        "source.marginal='uniform' does not exist on source.space='real'; use normal or laplace",
    )


def _check_concentration(process: kinds.ProcessConfig) -> None:
    concentration = process.concentration
    _require(
        concentration.low <= concentration.high,
        f"source.concentration.low={concentration.low} must not exceed "
        f"source.concentration.high={concentration.high}",
    )
    if concentration.layout == "explicit":
        values = concentration.values
        _require(
            len(values) == process.dim,
            f"source.concentration.values needs one Λ for each of source.dim={process.dim} "
            f"factors, got {len(values)}",
        )
    else:
        _require(
            not concentration.values,
            "source.concentration.values is only read with source.concentration.layout="
            f"'explicit', got layout {concentration.layout!r}",
        )
