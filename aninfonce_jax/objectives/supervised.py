"""Regression to the true latents: the upper bound of what an encoder can recover."""

from collections.abc import Callable

import jax.numpy as jnp

from aninfonce_jax.objectives.objective import Encode, Metrics, Objective, join_views, split_views
from aninfonce_jax.placement import Placement
from aninfonce_jax.sources.source import PowerScore
from aninfonce_jax.types import Array, Pairs, Params


class Supervised(Objective):
    """Mean squared error to the latents of both views.

    Example:
      >>> an.objectives.Supervised().concentration({}, 2) is None  # it learns no Λ̂
      True
    """

    def __call__(
        self, params: Params, encode: Encode, pairs: Pairs, key: Array, placement: Placement
    ) -> tuple[Array, Metrics]:
        """Returns the error of both views."""
        del params, key, placement
        if pairs.latents1 is None or pairs.latents2 is None:
            raise ValueError("a supervised objective needs pairs with known latents")
        embeddings = jnp.stack(split_views(encode(join_views(pairs))))
        latents = jnp.stack([pairs.latents1, pairs.latents2])
        return jnp.mean(jnp.sum(jnp.square(embeddings - latents), axis=-1)), {}

    def floor(self, score: PowerScore | None) -> Callable[[Array, Array], Array]:
        """Returns zero: a perfect encoder makes no error, whatever the score."""
        del score
        return lambda latents1, latents2: jnp.zeros(())
