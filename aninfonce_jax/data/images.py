"""Pictures as a source of pairs: two augmented views of each."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from aninfonce_jax.cli import warn
from aninfonce_jax.config_schema import DataConfig
from aninfonce_jax.data.augment import AugmentSpec, apply, augment, neutral_params, preset
from aninfonce_jax.data.datasets import open_dataset
from aninfonce_jax.data.decode import Decoder
from aninfonce_jax.data.order import Rows
from aninfonce_jax.data.pipeline import Batches, Loading, evaluation_batches, training_batches
from aninfonce_jax.data.source import ImageSource, Subset, remark_of
from aninfonce_jax.types import Array, Pairs


@dataclasses.dataclass(frozen=True)
class ImagePairs:
    """A data set, and the augmentations that make pairs of its pictures.

    Attributes:
      train: pictures to train on.
      test: pictures to score on.
      decoder: makes their pixels.
      spec: the augmentations.
      loading: how the work of loading is spread.
    """

    train: ImageSource
    test: ImageSource
    decoder: Decoder
    spec: AugmentSpec
    loading: Loading

    @property
    def classes(self) -> int:
        """How many classes the pictures have; 0 where they have none."""
        return len(self.train.class_names)

    def training_batches(self, batch_size: int, *, seed: int, start: int = 0) -> Batches:
        """Returns shuffled batches without end, from number `start`."""
        rows = Rows(batch_size)
        return training_batches(
            self.train, self.decoder, rows, seed=seed, start=start, loading=self.loading
        )

    def evaluation_batches(self, source: ImageSource, batch_size: int) -> Batches:
        """Returns every picture of a source once, the last batch padded."""
        return evaluation_batches(source, self.decoder, Rows(batch_size), loading=self.loading)

    def pairs(self, key: Array, images: Array) -> Pairs:
        """Returns two views of each picture; may be traced.

        Args:
          key: a random key; the same one gives the same views on any mesh.
          images: pixels, uint8 [batch, size, size, 3].
        """
        view1, view2 = (augment(k, images, self.spec)[0] for k in jax.random.split(key))
        return Pairs(view1, view2)

    def plain_views(self, images: Array) -> Array:
        """Returns pictures as the encoder takes them, without augmentation; may be traced."""
        return apply(images, neutral_params(images.shape[0]), self.spec, operations=())

    def example(self) -> Array:
        """Returns a batch of two empty views."""
        return jnp.zeros((2, self.spec.size, self.spec.size, 3))


def choose(source: ImageSource, count: int, seed: int) -> ImageSource:
    """Returns `count` examples of a source, drawn without replacement; 0 or too many: all.

    In drawn order in any case: folders come sorted by class, and a readout keeps the last
    examples for validation.

    Args:
      source: the examples, in any order.
      count: how many to draw.
      seed: of the draw; raw generator output, which every version of NumPy gives alike.
    """
    draws = np.random.Philox(np.random.SeedSequence([seed])).random_raw(len(source))
    return Subset(source, np.argsort(draws, kind="stable")[: count or len(source)])


def build_image_pairs(config: DataConfig) -> ImagePairs:
    """Opens the data set of a config.

    Raises:
      DataError: it is missing or damaged.
      ValueError: the augmentation's settings are out of range.
    """
    size = config.view_size or config.image_size
    splits = (config.train_split, config.test_split)
    train, test = (open_dataset(config.name, config.folder, split) for split in splits)
    for remark in dict.fromkeys(filter(None, map(remark_of, (train, test)))):
        warn(remark)
    return ImagePairs(
        train=train,
        test=test,
        decoder=Decoder(config.image_size),
        spec=preset(config.augment, size=size, strength=config.strength),
        loading=Loading(
            workers=config.workers, threads=config.threads, max_bad_share=config.max_bad_share
        ),
    )
