"""Objectives: what turns an encoder and a batch of pairs into a number to minimise.

An objective owns its own parameters (Λ̂, a temperature), separate from the encoder's, and
sees the encoder only by its embeddings. So one encoder can serve several objectives at once.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from aninfonce_jax.config_schema import DgpConfig, ObjectiveConfig
from aninfonce_jax.losses import contrast
from aninfonce_jax.losses.sharded import over_mesh
from aninfonce_jax.mesh import DATA_AXIS
from aninfonce_jax.models.heads import from_positive, to_positive
from aninfonce_jax.types import Array, LossOutput, Pairs, Params

Metrics = Mapping[str, Array]


class Objective(Protocol):
    """What the training step needs of an objective."""

    def init(self, key: Array) -> Params:
        """Returns the objective's own parameters."""
        ...

    def __call__(
        self, params: Params, view1: Array, view2: Array, pairs: Pairs, mesh: Mesh
    ) -> tuple[Array, Metrics]:
        """Returns the loss of pairs that are spread over the mesh, and scalars to log.

        Args:
          params: the objective's own.
          view1: embeddings of the pairs' first views, [batch, dim].
          view2: embeddings of their second views.
          pairs: what was embedded.
          mesh: over which the batch is spread.
        """
        ...

    def concentration(self, params: Params) -> Array | None:
        """Returns the Λ̂ [dim] that the objective has learned, where it learns one."""
        ...


def join_views(pairs: Pairs) -> Array:
    """Returns both views as one batch, for one pass through the encoder.

    The views are interleaved rather than concatenated: then a batch that is split over
    devices stays where it is.
    """
    stacked = jnp.stack([pairs.view1, pairs.view2], axis=1)
    return stacked.reshape(-1, *stacked.shape[2:])


def split_views(embeddings: Array) -> tuple[Array, Array]:
    """Undoes `join_views` for embeddings [2 * batch, dim]."""
    views = embeddings.reshape(-1, 2, embeddings.shape[-1])
    return views[:, 0], views[:, 1]


class Contrastive:
    """InfoNCE, AnInfoNCE or the Lp loss, with what of them is trained."""

    def __init__(self, config: ObjectiveConfig, dim: int) -> None:
        self._config = config
        # AnInfoNCE trains a Λ̂ for each factor, InfoNCE one 1/τ for all.
        self._anisotropic = config.kind in ("aninfonce", "aninfonce_no_l2")
        one = int(config.kind == "infonce" and config.train_temperature)
        self._trained = dim if self._anisotropic else one
        self._dim = dim

    def init(self, key: Array) -> Params:
        """Returns {"concentration": free parameters}, or {} where nothing is trained."""
        if not self._trained:
            return {}
        config = self._config
        start = from_positive(
            jnp.float32(config.concentration_start), config.concentration_transform
        )
        noise = jax.random.normal(key, (self._trained,), jnp.float32)
        return {"concentration": start + config.concentration_jitter * noise}

    @property
    def normalize(self) -> bool:
        """Whether embeddings are compared on the unit sphere."""
        return self._config.normalize and self._config.kind != "aninfonce_no_l2"

    def __call__(
        self, params: Params, view1: Array, view2: Array, pairs: Pairs, mesh: Mesh
    ) -> tuple[Array, Metrics]:
        """Returns the loss and its parts."""
        del pairs
        out = self.loss(params, view1, view2, mesh)
        metrics = {"alignment": out.alignment, "uniformity": out.uniformity, **out.metrics}
        return out.loss, metrics

    def loss(self, params: Params, view1: Array, view2: Array, mesh: Mesh) -> LossOutput:
        """Returns the loss of embeddings [batch, dim] that are spread over the mesh."""
        config = self._config
        if config.kind == "lp":
            return contrast.lp_loss(
                view1,
                view2,
                p=config.exponent,
                temperature=config.temperature,
                negatives=config.negatives,
                reduction=config.reduction,
            )

        def loss(view1: Array, view2: Array, parameter: Array, *, axis_name: str) -> LossOutput:
            settings: dict[str, Any] = {
                "negatives": config.negatives,
                "normalize": self.normalize,
                "hardness": config.hardness,
                "axis_name": axis_name,
                "strategy": config.strategy,
                "chunk_size": config.chunk_size or None,
            }
            if self._anisotropic:
                return contrast.aninfonce_loss(view1, view2, parameter, **settings)
            return contrast.infonce_loss(view1, view2, temperature=parameter, **settings)

        return over_mesh(loss, mesh, DATA_AXIS)(view1, view2, self._parameter(params))

    def concentration(self, params: Params) -> Array | None:
        """Returns Λ̂ [dim], where it is trained; a single trained 1/τ counts for every factor."""
        if not self._trained:
            return None
        return jnp.broadcast_to(self._positive(params), (self._dim,))

    def _parameter(self, params: Params) -> Array:
        """Returns Λ̂ or τ."""
        if self._anisotropic:
            return self._positive(params)
        if self._trained:
            return 1 / self._positive(params)[0]
        return jnp.float32(self._config.temperature)

    def _positive(self, params: Params) -> Array:
        return to_positive(params["concentration"], self._config.concentration_transform)


class Supervised:
    """Mean squared error to the true latents: the upper bound of what f can recover."""

    def init(self, key: Array) -> Params:
        """Returns no parameters."""
        del key
        return {}

    def __call__(
        self, params: Params, view1: Array, view2: Array, pairs: Pairs, mesh: Mesh
    ) -> tuple[Array, Metrics]:
        """Returns the error of both views."""
        del params, mesh
        if pairs.latents1 is None or pairs.latents2 is None:
            raise ValueError("a supervised objective needs pairs with known latents")
        embeddings = jnp.stack([view1, view2])
        latents = jnp.stack([pairs.latents1, pairs.latents2])
        error = jnp.mean(jnp.sum(jnp.square(embeddings - latents), axis=-1))
        return error, {}

    def concentration(self, params: Params) -> None:
        """Returns None: nothing is believed about Λ."""


def build_objective(config: ObjectiveConfig, dim: int) -> Contrastive | Supervised:
    """Returns the objective of a config for embeddings of dimension `dim`."""
    return Supervised() if config.kind == "supervised" else Contrastive(config, dim)


def ground_truth_loss(
    config: ObjectiveConfig, dgp: DgpConfig, concentration: Array
) -> Callable[[Array, Array], Array] | None:
    """Returns the loss of a perfect encoder: the floor under every contrastive run.

    The best possible score of a pair is log p(z⁺|z) - log q(z⁺) up to a function of z, where
    q is the density of the negatives. If q is uniform, the floor is the loss of the true
    latents scored by the true conditional, whatever score the trained objective is
    restricted to. Negatives from both views, or the paper's sampler, are nearly so: at
    d = 10 they move the best Λ̂ by up to 3 %, the floor by less than 0.01.

    Args:
      config: the objective; its choice of negatives decides the floor.
      dgp: the data-generating process that made the latents.
      concentration: the true Λ [dim].

    Returns:
      A function from the latents of both views [batch, dim] to the floor's estimate, or
      None where the true score is not the best: anchors that are not uniform, a conditional
      without a closed form, and losses that other scores minimise in batches of any size
      (hard negatives) or of practical sizes (the mean over the keys alone).
    """
    if config.kind == "supervised":
        return lambda latents1, latents2: jnp.zeros(())
    averages_keys = config.kind == "lp" and config.reduction == "logmeanexp"
    if dgp.marginal != "uniform" or config.hardness or averages_keys:
        return None
    if dgp.conditional in ("anisotropic", "vmf"):
        # A von Mises–Fisher's κ goes with the angle, whatever the radius.
        per_angle = 1 / dgp.radius**2 if dgp.conditional == "vmf" else 1.0
        return lambda latents1, latents2: (
            contrast.aninfonce_loss(
                latents1,
                latents2,
                per_angle * concentration,
                negatives=config.negatives,
                normalize=False,
            ).loss
        )
    exponents = {"laplace": 1.0, "normal": 2.0, "generalized_normal": dgp.conditional_exponent}
    truncated = dgp.space == "box" and dgp.box_boundary == "reject"
    if not truncated or dgp.conditional not in exponents:
        return None
    p = exponents[dgp.conditional]
    scale = concentration[None] ** (1 / p)
    return lambda latents1, latents2: (
        contrast.lp_loss(
            latents1 * scale, latents2 * scale, p=p, temperature=p, negatives=config.negatives
        ).loss
    )
