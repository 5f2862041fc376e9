"""Pairs of different images of a data set whose factors are known: of a known process."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Self

import jax.numpy as jnp
import numpy as np

from aninfonce_jax.data.matching import MatchedOrder
from aninfonce_jax.data.order import ShuffledOrder
from aninfonce_jax.data.pipeline import Batches, ImageBatch, training_batches
from aninfonce_jax.data.source import factors_of, groups_of
from aninfonce_jax.placement import Rows
from aninfonce_jax.sources.images import ImagePairs
from aninfonce_jax.sources.source import PairSheet
from aninfonce_jax.types import Array, Pairs, PyTree

_ANCHOR, _POSITIVE = "anchor", "positive"


@dataclasses.dataclass(frozen=True)
class MatchedPairs(ImagePairs):
    """Images, and for each the one whose factors are nearest to a draw around its own.

    Attributes:
      concentration: Λ of the draw: one for all factors, or one for each.
    """

    concentration: tuple[float, ...] = dataclasses.field(default=(1.0,), kw_only=True)

    def fed(self, batch_size: int) -> PyTree:
        """Returns the shapes of two batches of images."""
        return dict.fromkeys((_ANCHOR, _POSITIVE), super().fed(batch_size))

    def open_feed(  # type: ignore[override]
        self, rows: Rows, *, seed: int, step: int
    ) -> "_Together":
        """Returns shuffled batches, and those of their second views: functions of seed and step."""
        factors = factors_of(self.train)
        assert factors is not None
        order = MatchedOrder(
            ShuffledOrder(len(self.train), seed),
            factors,
            groups_of(self.train),
            np.broadcast_to(self.concentration, factors.shape[1]),
            seed,
        )
        anchors = super().open_feed(rows, seed=seed, step=step)
        positives = training_batches(
            self.train, self.decoder, rows, seed=seed, start=step, loading=self.loading, order=order
        )
        return _Together({_ANCHOR: anchors, _POSITIVE: positives})

    def pairs(self, key: Array, fed: PyTree, batch_size: int) -> Pairs:
        """Returns the images as they are, and the numbers of the anchors."""
        del key, batch_size
        anchors, positives = fed[_ANCHOR], fed[_POSITIVE]
        views = self.plain_views(anchors), self.plain_views(positives)
        return Pairs(*views, number=jnp.asarray(anchors.index))

    def preview(self, key: Array, count: int) -> PairSheet:
        """Returns images of the test split, each with its second view."""
        del key
        shown = dataclasses.replace(self, train=self.test)
        with shown.open_feed(Rows(min(count, len(self.test))), seed=0, step=0) as feed:
            fed = next(feed)
        columns = {}
        for name, batch in fed.items():
            images = np.asarray(batch.image)
            captions = [self.test.class_names[label] for label in np.asarray(batch.label)]
            columns[name] = (np.repeat(images, 3 // images.shape[-1], axis=-1), captions)
        return PairSheet(f"{self.test.name}, {self.augmentation}", columns)


class _Together:
    """Several feeds, a batch of each at a time."""

    def __init__(self, feeds: Mapping[str, Batches]) -> None:
        self._feeds = feeds

    @property
    def unreadable(self) -> Mapping[int, str]:
        """Which images had to be passed over so far, and why."""
        joined: dict[int, str] = {}
        for feed in self._feeds.values():
            joined |= feed.unreadable
        return joined

    def __iter__(self) -> Iterator[dict[str, ImageBatch]]:
        return self

    def __next__(self) -> dict[str, ImageBatch]:
        return {name: next(feed) for name, feed in self._feeds.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for feed in self._feeds.values():
            feed.close()
