"""Where theory and practice part: sweeps over what the theorem takes for granted.

    python -m aninfonce_jax.main --config=configs/theory.py:VARIANT --mode=sweep

    lambda        R² against the content's Λ, with Λ = 5 for the style (Fig. 2A of the paper)
    batch_dim     batch size against the number of factors, Λ = 75 (Fig. 4)
    batch_lambda  batch size against Λ, 20 factors (Fig. 4)
    steps         steps until R² is 0.8 and 0.9, by dimension and batch, Λ = 75 (Fig. 9)
    tricl         AnInfoNCE against TriCL, 20 factors, Λ = 100, and 250 and 15 (Fig. 12)
    overlap       similarities of positives and of negatives, 20 factors, Λ = 25 against 75 (Fig. 8)
    shift         R² where test anchors surround the other pole, against how well a classifier tells
                  them from those of training (Fig. 6D)
    modes         R² as the conditional parts into two modes; not in the paper, which asks for it

VARIANT_small, such as lambda_small, has fewer points, two seeds (in `steps` one) and in `steps`
4,000 steps instead of 20,000. Duration: 2 to 20 minutes of one CPU core for each of these, by the
time of single points; of the whole sweeps up to an hour, of `steps` days. docs/experiments.md has
what was measured, and what the paper has.
"""

from typing import Any

from ml_collections import ConfigDict

from aninfonce_jax.config import default_config
from aninfonce_jax.config.schema import ConfigError

# These keep the ten factors of configs/synthetic.py, with two values of Λ.
_TEN_FACTORS = ("lambda", "shift", "modes")
_HIGH, _BATCH = "source.concentration.high", "train.batch_size"
_POLE, _MODES = "source.marginal_concentration", "source.bimodal_offset"
# InfoNCE comes twice: with the paper's fixed τ, and with a trained one.
_OBJECTIVES: list[dict[str, Any]] = [
    {"objective.kind": "aninfonce"},
    {"objective.kind": "infonce", "objective.train_temperature": False},
    {"objective.kind": "infonce", "objective.train_temperature": True},
]
# Keeps factors that are loosely held from being given up early: docs/synthetic.md.
_KEPT = {
    "objective.kind": "aninfonce",
    "objective.spreading": 3.0,
    "objective.keeping": 0.3,
    "optimizer.schedule": "trapezoid",
    "optimizer.learning_rate": 2e-2,
}
_LAYOUTS = [
    {"source.concentration.layout": "constant", _HIGH: 100.0},
    {"source.concentration.layout": "bimodal", _HIGH: 250.0, "source.concentration.low": 15.0},
]
_TRICL = [
    {"objective.kind": "aninfonce"},
    {"objective.kind": "tricl", "objective.form": "infonce"},
    {"objective.kind": "tricl", "objective.form": "spectral"},
]
_SWEEPS: dict[str, dict[str, Any]] = {
    "lambda": {
        "points": [*_OBJECTIVES, _KEPT],
        "grid": {_HIGH: (10.0, 25.0, 50.0, 100.0, 150.0, 200.0)},
        "x": _HIGH,
        "scores": ("r2_content", "r2_style", "concentration_error"),
    },
    "batch_dim": {
        "grid": {"source.dim": (10, 20, 40), _BATCH: (50, 250, 500, 1000)},
        "x": _BATCH,
        "scores": ("r2", "mcc_pearson", "loss"),
    },
    "batch_lambda": {
        "grid": {_HIGH: (25.0, 75.0, 150.0, 300.0), _BATCH: (50, 250, 500, 1000)},
        "x": _BATCH,
        "scores": ("r2", "mcc_pearson", "loss"),
    },
    "steps": {
        "grid": {_BATCH: (50, 250, 1000, 4000), "source.dim": (20, 25, 30, 35, 40)},
        "x": "source.dim",
        "scores": ("r2",),
        "targets": {"r2": (0.8, 0.9)},
    },
    "tricl": {
        "points": [own | layout for own in _TRICL for layout in _LAYOUTS],
        "x": _HIGH,
        "scores": ("r2", "mcc_pearson"),
    },
    "overlap": {
        "grid": {_HIGH: (25.0, 75.0)},
        "x": _HIGH,
        "scores": ("overlap_true", "overlap", "r2"),
    },
    "shift": {
        "points": _OBJECTIVES,
        "grid": {_POLE: (0.01, 0.1, 1.0, 10.0, 100.0)},
        "x": _POLE,
        "scores": ("r2", "r2_shifted", "shift_accuracy"),
    },
    "modes": {
        "points": _OBJECTIVES,
        "grid": {_MODES: (0.0, 0.1, 0.2, 0.4, 0.8)},
        "x": _MODES,
        "scores": ("r2_content", "r2_style", "mcc_pearson"),
    },
}


# What their small versions have instead.
_SMALL: dict[str, dict[str, Any]] = {
    "lambda": {"grid": {_HIGH: (10.0, 25.0, 100.0, 200.0)}},
    "batch_dim": {"grid": {"source.dim": (10, 40), _BATCH: (50, 250, 500, 1000)}},
    "batch_lambda": {"grid": {_HIGH: (25.0, 300.0), _BATCH: (50, 250, 500, 1000)}},
    "steps": {"grid": {_BATCH: (250, 1000), "source.dim": (10, 15, 20, 25)}, "seeds": (0,)},
    "tricl": {},
    "overlap": {},
    "shift": {"grid": {_POLE: (0.01, 1.0, 10.0, 100.0)}},
    "modes": {"grid": {_MODES: (0.0, 0.2, 0.4, 0.8)}},
}
_SUFFIX = "_small"
VARIANTS = (*_SWEEPS, *(f"{name}{_SUFFIX}" for name in _SMALL))


def get_config(variant: str = "lambda") -> ConfigDict:
    name, is_small = _parse(variant)
    config = default_config()
    config.name = f"theory-{variant}"
    config.source.mixing.candidates = 5000
    config.encoder.widths = (128, 256, 256, 128)
    # A narrow encoder and a small batch fold a factor away at the full rate.
    config.optimizer.learning_rate = 5e-3
    config.optimizer.warmup_steps = 50
    config.train.ema_decay = 0.98
    config.train.batch_size = 512
    config.train.steps = 1500
    config.eval.samples = 4096
    config.eval.every = 100
    config.checkpoint.every = 500
    config.checkpoint.keep = 1
    if name not in _TEN_FACTORS:
        config.source.concentration.layout = "constant"
        config.source.concentration.high = 75.0
        config.source.dim = 20
    if name == "steps":
        config.train.steps = 4000 if is_small else 20_000
        config.optimizer.schedule = "constant"
    if name == "shift":
        config.source.marginal = "vmf"
        config.source.test_pole = "south"
    if name == "modes":
        config.source.conditional = "bimodal"
    return config


def sweep(variant: str = "lambda") -> dict[str, Any]:
    name, is_small = _parse(variant)
    return {
        **_SWEEPS[name],
        **({"seeds": (0, 1), **_SMALL[name]} if is_small else {"seeds": (0, 1, 2)}),
    }


def _parse(variant: str) -> tuple[str, bool]:
    """Returns the name of a sweep, and whether its small version is meant."""
    if variant not in VARIANTS:
        raise ConfigError(f"unknown variant {variant!r}; choose one of {', '.join(VARIANTS)}")
    return variant.removesuffix(_SUFFIX), variant.endswith(_SUFFIX)
