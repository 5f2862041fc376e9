"""A smoke run of pictures from a folder: ten ImageNet classes, small pictures, minutes on a CPU.

    python -m aninfonce_jax.main --config=configs/imagenette_cpu.py --config.data.folder=DIR

DIR holds train/<class>/*.JPEG and val/<class>/*.JPEG: Imagenette, or any folder laid out so. It
shows that JPEG files, the ImageNet stem and both objectives run end to end. About 17 minutes of one
core for both. On 2,000 pictures of Imagenette a linear probe of the backbone then tells 34 % of the
classes for either objective, 26 % before training; configs/cifar10_cpu.py is the experiment.
"""

from ml_collections import ConfigDict

from aninfonce_jax.config import default_config


def get_config() -> ConfigDict:
    config = default_config()
    config.name = "imagenette-cpu"
    config.compare = ("infonce", "aninfonce")
    config.data.name = "folder"
    config.data.folder = "data/imagenette"
    config.data.test_split = "validation"
    config.data.image_size = 72
    config.data.view_size = 64
    config.data.augment = "simclr"

    config.encoder.kind = "resnet18"
    config.encoder.stem = "imagenet"
    config.encoder.width = 0.25
    config.encoder.projector = (256,)
    config.encoder.dim = 64
    config.encoder.output = "none"

    config.objective.negatives = "both"
    config.objective.temperature = 0.2
    config.objective.concentration_start = 5.0  # 1 / temperature: both start alike

    config.optimizer.name = "adam"
    config.optimizer.learning_rate = 2e-3
    config.optimizer.concentration_learning_rate = 2e-2
    config.optimizer.warmup_steps = 20
    config.optimizer.ema_decay = 0.0
    config.train.batch_size = 128
    config.train.steps = 200

    config.eval.every = 50
    config.eval.floor_batches = 2
    config.eval.train_images = 1500
    config.eval.test_images = 400
    config.eval.readout_images = 400
    config.eval.neighbours = 20
    config.log.every = 10
    config.checkpoint.every = 100
    config.checkpoint.keep = 1
    return config
