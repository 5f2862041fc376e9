"""Every field of a run's configuration, with its default, its meaning and its range.

Sections with a `kind` come in several classes, one for each set of keys: a source, an encoder,
an objective or an optimiser has the fields that its kind uses, and no others.
"""

import dataclasses
from typing import Any, Literal


class ConfigError(ValueError):
    """A configuration that can't be run; its message is one line for the user."""


@dataclasses.dataclass(frozen=True)
class Range:
    """What a number may be; of a tuple, what each of its items may be.

    Floats are compared as float32, in which everything is computed.

    Attributes:
      low: the smallest value.
      high: the largest value.
      above: whether `low` itself is left out.
      below: whether `high` itself is left out.
      why: what speaks against larger values, where that is not plain.
    """

    low: float
    high: float
    above: bool = False
    below: bool = False
    why: str = ""


def _count(low: int, high: int = 2**31 - 1, why: str = "devices count in 32 bits") -> Range:
    return Range(low, high, why=why)


# Float32 reaches 3e38: fourth powers of such a number, and their inverses, are still finite.
_LARGEST = 1e9
_FOURTH_POWER = "its fourth power must fit into float32"
_POSITIVE = Range(1 / _LARGEST, _LARGEST, why=_FOURTH_POWER)
_NOT_NEGATIVE = Range(0, _LARGEST, why=_FOURTH_POWER)
_ANY_SIGN = Range(-_LARGEST, _LARGEST, why=_FOURTH_POWER)
# Below, a generalised normal overflows; above, it is uniform but for rounding.
_EXPONENT = Range(0.1, 1000, why="powers overflow")
# A rate may be absurd: a run that diverges by it says so.
_RATE = Range(0, 1e38, why="float32 ends there")
_SHARE = Range(0, 1)
_DECAY = Range(0, 1, below=True)
_LAYERS = 100
_SIDE = _count(8, 2**14, "more pixels than any image has")


def _field(
    default: Any,
    help_text: str,
    values: Range | None = None,
    *,
    max_items: int = 2**20,
    needs: str = "",
) -> Any:
    """Returns a dataclass field; `needs` names what a source must know for it to have a use."""
    metadata = {"help": help_text, "range": values, "max_items": max_items, "needs": needs}
    if dataclasses.is_dataclass(default):
        return dataclasses.field(default_factory=lambda: default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class ConcentrationConfig:
    """The true concentrations Λ of the data-generating process."""

    layout: Literal["bimodal", "linear", "constant", "explicit"] = _field(
        "bimodal", "how the true concentrations Λ are laid out over the factors"
    )
    high: float = _field(
        25.0, "largest Λ: content factors; the value of layout 'constant'", _POSITIVE
    )
    low: float = _field(5.0, "smallest Λ: style factors", _POSITIVE)
    values: tuple[float, ...] = _field((), "one Λ per factor, for layout 'explicit'", _POSITIVE)


@dataclasses.dataclass(frozen=True)
class MixingConfig:
    """How latents become observations."""

    layers: int = _field(
        3,
        "linear layers of the mixing g; 0 observes the latents themselves",
        _count(0, _LAYERS, "each layer is compiled"),
    )
    activation: Literal["leaky_relu", "elu", "smooth_leaky_relu", "softplus", "none"] = _field(
        "leaky_relu", "nonlinearity between the mixing's layers"
    )
    slope: float = _field(0.2, "negative slope of the mixing's leaky activations", Range(1e-6, 1))
    init: Literal["uniform", "orthogonal"] = _field(
        "uniform", "mixing matrices: uniform with unit columns, or random orthogonal"
    )
    candidates: int = _field(
        25_000,
        "uniform matrices drawn per layer; the best-conditioned stays",
        _count(1, 10**9, "they are drawn one by one"),
    )


@dataclasses.dataclass(frozen=True)
class ProcessConfig:
    """A data-generating process, whose latents are known."""

    kind: Literal["process"] = _field("process", "where pairs come from")
    dim: int = _field(
        10, "number of latent factors d", _count(1, 2**20, "a mixing is a matrix of dim x dim")
    )
    space: Literal["sphere", "box", "real"] = _field("sphere", "where the latents live")
    radius: float = _field(1.0, "radius of the sphere", _POSITIVE)
    box_low: float = _field(0.0, "lower end of the box, each side", _ANY_SIGN)
    box_high: float = _field(1.0, "upper end of the box, each side", _ANY_SIGN)
    box_boundary: Literal["reject", "wrap"] = _field(
        "reject", "what happens to a draw that leaves the box"
    )
    marginal: Literal["uniform", "normal", "laplace", "generalized_normal", "vmf"] = _field(
        "uniform", "distribution of the anchors"
    )
    marginal_scale: float = _field(
        1.0, "scale of a normal, Laplace or generalised normal marginal", _POSITIVE
    )
    marginal_exponent: float = _field(2.0, "exponent p of a generalised normal marginal", _EXPONENT)
    marginal_concentration: float = _field(
        1.0, "κ of a von Mises–Fisher marginal (north pole)", _POSITIVE
    )
    conditional: Literal[
        "anisotropic", "vmf", "normal", "laplace", "generalized_normal", "bimodal"
    ] = _field("anisotropic", "distribution of a positive given its anchor")
    conditional_exponent: float = _field(
        2.0, "exponent p of a generalised normal conditional", _EXPONENT
    )
    bimodal_offset: float = _field(
        0.5, "distance of the two modes of a bimodal conditional from the anchor", _NOT_NEGATIVE
    )
    sampler: Literal["exact", "paper"] = _field(
        "exact", "anisotropic positives: the true density, or the paper's shell rejection"
    )
    shell: float = _field(0.1, "half-width of the shell that sampler 'paper' accepts", _POSITIVE)
    concentration: ConcentrationConfig = _field(ConcentrationConfig(), "the true Λ")
    mixing: MixingConfig = _field(MixingConfig(), "how latents become observations")


@dataclasses.dataclass(frozen=True)
class ImagesConfig:
    """Augmented views of images, with labels where the data set has them."""

    kind: Literal["images"] = _field("images", "where pairs come from")
    dataset: str = _field("folder", "mnist, cifar10, folder or tfds:NAME")
    folder: str = _field("", "where the data set is; for TFDS, its data_dir")
    train_split: str = _field("train", "split to train on, and to fit readouts on")
    test_split: str = _field("test", "split that readouts are scored on")
    image_size: int = _field(32, "side of the images that go to the device, in pixels", _SIDE)
    view_size: int = _field(
        0, "side of the augmented views; 0: that of the images", _count(0, 2**14, _SIDE.why)
    )
    augment: Literal["simclr", "simclr_cifar", "crop_only", "jitter_only", "none"] = _field(
        "simclr_cifar", "family of augmentations that make a pair of one image"
    )
    strength: float = _field(1.0, "multiplies the ranges of the colour jitter", _NOT_NEGATIVE)
    workers: int = _field(
        0,
        "processes that load images; 0: threads of this one",
        _count(0, 1024, "each is a process"),
    )
    threads: int = _field(
        2, "threads that load images, in each process", _count(1, 1024, "each is a thread")
    )
    decode_mib: int = _field(
        512,
        "memory for decoding images, in each process, in MiB; one that needs more is not read",
        _count(1, 2**20, "that is a TiB"),
    )
    max_bad_share: float = _field(0.01, "share of unreadable images that is put up with", _SHARE)
    title: str = _field("", "what reports call the data set; empty: its name")


SourceConfig = ProcessConfig | ImagesConfig


@dataclasses.dataclass(frozen=True)
class MLPConfig:
    """A multilayer perceptron; what it is given is flattened."""

    kind: Literal["mlp"] = _field("mlp", "network")
    widths: tuple[int, ...] = _field(
        (),
        "hidden widths; empty: the paper's 10d, 50d, 50d, 50d, 50d, 10d",
        _count(1),
        max_items=_LAYERS,
    )
    dim: int = _field(0, "dimension of the embeddings; 0: the number of latent factors", _count(0))
    activation: Literal["leaky_relu", "relu", "gelu", "silu"] = _field(
        "leaky_relu", "nonlinearity of the encoder (leaky slope 0.01)"
    )
    init: Literal["looks_linear", "he_normal", "orthogonal", "torch"] = _field(
        "looks_linear", "initial weights: a linear map, or random ones; 'torch' is the paper's"
    )
    rotation: bool = _field(False, "rotate the embeddings by a trained orthogonal matrix")
    output: Literal["sphere", "learnable_sphere", "box", "learnable_box", "none"] = _field(
        "sphere", "normalisation of the embeddings; learnable: with a trained scale"
    )


@dataclasses.dataclass(frozen=True)
class ResNetConfig:
    """A residual network with a projector, for images."""

    kind: Literal["resnet10", "resnet18", "resnet34", "resnet50"] = _field("resnet18", "network")
    stem: Literal["cifar", "imagenet"] = _field(
        "cifar", "first layers: 3x3, or 7x7 and pooling, which quarter each side"
    )
    width: float = _field(
        1.0,
        "multiplies the channels",
        Range(1e-3, 1e3, why="channels are counted in thousands"),
    )
    projector: tuple[int, ...] = _field(
        (512,), "hidden widths of the projector", _count(1), max_items=_LAYERS
    )
    projector_norm: bool = _field(True, "BatchNorm in the projector's hidden layers")
    dim: int = _field(128, "dimension of the embeddings", _count(1))
    dtype: Literal["float32", "bfloat16"] = _field(
        "float32", "what it computes in; parameters, norms and loss are float32"
    )
    remat: bool = _field(
        False, "gradients compute part of the blocks again: less memory, more work"
    )


EncoderConfig = MLPConfig | ResNetConfig

Negatives = Literal["both", "anchors"]
Strategy = Literal["auto", "dense", "chunked", "gather", "ring", "pallas"]


@dataclasses.dataclass(frozen=True)
class _ContrastConfig:
    """What InfoNCE and AnInfoNCE have in common."""

    negatives: Negatives = _field(
        "anchors", "negatives from the anchors only (theory-exact) or from both views (symmetric)"
    )
    hardness: float = _field(
        0.0, "β: negatives count in proportion to exp(β · score); 0: all alike", _NOT_NEGATIVE
    )
    strategy: Strategy = _field(
        "auto", "how the scores of all pairs are computed; the result is the same"
    )
    chunk_size: int = _field(0, "side of a tile of chunked scores; 0: chosen by size", _count(0))


_NORMALIZE = "normalise embeddings to the unit sphere inside the loss"


@dataclasses.dataclass(frozen=True)
class InfoNCEConfig(_ContrastConfig):
    """InfoNCE, with a fixed or a trained temperature."""

    kind: Literal["infonce"] = _field("infonce", "what is minimised")
    normalize: bool = _field(True, _NORMALIZE)
    temperature: float = _field(1.0, "τ; if it is trained, at the start", _POSITIVE)
    train_temperature: bool = _field(False, "learn one 1/τ")


@dataclasses.dataclass(frozen=True)
class AnInfoNCENoL2Config(_ContrastConfig):
    """AnInfoNCE on embeddings that are not normalised."""

    kind: Literal["aninfonce_no_l2"] = _field("aninfonce_no_l2", "what is minimised")
    concentration_start: float = _field(0.7, "Λ̂ at the start", _POSITIVE)
    concentration_jitter: float = _field(
        0.0, "standard deviation of the free parameter around its start", _NOT_NEGATIVE
    )
    concentration_transform: Literal["softplus", "exp"] = _field(
        "exp", "how the free parameter becomes a positive Λ̂"
    )


@dataclasses.dataclass(frozen=True)
class AnInfoNCEConfig(AnInfoNCENoL2Config):
    """AnInfoNCE, whose Λ̂ is trained."""

    kind: Literal["aninfonce"] = _field("aninfonce", "what is minimised")  # type: ignore[assignment]
    normalize: bool = _field(True, _NORMALIZE)
    centring: float = _field(
        0.0,
        "weight, at the start, of a penalty on embeddings that gather on one side of the sphere, "
        "which keeps weak factors from being folded away; it falls to 0 over the run",
        _NOT_NEGATIVE,
    )


@dataclasses.dataclass(frozen=True)
class LpConfig:
    """The Lp loss."""

    kind: Literal["lp"] = _field("lp", "what is minimised")
    exponent: float = _field(2.0, "p", _EXPONENT)
    temperature: float = _field(1.0, "τ", _POSITIVE)
    negatives: Negatives = _field(
        "anchors", "negatives from the anchors only (theory-exact) or from both views (symmetric)"
    )
    reduction: Literal["logsumexp", "logmeanexp"] = _field(
        "logsumexp", "over the keys and the positive, or the mean over the keys"
    )


@dataclasses.dataclass(frozen=True)
class SupervisedConfig:
    """Regression to the known latents."""

    kind: Literal["supervised"] = _field("supervised", "what is minimised")


ObjectiveConfig = (
    AnInfoNCEConfig | AnInfoNCENoL2Config | InfoNCEConfig | LpConfig | SupervisedConfig
)
ObjectiveKind = Literal["aninfonce", "aninfonce_no_l2", "infonce", "lp", "supervised"]


@dataclasses.dataclass(frozen=True)
class AdamConfig:
    """Adam; also what every optimiser has."""

    kind: Literal["adam"] = _field("adam", "optimiser of the encoder")
    learning_rate: float = _field(
        1e-2, "peak learning rate of the encoder", dataclasses.replace(_RATE, above=True)
    )
    concentration_learning_rate: float = _field(
        1e-2, "peak learning rate of Λ̂ (always Adam)", _RATE
    )
    rotation_learning_rate: float = _field(
        1e-2, "largest turn per step of encoder.rotation, in radians (always Adam)", _RATE
    )
    schedule: Literal["cosine", "constant"] = _field("cosine", "learning rates after warm-up")
    warmup_steps: int = _field(100, "steps of linear warm-up", _count(0))
    final_fraction: float = _field(0.01, "learning rate at the end, as a share of the peak", _SHARE)
    b1: float = _field(0.9, "Adam's β1", _DECAY)
    b2: float = _field(0.999, "Adam's β2", _DECAY)
    clip_norm: float = _field(0.0, "largest global gradient norm; 0: no clipping", _RATE)


@dataclasses.dataclass(frozen=True)
class DecayingConfig(AdamConfig):
    """Optimisers with weight decay."""

    kind: Literal["muon", "adamw"] = _field(  # type: ignore[assignment]
        "muon", "optimiser of the encoder"
    )
    weight_decay: float = _field(
        0.0, "weight decay of matrices; never of biases or Λ̂", _NOT_NEGATIVE
    )


@dataclasses.dataclass(frozen=True)
class MomentumConfig(DecayingConfig):
    """Optimisers with weight decay and momentum."""

    kind: Literal["sgd", "lars"] = _field(  # type: ignore[assignment]
        "sgd", "optimiser of the encoder"
    )
    momentum: float = _field(0.9, "momentum", _DECAY)


OptimizerConfig = DecayingConfig | AdamConfig | MomentumConfig


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """The training loop."""

    steps: int = _field(3000, "optimiser steps", _count(1))
    batch_size: int = _field(1000, "positive pairs per step, over all devices", _count(2))
    steps_per_dispatch: int = _field(50, "steps compiled into one call to the device", _count(1))
    microbatches: int = _field(
        1,
        "parts in which the batch is encoded, for memory; every part's pairs are contrasted",
        _count(1),
    )
    devices: int = _field(0, "local devices to spread the batch over; 0: all of them", _count(0))
    slices: int = _field(
        1, "parts of the devices that a slower network joins, such as TPU slices", _count(1)
    )
    hang_timeout: int = _field(
        3600,
        "of several processes: seconds without progress until the run is given up; 0: never",
        _count(0),
    )
    ema_decay: float = _field(
        0.997, "decay of the averaged parameters that are evaluated; 0: none", _DECAY
    )


@dataclasses.dataclass(frozen=True)
class EvalConfig:
    """Evaluation during and after training."""

    every: int = _field(250, "steps between evaluations", _count(1))
    held_out_batches: int = _field(
        20, "batches that estimate the held-out loss, and its ground-truth floor", _count(1)
    )
    samples: int = _field(
        8192, "fresh anchors; half fit the linear map, half score it", _count(2), needs="latents"
    )
    train_examples: int = _field(
        10_000, "examples that class readouts learn from; 0: all", _count(0), needs="examples"
    )
    test_examples: int = _field(
        0, "examples that readouts are scored on; 0: all", _count(0), needs="examples"
    )
    batch_size: int = _field(256, "examples encoded at a time", _count(1), needs="examples")
    neighbours: int = _field(
        200, "k of the weighted k-nearest-neighbour score", _count(1), needs="examples"
    )
    readout_examples: int = _field(
        2000,
        "of train_examples, those that augmentation readouts use",
        _count(16),
        needs="interventions",
    )
    readout_strength: Literal["upper", "extreme", "drawn"] = _field(
        "upper",
        "an augmentation to be read out: the upper end of its range, either, or drawn",
        needs="interventions",
    )
    readout_context: Literal["clean", "augmented"] = _field(
        "clean",
        "what else is done to its images: nothing, or all the other augmentations",
        needs="interventions",
    )


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """What is kept to resume from."""

    every: int = _field(500, "steps between checkpoints", _count(1))
    keep: int = _field(3, "latest checkpoints kept, besides the best", _count(1))


@dataclasses.dataclass(frozen=True)
class LogConfig:
    """Where metrics go."""

    every: int = _field(50, "steps between rows of training metrics", _count(1))
    tensorboard: bool = _field(True, "also write TensorBoard event files")
    wandb_project: str = _field("", "also log to this Weights & Biases project")


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything a run depends on; see each section's fields."""

    name: str = _field("synthetic", "what the run is called in reports")
    seed: int = _field(
        0, "seed of everything random", Range(0, 2**32 - 1, why="a seed has 32 bits")
    )
    source: SourceConfig = _field(ProcessConfig(), "where pairs come from")
    encoder: EncoderConfig = _field(MLPConfig(), "the encoder f")
    objective: ObjectiveConfig = _field(AnInfoNCEConfig(), "the loss")
    optimizer: OptimizerConfig = _field(DecayingConfig(), "the optimiser")
    train: TrainConfig = _field(TrainConfig(), "the training loop")
    eval: EvalConfig = _field(EvalConfig(), "evaluation during and after training")
    checkpoint: CheckpointConfig = _field(CheckpointConfig(), "checkpoints")
    log: LogConfig = _field(LogConfig(), "metrics")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What only a config of several runs has."""

    compare: tuple[ObjectiveKind, ...] = _field(
        (), "objectives to train in turn and report side by side; empty: objective.kind alone"
    )


# What each kind of source knows about its pairs, and hence can be scored by.
KNOWN = {"process": ("latents",), "images": ("examples", "interventions")}
