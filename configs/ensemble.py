"""Ensembles (Cor. 3.2, Fig. 11 of the paper): members with a Λ of their own, and one encoder.

    python -m aninfonce_jax.main --config=configs/ensemble.py:VARIANT \
            --workdir=runs/ensemble/VARIANT

    ensemble (default)   20 factors, Λ¹ = (400 x 3, 15 x 8, 250 x 9) and
                         Λ² = (400 x 3, 250 x 8, 15 x 9); paper: R² 0.98
    aninfonce            one member, Λ¹; paper: R² 0.93
    infonce              the same with InfoNCE at a fixed temperature; paper: R² 0.48
    infonce_trained      and at a trained one; not in the paper
    cifar10              CIFAR-10, one member that crops and one that jitters colours
    cifar10_both         one member that does both, for comparison

The first four print what Λ predicts (which factors are found up to order, and which up to a
rotation) before training, and whether it came true after. The last two are the run of
configs/cifar10_cpu.py with other objectives; they need --config.source.folder=DIR, as there.
Duration: minutes to an hour each on two CPU cores. docs/experiments.md has what was measured.
"""

from ml_collections import ConfigDict

from aninfonce_jax.config import default_config
from aninfonce_jax.config.schema import ConfigError

# What each variant's members are.
_PROCESSES = {
    "ensemble": ("aninfonce", "aninfonce"),
    "aninfonce": ("aninfonce",),
    "infonce": ("infonce",),
    "infonce_trained": ("infonce",),
}
_IMAGES = {"cifar10": ("crop_only", "jitter_only"), "cifar10_both": ("simclr_cifar",)}
VARIANTS = (*_PROCESSES, *_IMAGES)
_CONCENTRATIONS = (
    (400.0,) * 3 + (15.0,) * 8 + (250.0,) * 9,
    (400.0,) * 3 + (250.0,) * 8 + (15.0,) * 9,
)


def get_config(variant: str = "ensemble") -> ConfigDict:
    if variant not in VARIANTS:
        raise ConfigError(f"unknown variant {variant!r}; choose one of {', '.join(VARIANTS)}")
    return _images(variant) if variant in _IMAGES else _processes(variant)


def _processes(variant: str) -> ConfigDict:
    config = default_config(source="processes", objective="ensemble")
    config.name = f"ensemble-{variant}"
    kinds = _PROCESSES[variant]
    config.source.dim = 20
    config.source.mixing.candidates = 5000
    config.source.members = tuple(
        {"layout": "explicit", "values": values} for values in _CONCENTRATIONS[: len(kinds)]
    )
    config.objective.members = tuple({"kind": kind} for kind in kinds)
    if variant == "infonce_trained":
        config.objective.members = ({"kind": "infonce", "train_temperature": True},)

    config.encoder.widths = (128, 128, 128, 128)
    config.optimizer.learning_rate = 5e-3
    config.optimizer.warmup_steps = 50
    config.train.ema_decay = 0.98
    config.train.batch_size = 512
    config.train.steps = 6000
    config.eval.every = 1000
    config.eval.samples = 4096
    config.checkpoint.keep = 1
    return config


def _images(variant: str) -> ConfigDict:
    config = default_config(
        source="image_ensemble", encoder="resnet10", objective="ensemble", optimizer="adam"
    )
    config.name = f"ensemble-{variant}"
    families = _IMAGES[variant]
    config.source.dataset = "cifar10"
    config.source.folder = "data/cifar10"
    config.source.members = tuple({"augment": family} for family in families)
    member = {"kind": "aninfonce", "negatives": "both", "concentration_start": 2.0}
    config.objective.members = (member,) * len(families)

    config.encoder.stem = "imagenet"
    config.encoder.width = 0.25
    config.encoder.projector = (256, 256)
    config.encoder.dim = 64
    config.optimizer.learning_rate = 2e-3
    config.optimizer.concentration_learning_rate = 5e-2
    config.optimizer.warmup_steps = 100
    config.train.ema_decay = 0.0
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
