"""Every field of a run's configuration, with its default, its meaning and its range."""

import dataclasses
from typing import Any, Literal

ObjectiveKind = Literal["aninfonce", "aninfonce_no_l2", "infonce", "lp", "supervised"]


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
_SIDE = _count(8, 2**14, "more pixels than any picture has")


def _field(
    default: Any, help_text: str, values: Range | None = None, *, max_items: int = 2**20
) -> Any:
    metadata = {"help": help_text, "range": values, "max_items": max_items}
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
class DgpConfig:
    """The data-generating process."""

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
class DataConfig:
    """Pictures as the source of pairs, in place of the data-generating process."""

    name: str = _field("", "mnist, cifar10, folder or tfds:NAME; empty: no pictures, but dgp")
    folder: str = _field("", "where the data set is; for TFDS, its data_dir")
    train_split: str = _field("train", "split to train on, and to fit readouts on")
    test_split: str = _field("test", "split that readouts are scored on")
    image_size: int = _field(32, "side of the pictures that go to the device, in pixels", _SIDE)
    view_size: int = _field(
        0, "side of the augmented views; 0: that of the pictures", _count(0, 2**14, _SIDE.why)
    )
    augment: Literal["simclr", "simclr_cifar", "crop_only", "jitter_only", "none"] = _field(
        "simclr_cifar", "family of augmentations that make a pair of one picture"
    )
    strength: float = _field(1.0, "multiplies the ranges of the colour jitter", _NOT_NEGATIVE)
    workers: int = _field(
        0,
        "processes that load pictures; 0: threads of this one",
        _count(0, 1024, "each is a process"),
    )
    threads: int = _field(
        2, "threads that load pictures, in each process", _count(1, 1024, "each is a thread")
    )
    max_bad_share: float = _field(0.01, "share of unreadable pictures that is put up with", _SHARE)
    title: str = _field("", "what reports call the data set; empty: its name")


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """The encoder f."""

    widths: tuple[int, ...] = _field(
        (),
        "hidden widths of the MLP; empty: the paper's 10d, 50d, 50d, 50d, 50d, 10d",
        _count(1),
        max_items=_LAYERS,
    )
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
    kind: Literal["mlp", "resnet10", "resnet18", "resnet34", "resnet50"] = _field(
        "mlp", "network: an MLP for dgp, a ResNet for pictures"
    )
    stem: Literal["cifar", "imagenet"] = _field(
        "cifar", "ResNet's first layers: 3x3, or 7x7 and pooling, which quarter each side"
    )
    width: float = _field(
        1.0,
        "multiplies the channels of a ResNet",
        Range(1e-3, 1e3, why="channels are counted in thousands"),
    )
    projector: tuple[int, ...] = _field(
        (512,), "hidden widths of the projector behind a ResNet", _count(1), max_items=_LAYERS
    )
    projector_norm: bool = _field(True, "BatchNorm in the projector's hidden layers")
    dim: int = _field(128, "dimension of a ResNet's embeddings; with dgp it is dgp.dim", _count(1))
    dtype: Literal["float32", "bfloat16"] = _field(
        "float32", "a ResNet computes in it; parameters, norms and loss are float32"
    )
    remat: bool = _field(
        False, "a ResNet's gradients compute part of its blocks again: less memory, more work"
    )


@dataclasses.dataclass(frozen=True)
class ObjectiveConfig:
    """What is minimised."""

    kind: ObjectiveKind = _field("aninfonce", "what is minimised")
    negatives: Literal["both", "anchors"] = _field(
        "anchors", "negatives from the anchors only (theory-exact) or from both views (symmetric)"
    )
    normalize: bool = _field(True, "normalise embeddings to the unit sphere inside the loss")
    hardness: float = _field(
        0.0, "β: negatives count in proportion to exp(β · score); 0: all alike", _NOT_NEGATIVE
    )
    strategy: Literal["auto", "dense", "chunked", "gather", "ring", "pallas"] = _field(
        "auto", "how the scores of all pairs are computed; the result is the same"
    )
    chunk_size: int = _field(0, "side of a tile of chunked scores; 0: chosen by size", _count(0))
    concentration_transform: Literal["softplus", "exp"] = _field(
        "exp", "how the free parameter becomes a positive Λ̂"
    )
    concentration_start: float = _field(
        0.7, "Λ̂ (AnInfoNCE) or 1/τ (a trained InfoNCE) at the start", _POSITIVE
    )
    concentration_jitter: float = _field(
        0.0, "standard deviation of the free parameter around its start", _NOT_NEGATIVE
    )
    temperature: float = _field(1.0, "τ of InfoNCE and the Lp loss", _POSITIVE)
    train_temperature: bool = _field(False, "InfoNCE: learn one 1/τ, from concentration_start")
    exponent: float = _field(2.0, "p of the Lp loss", _EXPONENT)
    reduction: Literal["logsumexp", "logmeanexp"] = _field(
        "logsumexp", "Lp loss: over the keys and the positive, or the mean over the keys"
    )


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """How it is minimised."""

    name: Literal["adam", "adamw", "sgd", "lars", "muon"] = _field(
        "muon", "optimiser of the encoder"
    )
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
    momentum: float = _field(0.9, "momentum of SGD and LARS", _DECAY)
    weight_decay: float = _field(
        0.0, "weight decay of matrices; never of biases or Λ̂", _NOT_NEGATIVE
    )
    clip_norm: float = _field(0.0, "largest global gradient norm; 0: no clipping", _RATE)
    ema_decay: float = _field(
        0.997, "decay of the averaged parameters that are evaluated; 0: none", _DECAY
    )


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


@dataclasses.dataclass(frozen=True)
class EvalConfig:
    """Evaluation during and after training."""

    every: int = _field(250, "steps between evaluations", _count(1))
    samples: int = _field(8192, "fresh anchors; half fit the linear map, half score it", _count(2))
    floor_batches: int = _field(
        20, "batches that estimate the held-out loss, and its ground-truth floor", _count(1)
    )
    train_images: int = _field(
        10_000, "pictures that class readouts learn from; 0: the split", _count(0)
    )
    test_images: int = _field(
        0, "pictures that readouts are scored on; 0: the whole split", _count(0)
    )
    readout_images: int = _field(
        2000, "of train_images, those that augmentation readouts use", _count(16)
    )
    batch_size: int = _field(256, "pictures encoded at a time", _count(1))
    neighbours: int = _field(200, "k of the weighted k-nearest-neighbour score", _count(1))
    readout_strength: Literal["upper", "extreme", "drawn"] = _field(
        "upper", "an augmentation to be read out: the upper end of its range, either, or drawn"
    )
    readout_context: Literal["clean", "augmented"] = _field(
        "clean", "what else is done to its pictures: nothing, or all the other augmentations"
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
    compare: tuple[ObjectiveKind, ...] = _field(
        (), "objectives to train in turn and report side by side; empty: objective.kind alone"
    )
    dgp: DgpConfig = _field(DgpConfig(), "the data-generating process")
    data: DataConfig = _field(DataConfig(), "pictures, in place of dgp")
    encoder: EncoderConfig = _field(EncoderConfig(), "the encoder f")
    objective: ObjectiveConfig = _field(ObjectiveConfig(), "the loss")
    optimizer: OptimizerConfig = _field(OptimizerConfig(), "the optimiser")
    train: TrainConfig = _field(TrainConfig(), "the training loop")
    eval: EvalConfig = _field(EvalConfig(), "evaluation during and after training")
    checkpoint: CheckpointConfig = _field(CheckpointConfig(), "checkpoints")
    log: LogConfig = _field(LogConfig(), "metrics")

    @property
    def has_images(self) -> bool:
        """Whether the pairs are views of pictures."""
        return bool(self.data.name)

    @property
    def embedding_dim(self) -> int:
        """Dimension of the embeddings that the loss compares."""
        return self.encoder.dim if self.has_images else self.dgp.dim
