"""p(z⁺|z): how a positive is drawn given its anchor.

Every conditional offers

- `sample(key, space, anchors) -> positives`, both [n, dim], pure and traceable;
- `check(space)`, which raises a ValueError for a space or a setting that can't work;
- `log_density(space, anchors, positives)`, up to a function of the anchor, where the
  density has a closed form.

Concentrations follow the convention with ½: score(a, b) = -½ (a - b)ᵀΛ(a - b).
"""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.dgp import checks, fisher_bingham, shell
from aninfonce_jax.dgp.checks import ArrayLike
from aninfonce_jax.dgp.errors import ProcessError
from aninfonce_jax.dgp.generalized_normal import perturb
from aninfonce_jax.dgp.rejection import MIN_ACCEPTANCE
from aninfonce_jax.dgp.spaces import Box, Product, Real, Space, Sphere
from aninfonce_jax.types import Array, register_dataclass

Layout = Literal["bimodal", "linear", "constant", "explicit"]

# Up to this range of Λ a few per cent of the proposals or more are known to be accepted.
_SAFE_SPREAD = 1e4


class Conditional(Protocol):
    """A distribution of positives given anchors."""

    def check(self, space: Space) -> None:
        """Raises a ValueError if it can't be sampled on `space`."""
        ...

    def sample(self, key: Array, space: Space, anchors: Array) -> Array:
        """Returns one positive per anchor, [n, dim]."""
        ...

    def log_density(self, space: Space, anchors: Array, positives: Array) -> Array:
        """Returns log p(positive | anchor) + a function of the anchor, [n]."""
        ...


def concentration_values(
    layout: Layout,
    dim: int,
    high: float = 25.0,
    low: float = 5.0,
    values: Sequence[float] = (),
) -> np.ndarray:
    """Lays out the concentrations Λ over the factors.

    Args:
      layout: "bimodal" gives `high` to the first half (and to the odd one) and `low` to the
        rest, "linear" goes evenly from `high` to `low`, "constant" is `high` throughout,
        "explicit" takes `values`.
      dim: number of factors.
      high: concentration of content factors.
      low: concentration of style factors.
      values: for "explicit", one per factor.

    Returns:
      Λ, [dim].

    Raises:
      ValueError: the layout is unknown, or a value is not positive, finite, or missing.

    Example:
      >>> an.concentration_values("linear", dim=3).tolist()
      [25.0, 15.0, 5.0]
    """
    if layout == "bimodal":
        numbers = np.where(np.arange(dim) < (dim + 1) // 2, high, low)
    elif layout == "linear":
        numbers = np.linspace(high, low, dim)
    elif layout == "constant":
        numbers = np.full(dim, high)
    elif layout == "explicit":
        numbers = np.asarray(values, np.float64)
        if numbers.shape != (dim,):
            raise ProcessError(
                f"Layout 'explicit' needs one concentration per factor: expected {dim} values, "
                f"got {numbers.size}."
            )
    else:
        raise ProcessError(
            f"Unknown layout {layout!r}; choose 'bimodal', 'linear', 'constant' or 'explicit'."
        )
    checks.positive("concentration", numbers)
    return numbers.astype(np.float64)


@register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Anisotropic:
    """p(z⁺|z) ∝ exp(-½ (z⁺-z)ᵀΛ(z⁺-z)) on the sphere.

    Attributes:
      concentration: Λ, [dim], positive.
      method: "exact" samples this density (a Fisher–Bingham), "paper" what the paper's code
        does: N(z, Λ⁻¹), kept if its norm is within `shell` of the radius, projected.
      shell: for method "paper".
    """

    concentration: ArrayLike
    method: Literal["exact", "paper"] = dataclasses.field(
        default="exact", metadata={"static": True}
    )
    shell: float = dataclasses.field(default=0.1, metadata={"static": True})

    def __post_init__(self) -> None:
        _set(self, "concentration", checks.positive("concentration", self.concentration))
        if self.method not in ("exact", "paper"):
            raise ProcessError(f"method must be 'exact' or 'paper', got {self.method!r}.")
        if not self.shell > 0:
            raise ProcessError(f"shell must be positive, got {self.shell}.")

    def check(self, space: Space) -> None:
        """Raises a ValueError if the space is no sphere or hardly a proposal is accepted."""
        sphere = checks.sphere(space, "The anisotropic conditional")
        checks.per_factor("concentration", self.concentration, sphere.dim)
        numbers = checks.concrete(self.concentration)
        if numbers is None:
            return
        setting = f"Concentrations Λ from {numbers.min():g} to {numbers.max():g}"
        if self.method == "paper":
            if not self.shell < sphere.radius:
                raise ProcessError(
                    f"shell must be less than the radius {sphere.radius:g}, got {self.shell:g}."
                )
            unit = tuple((numbers * sphere.radius**2).tolist())
            share = shell.estimate_share(unit, self.shell / sphere.radius)
            if share < shell.MIN_SHARE:
                raise ProcessError(
                    f"{setting} with shell = {self.shell:g} on a sphere of radius "
                    f"{sphere.radius:g}: shell rejection would keep about {share:.0e} of its "
                    "draws, practically none; use method='exact' or widen the shell."
                )
        share = _estimate_acceptance(numbers * sphere.radius**2)
        if share < MIN_ACCEPTANCE:
            raise ProcessError(
                f"{setting} on a sphere of radius {sphere.radius:g}: about {share:.0e} of the "
                "proposals are accepted, practically none; choose values closer to each other."
            )

    def sample(self, key: Array, space: Space, anchors: Array) -> Array:
        """Returns one positive per anchor, [n, dim]."""
        sphere = checks.sphere(space, "The anisotropic conditional")
        checks.per_factor("concentration", self.concentration, sphere.dim)
        # The density on a sphere of radius R is that on the unit sphere with R²Λ.
        concentration = sphere.radius**2 * checks.as_dtype(self.concentration, anchors)
        unit_anchors = anchors / sphere.radius
        if self.method == "paper":
            unit_shell = self.shell / sphere.radius
            return sphere.radius * shell.sample(key, unit_anchors, concentration, unit_shell)
        linear = concentration[None, :] * unit_anchors
        return sphere.radius * fisher_bingham.sample(key, linear, concentration)

    def log_density(self, space: Space, anchors: Array, positives: Array) -> Array:
        """Returns log p(positive | anchor) + a function of the anchor, [n]."""
        if self.method == "paper":
            raise ProcessError("Shell rejection has no closed-form density; use method='exact'.")
        return _power_score(self.concentration, 2.0, anchors, positives)


@register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class VonMisesFisher:
    """p(z⁺|z) ∝ exp(κ cos∠(z⁺, z)) on the sphere.

    Attributes:
      concentration: κ, a positive number.
    """

    concentration: ArrayLike

    def __post_init__(self) -> None:
        checked = checks.positive("concentration", self.concentration, max_ndim=0)
        _set(self, "concentration", checked)

    def check(self, space: Space) -> None:
        """Raises a ValueError if the space is no sphere."""
        checks.sphere(space, "The von Mises–Fisher conditional")

    def sample(self, key: Array, space: Space, anchors: Array) -> Array:
        """Returns one positive per anchor, [n, dim]."""
        sphere = checks.sphere(space, "The von Mises–Fisher conditional")
        linear = checks.as_dtype(self.concentration, anchors) / sphere.radius * anchors
        isotropic = jnp.zeros(sphere.dim, anchors.dtype)
        return sphere.radius * fisher_bingham.sample(key, linear, isotropic)

    def log_density(self, space: Space, anchors: Array, positives: Array) -> Array:
        """Returns log p(positive | anchor) + a constant, [n]."""
        sphere = checks.sphere(space, "The von Mises–Fisher conditional")
        scale = checks.as_dtype(self.concentration, anchors) / sphere.radius**2
        return scale * jnp.sum(anchors * positives, axis=-1)


class _AdditiveNoise:
    """What the conditionals with density exp(-(1/p) Σ Λ_i |z⁺_i - z_i|^p) have in common.

    The sum of anchor and noise is projected back on a sphere, drawn again or wrapped on a
    box as the box says, and left alone on the real space.
    """

    concentration: ArrayLike

    @property
    def exponent(self) -> float:
        """p; a field or a constant of each class."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        _set(self, "concentration", checks.positive("concentration", self.concentration))
        if not 0 < self.exponent < float("inf"):
            raise ProcessError(f"exponent must be positive and finite, got {self.exponent}.")

    def check(self, space: Space) -> None:
        """Raises a ValueError if Λ does not fit the space."""
        if isinstance(space, Product):
            raise ProcessError("A product space needs a ProductConditional, one part per factor.")
        checks.per_factor("concentration", self.concentration, space.dim)

    def sample(self, key: Array, space: Space, anchors: Array) -> Array:
        """Returns one positive per anchor, [n, dim]."""
        self.check(space)
        concentration = checks.as_dtype(self.concentration, anchors)
        return perturb(key, space, anchors, concentration, self.exponent)

    def log_density(self, space: Space, anchors: Array, positives: Array) -> Array:
        """Returns log p(positive | anchor) + a function of the anchor, [n]."""
        if isinstance(space, Sphere) or (isinstance(space, Box) and space.boundary == "wrap"):
            raise ProcessError("Projected or wrapped noise has no closed-form density.")
        return _power_score(self.concentration, self.exponent, anchors, positives)


@register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class GeneralizedNormal(_AdditiveNoise):
    """Noise with density ∝ `exp(-(1/p) Σ Λ_i |x_i|^p)`.

    Attributes:
      concentration: Λ, [dim], positive.
      exponent: p > 0.
    """

    concentration: ArrayLike
    exponent: float = dataclasses.field(default=2.0, metadata={"static": True})


@register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Normal(_AdditiveNoise):
    """Normal noise with variances 1/Λ_i; Λ is `concentration`, [dim], positive."""

    concentration: ArrayLike
    exponent: ClassVar[float] = 2.0


@register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Laplace(_AdditiveNoise):
    """Laplace noise with scales 1/Λ_i; Λ is `concentration`, [dim], positive."""

    concentration: ArrayLike
    exponent: ClassVar[float] = 1.0


@register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Bimodal:
    """An even mixture of two modes, as augmentations induce: `base` about z ± offset.

    The displaced anchors are brought back into the space before the base draws around them.

    Attributes:
      base: the conditional of each mode.
      offset: the displacement [dim], or a number: a distance. It is then shared out in
        proportion to Λ_i^(-½), as what varies much is what an augmentation moves.
    """

    base: Anisotropic | VonMisesFisher | GeneralizedNormal | Normal | Laplace
    offset: ArrayLike

    def __post_init__(self) -> None:
        numbers = checks.concrete(self.offset)
        if numbers is None:
            return
        if not np.isfinite(numbers).all():
            raise ProcessError(f"offset must be finite, got {self.offset}.")
        if not isinstance(self.offset, jax.Array):
            _set(self, "offset", numbers)

    def check(self, space: Space) -> None:
        """Raises a ValueError if the base can't work or the offset does not fit the space."""
        self.base.check(space)
        if np.ndim(self.offset) != 0:
            checks.per_factor("offset", self.offset, space.dim)

    def sample(self, key: Array, space: Space, anchors: Array) -> Array:
        """Returns one positive per anchor, [n, dim]."""
        mode_key, noise_key = jax.random.split(key)
        sign = jax.random.rademacher(mode_key, (anchors.shape[0], 1), anchors.dtype)
        modes = space.project(anchors + sign * self._displacement(anchors)[None, :])
        return self.base.sample(noise_key, space, modes)

    def log_density(self, space: Space, anchors: Array, positives: Array) -> Array:
        """Returns log p(positive | anchor) + a function of the anchor, [n]."""
        if not (isinstance(space, Real) or isinstance(self.base, VonMisesFisher)):
            raise ProcessError(
                "The modes' normalisers differ; the mixture has no closed form here."
            )
        displacement = self._displacement(anchors)[None, :]
        modes = [space.project(anchors + sign * displacement) for sign in (1.0, -1.0)]
        return jnp.logaddexp(*(self.base.log_density(space, mode, positives) for mode in modes))

    def _displacement(self, anchors: Array) -> Array:
        offset = checks.as_dtype(self.offset, anchors)
        if offset.ndim == 1:
            return offset
        concentration = checks.as_dtype(self.base.concentration, anchors)
        spread = jnp.broadcast_to(jax.lax.rsqrt(concentration), anchors.shape[-1:])
        return offset * spread / jnp.linalg.norm(spread)


def _set(target: object, name: str, value: object) -> None:
    """Sets a field of a frozen dataclass while it is being made."""
    object.__setattr__(target, name, value)


def _power_score(
    concentration: ArrayLike, exponent: float, anchors: Array, positives: Array
) -> Array:
    """Returns -(1/p) Σ Λ_i |b_i - a_i|^p, [n]."""
    weights = checks.as_dtype(concentration, anchors)[None, :]
    return -jnp.sum(weights * jnp.abs(positives - anchors) ** exponent, axis=-1) / exponent


def _estimate_acceptance(concentration: np.ndarray) -> float:
    """Estimates the share of proposals that are accepted on the unit sphere."""
    if np.ptp(concentration) <= _SAFE_SPREAD:
        return 1.0
    values = jnp.asarray(concentration, jnp.float32)
    anchors = Sphere(values.size).uniform(jax.random.key(0), 4096)
    envelope = fisher_bingham.fit_envelope(values[None, :] * anchors, values)
    _, accepted = fisher_bingham.propose(jax.random.key(1), envelope)
    return float(jnp.mean(accepted))
