"""What was done to a view, in words."""

from collections.abc import Sequence

import jax
import numpy as np

from aninfonce_jax.data.augment_params import AugmentParams

# What a caption's line holds.
_LINE_CHARACTERS = 35


def describe_params(params: AugmentParams, *, aspect: float) -> list[str]:
    """Returns a caption of a few short lines for each sample; see `applied_steps`."""
    return [_fill_lines(parts) for parts in applied_steps(params, aspect=aspect)]


def applied_steps(params: AugmentParams, *, aspect: float) -> list[list[str]]:
    """What was applied to each sample, in words and in the order of application.

    Args:
      params: of a batch.
      aspect: width over height of the images.

    Returns:
      For each sample a phrase per operation: ["crop 43%, aspect 1.21", "flipped"].
    """
    batch = len(params.flipped)
    applied = jax.tree.map(np.asarray, params.neutralised())
    return [
        _describe(jax.tree.map(lambda values, i=index: values[i], applied), aspect)
        for index in range(batch)
    ]


def _describe(params: AugmentParams, aspect: float) -> list[str]:
    parts = []
    if params.cropped:
        left, top, right, bottom = params.box.tolist()
        width, height = right - left, bottom - top
        parts.append(f"crop {100 * width * height:.0f}%, aspect {aspect * width / height:.2f}")
    if params.flipped:
        parts.append("flipped")
    for name in ("brightness", "contrast", "saturation"):
        factor = float(getattr(params, name))
        if factor != 1:
            parts.append(f"{name} ×{factor:.2f}")
    if params.hue:
        parts.append(f"hue {params.hue:+.2f} turns".replace("-", "−"))
    if params.greyed:
        parts.append("grey")
    if params.blurred:
        parts.append(f"blur σ {params.sigma:.2f} px")
    if params.solarised:
        parts.append("solarised")
    return parts


def _fill_lines(parts: Sequence[str]) -> str:
    """The phrases on as few lines as hold them, without breaking one; "nothing" if none."""
    lines: list[str] = []
    for part in parts or ["nothing"]:
        longer = f"{lines[-1]} · {part}" if lines else part
        if lines and len(longer) <= _LINE_CHARACTERS:
            lines[-1] = longer
        else:
            lines.append(part)
    return "\n".join(lines)
