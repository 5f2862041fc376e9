"""The paper's ImageNet experiment: a ResNet-50, 100 epochs, one variant per row of Table 1.

    python -m aninfonce_jax.main --config=configs/imagenet.py:VARIANT --config.source.folder=DIR

DIR holds train/<class>/*.JPEG and val/<class>/*.JPEG. For ImageNet in TFDS's format, which
`python -m aninfonce_jax.prepare imagenet` writes, add --config.source.dataset=tfds:imagenet2012.

    infonce (default)  paper: classes 68.2 / 57.7, augmentations 74.4 / 53.0 %
    aninfonce          paper: classes 59.0 / 26.7, augmentations 79.3 / 57.1 %
    aninfonce_no_l2    not in the paper for ImageNet

(backbone / projector.) The paper leaves batch, temperature, optimiser, learning rates, projector
and the start of Λ̂ unsaid; they are those of recipes known to work. The paper reports 15 hours on
eight A100s. Here the step was compiled for TPU v5e-16 and v5p-32 (docs/images.md) and run on a
CPU on 2,500 images; the whole of it was not.
"""

from ml_collections import ConfigDict

from aninfonce_jax.config import default_config
from aninfonce_jax.config.schema import ConfigError

VARIANTS = ("infonce", "aninfonce", "aninfonce_no_l2")
BATCH_SIZE = 4096
EPOCHS = 100
STEPS_PER_EPOCH = 1_281_167 // BATCH_SIZE


def get_config(variant: str = "infonce") -> ConfigDict:
    if variant not in VARIANTS:
        raise ConfigError(f"unknown variant {variant!r}; choose one of {', '.join(VARIANTS)}")
    config = default_config(
        source="images", encoder="resnet50", objective=variant, optimizer="lars"
    )
    config.name = f"imagenet-{variant}"
    config.source.dataset = "folder"
    config.source.title = "imagenet"
    config.source.folder = "data/imagenet"
    config.source.test_split = "validation"
    config.source.image_size = 256
    config.source.view_size = 224
    config.source.augment = "simclr"
    config.source.threads = 16

    config.encoder.stem = "imagenet"
    config.encoder.projector = (2048,)
    config.encoder.dim = 128
    config.encoder.dtype = "bfloat16"

    config.objective.negatives = "both"
    if variant == "infonce":
        config.objective.temperature = 0.1
    else:
        config.objective.concentration_start = 10.0  # 1 / temperature: both start alike
        config.optimizer.concentration_learning_rate = 1e-3

    config.optimizer.learning_rate = 0.3 * BATCH_SIZE / 256
    config.optimizer.weight_decay = 1e-6
    config.optimizer.warmup_steps = 10 * STEPS_PER_EPOCH
    config.optimizer.final_fraction = 0.0
    config.train.ema_decay = 0.0
    config.train.batch_size = BATCH_SIZE
    config.train.steps = EPOCHS * STEPS_PER_EPOCH

    config.eval.every = 5 * STEPS_PER_EPOCH
    config.eval.held_out_batches = 4
    config.eval.train_examples = 50_000
    config.eval.readout_examples = 10_000
    config.eval.batch_size = 1024
    config.checkpoint.every = STEPS_PER_EPOCH
    return config
