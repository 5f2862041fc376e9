"""p(z): how anchors are distributed.

Every marginal offers `sample(key, space, n) -> [n, dim]` and `check(space)`, as the
conditionals do. Those other than the uniform are spread around `space.center()`: the north
pole of a sphere (on the first axis), the middle of a box, the origin of the real space.
"""

import dataclasses
from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.dgp import checks, conditionals
from aninfonce_jax.dgp.checks import ArrayLike
from aninfonce_jax.dgp.errors import ProcessError
from aninfonce_jax.dgp.generalized_normal import perturb
from aninfonce_jax.dgp.spaces import Product, Real, Space
from aninfonce_jax.types import Array, register_dataclass


class Marginal(Protocol):
    """A distribution of anchors."""

    def check(self, space: Space) -> None:
        """Raises a ValueError if it can't be sampled on `space`."""
        ...

    def sample(self, key: Array, space: Space, n: int) -> Array:
        """Returns n points of the space, [n, dim]."""
        ...


@register_dataclass
@dataclasses.dataclass(frozen=True)
class Uniform:
    """The uniform distribution; there is none on the real space.

    Example:
      >>> x = an.marginals.Uniform().sample(jax.random.key(0), an.Sphere(3), 8)
      >>> bool(jnp.allclose(jnp.linalg.norm(x, axis=1), 1.0, atol=1e-5))
      True
    """

    def check(self, space: Space) -> None:
        """Raises a ValueError if the space is not bounded."""
        factors = space.spaces if isinstance(space, Product) else (space,)
        for factor in factors:
            if isinstance(factor, Real):
                factor.uniform(jax.random.key(0), 1)

    def sample(self, key: Array, space: Space, n: int) -> Array:
        """Returns n points of the space, [n, dim]."""
        return space.uniform(key, n)


class _Spread:
    """What the marginals with density exp(-(1/p) Σ |(z_i - center_i) / scale_i|^p) share.

    Draws are projected on a sphere, truncated to a box (or wrapped, if it says so).
    """

    scale: ArrayLike

    @property
    def exponent(self) -> float:
        """p; a field or a constant of each class."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", checks.positive("scale", self.scale))
        if not 0 < self.exponent < float("inf"):
            raise ProcessError(f"exponent must be positive and finite, got {self.exponent}.")

    def check(self, space: Space) -> None:
        """Raises a ValueError if the scale does not fit the space."""
        if isinstance(space, Product):
            raise ProcessError("A product space needs a ProductMarginal, one part per factor.")
        if np.ndim(self.scale) != 0:
            checks.per_factor("scale", self.scale, space.dim)

    def sample(self, key: Array, space: Space, n: int) -> Array:
        """Returns n points of the space, [n, dim]."""
        self.check(space)
        center = space.center()
        centers = jnp.broadcast_to(center[None, :], (n, space.dim))
        scale = jnp.broadcast_to(checks.as_dtype(self.scale, center), center.shape)
        return perturb(key, space, centers, scale**-self.exponent, self.exponent)


@register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class GeneralizedNormal(_Spread):
    """Density ∝ `exp(-(1/p) Σ |(z_i - center_i) / scale_i|^p)`.

    Attributes:
      scale: a positive number, or one per factor, [dim].
      exponent: p > 0.
    """

    scale: ArrayLike = 1.0
    exponent: float = dataclasses.field(default=2.0, metadata={"static": True})


@register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Normal(_Spread):
    """A normal of standard deviation `scale`, a number or one per factor, [dim]."""

    scale: ArrayLike = 1.0
    exponent: ClassVar[float] = 2.0


@register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Laplace(_Spread):
    """A Laplace distribution of scale `scale`, a number or one per factor, [dim]."""

    scale: ArrayLike = 1.0
    exponent: ClassVar[float] = 1.0


@register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class VonMisesFisher:
    """Density ∝ exp(κ cos∠(z, direction)) on the sphere.

    Attributes:
      concentration: κ, a positive number.
      direction: the mean direction [dim], of any length; None is the north pole. The south
        pole, for a study of domain shift, is (-1, 0, ..., 0).
    """

    concentration: ArrayLike
    direction: ArrayLike | None = None

    def __post_init__(self) -> None:
        checked = checks.positive("concentration", self.concentration, max_ndim=0)
        object.__setattr__(self, "concentration", checked)
        direction = checks.concrete(self.direction)
        if direction is not None and not (np.isfinite(direction).all() and direction.any()):
            raise ProcessError(f"direction must be finite and not zero, got {self.direction}.")
        if direction is not None and not isinstance(self.direction, jax.Array):
            object.__setattr__(self, "direction", direction)

    def check(self, space: Space) -> None:
        """Raises a ValueError if the space is no sphere or the direction does not fit it."""
        sphere = checks.sphere(space, "The von Mises–Fisher marginal")
        if self.direction is not None:
            checks.per_factor("direction", self.direction, sphere.dim)

    def sample(self, key: Array, space: Space, n: int) -> Array:
        """Returns n points of the space, [n, dim]."""
        self.check(space)
        center = space.center()
        if self.direction is not None:
            center = space.project(checks.as_dtype(self.direction, center)[None, :])[0]
        around = conditionals.VonMisesFisher(self.concentration)
        return around.sample(key, space, jnp.broadcast_to(center[None, :], (n, space.dim)))
