"""Ensembles: several objectives on pairs of their own share one encoder (Cor. 3.2)."""

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence

import jax
import numpy as np

from aninfonce_jax.models.encoder import Encoder
from aninfonce_jax.objectives.objective import Encode, Metrics, Objective
from aninfonce_jax.placement import Placement
from aninfonce_jax.scores.registry import LOSS, member_entry, member_name
from aninfonce_jax.sources.source import Latents, PowerScore, Source
from aninfonce_jax.types import Array, Pairs, Params

# The loss of one member and what it logs, from its parameters, its pairs and its key.
_MemberLoss = Callable[[Objective, Params, Pairs, Array], tuple[Array, Metrics]]


@dataclasses.dataclass(frozen=True)
class Ensemble(Objective):
    """The weighted sum of the losses of its members, each with parameters and pairs of its own.

    An ensemble of one, of weight 1, is its member to the last bit.

    Attributes:
      members: the objectives.
      weights: of their losses; (): all 1.
    """

    members: Sequence[Objective]
    weights: Sequence[float] = ()

    def __post_init__(self) -> None:
        if not self.members:
            raise ValueError("an ensemble has at least one member, got none")
        if self.weights and len(self.weights) != len(self.members):
            raise ValueError(
                f"an ensemble of {len(self.members)} members needs as many weights, or none; got "
                f"{len(self.weights)}"
            )

    @property
    def names(self) -> list[str]:
        """What the parameters and metrics of each member are called."""
        return [member_name(place) for place in range(1, len(self.members) + 1)]

    def for_run(self, source: Source, encoder: Encoder) -> "Ensemble":
        """Returns the ensemble with each member made for its own source."""
        own = tuple(x.for_run(y, encoder) for x, y in self._with_sources(source))
        if all(map(operator.is_, own, self.members)):
            return self
        return dataclasses.replace(self, members=own)

    def check(self, source: Source) -> None:
        """Raises NeedsError if a member's source does not tell what the member needs."""
        for member, own in self._with_sources(source):
            member.check(own)

    def _with_sources(self, source: Source) -> list[tuple[Objective, Source]]:
        """Returns every member with its own source or, if that is not known, with the whole."""
        sources = source.of_members()
        if len(sources) != len(self.members):
            sources = [source] * len(self.members)
        return list(zip(self.members, sources, strict=True))

    @property
    def tells_of_others(self) -> bool:
        """Whether every member's loss has a meaning for pairs that training does not see."""
        return all(member.tells_of_others for member in self.members)

    def init(self, key: Array, dim: int) -> Params:
        """Returns the parameters of every member, by name."""
        keys = self._keys(key)
        return {
            name: member.init(own, dim)
            for name, member, own in zip(self.names, self.members, keys, strict=True)
        }

    def __call__(
        self, params: Params, encode: Encode, pairs: Pairs, key: Array, placement: Placement
    ) -> tuple[Array, Metrics]:
        """Returns the sum of the members' losses; each encodes its own pairs."""

        def loss(
            member: Objective, own: Params, own_pairs: Pairs, own_key: Array
        ) -> tuple[Array, Metrics]:
            return member(own, encode, own_pairs, own_key, placement)

        return self._sum(loss, params, pairs, key)

    def in_training(
        self,
        params: Params,
        encode: Encode,
        pairs: Pairs,
        key: Array,
        placement: Placement,
        progress: Array,
    ) -> tuple[Array, Metrics]:
        """Returns the sum of what the members minimise in training."""

        def loss(
            member: Objective, own: Params, own_pairs: Pairs, own_key: Array
        ) -> tuple[Array, Metrics]:
            return member.in_training(own, encode, own_pairs, own_key, placement, progress)

        return self._sum(loss, params, pairs, key)

    def _sum(
        self, loss: _MemberLoss, params: Params, pairs: Pairs, key: Array
    ) -> tuple[Array, Metrics]:
        if len(pairs.members) != len(self.members):
            raise ValueError(
                f"an ensemble of {len(self.members)} objectives needs a source with as many "
                f"members, got pairs of {len(pairs.members)}; see an.EnsembleSource"
            )
        parts = zip(self.members, self.names, pairs.members, self._keys(key), strict=True)
        found = [loss(member, params[name], own, own_key) for member, name, own, own_key in parts]
        losses = [logged.get(LOSS.key, value) for value, logged in found]
        metrics = {LOSS.key: self._weighted(losses)}
        for place, (value, logged) in enumerate(found, start=1):
            entries = {LOSS.key: value, **logged}
            metrics |= {member_entry(place, key): x for key, x in entries.items()}
        return self._weighted([value for value, _ in found]), metrics

    def _weighted(self, losses: Sequence[Array]) -> Array:
        weights = self.weights or [1.0] * len(losses)
        return functools.reduce(operator.add, map(operator.mul, weights, losses))

    def _keys(self, key: Array) -> list[Array]:
        """Returns a key for each member; that of the first is the key itself."""
        return [key, *(jax.random.fold_in(key, i) for i in range(1, len(self.members)))]

    def compared(self, embeddings: Array) -> Array:
        """Returns embeddings as the first member compares them."""
        return self.members[0].compared(embeddings)

    @property
    def compares_directions(self) -> bool:
        """Whether the length of an embedding means nothing to any member."""
        return all(member.compares_directions for member in self.members)

    @property
    def has_directions(self) -> bool:
        """Whether directions can be held against the theorem: if they can for every member."""
        return all(member.has_directions for member in self.members)

    def concentration(self, params: Params, dim: int) -> Array | None:
        """Returns the Λ̂ of a single member; of several there is not one."""
        if len(self.members) > 1:
            return None
        return self.members[0].concentration(params[self.names[0]], dim)

    def member_concentrations(self, params: Params, dim: int) -> list[Array | None]:
        """Returns the Λ̂ [dim] of every member, where it learns one."""
        return [
            member.concentration(params[name], dim)
            for member, name in zip(self.members, self.names, strict=True)
        ]

    def target(self, latents: Latents) -> np.ndarray | None:
        """Returns the Λ̂ of a single member at its minimum."""
        return self.members[0].target(latents) if len(self.members) == 1 else None

    def floor(self, score: PowerScore | None) -> Callable[[Array, Array], Array] | None:
        """Returns the floor of a single member."""
        if len(self.members) > 1 or self.weights not in ((), (1.0,)):
            return None
        return self.members[0].floor(score)

    def keys(self, batch_size: int) -> int | None:
        """Returns how many keys an anchor of the first member has."""
        return self.members[0].keys(batch_size)

    def chance(self, batch_size: int) -> float | None:
        """Returns the loss of embeddings that tell no member anything."""
        chances = [member.chance(batch_size) for member in self.members]
        if any(chance is None for chance in chances):
            return None
        weights = self.weights or [1.0] * len(chances)
        return sum(w * c for w, c in zip(weights, chances, strict=True) if c is not None)

    def largest_gain(self, batch_size: int) -> float:
        """Returns how far below chance the sum could fall at the most."""
        gains = [member.largest_gain(batch_size) for member in self.members]
        weights = self.weights or [1.0] * len(gains)
        return sum(weight * gain for weight, gain in zip(weights, gains, strict=True))
