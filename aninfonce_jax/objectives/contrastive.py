"""Contrastive objectives: AnInfoNCE, InfoNCE and the Lp loss, with what of them is trained."""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from aninfonce_jax.losses import contrast
from aninfonce_jax.losses.centring import centring_penalty
from aninfonce_jax.losses.keeping import keeping_penalty
from aninfonce_jax.losses.plan import Strategy
from aninfonce_jax.losses.sharded import over_mesh
from aninfonce_jax.losses.spreading import spreading_penalty
from aninfonce_jax.models.heads import Transform, from_positive, to_positive
from aninfonce_jax.objectives.objective import Encode, Metrics, Objective, join_views, split_views
from aninfonce_jax.placement import Placement
from aninfonce_jax.scores.registry import LOSS
from aninfonce_jax.sources.source import PowerScore
from aninfonce_jax.types import Array, LossOutput, Pairs, Params

# The share of a run after which a penalty of its early part is gone. Keeping what observations
# tell is not what the optimum does, so that goes first.
_GONE_AT = {"centring": 1.0, "spreading": 0.5, "keeping": 0.25}

Negatives = Literal["both", "anchors"]
Reduction = Literal["logsumexp", "logmeanexp"]


class Contrastive(Objective):
    """What contrastive objectives have in common: they compare the two views of each pair."""

    negatives: Negatives

    def __call__(
        self, params: Params, encode: Encode, pairs: Pairs, key: Array, placement: Placement
    ) -> tuple[Array, Metrics]:
        """Returns the loss and its parts."""
        del key
        return self._of_embeddings(params, encode(join_views(pairs)), placement)

    def _of_embeddings(
        self, params: Params, embeddings: Array, placement: Placement
    ) -> tuple[Array, Metrics]:
        out = self.loss(params, *split_views(embeddings), placement)
        metrics = {"alignment": out.alignment, "uniformity": out.uniformity, **out.metrics}
        return out.loss, metrics

    @abc.abstractmethod
    def loss(self, params: Params, view1: Array, view2: Array, placement: Placement) -> LossOutput:
        """Returns the loss of embeddings [batch, dim] that are spread over the devices."""

    def keys(self, batch_size: int) -> int:
        """Returns how many keys an anchor has, its positive among them."""
        return batch_size if self.negatives == "anchors" else 2 * batch_size - 1

    def chance(self, batch_size: int) -> float | None:
        """Returns the loss of an anchor to which all its keys are alike."""
        return math.log(self.keys(batch_size))

    def largest_gain(self, batch_size: int) -> float:
        """Returns the gain of an anchor that is sure of its positive."""
        return math.log(self.keys(batch_size))


def _perfect_loss(score: PowerScore, negatives: Negatives) -> Callable[[Array, Array], Array]:
    """Returns the loss of the true latents under the true score; see `Objective.floor`."""
    concentration, p = jnp.asarray(score.concentration, jnp.float32), score.exponent
    if p == 2:
        return lambda latents1, latents2: (
            contrast.aninfonce_loss(
                latents1, latents2, concentration, negatives=negatives, normalize=False
            ).loss
        )
    scale = concentration[None] ** (1 / p)
    return lambda latents1, latents2: (
        contrast.lp_loss(
            latents1 * scale, latents2 * scale, p=p, temperature=p, negatives=negatives
        ).loss
    )


@dataclasses.dataclass(frozen=True)
class InfoNCE(Contrastive):
    """InfoNCE: pairs are scored by their scalar product over a temperature.

    Attributes:
      temperature: τ; where it is trained, at the start.
      train_temperature: whether 1/τ is learned.
      negatives: from the anchors only, which theory is exact for, or from both views.
      normalize: whether embeddings are compared on the unit sphere.
      hardness: β: negatives count in proportion to exp(β · score); 0: all alike.
      debias: τ⁺: the share of negatives that are taken for false ones; 0: no correction.
      strategy: how the scores of all pairs are computed; the result is the same.
      chunk_size: side of a tile of chunked scores; 0: chosen by size.

    Example:
      >>> model = an.AnInfoNCE(dim=2, objective=an.objectives.InfoNCE(temperature=0.1))
    """

    temperature: float = 1.0
    train_temperature: bool = False
    negatives: Negatives = "anchors"
    normalize: bool = True
    hardness: float = 0.0
    debias: float = 0.0
    strategy: Strategy = "auto"
    chunk_size: int = 0

    def init(self, key: Array, dim: int) -> Params:
        """Returns the logarithm of 1/τ, where it is trained."""
        del key, dim
        if not self.train_temperature:
            return {}
        return {"concentration": from_positive(jnp.full(1, 1 / self.temperature), "exp")}

    def loss(self, params: Params, view1: Array, view2: Array, placement: Placement) -> LossOutput:
        """Returns the loss of embeddings [batch, dim] that are spread over the devices."""
        temperature = jnp.float32(self.temperature)
        if self.train_temperature:
            temperature = 1 / to_positive(params["concentration"], "exp")[0]
        loss = over_mesh(contrast.infonce_loss, placement.mesh, placement.axis_name)
        return loss(view1, view2, temperature=temperature, **_settings(self))

    @property
    def compares_directions(self) -> bool:
        """Whether embeddings are compared on the unit sphere."""
        return self.normalize

    def compared(self, embeddings: Array) -> Array:
        """Returns embeddings on the unit sphere, if that is where they are compared."""
        return _on_sphere(embeddings) if self.normalize else embeddings

    def largest_gain(self, batch_size: int) -> float:
        """Returns the gain of an anchor that is sure of its positive, as far as τ allows."""
        gain = super().largest_gain(batch_size)
        if self.normalize and not self.train_temperature:
            # Cosines lie between -1 and 1, so that scores can't differ by more.
            gain = min(gain, 2 / self.temperature)
        return gain

    def concentration(self, params: Params, dim: int) -> Array | None:
        """Returns a trained 1/τ, which counts for every factor alike."""
        if not self.train_temperature:
            return None
        return jnp.broadcast_to(to_positive(params["concentration"], "exp"), (dim,))

    def floor(self, score: PowerScore | None) -> Callable[[Array, Array], Array] | None:
        """Returns the loss of the true score; None where negatives count by their score."""
        weighs = self.hardness or self.debias
        return None if weighs or score is None else _perfect_loss(score, self.negatives)


@dataclasses.dataclass(frozen=True)
class AnInfoNCE(Contrastive):
    """AnInfoNCE: pairs are scored by -½ (a - b)ᵀ Λ̂ (a - b), with Λ̂ trained along.

    Attributes:
      concentration_start: Λ̂ at the start.
      concentration_jitter: standard deviation of the free parameter around its start.
      concentration_transform: how the free parameter becomes a positive Λ̂.
      negatives: from the anchors only, which theory is exact for, or from both views.
      normalize: whether embeddings are compared on the unit sphere.
      hardness: β: negatives count in proportion to exp(β · score); 0: all alike.
      debias: τ⁺: the share of negatives that are taken for false ones; 0: no correction.
      strategy: how the scores of all pairs are computed; the result is the same.
      chunk_size: side of a tile of chunked scores; 0: chosen by size.
      centring: weight at the start of `centring_penalty`, which keeps training from folding a
        weak factor away; it falls to zero over the run.
      spreading: weight at the start of `spreading_penalty`, which keeps training from giving a
        weak factor up for functions of the others; it falls to zero over the first half of the run.
      keeping: weight at the start of `keeping_penalty`, which does so where some factors are held
        far more tightly than others; it falls to zero over the first quarter of the run.

    Example:
      >>> objective = an.objectives.AnInfoNCE(concentration_start=0.5)
      >>> objective.concentration(objective.init(jax.random.key(0), dim=2), 2).round(3).tolist()
      [0.5, 0.5]
    """

    concentration_start: float = 0.7
    concentration_jitter: float = 0.0
    concentration_transform: Transform = "exp"
    negatives: Negatives = "anchors"
    normalize: bool = True
    hardness: float = 0.0
    debias: float = 0.0
    strategy: Strategy = "auto"
    chunk_size: int = 0
    centring: float = 0.0
    spreading: float = 0.0
    keeping: float = 0.0

    def __post_init__(self) -> None:
        for name, weight in self._penalties().items():
            if weight and not self.normalize:
                raise ValueError(
                    f"{name} is for embeddings on the sphere, got {name}={weight} with "
                    "normalize=False; set one of the two"
                )

    def in_training(
        self,
        params: Params,
        encode: Encode,
        pairs: Pairs,
        key: Array,
        placement: Placement,
        progress: Array,
    ) -> tuple[Array, Metrics]:
        """Returns the loss with the penalties, whose weights fall to zero on the way."""
        if not any(self._penalties().values()):
            return self(params, encode, pairs, key, placement)
        embeddings = encode(join_views(pairs))
        loss, metrics = self._of_embeddings(params, embeddings, placement)
        # Two penalties look at the anchors alone: it is they that are spread evenly at the optimum.
        anchors, _ = split_views(embeddings)
        values = {
            "centring": lambda: centring_penalty(embeddings),
            "spreading": lambda: _spreading(anchors, placement),
            "keeping": lambda: keeping_penalty(anchors, pairs.view1),
        }
        weights = {name: weight for name, weight in self._penalties().items() if weight}
        found = {name: values[name]() for name in weights}
        whole = loss
        for name, weight in weights.items():
            whole = whole + weight * _remaining(progress / _GONE_AT[name]) * found[name]
        return whole, {LOSS.key: loss, **found, **metrics}

    def _penalties(self) -> dict[str, float]:
        """Returns the weights of what is added to the loss early in training, by name."""
        return {name: getattr(self, name) for name in _GONE_AT}

    def init(self, key: Array, dim: int) -> Params:
        """Returns the free parameters of Λ̂, [dim]."""
        start = from_positive(jnp.float32(self.concentration_start), self.concentration_transform)
        noise = jax.random.normal(key, (dim,), jnp.float32)
        return {"concentration": start + self.concentration_jitter * noise}

    def loss(self, params: Params, view1: Array, view2: Array, placement: Placement) -> LossOutput:
        """Returns the loss of embeddings [batch, dim] that are spread over the devices."""
        loss = over_mesh(contrast.aninfonce_loss, placement.mesh, placement.axis_name)
        return loss(view1, view2, self._positive(params), **_settings(self))

    @property
    def compares_directions(self) -> bool:
        """Whether embeddings are compared on the unit sphere."""
        return self.normalize

    def compared(self, embeddings: Array) -> Array:
        """Returns embeddings on the unit sphere, if that is where they are compared."""
        return _on_sphere(embeddings) if self.normalize else embeddings

    def concentration(self, params: Params, dim: int) -> Array | None:
        """Returns Λ̂ [dim]."""
        del dim
        return self._positive(params)

    def floor(self, score: PowerScore | None) -> Callable[[Array, Array], Array] | None:
        """Returns the loss of the true score; None where negatives count by their score."""
        weighs = self.hardness or self.debias
        return None if weighs or score is None else _perfect_loss(score, self.negatives)

    def _positive(self, params: Params) -> Array:
        return to_positive(params["concentration"], self.concentration_transform)


@dataclasses.dataclass(frozen=True)
class LpLoss(Contrastive):
    """The Lp loss: pairs are scored by -‖a - b‖ₚᵖ over a temperature.

    Attributes:
      exponent: p.
      temperature: τ.
      negatives: from the anchors only, which theory is exact for, or from both views.
      reduction: over the keys and the positive, or the mean over the keys alone.

    Example:
      >>> model = an.AnInfoNCE(dim=2, objective=an.objectives.LpLoss(exponent=1.0))
    """

    exponent: float = 2.0
    temperature: float = 1.0
    negatives: Negatives = "anchors"
    reduction: Reduction = "logsumexp"

    def loss(self, params: Params, view1: Array, view2: Array, placement: Placement) -> LossOutput:
        """Returns the loss of embeddings [batch, dim] that are spread over the devices."""
        del params, placement
        return contrast.lp_loss(
            view1,
            view2,
            p=self.exponent,
            temperature=self.temperature,
            negatives=self.negatives,
            reduction=self.reduction,
        )

    def chance(self, batch_size: int) -> float | None:
        """Returns the loss of an anchor to which all its keys are alike."""
        return 0.0 if self.reduction == "logmeanexp" else super().chance(batch_size)

    def floor(self, score: PowerScore | None) -> Callable[[Array, Array], Array] | None:
        """Returns the loss of the true score; None for means over the keys alone.

        In batches of practical sizes other scores make those smaller.
        """
        if score is None or self.reduction == "logmeanexp":
            return None
        return _perfect_loss(score, self.negatives)


def _settings(objective: InfoNCE | AnInfoNCE) -> dict[str, Any]:
    """Returns what both losses take alike."""
    return {
        "negatives": objective.negatives,
        "normalize": objective.normalize,
        "hardness": objective.hardness,
        "debias": objective.debias,
        "strategy": objective.strategy,
        "chunk_size": objective.chunk_size or None,
    }


def _spreading(anchors: Array, placement: Placement) -> Array:
    """Returns the penalty of anchors whose rows are spread over the devices."""
    if placement.size == 1:
        return spreading_penalty(anchors)
    name = placement.axis_name
    # Each pairs its own rows with all; the compiler would cut the loop over tiles another way.
    local = functools.partial(spreading_penalty, axis_name=name)
    specs: dict[str, Any] = {"in_specs": PartitionSpec(name), "out_specs": PartitionSpec()}
    return jax.shard_map(local, mesh=placement.mesh, **specs)(anchors)


def _remaining(progress: Array) -> Array:
    """Returns what is left of a weight that falls from one to zero, along half a cosine."""
    return (1 + jnp.cos(jnp.pi * jnp.minimum(progress, 1))) / 2


def _on_sphere(embeddings: Array) -> Array:
    """Returns embeddings of length one: to the loss their length means nothing."""
    return embeddings / jnp.maximum(jnp.linalg.norm(embeddings, axis=1, keepdims=True), 1e-12)
