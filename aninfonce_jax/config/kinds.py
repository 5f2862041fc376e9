"""The sections of a config that have a `kind`: source, encoder, objective and optimiser.

Each comes in several classes, one for each set of keys: a section has the fields that its kind
uses, and no others.
"""

import dataclasses
from typing import Literal

from aninfonce_jax.config.fields import (
    ANY_SIGN,
    DECAY,
    EXPONENT,
    LAYERS,
    NOT_NEGATIVE,
    POSITIVE,
    RATE,
    SHARE,
    SIDE,
    Range,
    count,
    field,
)


@dataclasses.dataclass(frozen=True)
class ConcentrationConfig:
    """The true concentrations Λ of the data-generating process."""

    layout: Literal["bimodal", "linear", "constant", "explicit"] = field(
        "bimodal", "how the true concentrations Λ are laid out over the factors"
    )
    high: float = field(
        25.0, "largest Λ: content factors; the value of layout 'constant'", POSITIVE
    )
    low: float = field(5.0, "smallest Λ: style factors", POSITIVE)
    values: tuple[float, ...] = field((), "one Λ per factor, for layout 'explicit'", POSITIVE)


@dataclasses.dataclass(frozen=True)
class MixingConfig:
    """How latents become observations."""

    layers: int = field(
        3,
        "linear layers of the mixing g; 0 observes the latents themselves",
        count(0, LAYERS, "each layer is compiled"),
    )
    activation: Literal["leaky_relu", "elu", "smooth_leaky_relu", "softplus", "none"] = field(
        "leaky_relu", "nonlinearity between the mixing's layers"
    )
    slope: float = field(0.2, "negative slope of the mixing's leaky activations", Range(1e-6, 1))
    init: Literal["uniform", "orthogonal"] = field(
        "uniform", "mixing matrices: uniform with unit columns, or random orthogonal"
    )
    candidates: int = field(
        25_000,
        "uniform matrices drawn per layer; the best-conditioned stays",
        count(1, 10**9, "they are drawn one by one"),
    )


@dataclasses.dataclass(frozen=True)
class ProcessConfig:
    """A data-generating process, whose latents are known."""

    kind: Literal["process"] = field("process", "where pairs come from")
    dim: int = field(
        10, "number of latent factors d", count(1, 2**20, "a mixing is a matrix of dim x dim")
    )
    space: Literal["sphere", "box", "real"] = field("sphere", "where the latents live")
    radius: float = field(1.0, "radius of the sphere", POSITIVE)
    box_low: float = field(0.0, "lower end of the box, each side", ANY_SIGN)
    box_high: float = field(1.0, "upper end of the box, each side", ANY_SIGN)
    box_boundary: Literal["reject", "wrap"] = field(
        "reject", "what happens to a draw that leaves the box"
    )
    marginal: Literal["uniform", "normal", "laplace", "generalized_normal", "vmf"] = field(
        "uniform", "distribution of the anchors"
    )
    marginal_scale: float = field(
        1.0, "scale of a normal, Laplace or generalised normal marginal", POSITIVE
    )
    marginal_exponent: float = field(2.0, "exponent p of a generalised normal marginal", EXPONENT)
    marginal_concentration: float = field(
        1.0, "κ of a von Mises–Fisher marginal (north pole)", POSITIVE
    )
    conditional: Literal[
        "anisotropic", "vmf", "normal", "laplace", "generalized_normal", "bimodal"
    ] = field("anisotropic", "distribution of a positive given its anchor")
    conditional_exponent: float = field(
        2.0, "exponent p of a generalised normal conditional", EXPONENT
    )
    bimodal_offset: float = field(
        0.5, "distance of the two modes of a bimodal conditional from the anchor", NOT_NEGATIVE
    )
    sampler: Literal["exact", "paper"] = field(
        "exact", "anisotropic positives: the true density, or the paper's shell rejection"
    )
    shell: float = field(0.1, "half-width of the shell that sampler 'paper' accepts", POSITIVE)
    concentration: ConcentrationConfig = field(ConcentrationConfig(), "the true Λ")
    mixing: MixingConfig = field(MixingConfig(), "how latents become observations")


@dataclasses.dataclass(frozen=True)
class ImagesConfig:
    """Augmented views of images, with labels where the data set has them."""

    kind: Literal["images"] = field("images", "where pairs come from")
    dataset: str = field("folder", "mnist, cifar10, folder or tfds:NAME")
    folder: str = field("", "where the data set is; for TFDS, its data_dir")
    train_split: str = field("train", "split to train on, and to fit readouts on")
    test_split: str = field("test", "split that readouts are scored on")
    image_size: int = field(32, "side of the images that go to the device, in pixels", SIDE)
    view_size: int = field(
        0, "side of the augmented views; 0: that of the images", count(0, 2**14, SIDE.why)
    )
    augment: Literal["simclr", "simclr_cifar", "crop_only", "jitter_only", "none"] = field(
        "simclr_cifar", "family of augmentations that make a pair of one image"
    )
    strength: float = field(1.0, "multiplies the ranges of the colour jitter", NOT_NEGATIVE)
    workers: int = field(
        0,
        "processes that load images; 0: threads of this one",
        count(0, 1024, "each is a process"),
    )
    threads: int = field(
        2, "threads that load images, in each process", count(1, 1024, "each is a thread")
    )
    decode_mib: int = field(
        512,
        "memory for decoding images, in each process, in MiB; one that needs more is not read",
        count(1, 2**20, "that is a TiB"),
    )
    max_bad_share: float = field(0.01, "share of unreadable images that is put up with", SHARE)
    title: str = field("", "what reports call the data set; empty: its name")


SourceConfig = ProcessConfig | ImagesConfig


@dataclasses.dataclass(frozen=True)
class MLPConfig:
    """A multilayer perceptron; what it is given is flattened."""

    kind: Literal["mlp"] = field("mlp", "network")
    widths: tuple[int, ...] = field(
        (),
        "hidden widths; empty: the paper's 10d, 50d, 50d, 50d, 50d, 10d",
        count(1),
        max_items=LAYERS,
    )
    dim: int = field(0, "dimension of the embeddings; 0: the number of latent factors", count(0))
    activation: Literal["leaky_relu", "relu", "gelu", "silu"] = field(
        "leaky_relu", "nonlinearity of the encoder (leaky slope 0.01)"
    )
    init: Literal["looks_linear", "he_normal", "orthogonal", "torch"] = field(
        "looks_linear", "initial weights: a linear map, or random ones; 'torch' is the paper's"
    )
    rotation: bool = field(False, "rotate the embeddings by a trained orthogonal matrix")
    output: Literal["sphere", "learnable_sphere", "box", "learnable_box", "none"] = field(
        "sphere", "normalisation of the embeddings; learnable: with a trained scale"
    )


@dataclasses.dataclass(frozen=True)
class ResNetConfig:
    """A residual network with a projector, for images."""

    kind: Literal["resnet10", "resnet18", "resnet34", "resnet50"] = field("resnet18", "network")
    stem: Literal["cifar", "imagenet"] = field(
        "cifar", "first layers: 3x3, or 7x7 and pooling, which quarter each side"
    )
    width: float = field(
        1.0,
        "multiplies the channels",
        Range(1e-3, 1e3, why="channels are counted in thousands"),
    )
    projector: tuple[int, ...] = field(
        (512,), "hidden widths of the projector", count(1), max_items=LAYERS
    )
    projector_norm: bool = field(True, "BatchNorm in the projector's hidden layers")
    dim: int = field(128, "dimension of the embeddings", count(1))
    dtype: Literal["float32", "bfloat16"] = field(
        "float32", "what it computes in; parameters, norms and loss are float32"
    )
    remat: bool = field(False, "gradients compute part of the blocks again: less memory, more work")


EncoderConfig = MLPConfig | ResNetConfig

Negatives = Literal["both", "anchors"]
Strategy = Literal["auto", "dense", "chunked", "gather", "ring", "pallas"]


@dataclasses.dataclass(frozen=True)
class _ContrastConfig:
    """What InfoNCE and AnInfoNCE have in common."""

    negatives: Negatives = field(
        "anchors", "negatives from the anchors only (theory-exact) or from both views (symmetric)"
    )
    hardness: float = field(
        0.0, "β: negatives count in proportion to exp(β · score); 0: all alike", NOT_NEGATIVE
    )
    strategy: Strategy = field(
        "auto", "how the scores of all pairs are computed; the result is the same"
    )
    chunk_size: int = field(0, "side of a tile of chunked scores; 0: chosen by size", count(0))


_NORMALIZE = "normalise embeddings to the unit sphere inside the loss"


@dataclasses.dataclass(frozen=True)
class InfoNCEConfig(_ContrastConfig):
    """InfoNCE, with a fixed or a trained temperature."""

    kind: Literal["infonce"] = field("infonce", "what is minimised")
    normalize: bool = field(True, _NORMALIZE)
    temperature: float = field(1.0, "τ; if it is trained, at the start", POSITIVE)
    train_temperature: bool = field(False, "learn one 1/τ")


@dataclasses.dataclass(frozen=True)
class AnInfoNCENoL2Config(_ContrastConfig):
    """AnInfoNCE on embeddings that are not normalised."""

    kind: Literal["aninfonce_no_l2"] = field("aninfonce_no_l2", "what is minimised")
    concentration_start: float = field(0.7, "Λ̂ at the start", POSITIVE)
    concentration_jitter: float = field(
        0.0, "standard deviation of the free parameter around its start", NOT_NEGATIVE
    )
    concentration_transform: Literal["softplus", "exp"] = field(
        "exp", "how the free parameter becomes a positive Λ̂"
    )


@dataclasses.dataclass(frozen=True)
class AnInfoNCEConfig(AnInfoNCENoL2Config):
    """AnInfoNCE, whose Λ̂ is trained."""

    kind: Literal["aninfonce"] = field("aninfonce", "what is minimised")  # type: ignore[assignment]
    normalize: bool = field(True, _NORMALIZE)
    centring: float = field(
        0.0,
        "weight, at the start, of a penalty on embeddings that gather on one side of the sphere, "
        "which keeps weak factors from being folded away; it falls to 0 over the run",
        NOT_NEGATIVE,
    )


@dataclasses.dataclass(frozen=True)
class LpConfig:
    """The Lp loss."""

    kind: Literal["lp"] = field("lp", "what is minimised")
    exponent: float = field(2.0, "p", EXPONENT)
    temperature: float = field(1.0, "τ", POSITIVE)
    negatives: Negatives = field(
        "anchors", "negatives from the anchors only (theory-exact) or from both views (symmetric)"
    )
    reduction: Literal["logsumexp", "logmeanexp"] = field(
        "logsumexp", "over the keys and the positive, or the mean over the keys"
    )


@dataclasses.dataclass(frozen=True)
class SupervisedConfig:
    """Regression to the known latents."""

    kind: Literal["supervised"] = field("supervised", "what is minimised")


ObjectiveConfig = (
    AnInfoNCEConfig | AnInfoNCENoL2Config | InfoNCEConfig | LpConfig | SupervisedConfig
)
ObjectiveKind = Literal["aninfonce", "aninfonce_no_l2", "infonce", "lp", "supervised"]


@dataclasses.dataclass(frozen=True)
class AdamConfig:
    """Adam; also what every optimiser has."""

    kind: Literal["adam"] = field("adam", "optimiser of the encoder")
    learning_rate: float = field(
        1e-2, "peak learning rate of the encoder", dataclasses.replace(RATE, above=True)
    )
    concentration_learning_rate: float = field(1e-2, "peak learning rate of Λ̂ (always Adam)", RATE)
    rotation_learning_rate: float = field(
        1e-2, "largest turn per step of encoder.rotation, in radians (always Adam)", RATE
    )
    schedule: Literal["cosine", "constant"] = field("cosine", "learning rates after warm-up")
    warmup_steps: int = field(100, "steps of linear warm-up", count(0))
    final_fraction: float = field(0.01, "learning rate at the end, as a share of the peak", SHARE)
    b1: float = field(0.9, "Adam's β1", DECAY)
    b2: float = field(0.999, "Adam's β2", DECAY)
    clip_norm: float = field(0.0, "largest global gradient norm; 0: no clipping", RATE)


@dataclasses.dataclass(frozen=True)
class DecayingConfig(AdamConfig):
    """Optimisers with weight decay."""

    kind: Literal["muon", "adamw"] = field(  # type: ignore[assignment]
        "muon", "optimiser of the encoder"
    )
    weight_decay: float = field(0.0, "weight decay of matrices; never of biases or Λ̂", NOT_NEGATIVE)


@dataclasses.dataclass(frozen=True)
class MomentumConfig(DecayingConfig):
    """Optimisers with weight decay and momentum."""

    kind: Literal["sgd", "lars"] = field(  # type: ignore[assignment]
        "sgd", "optimiser of the encoder"
    )
    momentum: float = field(0.9, "momentum", DECAY)


OptimizerConfig = DecayingConfig | AdamConfig | MomentumConfig


# What each kind of source knows about its pairs, and hence can be scored by.
KNOWN = {"process": ("latents",), "images": ("examples", "interventions")}
