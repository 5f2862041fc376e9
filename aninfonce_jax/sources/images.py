"""Images as a source of pairs: two augmented views of each."""

import dataclasses
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.data import interventions
from aninfonce_jax.data.augment import AugmentSpec, apply, augment, neutral_params
from aninfonce_jax.data.augment_words import describe_params
from aninfonce_jax.data.decode import Decoder
from aninfonce_jax.data.pipeline import (
    Batches,
    ImageBatch,
    Loading,
    evaluation_batches,
    training_batches,
)
from aninfonce_jax.data.source import ImageSource, Subset, factors_of, fingerprint_of
from aninfonce_jax.placement import Rows
from aninfonce_jax.sources.source import Examples, Known, PairSheet, RowForm, Source
from aninfonce_jax.types import Array, Intervention, Pairs, PyTree


@dataclasses.dataclass(frozen=True)
class ImagePairs(Source):
    """A data set, and the augmentations that make pairs of its images.

    Attributes:
      train: images to train on.
      test: images to score on.
      decoder: makes their pixels.
      spec: the augmentations.
      loading: how the work of loading is spread.
      augmentation: what the augmentations are called.
    """

    train: ImageSource
    test: ImageSource
    decoder: Decoder
    spec: AugmentSpec
    loading: Loading
    augmentation: str = "augmented"

    @property
    def name(self) -> str:
        """That of the data set."""
        return self.train.name

    @property
    def pair_count(self) -> int:
        """How many images there are to train on."""
        return len(self.train)

    @property
    def known(self) -> Known:
        """Images of both splits, their classes, and every single augmentation."""
        examples = Examples(
            train=ImageSet(self.train, self.decoder, self.loading),
            test=ImageSet(self.test, self.decoder, self.loading),
            observe=self.plain_views,
            classes=len(self.train.class_names),
            factors=None if factors_of(self.test) is None else _factors,
            views=self.augmented_views,
        )
        return Known(examples=examples, interventions=_augmentations(self.spec, self.decoder))

    @property
    def row_form(self) -> RowForm:
        """Images of bytes, as large as they are decoded."""

        def observe(rows: Array) -> Array:
            return self.plain_views(ImageBatch(rows, *[np.zeros(0)] * 3))

        shape = (self.decoder.size, self.decoder.size, self.decoder.channels)
        return RowForm(shape, is_bytes=True, observe=observe, resize=True)

    def fingerprint(self) -> str:
        """Returns a digest of both splits: their sizes, classes, and some of their examples."""
        return f"{fingerprint_of(self.train)}, {fingerprint_of(self.test)}"

    def example(self) -> Array:
        """Returns two empty views."""
        return jnp.zeros((2, self.spec.size, self.spec.size, self.decoder.channels))

    def fed(self, batch_size: int) -> PyTree:
        """Returns the shapes of a batch of images."""

        def column(dtype: Any, *shape: int) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((batch_size, *shape), dtype)

        size, channels = self.decoder.size, self.decoder.channels
        return ImageBatch(
            image=cast(Array, column(jnp.uint8, size, size, channels)),
            label=cast(Array, column(jnp.int32)),
            index=cast(Array, column(jnp.int32)),
            mask=cast(Array, column(jnp.bool_)),
        )

    def open_feed(self, rows: Rows, *, seed: int, step: int) -> Batches:
        """Returns shuffled batches without end: batch t is a function of the seed and t."""
        return training_batches(
            self.train, self.decoder, rows, seed=seed, start=step, loading=self.loading
        )

    def pairs(self, key: Array, fed: PyTree, batch_size: int) -> Pairs:
        """Returns two views of each image, what was done to them, and its number."""
        images = jnp.asarray(fed.image)
        assert images.shape[0] == batch_size
        pairs = augmented_pairs(key, images, self.spec)
        return dataclasses.replace(pairs, number=jnp.asarray(fed.index))

    def held_out(self, batch_size: int) -> "ImagePairs | None":
        """Returns pairs of the test images; None if they are fewer than a batch."""
        if len(self.test) < batch_size:
            return None
        return dataclasses.replace(self, train=self.test)

    def plain_views(self, batch: ImageBatch) -> Array:
        """Returns images as the encoder takes them, without augmentation; may be traced."""
        images = jnp.asarray(batch.image)
        neutral = neutral_params(images.shape[0])
        return _like(images, apply(_in_colour(images), neutral, self.spec, operations=()))

    def augmented_views(self, key: Array, batch: ImageBatch) -> Array:
        """Returns an augmented view of each image; may be traced."""
        return augmented_pairs(key, jnp.asarray(batch.image), self.spec).view1

    def preview(self, key: Array, count: int) -> PairSheet:
        """Returns images of the test split with two views of each, and what was done to them."""
        chosen = ImageSet(self.test, self.decoder, self.loading).choose(count, seed=0)
        with chosen.batches(Rows(len(chosen))) as batches:
            batch = next(batches)
        images = np.asarray(_in_colour(np.asarray(batch.image)[batch.mask]))
        height, width = images.shape[1:3]
        columns = {"original": (images, [f"{width} × {height} pixels"] * len(images))}
        make_views = jax.jit(augment, static_argnums=2)
        for heading, view_key in zip(("view 1", "view 2"), jax.random.split(key), strict=True):
            views, params = make_views(view_key, images, self.spec)
            words = describe_params(params, aspect=width / height)
            columns[heading] = (np.asarray(views), words)
        return PairSheet(f"{self.test.name}, {self.augmentation}", columns)


@dataclasses.dataclass(frozen=True)
class ImageSet:
    """Images to encode one by one, in their order.

    Attributes:
      images: which.
      decoder: makes their pixels.
      loading: how the work of loading is spread.
    """

    images: ImageSource
    decoder: Decoder
    loading: Loading

    def __len__(self) -> int:
        return len(self.images)

    def choose(self, count: int, seed: int) -> "ImageSet":
        """Returns `count` images, drawn without replacement; 0 or too many: all.

        In drawn order in any case: folders come sorted by class, and a readout keeps the last
        examples for validation.
        """
        # Raw generator output, which every version of NumPy gives alike.
        draws = np.random.Philox(np.random.SeedSequence([seed])).random_raw(len(self))
        order = np.argsort(draws, kind="stable")[: count or len(self)]
        return dataclasses.replace(self, images=Subset(self.images, order))

    def batches(self, rows: Rows) -> Batches:
        """Returns every image once, the last batch padded."""
        return evaluation_batches(self.images, self.decoder, rows, loading=self.loading)


@dataclasses.dataclass(frozen=True)
class Augmentations:
    """The augmentations of a spec as interventions, one at a time."""

    spec: AugmentSpec
    names: tuple[str, ...] = interventions.READOUTS
    averaged: tuple[str, ...] = interventions.AVERAGED

    def has_strength(self, name: str) -> bool:
        """Whether the operation has a strength that could be predicted."""
        return interventions.has_strength(name)

    def occurs(self, name: str) -> bool:
        """Whether training ever does this to a view."""
        return interventions.occurs(self.spec, name)

    def intervene(
        self, key: Array, batch: ImageBatch, name: str, *, strength: Any, context: Any
    ) -> Intervention:
        """Returns every image without and with one operation; may be traced."""
        images = jnp.asarray(batch.image)
        shown = interventions.intervene(
            key, _in_colour(images), self.spec, name, strength=strength, context=context
        )
        return shown._replace(
            without=_like(images, shown.without), applied=_like(images, shown.applied)
        )


def _factors(examples: ImageSet) -> np.ndarray:
    found = factors_of(examples.images)
    assert found is not None
    return found


def _augmentations(spec: AugmentSpec, decoder: Decoder) -> Augmentations:
    """Returns those that can be seen: without colour, nothing that changes colours."""
    if decoder.channels == 3:
        return Augmentations(spec)
    return Augmentations(spec, interventions.GREY_READOUTS, interventions.GREY_READOUTS)


def augmented_pairs(key: Array, images: Array, spec: AugmentSpec) -> Pairs:
    """Returns two views of images [batch, height, width, 1 or 3], and what was done to each."""
    with jax.named_scope("augmentation"):
        (view1, params1), (view2, params2) = (
            augment(own, _in_colour(images), spec) for own in jax.random.split(key)
        )
        return Pairs(
            _like(images, view1),
            _like(images, view2),
            done1=params1.by_operation(spec),
            done2=params2.by_operation(spec),
        )


def _in_colour(images: Array | np.ndarray) -> Array:
    """Returns images with the three channels that augmentations take: grey is repeated."""
    return jnp.repeat(images, 3 // images.shape[-1], axis=-1)


def _like(images: Array, views: Array) -> Array:
    """Returns views with as many channels as the images have; of grey ones all three are equal."""
    return views[..., : images.shape[-1]]
