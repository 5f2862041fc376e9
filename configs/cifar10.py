"""The paper's CIFAR-10 experiment: a ResNet-18, 1,000 epochs, one variant per row of Table 1.

    python -m aninfonce_jax.main --config=configs/cifar10.py:VARIANT --config.source.folder=DIR

DIR holds cifar-10-batches-bin, the binary version of CIFAR-10. For a copy in TFDS's format,
add --config.source.dataset=tfds:cifar10.

    infonce (default)    paper: classes 90.9 / 89.8, augmentations 57.7 / 51.8 %
    aninfonce            paper: classes 88.4 / 85.4, augmentations 80.5 / 69.0 %
    aninfonce_no_l2      paper: classes 83.2 / 79.1, augmentations 91.2 / 74.6 %
    infonce_jitter_only  colour jitter as the only augmentation; paper: classes 48.6 at the backbone

(backbone / projector.) The paper leaves batch, temperature, optimiser, learning rates, projector
and the start of Λ̂ unsaid; they are those of recipes known to work. The paper reports 7 hours on an
A100. Not run here: configs/cifar10_cpu.py is what was.
"""

from ml_collections import ConfigDict

from aninfonce_jax.config import default_config
from aninfonce_jax.config.schema import ConfigError

VARIANTS = ("infonce", "aninfonce", "aninfonce_no_l2", "infonce_jitter_only")
EPOCHS = 1000
STEPS_PER_EPOCH = 50_000 // 512


def get_config(variant: str = "infonce") -> ConfigDict:
    if variant not in VARIANTS:
        raise ConfigError(f"unknown variant {variant!r}; choose one of {', '.join(VARIANTS)}")
    objective = variant.removesuffix("_jitter_only")
    config = default_config(
        source="images", encoder="resnet18", objective=objective, optimizer="sgd"
    )
    config.name = f"cifar10-{variant}"
    config.source.dataset = "cifar10"
    config.source.folder = "data/cifar10"
    config.source.augment = "jitter_only" if variant == "infonce_jitter_only" else "simclr_cifar"

    config.encoder.stem = "cifar"
    config.encoder.projector = (512,)
    config.encoder.dim = 128
    config.encoder.dtype = "bfloat16"

    config.objective.negatives = "both"
    if objective == "infonce":
        config.objective.temperature = 0.5
    else:
        config.objective.concentration_start = 2.0  # 1 / temperature: both start alike
        config.optimizer.concentration_learning_rate = 1e-3

    config.optimizer.learning_rate = 0.03 * 512 / 256
    config.optimizer.weight_decay = 5e-4
    config.optimizer.warmup_steps = 10 * STEPS_PER_EPOCH
    config.optimizer.final_fraction = 0.0
    config.train.ema_decay = 0.0
    config.train.batch_size = 512
    config.train.steps = EPOCHS * STEPS_PER_EPOCH

    config.eval.every = 25 * STEPS_PER_EPOCH
    config.eval.held_out_batches = 10
    config.eval.train_examples = 0
    config.eval.readout_examples = 5000
    config.checkpoint.every = 5 * STEPS_PER_EPOCH
    return config
