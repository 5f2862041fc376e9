"""A smoke run of images from a folder: ten ImageNet classes, small images, minutes on a CPU.

    python -m aninfonce_jax.main --config=configs/imagenette_cpu.py --config.source.folder=DIR

DIR holds train/<class>/*.JPEG and val/<class>/*.JPEG: Imagenette, or any folder laid out so. It
shows that JPEG files, the ImageNet stem and both objectives run end to end. About 17 minutes of one
core for both. On 2,000 images of Imagenette a linear probe of the backbone then tells 34 % of the
classes for either objective, 26 % before training; configs/cifar10_cpu.py is the experiment.
"""

from ml_collections import ConfigDict

from aninfonce_jax.config import default_config


def get_config() -> ConfigDict:
    config = default_config(source="images", encoder="resnet18", optimizer="adam")
    config.name = "imagenette-cpu"
    config.compare = ("infonce", "aninfonce")
    config.source.dataset = "folder"
    config.source.folder = "data/imagenette"
    config.source.test_split = "validation"
    config.source.image_size = 72
    config.source.view_size = 64
    config.source.augment = "simclr"

    config.encoder.stem = "imagenet"
    config.encoder.width = 0.25
    config.encoder.projector = (256,)
    config.encoder.dim = 64

    config.objective.negatives = "both"
    config.objective.temperature = 0.2
    config.objective.concentration_start = 5.0  # 1 / temperature: both start alike

    config.optimizer.learning_rate = 2e-3
    config.optimizer.concentration_learning_rate = 2e-2
    config.optimizer.warmup_steps = 20
    config.train.ema_decay = 0.0
    config.train.batch_size = 128
    config.train.steps = 200

    config.eval.every = 50
    config.eval.held_out_batches = 2
    config.eval.train_examples = 1500
    config.eval.test_examples = 400
    config.eval.readout_examples = 400
    config.eval.neighbours = 20
    config.log.every = 10
    config.checkpoint.every = 100
    config.checkpoint.keep = 1
    return config
