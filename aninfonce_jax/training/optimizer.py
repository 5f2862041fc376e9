"""The optimiser: one recipe for the encoder; Λ̂ and a rotation have learning rates of their own.

A head of the objective, which reads something off what the encoder returns, is trained like it.
"""

import functools
from typing import Any, Literal

import jax
import optax
import optax.contrib

from aninfonce_jax.models.heads import HEAD, ROTATION
from aninfonce_jax.training.rotation import adam_rotations
from aninfonce_jax.types import PyTree

Kind = Literal["adam", "adamw", "sgd", "lars", "muon"]
Schedule = Literal["cosine", "constant", "trapezoid"]

# Muon's rate is the size of an orthogonal step, an order of magnitude above a good rate of
# Adam; the biases that Muon leaves to Adam get this share of it.
_MUON_BIAS_RATE = 0.1
_MOMENTUM = 0.9


def make_schedule(
    kind: Schedule, peak: float, *, steps: int, warmup_steps: int, final_fraction: float
) -> optax.Schedule:
    """Returns the learning rate over `steps` steps: a linear warm-up, then as its kind says.

    A trapezoid stays at its peak for the first half of all steps, warm-up included, and falls
    in a line over the second.
    """
    if kind == "constant":
        after: optax.Schedule = optax.constant_schedule(peak)
    elif kind == "trapezoid":
        flat = max(steps // 2 - warmup_steps, 0)
        fall = optax.linear_schedule(peak, final_fraction * peak, steps - warmup_steps - flat)
        after = optax.join_schedules([optax.constant_schedule(peak), fall], [flat])
    else:
        after = optax.cosine_decay_schedule(peak, steps - warmup_steps, final_fraction)
    warmup = optax.linear_schedule(0.0, peak, warmup_steps)
    return optax.join_schedules([warmup, after], [warmup_steps])


def make_optimizer(
    kind: Kind,
    *,
    steps: int,
    learning_rate: float,
    concentration_learning_rate: float = 1e-2,
    rotation_learning_rate: float = 1e-2,
    schedule: Schedule = "cosine",
    warmup_steps: int = 0,
    final_fraction: float = 0.01,
    b1: float = 0.9,
    b2: float = 0.999,
    momentum: float | None = None,
    weight_decay: float = 0.0,
    clip_norm: float = 0.0,
) -> optax.GradientTransformation:
    """Returns the optimiser of params {"encoder": ..., "objective": ...}.

    Args:
      kind: of the encoder and, but for Muon, of a head of the objective; all else is always
        trained by Adam.
      steps: at which the schedules end.
      learning_rate: peak rate of the encoder and, but for Muon, of a head of the objective.
      concentration_learning_rate: peak rate of the objective's other parameters.
      rotation_learning_rate: largest turn per step of a trained rotation, in radians.
      schedule: of all rates after warm-up.
      warmup_steps: of linear warm-up.
      final_fraction: rate at the end, as a share of the peak.
      b1: Adam's β1.
      b2: Adam's β2.
      momentum: of SGD and LARS, for which None means 0.9; others have none.
      weight_decay: of matrices; never of biases or Λ̂. Plain Adam has none.
      clip_norm: largest global norm of the gradient; 0: no clipping.

    Raises:
      ValueError: `momentum` or `weight_decay` for a kind that has none.

    Example:
      >>> optimizer = an.make_optimizer("adam", steps=100, learning_rate=1e-3)
    """
    if weight_decay and kind == "adam":
        raise ValueError(f"adam has no weight decay, got weight_decay={weight_decay}; use 'adamw'")
    if momentum is not None and kind not in ("sgd", "lars"):
        raise ValueError(f"momentum is for sgd and lars, got momentum={momentum} with {kind!r}")
    momentum = _MOMENTUM if momentum is None else momentum

    def rate(peak: float) -> optax.Schedule:
        return make_schedule(
            schedule, peak, steps=steps, warmup_steps=warmup_steps, final_fraction=final_fraction
        )

    transforms = {
        "encoder": _encoder_transform(kind, rate, learning_rate, b1, b2, momentum, weight_decay),
        "rotation": adam_rotations(rate(rotation_learning_rate), b1, b2),
        "objective": optax.adam(rate(concentration_learning_rate), b1, b2),
    }
    # A head is an outer layer, which Muon is not for.
    head = "objective" if kind == "muon" else "encoder"
    grouped = optax.multi_transform(transforms, functools.partial(_groups, head=head))
    if clip_norm > 0:
        return optax.chain(optax.clip_by_global_norm(clip_norm), grouped)
    return grouped


def _groups(params: PyTree, head: str) -> PyTree:
    """Names the transform of each leaf; `head` is that of a head of the objective."""

    def group(path: tuple[Any, ...], _: Any) -> str:
        # Below the two groups the params may be any tree, of lists or objects too.
        names = [getattr(entry, "key", None) for entry in path]
        if names[:2] == ["objective", HEAD]:
            return head
        return "rotation" if ROTATION in names else str(names[0])

    return jax.tree_util.tree_map_with_path(group, params)


def _matrices(params: PyTree) -> PyTree:
    """Marks what weight decay and LARS's trust ratio apply to: no biases, no scales."""
    return jax.tree.map(lambda x: x.ndim > 1, params)


def _encoder_transform(
    kind: Kind,
    rate: Any,
    peak: float,
    b1: float,
    b2: float,
    momentum: float,
    weight_decay: float,
) -> optax.GradientTransformation:
    if kind == "adam":
        return optax.adam(rate(peak), b1, b2)
    if kind == "adamw":
        return optax.adamw(rate(peak), b1, b2, weight_decay=weight_decay, mask=_matrices)
    if kind == "sgd":
        decay = optax.add_decayed_weights(weight_decay, _matrices)
        return optax.chain(decay, optax.sgd(rate(peak), momentum))
    if kind == "lars":
        return optax.lars(
            rate(peak),
            weight_decay=weight_decay,
            weight_decay_mask=_matrices,
            trust_ratio_mask=_matrices,
            momentum=momentum,
        )
    return optax.contrib.muon(
        rate(peak),
        weight_decay=weight_decay,
        adam_b1=b1,
        adam_b2=b2,
        adam_learning_rate=rate(_MUON_BIAS_RATE * peak),
    )
