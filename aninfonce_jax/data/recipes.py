"""What `python -m aninfonce_jax.prepare` writes for each kind of data set it reads.

Names, versions and features are those of TFDS's own data sets, so that they open by name.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from aninfonce_jax.data.datasets import list_splits, open_dataset
from aninfonce_jax.data.shards import Target
from aninfonce_jax.data.source import DataError, ImageSource

_TARGETS = {
    "mnist": Target(
        name="mnist",
        version="3.0.1",
        description="MNIST: handwritten digits, 28 x 28, from the official files.",
        image_shape=(28, 28, 1),
        encoding="png",
        counts={"train": 60_000, "test": 10_000},
    ),
    "cifar10": Target(
        name="cifar10",
        version="3.0.2",
        description="CIFAR-10: colour images of ten classes, 32 x 32, from the binary version.",
        image_shape=(32, 32, 3),
        encoding="png",
        counts={"train": 50_000, "test": 10_000},
    ),
    "imagenet": Target(
        name="imagenet2012",
        version="5.1.0",
        description="ImageNet (ILSVRC 2012): a thousand classes, JPEG, from class folders.",
        encoding="jpeg",
        id_feature="file_name",
        counts={"train": 1_281_167, "validation": 50_000},
        classes=1_000,
    ),
}
# What TFDS accepts as the name of a data set.
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def read(
    dataset: str, origin: Path, name: str | None = None
) -> tuple[Target, dict[str, ImageSource]]:
    """Opens the files of a data set.

    Args:
      dataset: "mnist", "cifar10", "imagenet" or "folder".
      origin: where the files are.
      name: what a folder's data set is to be called; its own name by default.

    Returns:
      What to write, and the examples of each split.

    Raises:
      DataError: files are missing or not what they should be.
    """
    target = _folder_target(origin, name) if dataset == "folder" else _TARGETS[dataset]
    kind = "folder" if dataset == "imagenet" else dataset
    wanted: Mapping[str, int] | None = target.counts
    splits = tuple(wanted) if wanted else list_splits(kind, origin)
    if not splits:
        raise DataError(
            f"{origin} holds no <split>/<class> folders; expected such as "
            f"{origin.name}/train/<class>/*.JPEG"
        )
    return target, {split: open_dataset(kind, origin, split) for split in splits}


def _folder_target(origin: Path, name: str | None) -> Target:
    chosen = name or re.sub(r"[^a-z0-9]+", "_", origin.resolve().name.lower()).strip("_")
    if not _NAME.fullmatch(chosen):
        raise DataError(
            f"--name must be lower-case letters, digits and underscores, starting with a letter, "
            f"got {chosen!r}"
        )
    return Target(name=chosen, version="1.0.0", description=f"Images of the folder {chosen}.")
