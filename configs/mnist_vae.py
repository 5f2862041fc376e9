"""The paper's MNIST experiment: images that a VAE decodes from known latents.

    python -m aninfonce_jax.main --config=configs/mnist_vae.py:VARIANT --config.source.folder=DIR

DIR holds the four idx files of MNIST. The VAE is trained first, once, in runs/mnist-vae
(--config.source.decoder=DIR2 names another place); its decoder then makes images of latents on a
sphere, and an MLP learns from pairs of them. Real MNIST images tell what else it has learned.

    linear50 (default)     Λ evenly from 50 to 5; paper: R² 0.997
    linear200              Λ evenly from 200 to 5; paper: R² 0.996, Λ̂ short of Λ above 100
    bimodal                Λ = 25 for five factors, 5 for five; --config.source.concentration.high
                           sets the first
    infonce                linear50 with InfoNCE at a fixed temperature; paper: R² 0.774
    infonce_trained        linear50 with InfoNCE at a trained temperature; not in the paper
    augment                crops and blur of decoded images instead of the known process;
                           paper: classes 94 %, R² 0.44
    augment_infonce        the same with InfoNCE; paper: classes 97 %, R² 0.34
    augment_infonce_trained  and with a trained temperature; not in the paper
    vae                    the VAE alone
    views                  a VAE of augmented images: how the views of one image are spread in its
                           latents (Figs. 6 and 7); with --mode=sweep by kind and strength

The paper leaves widths, batch, optimiser, rates and temperature unsaid; docs/mnist.md has what was
measured with these. Duration: minutes for each on two CPU cores.
"""

from typing import Any

from ml_collections import ConfigDict

from aninfonce_jax.config import default_config
from aninfonce_jax.config.schema import ConfigError

# What each variant learns from, and what it minimises.
_VARIANTS = {
    "linear50": ("decoder", "aninfonce"),
    "linear200": ("decoder", "aninfonce"),
    "bimodal": ("decoder", "aninfonce"),
    "infonce": ("decoder", "infonce"),
    "infonce_trained": ("decoder", "infonce"),
    "augment": ("decoded_views", "aninfonce"),
    "augment_infonce": ("decoded_views", "infonce"),
    "augment_infonce_trained": ("decoded_views", "infonce"),
    "vae": ("images", "elbo"),
    "views": ("images", "elbo"),
}
VARIANTS = tuple(_VARIANTS)
DIM = 10
EPOCHS = 50
# What makes views, and how strongly: by the least area of a crop, and by the jitter's ranges (of
# images without colour, brightness and contrast).
_AUGMENTATIONS = [
    {"source.augment": name, "source.crop_area": area, "source.strength": strength}
    for name, area, strength in (
        *(("crop_only", area, 1.0) for area in (0.2, 0.5, 0.8)),
        ("crop_and_blur", 0.2, 1.0),
        *(("jitter_only", 0.0, strength) for strength in (0.5, 1.0, 2.0)),
    )
]
STEPS_PER_EPOCH = 60_000 // 256


def get_config(variant: str = "linear50") -> ConfigDict:
    if variant not in VARIANTS:
        raise ConfigError(f"unknown variant {variant!r}; choose one of {', '.join(VARIANTS)}")
    source, objective = _VARIANTS[variant]
    config = default_config(
        source=source,
        objective=objective,
        optimizer="adam" if objective == "elbo" else "muon",
    )
    config.name = f"mnist-{variant}"
    config.source.dataset = "mnist"
    config.source.folder = "data/mnist"
    config.source.image_size = 28
    config.source.grey = True
    config.eval.train_examples = 5000
    config.eval.test_examples = 2000
    config.eval.readout_examples = 1000
    config.checkpoint.keep = 1
    if objective == "elbo":
        _set_vae(config)
        if variant == "views":
            config.source.augment = "crop_and_blur"
            config.eval.views = 500
    else:
        _set_encoder(config, variant)
    return config


def _set_vae(config: ConfigDict) -> None:
    config.source.augment = "none"
    config.encoder.widths = (512, 512)
    config.encoder.dim = 2 * DIM  # means and log variances
    config.encoder.init = "he_normal"
    config.encoder.output = "none"
    config.objective.widths = (512, 512)

    config.optimizer.learning_rate = 1e-3
    config.optimizer.concentration_learning_rate = 1e-3  # of the decoder
    config.train.ema_decay = 0.0
    config.train.batch_size = 256
    config.train.steps = EPOCHS * STEPS_PER_EPOCH

    config.eval.every = 10 * STEPS_PER_EPOCH
    config.eval.held_out_batches = 10
    config.checkpoint.every = 2 * STEPS_PER_EPOCH


def _set_encoder(config: ConfigDict, variant: str) -> None:
    config.source.dim = DIM
    if config.source.kind == "decoder" and variant != "bimodal":
        config.source.concentration.layout = "linear"
        config.source.concentration.high = 200.0 if variant == "linear200" else 50.0
        # Ten distinct Λ single out ten axes, which the rotation finds.
        config.encoder.rotation = True
    config.objective.negatives = "anchors"
    if config.objective.kind == "infonce":
        config.objective.temperature = 1.0
        config.objective.train_temperature = variant.endswith("_trained")

    config.encoder.widths = (256, 256, 256)
    config.encoder.init = "orthogonal"
    config.optimizer.learning_rate = 5e-3
    if config.source.kind == "decoder" and config.objective.kind == "aninfonce":
        # As in configs/synthetic.py; docs/mnist.md has what was measured without.
        config.objective.spreading = 3.0
        config.objective.keeping = 0.3
        config.optimizer.schedule = "trapezoid"
        config.optimizer.learning_rate = 2e-2
    config.optimizer.warmup_steps = 50
    config.train.ema_decay = 0.98
    config.train.batch_size = 512
    config.train.steps = 8000

    config.eval.every = 1000
    config.eval.held_out_batches = 10
    config.eval.samples = 4096
    config.checkpoint.every = 500


def sweep(variant: str = "views") -> dict[str, Any]:
    if variant != "views":
        raise ConfigError(f"variant {variant!r} has no sweep; choose views")
    return {
        "points": _AUGMENTATIONS,
        "x": "source.augment",
        "scores": (
            *("views_width", "views_width_ratio", "views_skewness", "views_kurtosis"),
            *("views_not_normal", "views_many_modes"),
        ),
    }
