"""Which values go together, and with the machine."""

from aninfonce_jax.config import kinds
from aninfonce_jax.config.schema import Config, ConfigError
from aninfonce_jax.config.unused import check_used
from aninfonce_jax.config.values import as_float32

# The shortest side of a view, in pixels: a ResNet halves it three times.
_SMALLEST_VIEW = 8
# The fewest views of one example that a test of normality takes.
_FEWEST_VIEWS = 20


def check(config: Config) -> None:
    """Raises ConfigError if the values of a run do not go together."""
    source = config.source
    check_used(config)
    if isinstance(source, kinds.AnchorsConfig):
        _check_anchors(source)
        check_samples("eval.samples", config.eval.samples, source.dim, "source.dim=")
    if isinstance(source, kinds.LatentsConfig):
        _check_concentration("source.concentration", source.concentration, source)
    if isinstance(source, kinds.ProcessesConfig):
        for place, own in enumerate(source.members):
            _check_concentration(f"source.members.{place}", own, source)
    _check_ensemble(source, config.objective)
    _check_negatives(source, config.objective)
    if isinstance(source, kinds.ImageSetConfig):
        _check_image_set(source, config)
    match source:
        case kinds.ImagesConfig() as images:
            _check_images(images, config)
        case kinds.DecoderConfig() | kinds.DecodedViewsConfig() as decoded:
            _require(
                decoded.decoder != "",
                "source.decoder is empty; name the work directory of a VAE, or one for it to be "
                "trained in",
            )
    match config.encoder:
        case kinds.MLPConfig() as mlp:
            _check_mlp(mlp, config)
        case kinds.ResNetConfig() as resnet:
            _check_resnet(resnet, config)
    for name, objective in kinds.objectives_of(config.objective).items():
        _check_on_unit_sphere(name, objective)
    match config.objective:
        case kinds.ElboConfig():
            _check_elbo(config)
        case kinds.VICRegConfig() | kinds.SIGRegConfig():
            _require(
                not isinstance(config.encoder, kinds.MLPConfig) or config.encoder.output == "none",
                f"objective.kind={config.objective.kind!r} asks every output for a variance of 1, "
                f"which encoder.output={getattr(config.encoder, 'output', '')!r} does not allow; "
                "set encoder.output='none'",
            )
        case kinds.DietConfig():
            _require(
                isinstance(source, kinds.ImagesConfig),
                f"objective.kind='diet' has a class for each example of a data set, and "
                f"source.kind={source.kind!r} draws new ones without end; use source.kind='images'",
            )
        case kinds.AugSelfConfig():
            _require(
                isinstance(source, kinds.ImagesConfig | kinds.DecodedViewsConfig)
                and not isinstance(source, kinds.MatchedImagesConfig),
                f"objective.kind='augself' predicts how views were augmented, and source.kind="
                f"{source.kind!r} augments none; use source.kind='images' or 'decoded_views'",
            )
    _require(
        config.optimizer.warmup_steps < config.train.steps,
        f"optimizer.warmup_steps={config.optimizer.warmup_steps} must be below "
        f"train.steps={config.train.steps}",
    )


def check_samples(name: str, samples: int, factors: int, of: str = "") -> None:
    """Raises ConfigError if a linear map can't be fitted and scored on so few samples.

    Args:
      name: what the user calls the number of samples.
      samples: how many.
      factors: to be scored.
      of: what stands before their number, for the user.
    """
    fewest = 8 * factors
    _require(
        samples >= fewest,
        f"{name}={samples} is too few to score {of}{factors} factors; use at least {fewest}",
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
    for name, objective in kinds.objectives_of(config.objective).items():
        _require(
            getattr(objective, "strategy", "") != "pallas" or backend == "tpu",
            f"{name}.strategy='pallas' is for TPU and this is a {backend}; use 'auto' or 'chunked'",
        )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def _check_mlp(mlp: kinds.MLPConfig, config: Config) -> None:
    _require(
        mlp.dim > 0 or isinstance(config.source, kinds.AnchorsConfig),
        f"encoder.dim=0 means the number of latent factors, which source.kind="
        f"{config.source.kind!r} does not tell; set encoder.dim",
    )
    _require(
        mlp.init != "looks_linear" or min(mlp.widths, default=2) >= 2,
        f"encoder.widths={mlp.widths} has a layer of one unit, and encoder.init='looks_linear' "
        "pairs units; use at least 2, or encoder.init='orthogonal'",
    )
    for name, objective in kinds.objectives_of(config.objective).items():
        _require(
            not getattr(objective, "normalize", False) or mlp.output in ("sphere", "none"),
            f"{name}.normalize=True would undo encoder.output={mlp.output!r}; "
            f"set {name}.normalize=False or encoder.output='sphere'",
        )
    if isinstance(config.objective, kinds.SupervisedConfig) and isinstance(
        config.source, kinds.AnchorsConfig
    ):
        _require(
            mlp.dim in (0, config.source.dim),
            f"objective.kind='supervised' regresses the {config.source.dim} latent factors; "
            f"encoder.dim={mlp.dim} must be 0 or {config.source.dim}",
        )


def _check_ensemble(source: kinds.SourceConfig, objective: kinds.ObjectiveConfig) -> None:
    """Checks that each member has both pairs and an objective."""
    is_ensemble = isinstance(objective, kinds.EnsembleConfig)
    _require(
        isinstance(source, kinds.EnsembleSourceConfig) == is_ensemble,
        f"objective.kind={objective.kind!r} with source.kind={source.kind!r}: the members of an "
        "ensemble have their pairs from source.kind='processes' or 'image_ensemble' and their "
        "losses from objective.kind='ensemble'; set both or neither",
    )
    if not isinstance(source, kinds.EnsembleSourceConfig):
        return
    assert isinstance(objective, kinds.EnsembleConfig)
    _require(
        len(source.members) == len(objective.members) > 0,
        f"an ensemble has as many members in source.members as in objective.members, and at least "
        f"one; got {len(source.members)} and {len(objective.members)}",
    )
    _require(
        len(objective.weights) in (0, len(objective.members)),
        f"objective.weights has one for each of the {len(objective.members)} members, or none; got "
        f"{len(objective.weights)}",
    )


def _check_negatives(source: kinds.SourceConfig, objective: kinds.ObjectiveConfig) -> None:
    """Checks that an anchor's own negatives are both drawn and used, and leave a minimum."""
    draws = isinstance(source, kinds.ProcessWithNegativesConfig)
    uses = isinstance(objective, kinds.HardNegativesConfig)
    _require(
        draws == uses,
        f"objective.kind={objective.kind!r} with source.kind={source.kind!r}: negatives of an "
        "anchor's own are drawn by source.kind='process_with_negatives' and used by objective.kind="
        "'hard_negatives'; set both or neither",
    )
    if not isinstance(source, kinds.ProcessWithNegativesConfig):
        return
    plus, minus = source.concentration.of_factors(source.dim), source.own_concentration
    _require(
        len(minus) in (1, source.dim),
        f"source.own_concentration needs one Λ⁻ for all, or one for each of source.dim={source.dim}"
        f" factors, got {len(minus)}",
    )
    _require(
        len(minus) == 1 or source.conditional != "vmf",
        f"source.conditional='vmf' has one concentration for all factors; give "
        f"source.own_concentration one value, got {len(minus)}",
    )
    minus = minus * source.dim if len(minus) == 1 else minus
    for place, (high, low) in enumerate(zip(plus, minus, strict=True), start=1):
        _require(
            as_float32(low) < as_float32(high),
            f"source.own_concentration is {low} for factor {place}, whose Λ is {high:g}: the loss "
            f"is smallest at their difference, Λ - Λ⁻ = {high - low:g}, which must be positive; "
            "lower Λ⁻",
        )


def _check_on_unit_sphere(name: str, objective: kinds.ObjectiveConfig) -> None:
    """Checks that what is defined on the unit sphere alone is not asked for elsewhere."""
    if getattr(objective, "normalize", True):
        return
    for key in ("centring", "spreading", "keeping", "debias"):
        value = getattr(objective, key, 0.0)
        _require(
            value == 0,
            f"{name}.{key}={value} is for embeddings on the sphere; set {name}.normalize=True, or "
            f"{name}.{key}=0",
        )


def _check_elbo(config: Config) -> None:
    _require(
        isinstance(config.source, kinds.ImagesConfig),
        f"objective.kind='elbo' models the pixels of images, and source.kind="
        f"{config.source.kind!r} gives none; use source.kind='images'",
    )
    encoder = config.encoder
    _require(
        isinstance(encoder, kinds.MLPConfig) and encoder.output == "none",
        "objective.kind='elbo' takes means and variances as they come out of an MLP; use "
        "encoder.kind='mlp' with encoder.output='none'",
    )
    _require(
        encoder.dim % 2 == 0,
        f"objective.kind='elbo' takes a mean and a variance for each latent; encoder.dim="
        f"{encoder.dim} must be even",
    )


def _check_resnet(resnet: kinds.ResNetConfig, config: Config) -> None:
    _require(
        isinstance(config.source, kinds.ImageSetConfig),
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
        not isinstance(images, kinds.MatchedImagesConfig) or images.factor_concentration != (),
        "source.factor_concentration is empty; give one Λ for all factors, or one for each",
    )
    _require(
        images.view_size == 0 or images.view_size >= _SMALLEST_VIEW,
        f"source.view_size={images.view_size} is too small to train on; use 0 or at least "
        f"{_SMALLEST_VIEW}",
    )


def _check_image_set(images: kinds.ImageSetConfig, config: Config) -> None:
    _require(
        images.folder != "",
        f"source.folder is empty; say where {images.dataset} is with --config.source.folder=DIR",
    )
    _require(
        config.eval.train_examples != 1,
        "eval.train_examples=1 leaves nothing to choose a penalty on; raise it, or use 0 for all",
    )
    _require(
        config.eval.views == 0 or config.eval.views >= _FEWEST_VIEWS,
        f"eval.views={config.eval.views} is too few to tell how views are spread; use at least "
        f"{_FEWEST_VIEWS}, or 0 for none",
    )


def _check_anchors(anchors: kinds.AnchorsConfig) -> None:
    _require(
        anchors.space != "sphere" or anchors.dim >= 2,
        f"a sphere needs source.dim of at least 2, got {anchors.dim}",
    )
    _require(
        as_float32(anchors.box_low) < as_float32(anchors.box_high),
        f"source.box_low={anchors.box_low} must be below source.box_high={anchors.box_high}, "
        "also in float32",
    )
    _check_on_sphere("marginal", anchors.marginal, anchors)
    _require(
        anchors.space != "real" or anchors.marginal != "uniform",
        "source.marginal='uniform' does not exist on source.space='real'; use normal or laplace",
    )


def _check_on_sphere(role: str, kind: str, anchors: kinds.AnchorsConfig) -> None:
    _require(
        anchors.space == "sphere" or kind not in ("anisotropic", "vmf"),
        f"source.{role}={kind!r} is defined on the sphere, got source.space="
        f"{anchors.space!r}; use a normal, laplace or generalized_normal there",
    )


def _check_concentration(
    name: str, concentration: kinds.ConcentrationConfig, process: kinds.FamilyConfig
) -> None:
    """Checks a Λ, and that the family of the positives can have it."""
    _check_on_sphere("conditional", process.conditional, process)
    _require(
        process.conditional != "vmf" or concentration.layout == "constant",
        "source.conditional='vmf' has one concentration for all factors; set "
        f"{name}.layout='constant', got {concentration.layout!r}",
    )
    _require(
        concentration.layout in ("constant", "explicit") or concentration.low <= concentration.high,
        f"{name}.low={concentration.low} must not exceed {name}.high={concentration.high}",
    )
    if concentration.layout == "explicit":
        values = concentration.values
        _require(
            len(values) == process.dim,
            f"{name}.values needs one Λ for each of source.dim={process.dim} "
            f"factors, got {len(values)}",
        )
