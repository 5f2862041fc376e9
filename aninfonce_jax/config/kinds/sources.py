"""The kinds of sources: where pairs come from."""

import dataclasses
from typing import Any, Literal

from aninfonce_jax.config.fields import (
    ANY_SIGN,
    EXPONENT,
    LAYERS,
    MEMBERS,
    NOT_NEGATIVE,
    POSITIVE,
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
        25.0,
        "largest Λ: content factors; the value of layout 'constant'",
        POSITIVE,
        only_with=("layout", "bimodal", "linear", "constant"),
    )
    low: float = field(
        5.0, "smallest Λ: style factors", POSITIVE, only_with=("layout", "bimodal", "linear")
    )
    values: tuple[float, ...] = field(
        (), "one Λ per factor, for layout 'explicit'", POSITIVE, only_with=("layout", "explicit")
    )

    def of_factors(self, dim: int) -> tuple[float, ...]:
        """Returns the Λ of each of `dim` factors, for checks that must do without arrays."""
        match self.layout:
            case "constant":
                return (self.high,) * dim
            case "bimodal":
                content = (dim + 1) // 2
                return (self.high,) * content + (self.low,) * (dim - content)
            case "linear":
                step = (self.high - self.low) / max(dim - 1, 1)
                return tuple(self.high - step * place for place in range(dim))
            case "explicit":
                return self.values


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
    slope: float = field(
        0.2,
        "negative slope of the mixing's leaky activations",
        Range(1e-6, 1),
        only_with=("activation", "leaky_relu", "smooth_leaky_relu"),
    )
    init: Literal["uniform", "orthogonal"] = field(
        "uniform", "mixing matrices: uniform with unit columns, or random orthogonal"
    )
    candidates: int = field(
        25_000,
        "uniform matrices drawn per layer; the best-conditioned stays",
        count(1, 10**9, "they are drawn one by one"),
        only_with=("init", "uniform"),
    )


@dataclasses.dataclass(frozen=True)
class AnchorsConfig:
    """The latents of anchors: where they live, and how they are distributed."""

    dim: int = field(
        10, "number of latent factors d", count(1, 2**20, "a mixing is a matrix of dim x dim")
    )
    space: Literal["sphere", "box", "real"] = field("sphere", "where the latents live")
    radius: float = field(1.0, "radius of the sphere", POSITIVE, only_with=("space", "sphere"))
    box_low: float = field(
        0.0, "lower end of the box, each side", ANY_SIGN, only_with=("space", "box")
    )
    box_high: float = field(
        1.0, "upper end of the box, each side", ANY_SIGN, only_with=("space", "box")
    )
    box_boundary: Literal["reject", "wrap"] = field(
        "reject", "what happens to a draw that leaves the box", only_with=("space", "box")
    )
    marginal: Literal["uniform", "normal", "laplace", "generalized_normal", "vmf"] = field(
        "uniform", "distribution of the anchors"
    )
    marginal_scale: float = field(
        1.0,
        "scale of a normal, Laplace or generalised normal marginal",
        POSITIVE,
        only_with=("marginal", "normal", "laplace", "generalized_normal"),
    )
    marginal_exponent: float = field(
        2.0,
        "exponent p of a generalised normal marginal",
        EXPONENT,
        only_with=("marginal", "generalized_normal"),
    )
    marginal_concentration: float = field(
        1.0,
        "κ of a von Mises–Fisher marginal (north pole)",
        POSITIVE,
        only_with=("marginal", "vmf"),
    )


@dataclasses.dataclass(frozen=True)
class FamilyConfig(AnchorsConfig):
    """The latents of anchors, and the family of a positive's given its anchor."""

    conditional: Literal[
        "anisotropic", "vmf", "normal", "laplace", "generalized_normal", "bimodal"
    ] = field("anisotropic", "distribution of a positive given its anchor")
    conditional_exponent: float = field(
        2.0,
        "exponent p of a generalised normal conditional",
        EXPONENT,
        only_with=("conditional", "generalized_normal"),
    )
    bimodal_offset: float = field(
        0.5,
        "distance of the two modes of a bimodal conditional from the anchor",
        NOT_NEGATIVE,
        only_with=("conditional", "bimodal"),
    )
    sampler: Literal["exact", "paper"] = field(
        "exact",
        "anisotropic positives: the true density, or the paper's shell rejection",
        only_with=("conditional", "anisotropic", "bimodal"),
    )
    shell: float = field(
        0.1,
        "half-width of the shell that sampler 'paper' accepts",
        POSITIVE,
        only_with=("sampler", "paper"),
    )


@dataclasses.dataclass(frozen=True)
class LatentsConfig(FamilyConfig):
    """The latents of pairs."""

    concentration: ConcentrationConfig = field(ConcentrationConfig(), "the true Λ")


@dataclasses.dataclass(frozen=True)
class ProcessConfig(LatentsConfig):
    """A data-generating process, whose latents are known."""

    kind: Literal["process"] = field("process", "where pairs come from")
    mixing: MixingConfig = field(MixingConfig(), "how latents become observations")
    test_pole: Literal["none", "north", "south"] = field(
        "none",
        "pole of a von Mises–Fisher marginal around which anchors of another test are drawn; "
        "training has the north pole",
        only_with=("marginal", "vmf"),
    )


@dataclasses.dataclass(frozen=True)
class ProcessWithNegativesConfig(ProcessConfig):
    """A data-generating process that also draws negatives near each anchor."""

    kind: Literal["process_with_negatives"] = field(  # type: ignore[assignment]
        "process_with_negatives", "where pairs come from"
    )
    own_negatives: int = field(
        3, "negatives of each anchor's own, drawn like its positive", count(1, 2**16)
    )
    own_concentration: tuple[float, ...] = field(
        (1.0,), "their Λ⁻, below Λ in every factor: one value for all, or one for each", POSITIVE
    )


@dataclasses.dataclass(frozen=True)
class ProcessesConfig(FamilyConfig):
    """An ensemble of processes: they share all but Λ."""

    kind: Literal["processes"] = field("processes", "where pairs come from")
    mixing: MixingConfig = field(MixingConfig(), "how latents become observations")
    members: tuple[ConcentrationConfig, ...] = field(
        (), "the true Λ of each member", max_items=MEMBERS
    )


# What images may be augmented by.
Augment = Literal["simclr", "simclr_cifar", "crop_and_blur", "crop_only", "jitter_only", "none"]


def _crop_area() -> Any:
    return field(
        0.0,
        "smallest share of an image's area that a crop keeps; 0: as the family has it",
        SHARE,
        only_with=("augment", "simclr", "simclr_cifar", "crop_and_blur", "crop_only"),
    )


@dataclasses.dataclass(frozen=True)
class ImageSetConfig:
    """Images, with labels where the data set has them, and what may be done to them."""

    dataset: str = field("folder", "mnist, cifar10, causal3dident, folder or tfds:NAME")
    folder: str = field("", "where the data set is; for TFDS, its data_dir")
    train_split: str = field("train", "split to train on, and to fit readouts on")
    test_split: str = field("test", "split that readouts are scored on")
    image_size: int = field(32, "side of the images that go to the device, in pixels", SIDE)
    grey: bool = field(False, "images of one channel of grey, not three of colour")
    augment: Augment = field(
        "simclr_cifar", "family of augmentations that make a pair of one image"
    )
    strength: float = field(1.0, "multiplies the ranges of the colour jitter", NOT_NEGATIVE)
    crop_area: float = _crop_area()
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

    @property
    def view_side(self) -> int:
        """Side of what an encoder is given, in pixels."""
        return self.image_size

    @property
    def channels(self) -> int:
        """How many channels an image has."""
        return 1 if self.grey else 3


@dataclasses.dataclass(frozen=True)
class ImagesConfig(ImageSetConfig):
    """Augmented views of images."""

    kind: Literal["images"] = field("images", "where pairs come from")
    view_size: int = field(
        0, "side of the augmented views; 0: that of the images", count(0, 2**14, SIDE.why)
    )

    @property
    def view_side(self) -> int:
        """Side of an augmented view, in pixels."""
        return self.view_size or self.image_size


@dataclasses.dataclass(frozen=True)
class AugmentConfig:
    """A family of augmentations."""

    augment: Augment = field(
        "simclr_cifar", "family of augmentations that make a pair of one image"
    )
    strength: float = field(
        1.0,
        "multiplies the ranges of the colour jitter",
        NOT_NEGATIVE,
        only_with=("augment", "simclr", "simclr_cifar", "jitter_only"),
    )
    crop_area: float = _crop_area()


@dataclasses.dataclass(frozen=True)
class ImageEnsembleConfig(ImagesConfig):
    """An ensemble on images: each member augments them in its own way."""

    kind: Literal["image_ensemble"] = field(  # type: ignore[assignment]
        "image_ensemble", "where pairs come from"
    )
    augment: Augment = field("simclr_cifar", "family of augmentations that is read out")
    members: tuple[AugmentConfig, ...] = field(
        (), "the family of augmentations of each member", max_items=MEMBERS
    )


@dataclasses.dataclass(frozen=True)
class MatchedImagesConfig(ImagesConfig):
    """Pairs of different images, by a known process on their factors."""

    kind: Literal["matched_images"] = field(  # type: ignore[assignment]
        "matched_images", "where pairs come from"
    )
    augment: Augment = field("none", "family of augmentations that is read out; none is applied")
    factor_concentration: tuple[float, ...] = field(
        (10.0,),
        "Λ of a second view's factors around those of the first: one for all, or one for each",
        POSITIVE,
    )


@dataclasses.dataclass(frozen=True)
class _DecodedConfig(ImageSetConfig):
    """Images that a trained decoder makes of known latents; real ones tell what else is learned."""

    decoder: str = field(
        "runs/mnist-vae",
        "work directory of the VAE whose decoder is used; trained there first, where there is none",
    )
    decoder_config: str = field(
        "mnist_vae:vae", "config of that VAE, FILE[:VARIANT], in case it has to be trained"
    )
    dataset: str = field("mnist", "mnist, cifar10, causal3dident, folder or tfds:NAME")
    image_size: int = field(28, "side of the images that go to the device, in pixels", SIDE)
    grey: bool = field(True, "images of one channel of grey, not three of colour")
    augment: Augment = field(
        "crop_and_blur", "family of augmentations that make a pair of one image"
    )


@dataclasses.dataclass(frozen=True)
class DecoderConfig(_DecodedConfig, LatentsConfig):
    """Pairs of a data-generating process whose mixing is a trained decoder."""

    kind: Literal["decoder"] = field("decoder", "where pairs come from")


@dataclasses.dataclass(frozen=True)
class DecodedViewsConfig(_DecodedConfig, AnchorsConfig):
    """Augmented views of images that a trained decoder makes of known latents."""

    kind: Literal["decoded_views"] = field("decoded_views", "where pairs come from")


SourceConfig = (
    ProcessConfig
    | ProcessWithNegativesConfig
    | ProcessesConfig
    | ImagesConfig
    | ImageEnsembleConfig
    | MatchedImagesConfig
    | DecoderConfig
    | DecodedViewsConfig
)
DecodedConfig = DecoderConfig | DecodedViewsConfig
EnsembleSourceConfig = ProcessesConfig | ImageEnsembleConfig


# What each kind of source knows about its pairs, and hence can be scored by.
KNOWN = {
    "process": ("latents",),
    "process_with_negatives": ("latents",),
    "processes": ("latents",),
    "image_ensemble": ("examples", "interventions"),
    "images": ("examples", "interventions"),
    "matched_images": ("examples", "interventions"),
    "decoder": ("latents", "examples", "interventions"),
    "decoded_views": ("latents", "examples", "interventions"),
}
