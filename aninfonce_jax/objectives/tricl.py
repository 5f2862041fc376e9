"""Tri-factor contrastive learning: what the paper compares AnInfoNCE with in its Fig. 12."""

import dataclasses
from typing import Literal

import jax.numpy as jnp
import numpy as np

from aninfonce_jax.losses import contrast
from aninfonce_jax.losses.sharded import over_mesh
from aninfonce_jax.losses.tricl import decorrelation_penalty, spectral_tri_loss
from aninfonce_jax.models.heads import from_positive, to_positive
from aninfonce_jax.objectives.objective import Encode, Metrics, Objective, join_views, split_views
from aninfonce_jax.placement import Placement
from aninfonce_jax.sources.source import Latents
from aninfonce_jax.types import Array, Pairs, Params


@dataclasses.dataclass(frozen=True)
class TriCL(Objective):
    """Pairs are scored by zᵀ S z', with a trained diagonal S and features z kept uncorrelated.

    Attributes:
      form: of the contrast: InfoNCE's softmax over the anchors, or the spectral one.
      decorrelation: weight of ‖mean of z zᵀ - I‖² over both views.
      normalize: whether features are first scaled to length √dim, where they can have I as their
        second moment.
      importance_start: S at the start.
    """

    form: Literal["infonce", "spectral"] = "infonce"
    decorrelation: float = 1.0
    normalize: bool = True
    importance_start: float = 1.0

    def init(self, key: Array, dim: int) -> Params:
        """Returns the logarithms of S, [dim]."""
        del key
        return {"importance": from_positive(jnp.full(dim, self.importance_start), "exp")}

    def __call__(
        self, params: Params, encode: Encode, pairs: Pairs, key: Array, placement: Placement
    ) -> tuple[Array, Metrics]:
        """Returns the contrast and the penalty."""
        del key
        features = encode(join_views(pairs)).astype(jnp.float32)
        if self.normalize:
            lengths = jnp.linalg.norm(features, axis=1, keepdims=True)
            features = features * (features.shape[1] ** 0.5 / jnp.maximum(lengths, 1e-12))
        importance = to_positive(params["importance"], "exp")
        contrasted = self._contrast(*split_views(features), importance, placement)
        penalty = decorrelation_penalty(features)
        metrics = {"contrast": contrasted, "decorrelation": penalty}
        return contrasted + self.decorrelation * penalty, metrics

    def _contrast(
        self, view1: Array, view2: Array, importance: Array, placement: Placement
    ) -> Array:
        if self.form == "spectral":
            return spectral_tri_loss(view1, view2, importance)
        root = jnp.sqrt(importance)[None]
        loss = over_mesh(contrast.infonce_loss, placement.mesh, placement.axis_name)
        out = loss(
            root * view1,
            root * view2,
            temperature=jnp.float32(1.0),
            negatives="anchors",
            normalize=False,
        )
        return out.loss

    def concentration(self, params: Params, dim: int) -> Array | None:
        """Returns S [dim]: of scores zᵀ S z', so no Λ̂ that could be compared with Λ."""
        del dim
        return to_positive(params["importance"], "exp")

    def target(self, latents: Latents) -> np.ndarray | None:
        """Returns None: theory does not say what S becomes of a Λ."""
        del latents
        return None
