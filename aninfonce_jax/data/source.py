"""What every data set is to the rest of the package: labelled images by number."""

from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

# The label of an example that has none.
NO_LABEL = -1


class DataError(ValueError):
    """Files are missing, damaged or not what they should be; one line says what to do."""


def check_folder(folder: Path, expected: str) -> None:
    """Raises DataError, which says what was expected, unless there is such a folder."""
    if folder.is_dir():
        return
    problem = "is a file, not a folder" if folder.exists() else "does not exist"
    raise DataError(f"{folder} {problem}; expected {expected}")


class Example(NamedTuple):
    """One example of a data set.

    Attributes:
      image: pixels uint8 [height, width, 1 or 3], or the bytes of an image file.
      label: the class, an index into the source's `class_names`, or NO_LABEL.
      id: what the example is called, the same however it is stored.
    """

    image: np.ndarray | bytes
    label: int
    id: str


class ImageSource(Protocol):
    """Random access to one split of a data set; small to pickle, so that workers can have it."""

    @property
    def name(self) -> str:
        """What messages call the source."""
        ...

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes, in the order of their labels."""
        ...

    def __len__(self) -> int:
        """Returns the number of examples."""
        ...

    def __getitem__(self, index: int) -> Example:
        """Returns an example; 0 <= index < len(self)."""
        ...


class Subset:
    """Some examples of a source, in an order of one's own.

    Args:
      source: where they are.
      indices: which, [n].
    """

    def __init__(self, source: ImageSource, indices: np.ndarray) -> None:
        self.name = f"{source.name} ({len(indices):,} examples)"
        self.class_names = source.class_names
        self._source = source
        self._indices = np.asarray(indices, np.int64)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Example:
        return self._source[int(self._indices[index])]
