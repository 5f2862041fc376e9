"""The paper's finding on real CIFAR-10, small enough for two CPU cores.

    python -m aninfonce_jax.main --config=configs/cifar10_cpu.py --config.data.folder=DIR

A ResNet-10 of a quarter of the width, whose stem shrinks the pictures at once, for eleven epochs,
with InfoNCE and then AnInfoNCE. DIR holds cifar-10-batches-bin, the binary version of CIFAR-10.
VARIANT trains one objective alone: infonce, aninfonce or aninfonce_no_l2.

Duration: about 12 minutes for each objective, on one core. At the projector AnInfoNCE keeps more of
how bright, how contrasted and how closely cropped a view is than InfoNCE, 66 to 61 % over six
augmentations, and of the classes, 46 to 41 %. So does InfoNCE with
--config.objective.train_temperature=True: docs/results.md.
"""

from ml_collections import ConfigDict

from aninfonce_jax.config import default_config
from aninfonce_jax.config_schema import ConfigError

VARIANTS = ("both", "infonce", "aninfonce", "aninfonce_no_l2")


def get_config(variant: str = "both") -> ConfigDict:
    if variant not in VARIANTS:
        raise ConfigError(f"unknown variant {variant!r}; choose one of {', '.join(VARIANTS)}")
    config = default_config()
    config.name = f"cifar10-cpu-{variant}"
    if variant == "both":
        config.compare = ("infonce", "aninfonce")
    else:
        config.objective.kind = variant
    config.data.name = "cifar10"
    config.data.folder = "data/cifar10"

    config.encoder.kind = "resnet10"
    config.encoder.stem = "imagenet"
    config.encoder.width = 0.25
    config.encoder.projector = (256, 256)
    config.encoder.dim = 64
    config.encoder.output = "none"

    config.objective.negatives = "both"
    config.objective.temperature = 0.5
    config.objective.concentration_start = 2.0  # 1 / temperature: both start alike

    config.optimizer.name = "adam"
    config.optimizer.learning_rate = 2e-3
    config.optimizer.concentration_learning_rate = 5e-2
    config.optimizer.ema_decay = 0.0
    config.optimizer.warmup_steps = 100
    config.train.batch_size = 128
    config.train.steps = 4500

    config.eval.every = 900
    config.eval.floor_batches = 4
    config.eval.train_images = 5000
    config.eval.test_images = 2000
    config.eval.readout_images = 4000
    config.checkpoint.every = 900
    config.checkpoint.keep = 1
    return config
