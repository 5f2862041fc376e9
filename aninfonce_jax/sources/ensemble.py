"""Several sources of pairs at once, which one encoder learns from."""

import dataclasses
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from aninfonce_jax.placement import Rows
from aninfonce_jax.sources.source import HostFeed, Known, Latents, PairSheet, RowForm, Source
from aninfonce_jax.types import Array, Pairs, PyTree


@dataclasses.dataclass(frozen=True, eq=False)
class EnsembleSource(Source):
    """Members that make pairs of the same observations, each in its own way.

    An ensemble of one gives the very pairs of its member.

    Attributes:
      whole: what all members have in common: it is fed, and says what is known and how pairs look.
      members: each makes its pairs of what `whole` is fed.
    """

    whole: Source
    members: Sequence[Source]

    def __post_init__(self) -> None:
        if not self.members:
            raise ValueError("an ensemble has at least one member, got none")
        shapes = [tuple(member.example().shape[1:]) for member in (self.whole, *self.members)]
        if len(set(shapes)) > 1:
            raise ValueError(
                f"members of an ensemble share one encoder, so one shape of observations; got "
                f"{', '.join(map(str, dict.fromkeys(shapes)))}"
            )
        dims = sorted({len(own) for own in self._concentrations()})
        if len(dims) > 1:
            raise ValueError(
                "members of an ensemble share their factors; got concentrations of "
                f"{' and '.join(map(str, dims))} factors"
            )

    def _concentrations(self) -> tuple[np.ndarray, ...]:
        """Returns the Λ of every member that has one."""
        known = [member.known.latents for member in self.members]
        values = [None if latents is None else latents.concentration for latents in known]
        return tuple(own for own in values if own is not None)

    @property
    def name(self) -> str:
        """That of what the members have in common."""
        return self.whole.name

    @property
    def known(self) -> Known:
        """What is known of the whole, and the Λ of every member."""
        known, own = self.whole.known, self._concentrations()
        if known.latents is None:
            return known
        if len(self.members) == 1:
            latents = dataclasses.replace(known.latents, members=own)
        else:  # no single Λ is that of all pairs
            latents = Latents(
                known.latents.draw, members=own, draw_shifted=known.latents.draw_shifted
            )
        return dataclasses.replace(known, latents=latents)

    @property
    def pair_count(self) -> int | None:
        """That of the whole."""
        return self.whole.pair_count

    @property
    def row_form(self) -> RowForm:
        """That of the whole."""
        return self.whole.row_form

    def fingerprint(self) -> str:
        """Returns those of the whole and of its members, each once."""
        own = [source.fingerprint() for source in (self.whole, *self.members)]
        return ", ".join(dict.fromkeys(filter(None, own)))

    def example(self) -> Array:
        """Returns two observations."""
        return self.whole.example()

    def fed(self, batch_size: int) -> PyTree:
        """Returns what the whole is fed, once for all members."""
        return self.whole.fed(batch_size)

    def open_feed(self, rows: Rows, *, seed: int, step: int) -> HostFeed | Iterator[PyTree]:
        """Returns the feed of the whole."""
        return self.whole.open_feed(rows, seed=seed, step=step)

    def pairs(self, key: Array, fed: PyTree, batch_size: int) -> Pairs:
        """Returns the pairs of every member, as many each, drawn independently."""
        # Far from the numbers that a source folds into its key for itself.
        keys = [jax.random.fold_in(key, 2**16 + place) for place in range(len(self.members))]
        keys[0] = key
        made = tuple(
            member.pairs(own, fed, batch_size)
            for member, own in zip(self.members, keys, strict=True)
        )
        return dataclasses.replace(made[0], members=made)

    def of_members(self) -> Sequence[Source]:
        """Returns the members."""
        return self.members

    def held_out(self, batch_size: int) -> "EnsembleSource | None":
        """Returns the members on pairs that training does not see."""
        apart = [source.held_out(batch_size) for source in (self.whole, *self.members)]
        found = [source for source in apart if source is not None]
        return EnsembleSource(found[0], found[1:]) if len(found) == len(apart) else None

    def with_held_out(self, count: int) -> "EnsembleSource":
        """Returns the ensemble with about `count` pairs of what it is fed kept from training."""
        # One that is the whole and a member, too, is split once.
        sources = {id(source): source for source in (self.whole, *self.members)}
        apart = {key: source.with_held_out(count) for key, source in sources.items()}
        return EnsembleSource(apart[id(self.whole)], [apart[id(x)] for x in self.members])

    def at_hand(self, count: int) -> list[np.ndarray]:
        """Returns the observations of the whole that can be looked at before training."""
        return self.whole.at_hand(count)

    def preview(self, key: Array, count: int) -> PairSheet | None:
        """Returns pairs of the whole."""
        return self.whole.preview(key, count)

    def samples(self, key: Array, count: int) -> np.ndarray | None:
        """Returns pairs of the whole."""
        return self.whole.samples(key, count)
