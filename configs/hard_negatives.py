"""Hard negatives (Cor. 3.1, Fig. 10 of the paper): drawn near each anchor by the process itself.

    python -m aninfonce_jax.main --config=configs/hard_negatives.py:ordinary \
            --workdir=runs/hard_negatives/ordinary
    python -m aninfonce_jax.main --config=configs/hard_negatives.py:hard \
            --workdir=runs/hard_negatives/hard

    ordinary (default)  20 factors, Λ = 150, ordinary negatives alone; what the others start from
    continued           half as many steps again with ordinary negatives
    hard                as many with three negatives of Λ⁻ = 100 for each anchor joined to them;
                        paper: R² about 0.85 → 0.95
    alone               as many with such negatives alone, 15 for each anchor: Λ̂ should become
                        Λ - Λ⁻ = 50

All but the first start from the parameters in runs/hard_negatives/ordinary, of the same seed;
--config.train.start_from=DIR names another run. Duration: minutes each on two CPU cores.
docs/experiments.md has what was measured; benchmarks/hard_negatives.py draws the loss along Λ̂.
"""

from ml_collections import ConfigDict

from aninfonce_jax.config import default_config
from aninfonce_jax.config.schema import ConfigError

VARIANTS = ("ordinary", "continued", "hard", "alone")
START = "runs/hard_negatives/ordinary"


def get_config(variant: str = "ordinary") -> ConfigDict:
    if variant not in VARIANTS:
        raise ConfigError(f"unknown variant {variant!r}; choose one of {', '.join(VARIANTS)}")
    draws = variant in ("hard", "alone")
    config = default_config(
        source="process_with_negatives" if draws else "process",
        objective="hard_negatives" if draws else "aninfonce",
    )
    config.name = f"hard-negatives-{variant}"
    config.source.dim = 20
    config.source.concentration.layout = "constant"
    config.source.concentration.high = 150.0
    config.source.mixing.candidates = 5000
    if draws:
        config.source.own_concentration = (100.0,)
        config.source.own_negatives = 3 if variant == "hard" else 15
        config.objective.joined = variant == "hard"
    if variant != "ordinary":
        config.train.start_from = START

    config.encoder.widths = (128, 128, 128, 128)
    config.optimizer.learning_rate = 5e-3
    config.optimizer.warmup_steps = 50
    config.train.ema_decay = 0.98
    config.train.batch_size = 512
    config.train.steps = 10_000 if variant == "ordinary" else 5000
    config.eval.every = 500
    config.eval.samples = 4096
    config.checkpoint.keep = 1
    return config
