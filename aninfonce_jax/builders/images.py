"""Data sets of images of a config, and what is done to them."""

import dataclasses
import functools
from collections.abc import Callable

from aninfonce_jax.cli import warn
from aninfonce_jax.config import kinds
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.data.augment_spec import AugmentError, AugmentSpec, preset
from aninfonce_jax.data.datasets import open_dataset
from aninfonce_jax.data.decode import Decoder
from aninfonce_jax.data.pipeline import Loading
from aninfonce_jax.data.source import ImageSource, factors_of, remark_of
from aninfonce_jax.sources.images import ImagePairs
from aninfonce_jax.sources.matched import MatchedPairs

OpenSplit = Callable[[str], ImageSource]


def build_image_pairs(
    config: kinds.ImageSetConfig, open_split: OpenSplit | None = None
) -> ImagePairs:
    """Opens the data set of a section.

    Args:
      config: the section.
      open_split: opens a split; by default that of the data set which the section names.

    Raises:
      ConfigError: the augmentation's settings are out of range.
      DataError: images are missing or damaged.
    """
    if open_split is None:
        open_split = functools.partial(open_dataset, config.dataset, config.folder)
    spec = build_spec(config, config)
    train, test = open_split(config.train_split), open_split(config.test_split)
    for remark in dict.fromkeys(filter(None, map(remark_of, (train, test)))):
        warn(remark)
    return ImagePairs(
        train=train,
        test=test,
        decoder=Decoder(config.image_size, channels=config.channels, decode_mib=config.decode_mib),
        spec=spec,
        loading=Loading(
            workers=config.workers, threads=config.threads, max_bad_share=config.max_bad_share
        ),
        augmentation=f"{config.augment}, strength {config.strength:g}"
        + (f", crops from {config.crop_area:.0%}" if config.crop_area else ""),
    )


def build_spec(
    config: kinds.ImageSetConfig, own: kinds.ImageSetConfig | kinds.AugmentConfig
) -> AugmentSpec:
    """Returns the augmentations that a section, or a member of it, names."""
    crops = {"scale": (own.crop_area, 1.0)} if own.crop_area else {}
    try:
        return preset(own.augment, size=config.view_side, strength=own.strength, **crops)
    except AugmentError as error:
        raise ConfigError(f"config.source can't be augmented so: {error}") from error


def matched_pairs(
    whole: ImagePairs, config: kinds.MatchedImagesConfig, only_shapes: bool
) -> MatchedPairs:
    """Returns pairs of different images of a data set whose factors are known."""
    factors = factors_of(whole.train)
    if factors is None and not only_shapes:
        raise ConfigError(
            f"source.kind='matched_images' needs a data set whose factors are known, such as "
            f"causal3dident; source.dataset={config.dataset!r} has none"
        )
    values = config.factor_concentration
    count = len(values) if factors is None else factors.shape[1]
    if len(values) not in (1, count):
        raise ConfigError(
            f"source.factor_concentration needs one Λ for all, or one for each of the {count} "
            f"factors of {config.dataset}, got {len(values)}"
        )
    own = {field.name: getattr(whole, field.name) for field in dataclasses.fields(whole)}
    return MatchedPairs(**own | {"augmentation": "matched by their factors"}, concentration=values)
