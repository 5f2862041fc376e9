"""Where latents live: the sphere, the box, the whole of R^d, and products of these."""

import dataclasses
from typing import Literal, Protocol

import jax
import jax.numpy as jnp

from aninfonce_jax.dgp import draws
from aninfonce_jax.dgp.errors import ProcessError
from aninfonce_jax.types import Array


class Space(Protocol):
    """A subset of R^dim. Hashable, so that it can be static under `jit`."""

    @property
    def dim(self) -> int:
        """How many coordinates a point has."""
        ...

    def uniform(self, key: Array, n: int) -> Array:
        """Returns n points [n, dim], uniformly distributed."""
        ...

    def project(self, x: Array) -> Array:
        """Brings x [n, dim] back into the space."""
        ...

    def center(self) -> Array:
        """Returns the point [dim] around which marginals are spread by default."""
        ...


@dataclasses.dataclass(frozen=True)
class Sphere:
    """The sphere of `radius` around the origin of R^dim.

    Example:
      >>> an.Sphere(3).dim
      3
    """

    dim: int
    radius: float = 1.0

    def __post_init__(self) -> None:
        if self.dim < 2:
            raise ProcessError(f"A sphere needs a dim of at least 2, got {self.dim}.")
        if not 0.0 < self.radius < float("inf"):
            raise ProcessError(f"A sphere needs a positive, finite radius, got {self.radius}.")

    def uniform(self, key: Array, n: int) -> Array:
        """Returns n points [n, dim], uniformly distributed."""
        return self.project(draws.normal(key, (n, self.dim)))

    def project(self, x: Array) -> Array:
        """Scales each row of x [n, dim] to the radius."""
        return x * (self.radius / jnp.linalg.norm(x, axis=-1, keepdims=True))

    def center(self) -> Array:
        """Returns the north pole, on the first axis."""
        return jnp.zeros(self.dim).at[0].set(self.radius)


@dataclasses.dataclass(frozen=True)
class Box:
    """The box [low, high]^dim.

    `boundary` says what becomes of a draw that would leave the box: "reject" draws again
    (so densities are truncated), "wrap" comes back in at the opposite side (a torus).
    """

    dim: int
    low: float = 0.0
    high: float = 1.0
    boundary: Literal["reject", "wrap"] = "reject"

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise ProcessError(f"A box needs a dim of at least 1, got {self.dim}.")
        if not -float("inf") < self.low < self.high < float("inf"):
            raise ProcessError(f"A box needs finite low < high, got {self.low} and {self.high}.")
        if self.boundary not in ("reject", "wrap"):
            raise ProcessError(f"A box's boundary is 'reject' or 'wrap', got {self.boundary!r}.")

    def uniform(self, key: Array, n: int) -> Array:
        """Returns n points [n, dim], uniformly distributed."""
        return self.low + (self.high - self.low) * draws.uniform(key, (n, self.dim))

    def project(self, x: Array) -> Array:
        """Clips x [n, dim] to the box, or wraps it by whole multiples of the side."""
        if self.boundary == "wrap":
            return self.low + jnp.mod(x - self.low, self.high - self.low)
        return jnp.clip(x, self.low, self.high)

    def center(self) -> Array:
        """Returns the middle of the box."""
        return jnp.full(self.dim, 0.5 * (self.low + self.high))


@dataclasses.dataclass(frozen=True)
class Real:
    """All of R^dim."""

    dim: int

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise ProcessError(f"A real space needs a dim of at least 1, got {self.dim}.")

    def uniform(self, key: Array, n: int) -> Array:
        """Raises: R^dim has no uniform distribution."""
        raise ProcessError(
            "The real space has no uniform distribution; "
            "choose a normal, Laplace or generalised normal marginal, or a box."
        )

    def project(self, x: Array) -> Array:
        """Returns x."""
        return x

    def center(self) -> Array:
        """Returns the origin."""
        return jnp.zeros(self.dim)


@dataclasses.dataclass(frozen=True)
class Product:
    """A product of spaces: their coordinates one after the other."""

    spaces: tuple[Space, ...]

    def __post_init__(self) -> None:
        if not self.spaces:
            raise ProcessError("A product needs at least one space, got none.")

    @property
    def dim(self) -> int:
        """How many coordinates a point has."""
        return sum(space.dim for space in self.spaces)

    def uniform(self, key: Array, n: int) -> Array:
        """Returns n points [n, dim], uniformly distributed."""
        keys = jax.random.split(key, len(self.spaces))
        parts = [space.uniform(k, n) for space, k in zip(self.spaces, keys, strict=True)]
        return jnp.concatenate(parts, axis=-1)

    def project(self, x: Array) -> Array:
        """Projects each factor's coordinates of x [n, dim] to that factor."""
        pairs = zip(self.spaces, self.split(x), strict=True)
        return jnp.concatenate([space.project(part) for space, part in pairs], axis=-1)

    def center(self) -> Array:
        """Returns the factors' centers, one after the other."""
        return jnp.concatenate([space.center() for space in self.spaces])

    def split(self, x: Array) -> list[Array]:
        """Cuts x [n, dim] into the coordinates of each factor."""
        ends = [sum(s.dim for s in self.spaces[:i]) for i in range(1, len(self.spaces))]
        return jnp.split(x, ends, axis=-1)
