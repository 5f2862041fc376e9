"""The settings of an augmentation: every probability and range, checked, and presets."""

import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

Interpolation = Literal["bilinear", "bicubic"]

# In the order in which they are applied.
OPERATIONS = ("crop", "flip", "jitter", "grey", "blur", "solarise")
# The steps of the colour jitter, by their number in an order of them.
JITTER_STEPS = ("brightness", "contrast", "saturation", "hue")


class AugmentError(ValueError):
    """Settings of an augmentation that are out of range."""


def _check_within(name: str, value: float, low: float, high: float) -> None:
    if not (low <= value <= high and math.isfinite(value)):
        limits = f"between {low:g} and {high:g}" if math.isfinite(high) else f"at least {low:g}"
        raise AugmentError(f"{name} must be {limits}, got {value!r}.")


def _check_range(name: str, limits: tuple[float, float], most: float) -> None:
    if not (
        isinstance(limits, tuple) and len(limits) == 2 and 0 < limits[0] <= limits[1] <= most
    ) or not math.isfinite(limits[1]):
        top = f"{most:g}" if math.isfinite(most) else "a finite number"
        raise AugmentError(
            f"{name} must be a tuple (low, high) with 0 < low <= high <= {top}, got {limits!r}."
        )


@dataclasses.dataclass(frozen=True)
class AugmentSpec:
    """Every probability and range of an augmentation. By default nothing but a resize.

    A probability is that of applying an operation to a sample; the jitter's four steps are
    applied together or not at all.

    Attributes:
      size: height and width of the views, in pixels.
      crop_probability: of a random crop; otherwise the whole image is resized.
      scale: range of the crop's share of the image's area, drawn uniformly.
      ratio: range of the crop's width over its height, drawn uniformly in the logarithm.
      interpolation: "bilinear" or "bicubic", both antialiased.
      flip_probability: of a horizontal flip.
      jitter_probability: of the colour jitter.
      strength: multiplies the jitter's four ranges.
      brightness: its factor is uniform within 1 ± strength * brightness, at least 0.
      contrast: likewise.
      saturation: likewise.
      hue: the shift is uniform within ± strength * hue; 1 is a full turn, so 0.5 is the most.
      grey_probability: of the loss of all colour.
      blur_probability: of the Gaussian blur.
      sigma: range of the blur's standard deviation, in pixels of the view.
      solarise_probability: of inverting what is bright.
      threshold: values from here on are inverted, in [0, 1].
    """

    size: int = 32
    crop_probability: float = 0.0
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: Interpolation = "bilinear"
    flip_probability: float = 0.0
    jitter_probability: float = 0.0
    strength: float = 1.0
    brightness: float = 0.8
    contrast: float = 0.8
    saturation: float = 0.8
    hue: float = 0.2
    grey_probability: float = 0.0
    blur_probability: float = 0.0
    sigma: tuple[float, float] = (0.1, 2.0)
    solarise_probability: float = 0.0
    threshold: float = 0.5

    def __post_init__(self) -> None:
        if self.size < 1:
            raise AugmentError(f"size must be at least 1 pixel, got {self.size}.")
        if self.interpolation not in get_args(Interpolation):
            choices = " or ".join(map(repr, get_args(Interpolation)))
            raise AugmentError(f"interpolation must be {choices}, got {self.interpolation!r}.")
        for operation in OPERATIONS:
            _check_within(f"{operation}_probability", self.probability(operation), 0, 1)
        _check_within("threshold", self.threshold, 0, 1)
        for name in ("strength", *JITTER_STEPS):
            _check_within(name, getattr(self, name), 0, math.inf)
        if not self.strength * self.hue <= 0.5:
            raise AugmentError(
                f"strength * hue must be at most 0.5, half a turn, got {self.strength:g} * "
                f"{self.hue:g} = {self.strength * self.hue:g}; lower one of them."
            )
        _check_range("scale", self.scale, 1)
        _check_range("ratio", self.ratio, math.inf)
        _check_range("sigma", self.sigma, math.inf)

    def probability(self, operation: str) -> float:
        """Returns the probability of one of `OPERATIONS`."""
        return getattr(self, f"{operation}_probability")

    def reach(self, step: str) -> tuple[float, float]:
        """Returns the range of one of `JITTER_STEPS`: of a factor, or of hue's shift in turns."""
        reach = self.strength * getattr(self, step)
        return (-reach, reach) if step == "hue" else (max(0.0, 1 - reach), 1 + reach)

    @property
    def operations(self) -> tuple[str, ...]:
        """Those of `OPERATIONS` that can occur."""
        return tuple(name for name in OPERATIONS if self.probability(name) > 0)


_CIFAR_JITTER = AugmentSpec(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1)

# The families that the experiments compare; change a field with `preset`.
PRESETS: Mapping[str, AugmentSpec] = MappingProxyType(
    {
        "simclr": AugmentSpec(
            size=224,
            crop_probability=1.0,
            interpolation="bicubic",
            flip_probability=0.5,
            jitter_probability=0.8,
            grey_probability=0.2,
            blur_probability=0.5,
        ),
        "simclr_cifar": dataclasses.replace(
            _CIFAR_JITTER,
            crop_probability=1.0,
            scale=(0.2, 1.0),
            flip_probability=0.5,
            jitter_probability=0.8,
            grey_probability=0.2,
        ),
        "crop_and_blur": AugmentSpec(crop_probability=1.0, scale=(0.2, 1.0), blur_probability=0.5),
        "crop_only": AugmentSpec(crop_probability=1.0, scale=(0.2, 1.0)),
        "jitter_only": dataclasses.replace(_CIFAR_JITTER, jitter_probability=0.8),
        "none": AugmentSpec(),
    }
)


def preset(name: str, **changes: object) -> AugmentSpec:
    """Returns one of `PRESETS` with some fields changed.

    Raises:
      ValueError: the name is unknown, or a value is out of range.
    """
    if name not in PRESETS:
        raise AugmentError(f"Unknown augmentation preset {name!r}; choose {', '.join(PRESETS)}.")
    fields = [field.name for field in dataclasses.fields(AugmentSpec)]
    if unknown := sorted(set(changes) - set(fields)):
        raise AugmentError(f"AugmentSpec has no field {unknown[0]!r}; it has {', '.join(fields)}.")
    return dataclasses.replace(PRESETS[name], **changes)  # type: ignore[arg-type]
