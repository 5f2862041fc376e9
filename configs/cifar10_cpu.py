"""The paper's finding on real CIFAR-10, small enough for two CPU cores.

    python -m aninfonce_jax.main --config=configs/cifar10_cpu.py --config.source.folder=DIR

A ResNet-10 of a quarter of the width, whose stem shrinks the images at once, for eleven epochs,
with InfoNCE and then AnInfoNCE. DIR holds cifar-10-batches-bin, the binary version of CIFAR-10.
VARIANT trains one objective alone: infonce, infonce_trained (a trained temperature), aninfonce or
aninfonce_no_l2.

    python -m aninfonce_jax.main --config=configs/cifar10_cpu.py:map --mode=sweep \
            --config.source.folder=DIR --workdir=runs/augmentation_map

makes a map instead: which augmentations, and how strong, against what can be read of the classes
and of the augmentations, at both layers; 24 runs.

Duration: about 12 minutes for each objective, on one core. At the projector AnInfoNCE keeps more of
how bright, how contrasted and how closely cropped a view is than InfoNCE, 66 to 61 % over six
augmentations, and of the classes, 46 to 41 %. So does InfoNCE with a trained temperature:
docs/results.md.
"""

from typing import Any

from ml_collections import ConfigDict

from aninfonce_jax.config import default_config
from aninfonce_jax.config.schema import ConfigError

VARIANTS = ("both", "infonce", "infonce_trained", "aninfonce", "aninfonce_no_l2", "map")
# What `map` varies. InfoNCE comes twice: with a fixed τ, and with a trained one.
_OBJECTIVES = [
    {"objective.kind": "aninfonce", "objective.concentration_start": 2.0},
    {"objective.kind": "infonce", "objective.train_temperature": False},
    {"objective.kind": "infonce", "objective.train_temperature": True},
]
_STRENGTHS = (0.5, 1.0, 2.0)
# A strength is that of the colour jitter; crops and blur have one of their own, which is fixed.
_AUGMENTATIONS = [
    *({"source.augment": name, "source.strength": 1.0} for name in ("crop_only", "crop_and_blur")),
    *(
        {"source.augment": name, "source.strength": strength}
        for name in ("jitter_only", "simclr_cifar")
        for strength in _STRENGTHS
    ),
]


def get_config(variant: str = "both") -> ConfigDict:
    if variant not in VARIANTS:
        raise ConfigError(f"unknown variant {variant!r}; choose one of {', '.join(VARIANTS)}")
    is_trained = variant in ("infonce_trained", "map")
    compared = {"both": ("infonce", "aninfonce")}
    objectives = compared.get(variant, ("infonce",) if is_trained else (variant,))
    config = default_config(
        source="images", encoder="resnet10", objective=objectives[0], optimizer="adam"
    )
    config.name = f"cifar10-cpu-{variant}"
    if variant == "both":
        config.compare = objectives
    config.source.dataset = "cifar10"
    config.source.folder = "data/cifar10"

    config.encoder.stem = "imagenet"
    config.encoder.width = 0.25
    config.encoder.projector = (256, 256)
    config.encoder.dim = 64

    config.objective.negatives = "both"
    if "infonce" in objectives:
        config.objective.temperature = 0.5
    if is_trained:
        config.objective.train_temperature = True
    if objectives != ("infonce",):
        config.objective.concentration_start = 2.0  # 1 / temperature: both start alike

    config.optimizer.learning_rate = 2e-3
    if variant != "infonce":  # whose temperature is fixed
        config.optimizer.concentration_learning_rate = 5e-2
    config.train.ema_decay = 0.0
    config.optimizer.warmup_steps = 100
    config.train.batch_size = 128
    config.train.steps = 4500

    config.eval.every = 900
    config.eval.held_out_batches = 4
    config.eval.train_examples = 5000
    config.eval.test_examples = 2000
    config.eval.readout_examples = 4000
    config.checkpoint.every = 900
    config.checkpoint.keep = 1
    return config


def sweep(variant: str = "map") -> dict[str, Any]:
    if variant != "map":
        raise ConfigError(f"variant {variant!r} has no sweep; choose map")
    return {
        "points": [own | augment for own in _OBJECTIVES for augment in _AUGMENTATIONS],
        "x": "source.strength",
        "scores": (
            *("probe_accuracy", "operation_accuracy"),
            *("probe_accuracy_last", "operation_accuracy_last"),
        ),
    }
