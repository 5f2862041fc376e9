"""A run's configuration: its sections, each field with its default, its meaning and its range.

The sections with a `kind` are in `kinds`.
"""

import dataclasses
from typing import Literal

from aninfonce_jax.config.fields import (
    DECAY,
    Range,
    count,
    field,
)
from aninfonce_jax.config.kinds import (
    AnInfoNCEConfig,
    DecayingConfig,
    EncoderConfig,
    MLPConfig,
    ObjectiveConfig,
    ObjectiveKind,
    OptimizerConfig,
    ProcessConfig,
    SourceConfig,
)


class ConfigError(ValueError):
    """A configuration that can't be run; its message is one line for the user."""


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """The training loop."""

    steps: int = field(3000, "optimiser steps", count(1))
    start_from: str = field(
        "", "work directory of another run, whose parameters this one starts with; empty: none"
    )
    batch_size: int = field(1000, "positive pairs per step, over all devices", count(2))
    steps_per_dispatch: int = field(50, "steps compiled into one call to the device", count(1))
    microbatches: int = field(
        1,
        "parts in which the batch is encoded, for memory; every part's pairs are contrasted",
        count(1),
    )
    devices: int = field(0, "local devices to spread the batch over; 0: all of them", count(0))
    slices: int = field(
        1, "parts of the devices that a slower network joins, such as TPU slices", count(1)
    )
    hang_timeout: int = field(
        3600,
        "of several processes: seconds without progress until the run is given up; 0: never",
        count(0),
    )
    ema_decay: float = field(
        0.997, "decay of the averaged parameters that are evaluated; 0: none", DECAY
    )


@dataclasses.dataclass(frozen=True)
class EvalConfig:
    """Evaluation during and after training."""

    every: int = field(250, "steps between evaluations", count(1))
    held_out_batches: int = field(
        20, "batches that estimate the held-out loss, and its ground-truth floor", count(1)
    )
    samples: int = field(
        8192, "fresh anchors; half fit the linear map, half score it", count(2), needs="latents"
    )
    train_examples: int = field(
        10_000, "examples that class readouts learn from; 0: all", count(0), needs="examples"
    )
    test_examples: int = field(
        0, "examples that readouts are scored on; 0: all", count(0), needs="examples"
    )
    batch_size: int = field(256, "examples encoded at a time", count(1), needs="examples")
    neighbours: int = field(
        200, "k of the weighted k-nearest-neighbour score", count(1), needs="examples"
    )
    readout_examples: int = field(
        2000,
        "of train_examples, those that augmentation readouts use",
        count(16),
        needs="interventions",
    )
    readout_strength: Literal["upper", "extreme", "drawn"] = field(
        "upper",
        "an augmentation to be read out: the upper end of its range, either, or drawn",
        needs="interventions",
    )
    readout_context: Literal["clean", "augmented"] = field(
        "clean",
        "what else is done to its images: nothing, or all the other augmentations",
        needs="interventions",
    )
    views: int = field(
        0,
        "augmented views of each of 64 test examples, to see how they are spread; 0: none",
        count(0),
        needs="interventions",
    )


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """What is kept to resume from."""

    every: int = field(500, "steps between checkpoints", count(1))
    keep: int = field(3, "latest checkpoints kept, besides the best", count(1))


@dataclasses.dataclass(frozen=True)
class LogConfig:
    """Where metrics go."""

    every: int = field(50, "steps between rows of training metrics", count(1))
    tensorboard: bool = field(True, "also write TensorBoard event files")
    wandb_project: str = field("", "also log to this Weights & Biases project")


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything a run depends on; see each section's fields."""

    name: str = field("synthetic", "what the run is called in reports")
    seed: int = field(0, "seed of everything random", Range(0, 2**32 - 1, why="a seed has 32 bits"))
    source: SourceConfig = field(ProcessConfig(), "where pairs come from")
    encoder: EncoderConfig = field(MLPConfig(), "the encoder f")
    objective: ObjectiveConfig = field(AnInfoNCEConfig(), "the loss")
    optimizer: OptimizerConfig = field(DecayingConfig(), "the optimiser")
    train: TrainConfig = field(TrainConfig(), "the training loop")
    eval: EvalConfig = field(EvalConfig(), "evaluation during and after training")
    checkpoint: CheckpointConfig = field(CheckpointConfig(), "checkpoints")
    log: LogConfig = field(LogConfig(), "metrics")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What only a config of several runs has."""

    compare: tuple[ObjectiveKind, ...] = field(
        (), "objectives to train in turn and report side by side; empty: objective.kind alone"
    )
