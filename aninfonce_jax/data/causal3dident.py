"""Causal3DIdent (von Kügelgen et al. 2021): rendered objects whose ten factors are known.

As it is published, https://zenodo.org/record/4784282: trainset/ and testset/, each with
raw_latents_<class>.npy, the factors [n, 10] of the images of a class, and images_<class>/<row>.png,
where the row is written with as many digits as all rows of the class need.
"""

import math
from pathlib import Path

import numpy as np

from aninfonce_jax.data.headers import MAX_FILE_BYTES
from aninfonce_jax.data.source import DataError, Example, check_folder, read_file

CLASSES = ("teapot", "hare", "dragon", "cow", "armadillo", "horse", "head")
FACTORS = (
    *("object x", "object y", "object z"),
    *("object rotation 1", "object rotation 2", "object rotation 3"),
    *("spotlight position", "object hue", "spotlight hue", "background hue"),
)
_FOLDERS = {"train": "trainset", "test": "testset"}
_LATENTS = "raw_latents_{}.npy"
# More than any file of latents has, by far.
_MAX_LATENT_BYTES = 2**28


class Causal3DIdent:
    """A split of Causal3DIdent.

    Args:
      folder: what holds trainset and testset.
      split: "train" or "test".

    Raises:
      DataError: a folder or a file is missing, or is not what it should be.
    """

    def __init__(self, folder: Path, split: str) -> None:
        if split not in _FOLDERS:
            raise DataError(f"Causal3DIdent has the splits train and test, got {split!r}")
        self._root = Path(folder) / _FOLDERS[split]
        self.name = f"causal3dident/{split}"
        self.class_names = CLASSES
        check_folder(
            self._root, f"{_LATENTS.format('<class>')} and images_<class>/*.png of Causal3DIdent"
        )
        parts = [_read_latents(self._root, label) for label in range(len(CLASSES))]
        # [examples, 10], in the order of the examples.
        self.factors = np.concatenate(parts).astype(np.float32)
        self._counts = [len(part) for part in parts]
        self.labels = np.repeat(np.arange(len(CLASSES)), self._counts)
        self._first = np.concatenate([[0], np.cumsum(self._counts)])
        for label, count in enumerate(self._counts):
            for row in (0, count - 1):  # what an unfinished unpacking leaves out
                if not self._path(label, row).is_file():
                    raise DataError(
                        f"{self._path(label, row)} is missing, of {count:,} images that "
                        f"{_LATENTS.format(label)} describes; unpack the data set again"
                    )

    def __len__(self) -> int:
        return len(self.factors)

    def __getitem__(self, index: int) -> Example:
        label = int(np.searchsorted(self._first, index, side="right")) - 1
        path = self._path(label, index - int(self._first[label]))
        name = path.relative_to(self._root.parent).as_posix()
        return Example(read_file(path, MAX_FILE_BYTES), label, name)

    def _path(self, label: int, row: int) -> Path:
        digits = math.ceil(math.log10(self._counts[label]))
        return self._root / f"images_{label}" / f"{str(row).zfill(digits)}.png"


def _read_latents(root: Path, label: int) -> np.ndarray:
    """Returns the factors of a class, [n, 10]."""
    path = root / _LATENTS.format(label)
    expected = f"the {len(FACTORS)} factors of every {CLASSES[label]}"
    try:
        size = path.stat().st_size
        if size > _MAX_LATENT_BYTES:
            raise DataError(f"{path} has {size:,} bytes, more than {expected} take")
        # Never pickled objects, which could do anything.
        latents = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} can't be read: {error}; expected {expected}") from error
    is_table = isinstance(latents, np.ndarray) and latents.ndim == 2 and len(latents) > 0
    if not is_table or latents.shape[1] != len(FACTORS) or latents.dtype.kind != "f":
        shape = getattr(latents, "shape", "several arrays")
        raise DataError(f"{path} must hold {expected}, [n, {len(FACTORS)}] floats; got {shape}")
    if not np.isfinite(latents).all():
        raise DataError(f"{path} holds values that are not finite; unpack the data set again")
    return latents
