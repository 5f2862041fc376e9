"""The kinds of objectives: what is minimised."""

import dataclasses
from typing import Literal

from aninfonce_jax.config.fields import (
    DECAY,
    EXPONENT,
    LAYERS,
    MEMBERS,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    count,
    field,
)

Negatives = Literal["both", "anchors"]
Strategy = Literal["auto", "dense", "chunked", "gather", "ring", "pallas"]
Operation = Literal["crop", "flip", "jitter", "grey", "blur", "solarise"]


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
    chunk_size: int = field(
        0,
        "side of a tile of chunked scores; 0: chosen by size",
        count(0),
        only_with=("strategy", "auto", "chunked", "gather", "ring"),
    )


_NORMALIZE = "normalise embeddings to the unit sphere inside the loss"
_DEBIAS = "τ⁺: share of negatives that are taken for false ones; 0: no correction"


@dataclasses.dataclass(frozen=True)
class InfoNCEConfig(_ContrastConfig):
    """InfoNCE, with a fixed or a trained temperature."""

    kind: Literal["infonce"] = field("infonce", "what is minimised")
    normalize: bool = field(True, _NORMALIZE)
    debias: float = field(0.0, _DEBIAS, DECAY)
    temperature: float = field(1.0, "τ; if it is trained, at the start", POSITIVE)
    train_temperature: bool = field(False, "learn one 1/τ")


@dataclasses.dataclass(frozen=True)
class _LearnedConfig:
    """A trained Λ̂."""

    concentration_start: float = field(0.7, "Λ̂ at the start", POSITIVE)
    concentration_jitter: float = field(
        0.0, "standard deviation of the free parameter around its start", NOT_NEGATIVE
    )
    concentration_transform: Literal["softplus", "exp"] = field(
        "exp", "how the free parameter becomes a positive Λ̂"
    )


@dataclasses.dataclass(frozen=True)
class AnInfoNCENoL2Config(_LearnedConfig, _ContrastConfig):
    """AnInfoNCE on embeddings that are not normalised."""

    kind: Literal["aninfonce_no_l2"] = field("aninfonce_no_l2", "what is minimised")


@dataclasses.dataclass(frozen=True)
class AnInfoNCEConfig(AnInfoNCENoL2Config):
    """AnInfoNCE, whose Λ̂ is trained."""

    kind: Literal["aninfonce"] = field("aninfonce", "what is minimised")  # type: ignore[assignment]
    normalize: bool = field(True, _NORMALIZE)
    debias: float = field(0.0, _DEBIAS, DECAY)
    centring: float = field(
        0.0,
        "weight, at the start, of a penalty on embeddings that gather on one side of the sphere, "
        "which keeps weak factors from being folded away; it falls to 0 over the run",
        NOT_NEGATIVE,
    )
    spreading: float = field(
        0.0,
        "weight, at the start, of a penalty on embeddings that do not cover the sphere evenly, "
        "which keeps weak factors from being given up; it is gone after half of the run",
        NOT_NEGATIVE,
    )
    keeping: float = field(
        0.0,
        "weight, at the start, of a penalty on what embeddings do not tell of the observations, "
        "which keeps weak factors where others are far stronger; it is gone after a quarter of "
        "the run",
        NOT_NEGATIVE,
    )


@dataclasses.dataclass(frozen=True)
class HardNegativesConfig(_LearnedConfig):
    """AnInfoNCE with the negatives of its own that the source draws for each anchor."""

    kind: Literal["hard_negatives"] = field("hard_negatives", "what is minimised")
    normalize: bool = field(True, _NORMALIZE)
    joined: bool = field(
        True, "join them to the ordinary negatives; if not, they are alone, and Λ̂ becomes Λ - Λ⁻"
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
class TriCLConfig:
    """Tri-factor contrastive learning."""

    kind: Literal["tricl"] = field("tricl", "what is minimised")
    form: Literal["infonce", "spectral"] = field(
        "infonce", "contrast of the scores: InfoNCE's, or the squares of the spectral form"
    )
    decorrelation: float = field(
        1.0, "weight of the penalty on features that are correlated", NOT_NEGATIVE
    )
    normalize: bool = field(
        True, "scale features to length √dim, where they can be uncorrelated, inside the loss"
    )
    importance_start: float = field(1.0, "importance of every feature at the start", POSITIVE)


@dataclasses.dataclass(frozen=True)
class SupervisedConfig:
    """Regression to the known latents."""

    kind: Literal["supervised"] = field("supervised", "what is minimised")


@dataclasses.dataclass(frozen=True)
class ElboConfig:
    """A variational autoencoder of images, whose decoder belongs to the objective."""

    kind: Literal["elbo"] = field("elbo", "what is minimised")
    widths: tuple[int, ...] = field(
        (512, 512), "hidden widths of the decoder", count(1), max_items=LAYERS
    )


@dataclasses.dataclass(frozen=True)
class VICRegConfig:
    """VICReg: alike views, outputs of some spread, uncorrelated."""

    kind: Literal["vicreg"] = field("vicreg", "what is minimised")
    invariance: float = field(25.0, "weight of the distance of two views", NOT_NEGATIVE)
    variance: float = field(25.0, "weight of outputs that have too little spread", NOT_NEGATIVE)
    covariance: float = field(1.0, "weight of outputs that are correlated", NOT_NEGATIVE)


@dataclasses.dataclass(frozen=True)
class SIGRegConfig:
    """LeJEPA: alike views, normally distributed embeddings."""

    kind: Literal["sigreg"] = field("sigreg", "what is minimised")
    weight: float = field(
        0.05, "of embeddings that are not normally distributed; the rest is the views'", SHARE
    )
    directions: int = field(
        256, "random directions along which they are compared with a normal", count(1, 2**20)
    )


@dataclasses.dataclass(frozen=True)
class DietConfig:
    """DIET: every example is a class of its own."""

    kind: Literal["diet"] = field("diet", "what is minimised")
    smoothing: float = field(0.8, "ε: share of a label that is spread over all examples", SHARE)
    examples: int = field(
        50_000, "how many examples the training split has; the default is CIFAR-10's", count(1)
    )


@dataclasses.dataclass(frozen=True)
class AugSelfConfig(InfoNCEConfig):
    """AugSelf: InfoNCE, and heads that tell by how much two augmentations differ."""

    kind: Literal["augself"] = field("augself", "what is minimised")  # type: ignore[assignment]
    weight: float = field(1.0, "λ: of what the heads miss", NOT_NEGATIVE)
    predicted: tuple[Operation, ...] = field(
        ("crop", "jitter"), "the augmentations that heads predict", max_items=6
    )
    width: int = field(512, "of the two hidden layers of each head", count(1, 2**20))


MemberConfig = AnInfoNCEConfig | AnInfoNCENoL2Config | InfoNCEConfig | LpConfig


@dataclasses.dataclass(frozen=True)
class EnsembleConfig:
    """An objective for each member of an ensemble, which share one encoder."""

    kind: Literal["ensemble"] = field("ensemble", "what is minimised")
    members: tuple[MemberConfig, ...] = field(
        (), "the objective of each member of the source", max_items=MEMBERS
    )
    weights: tuple[float, ...] = field(
        (), "of the members' losses in their sum; empty: all 1", POSITIVE, max_items=MEMBERS
    )


ObjectiveConfig = (
    AnInfoNCEConfig
    | AnInfoNCENoL2Config
    | InfoNCEConfig
    | HardNegativesConfig
    | EnsembleConfig
    | LpConfig
    | TriCLConfig
    | SupervisedConfig
    | ElboConfig
    | VICRegConfig
    | SIGRegConfig
    | AugSelfConfig
    | DietConfig
)


def objectives_of(objective: ObjectiveConfig) -> dict[str, ObjectiveConfig]:
    """Returns an objective or, of an ensemble, those of its members, by dotted name."""
    if isinstance(objective, EnsembleConfig):
        return {f"objective.members.{place}": own for place, own in enumerate(objective.members)}
    return {"objective": objective}


ObjectiveKind = Literal[
    "aninfonce",
    "aninfonce_no_l2",
    "infonce",
    "hard_negatives",
    "ensemble",
    "lp",
    "tricl",
    "supervised",
    "elbo",
    "vicreg",
    "sigreg",
    "augself",
    "diet",
]
