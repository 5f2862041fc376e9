"""Independent distributions on the factors of a product space, in its order."""

import dataclasses

import jax
import jax.numpy as jnp

from aninfonce_jax.dgp.conditionals import Conditional
from aninfonce_jax.dgp.errors import ProcessError
from aninfonce_jax.dgp.marginals import Marginal
from aninfonce_jax.dgp.spaces import Product, Space
from aninfonce_jax.types import Array, register_dataclass


@register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class ProductMarginal:
    """One marginal per factor."""

    parts: tuple[Marginal, ...]

    def check(self, space: Space) -> None:
        """Raises a ValueError if the parts do not fit the factors."""
        product = _product(space, len(self.parts))
        for part, factor in zip(self.parts, product.spaces, strict=True):
            part.check(factor)

    def sample(self, key: Array, space: Space, n: int) -> Array:
        """Returns n points of the space, [n, dim]."""
        product = _product(space, len(self.parts))
        keys = jax.random.split(key, len(self.parts))
        pieces = zip(self.parts, keys, product.spaces, strict=True)
        return jnp.concatenate([part.sample(k, factor, n) for part, k, factor in pieces], axis=-1)


@register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class ProductConditional:
    """One conditional per factor."""

    parts: tuple[Conditional, ...]

    def check(self, space: Space) -> None:
        """Raises a ValueError if the parts do not fit the factors."""
        product = _product(space, len(self.parts))
        for part, factor in zip(self.parts, product.spaces, strict=True):
            part.check(factor)

    def sample(self, key: Array, space: Space, anchors: Array) -> Array:
        """Returns one positive per anchor, [n, dim]."""
        product = _product(space, len(self.parts))
        keys = jax.random.split(key, len(self.parts))
        pieces = zip(self.parts, keys, product.spaces, product.split(anchors), strict=True)
        draws = [part.sample(k, factor, anchor) for part, k, factor, anchor in pieces]
        return jnp.concatenate(draws, axis=-1)

    def log_density(self, space: Space, anchors: Array, positives: Array) -> Array:
        """Returns log p(positive | anchor) + a function of the anchor, [n]."""
        product = _product(space, len(self.parts))
        pieces = zip(
            self.parts,
            product.spaces,
            product.split(anchors),
            product.split(positives),
            strict=True,
        )
        terms = [part.log_density(factor, a, b) for part, factor, a, b in pieces]
        return jnp.sum(jnp.stack(terms), axis=0)


def _product(space: Space, parts: int) -> Product:
    """Returns `space` if it is a product of as many factors as there are parts."""
    if not isinstance(space, Product) or len(space.spaces) != parts:
        raise ProcessError(f"Expected a product of {parts} spaces, got {space}.")
    return space
