"""The kinds of optimisers."""

import dataclasses
from typing import Literal

from aninfonce_jax.config.fields import DECAY, NOT_NEGATIVE, RATE, SHARE, count, field


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
    schedule: Literal["cosine", "constant", "trapezoid"] = field(
        "cosine", "learning rates after warm-up; trapezoid: constant, falling over the last half"
    )
    warmup_steps: int = field(100, "steps of linear warm-up", count(0))
    final_fraction: float = field(
        0.01,
        "learning rate at the end, as a share of the peak",
        SHARE,
        only_with=("schedule", "cosine", "trapezoid"),
    )
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
