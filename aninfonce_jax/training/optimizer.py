"""The optimiser: one recipe for the encoder, learning rates of their own for Λ̂ and axes."""

from typing import Any

import jax
import optax
import optax.contrib

from aninfonce_jax.config_schema import OptimizerConfig
from aninfonce_jax.models.encoders import ROTATION
from aninfonce_jax.training.rotation import adam_rotations
from aninfonce_jax.types import PyTree

# Muon's rate is the size of an orthogonal step, an order of magnitude above a good rate of
# Adam; the biases that Muon leaves to Adam get this share of it.
_MUON_BIAS_RATE = 0.1


def build_schedule(config: OptimizerConfig, peak: float, steps: int) -> optax.Schedule:
    """Returns the learning rate over `steps` steps: a linear warm-up, then as configured."""
    warmup = config.warmup_steps
    if config.schedule == "constant":
        after: optax.Schedule = optax.constant_schedule(peak)
    else:
        after = optax.cosine_decay_schedule(peak, steps - warmup, config.final_fraction)
    return optax.join_schedules([optax.linear_schedule(0.0, peak, warmup), after], [warmup])


def build_optimizer(config: OptimizerConfig, steps: int) -> optax.GradientTransformation:
    """Returns the optimiser of params {"encoder": ..., "objective": ...}."""

    def schedule(peak: float) -> optax.Schedule:
        return build_schedule(config, peak, steps)

    transforms = {
        "encoder": _encoder_transform(config, schedule(config.learning_rate), steps),
        "rotation": adam_rotations(schedule(config.rotation_learning_rate), config.b1, config.b2),
        "objective": optax.adam(schedule(config.concentration_learning_rate), config.b1, config.b2),
    }
    grouped = optax.multi_transform(transforms, _groups)
    if config.clip_norm > 0:
        return optax.chain(optax.clip_by_global_norm(config.clip_norm), grouped)
    return grouped


def _groups(params: PyTree) -> PyTree:
    """Names the transform of each leaf."""

    def group(path: tuple[Any, ...], _: Any) -> str:
        names = [entry.key for entry in path]
        return "rotation" if ROTATION in names else names[0]

    return jax.tree_util.tree_map_with_path(group, params)


def _matrices(params: PyTree) -> PyTree:
    """Marks what weight decay and LARS's trust ratio apply to: no biases, no scales."""
    return jax.tree.map(lambda x: x.ndim > 1, params)


def _encoder_transform(
    config: OptimizerConfig, schedule: optax.Schedule, steps: int
) -> optax.GradientTransformation:
    if config.name == "adam":
        return optax.adam(schedule, config.b1, config.b2)
    if config.name == "adamw":
        return optax.adamw(
            schedule, config.b1, config.b2, weight_decay=config.weight_decay, mask=_matrices
        )
    if config.name == "sgd":
        return optax.chain(
            optax.add_decayed_weights(config.weight_decay, _matrices),
            optax.sgd(schedule, config.momentum),
        )
    if config.name == "lars":
        return optax.lars(
            schedule,
            weight_decay=config.weight_decay,
            weight_decay_mask=_matrices,
            trust_ratio_mask=_matrices,
            momentum=config.momentum,
        )
    return optax.contrib.muon(
        schedule,
        weight_decay=config.weight_decay,
        adam_b1=config.b1,
        adam_b2=config.b2,
        adam_learning_rate=build_schedule(config, _MUON_BIAS_RATE * config.learning_rate, steps),
    )
